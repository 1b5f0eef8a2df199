"""Every attack on file meets every guarantee on file about the same game."""

import copy
import json
import math
import random
from dataclasses import dataclass

import pytest

from tacit import load
from tacit._ground.entry_points import EntryPoint
from tacit.gate import Policy, check_release
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    Indistinguishability,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.measured import Interval
from tacit.releases import Attack, Kind, Release, kinds, save_rows
from tacit.releases.contradiction import allowed, refuted, standing
from tacit.releases.loading import read_checked
from tacit.report import render_certificate, render_report
from tests.releases.files import MAKERS, real, states

REST = {"evidence": "theorem", "assumptions": (), "source": "example"}
COIN = "which of two it was"


def success(bound, task=COIN, prior=0.5):
    return SuccessBound(success=bound, prior=prior, task=task, law="everything", **REST)


def attack(reached, task=COIN, prior=0.5, trials=4000):
    half = 0.01
    measured = Interval(
        value=reached, low=max(reached - half, 0.0), high=min(reached + half, 1.0), confidence=0.95
    )
    return Attack(name="one", task=task, success=measured, prior=prior, trials=trials)


@dataclass(frozen=True)
class Nothing:
    """What the kind of these tests keeps of its own."""


EXAMPLE = Kind(name="example", details=Nothing, recompute=lambda release: "")


@pytest.fixture(autouse=True)
def example(monkeypatch):
    """A kind that another distribution would bring, of which nothing is worked out again."""
    here = EntryPoint("example", f"{__name__}:EXAMPLE")
    brought = {**kinds.known_kinds(), "example": here}
    monkeypatch.setattr(kinds, "known_kinds", lambda: brought)


def release_of(guarantees, attacks):
    return Release(
        kind="example", title="a release", secret="a secret", method="some", details=Nothing(),
        guarantees=tuple(guarantees), attacks=tuple(attacks), reproducible=False,
    )  # fmt: skip


def neighbours(adjacency="replace one record"):
    return f"which of two neighbouring inputs ({adjacency}) was used"


DP = {"adjacency": "replace one record", **REST}
REFUTED = {
    "the second of two bounds": (
        [success(0.51, "another game"), success(0.51)], attack(0.99)),
    "information": ([InformationBound(nats=0.001, secret="s", **REST)], attack(0.99)),
    "a factor, blind success 0": (
        [MaximalLeakage(factor=1.01, secret="s", **REST)], attack(0.99, prior=0.0)),
    "a factor, blind success missing": (
        [MaximalLeakage(factor=1.01, secret="s", **REST)], attack(0.99, prior=None)),
    "ε = 0": ([ApproximateDP(epsilon=0.0, delta=0.0, **DP)], attack(0.99, neighbours())),
    "ε = 0 behind a success": (
        [success(1.0), ApproximateDP(epsilon=0.0, delta=0.0, **DP)], attack(0.99)),
    "μ": ([GaussianDP(mu=0.1, **DP)], attack(0.99, neighbours())),
    "a Rényi curve": (
        [RenyiDP(orders=(2.0, 8.0), epsilons=(0.01, 0.04), **DP)], attack(0.99, neighbours())),
    "a divergence": (
        [success(1.0), Indistinguishability(
            references=("r",), divergence="kl", bounds=(0.01,), **REST)], attack(0.99)),
    "local privacy, one of many": (
        [ApproximateDP(epsilon=0.5, delta=0.0, **{**DP, "adjacency": "any two prompts"})],
        attack(0.4, "which of 100 prompts", prior=0.01)),
    "the worst record": ([success(0.6)], Attack(
        name="one", task=COIN, prior=0.5, trials=4000,
        success=Interval(value=0.55, low=0.54, high=0.56, confidence=0.95),
        worst=Interval(value=0.95, low=0.93, high=0.97, confidence=0.95))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUTED)
def test_an_attack_above_what_is_allowed_is_refused(name):
    guarantees, reached = REFUTED[name]
    held = release_of(guarantees, [reached])
    assert refuted(held) is not None
    stored = json.loads(json.dumps(held.to_dict()))
    with pytest.raises(ValueError, match=r"^release: the file contradicts itself"):
        load(stored)
    assert not check_release(stored, Policy(max_success=1.0, max_attack=1.0)).passed


KEPT = {
    "at the bound": ([success(0.6)], attack(0.6)),
    "another game": ([success(0.51, "another game")], attack(0.99)),
    "information": ([InformationBound(nats=0.7, secret="s", **REST)], attack(0.99)),
    "a factor": ([MaximalLeakage(factor=64, secret="s", **REST)], attack(0.6, "one", prior=0.01)),
    "a factor, 0 of 100 blind": (
        [MaximalLeakage(factor=64, secret="s", **REST)],
        attack(0.9, prior=0.0, trials=100),
    ),
    "μ": ([GaussianDP(mu=4.7, **DP)], attack(0.99, neighbours())),
    "nothing": ([ApproximateDP(epsilon=math.inf, delta=0.0, **DP)], attack(0.99, neighbours())),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_attack_within_it_is_kept(name):
    guarantees, reached = KEPT[name]
    held = release_of(guarantees, [reached])
    assert refuted(held) is None
    assert load(json.loads(json.dumps(held.to_dict()))).kind == "example"


def test_what_is_not_compared_is_said():
    far = release_of([success(0.51, "another game")], [attack(0.99)])
    assert "another game" in standing(far, far.attacks[0])
    near = release_of([success(0.6)], [attack(0.62, trials=20)])
    assert "too few trials" in standing(near, near.attacks[0])
    assert standing(release_of([success(0.7)], [attack(0.6)]), attack(0.6)) == ""


@pytest.mark.parametrize("count", [2, 5, 40])
def test_what_is_allowed_is_no_less_than_what_the_best_attacker_reaches(count):
    """k-ary response: factor, information, local privacy and success of the Bayes attacker."""
    for epsilon in (0.1, 1.0, 3.0):
        total = math.exp(epsilon) + count - 1
        best = math.exp(epsilon) / total
        nats = math.log(count) + best * math.log(best) + (1 - best) * math.log(1 / total)
        reached = attack(best, "which of them", prior=1 / count)
        for held in (
            MaximalLeakage(factor=count * best, secret="s", **REST),
            InformationBound(nats=nats, secret="s", **REST),
            ApproximateDP(epsilon=epsilon, delta=0.0, **{**DP, "adjacency": "any two prompts"}),
        ):
            most = allowed(release_of([held], [reached]), held, reached)
            assert most >= best * (1 - 1e-9), (held, best)


def real_files(folder):
    """A stored release of every kind that guarantees something, with its attacks."""
    found = {name: real(name, folder) for name in MAKERS}
    return {name: one for name, one in found.items() if one["guarantees"]}


def places(content, path=()):
    """Every number of a file, by its path."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from places(value, (*path, name))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from places(value, (*path, number))
    elif isinstance(content, (int, float)) and not isinstance(content, bool):
        yield path


def put(content, path, value):
    for name in path[:-1]:
        content = content[name]
    content[path[-1]] = value


def get(content, path):
    for name in path:
        content = content[name]
    return content


CLAIMS = {
    SuccessBound: lambda held: held.success,
    GaussianDP: lambda held: held.mu,
    ApproximateDP: lambda held: (held.epsilon, held.delta),
    InformationBound: lambda held: held.nats,
    MaximalLeakage: lambda held: held.factor,
    RenyiDP: lambda held: sum(nats for nats in held.epsilons if math.isfinite(nats)),
    Indistinguishability: lambda held: sum(held.bounds),
}
# What nobody can work out again from the file alone: what an answer spent is its session's to say.
CLAIMED_ONLY = {"answer"}


def better(changed, true):
    """Whether a file claims less leakage than the truth, in any guarantee it has."""
    known = {(type(held), getattr(held, "task", "")): CLAIMS[type(held)](held)
             for held in true.guarantees if type(held) in CLAIMS}  # fmt: skip
    for held in changed.guarantees:
        before = known.get((type(held), getattr(held, "task", "")))
        now = CLAIMS[type(held)](held) if type(held) in CLAIMS else None
        if before is None:
            return True
        if isinstance(now, tuple):
            if now[0] < before[0] * (1 - 1e-6) and now[1] <= before[1]:
                return True
        elif now < before * (1 - 1e-6):
            return True
    return False


def mutate(content, source):
    """Change one number of a file, or move, double or swap its guarantees."""
    kind = source.random()
    guarantees = content["guarantees"]
    if kind < 0.7:
        path = source.choice(list(places(content)))
        value = get(content, path)
        put(content, path, value * source.choice([0.5, 0.9, 0.0, -1.0, 2.0, 1e-3]))
        if path[0] == "guarantees" and source.random() < 0.5:
            # and the same number wherever else it stands
            for other in places(content):
                if get(content, other) == value:
                    put(content, other, get(content, path))
    elif kind < 0.8:
        guarantees.append(copy.deepcopy(source.choice(guarantees)))
        path = source.choice(list(places(guarantees[-1])))
        put(guarantees[-1], path, get(guarantees[-1], path) * 0.5)
    elif kind < 0.9:
        guarantees.reverse()
        path = source.choice(list(places(guarantees[0])))
        put(guarantees[0], path, get(guarantees[0], path) * 0.5)
    else:
        held = source.choice(guarantees)
        name = source.choice(["task", "adjacency", "secret", "law"])
        if name in held:
            held[name] = "another game"
        path = source.choice(list(places(held)))
        put(held, path, get(held, path) * 0.5)
    return content


def scaled_alone(content, source):
    """Change one number of a file, and no other."""
    path = source.choice(list(places(content)))
    put(content, path, get(content, path) * source.choice([0.5, 0.9, 0.0, -1.0, 2.0, 1e-3]))
    return content


def campaign(folder, count, seed):
    files, source = real_files(folder), random.Random(seed)
    truths = {name: load(one) for name, one in files.items()}
    tried = dict.fromkeys(files, 0)
    for _ in range(count):
        name = source.choice(sorted(files))
        change = scaled_alone if name in CLAIMED_ONLY else mutate
        changed = change(copy.deepcopy(files[name]), source)
        try:
            read = read_checked(changed).release
        except ValueError:
            continue
        if refuted(read) is None:
            tried[name] += 1
            assert not better(read, truths[name]), (name, changed["guarantees"])
    return tried


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def test_a_changed_file_never_passes_with_a_better_claim(folder):
    campaign(folder, 600, seed=1)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [2, 3, 4, 5, 6])
def test_two_thousand_changed_files_never_pass_with_a_better_claim(folder, seed):
    campaign(folder, 2000, seed)


def test_a_claim_that_no_reader_can_check_says_so(folder):
    stored = real("states", folder)
    path = folder / "states.safetensors"
    save_rows(states(), path)
    # every ε scaled at once is a Gaussian's too: it is what is claimed
    scaled = copy.deepcopy(stored)
    del scaled["proof"]
    scaled["guarantees"][0]["epsilons"] = [nats / 2 for nats in stored["guarantees"][0]["epsilons"]]
    for source in (stored, scaled, path):
        result = check_release(source, Policy(max_attack=0.9))
        assert all("claimed, not checked" in check.sentence for check in result.checks)
        for page in (render_report(source), render_certificate(source)):
            assert "Claimed, not checked: the differences" in page


def test_states_without_noise_claim_nothing(folder):
    stored = real("states", folder)
    stored["details"]["noise"]["variance"] = 0.0
    with pytest.raises(ValueError, match="holds no noise and claims a finite"):
        load(stored)
