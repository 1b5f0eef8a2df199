"""Every kind's stored file is proved by a checker that shares no code with what wrote it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from tacit import Effort, Rows, Table, accounting, privatize
from tacit.releases import load
from tacit.releases.release import Release
from tacit_check.command import found

from .files import MAKERS, real

# What has no mechanism that a checker knows: noise in a ball, and what was measured.
WITHOUT = ("quotients", "audit")
NUMBERS = np.random.default_rng(11).normal(size=(60, 2))
BOUNDS = {"x0": (-4.0, 4.0), "x1": (-3.0, 5.0)}


def checked(content: object, folder: Path) -> dict[str, object]:
    path = folder / "release.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return found(str(path))


@pytest.mark.parametrize("name", [one for one in MAKERS if one not in WITHOUT])
def test_what_a_release_claims_is_proved_from_its_public_file(name: str, tmp_path: Path) -> None:
    content = real(name)
    answer = checked(content, tmp_path)
    assert answer["word"] == "holds", answer
    public = Release.from_dict(content)
    if not public.withheld:
        assert public.public().to_dict()["proof"] == content["proof"]


@pytest.mark.parametrize("name", WITHOUT)
def test_a_kind_without_a_mechanism_has_no_proof(name: str) -> None:
    assert "proof" not in real(name)


QUERIES = ("mean", "sum", "count+mean", "histogram:x0:-1,0,1", "mean+std", "covariance")


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_table_of_any_query_is_proved_by_its_boxes(
    query: str, adjacency: str, tmp_path: Path
) -> None:
    promise = Table(success=0.7, bounds=BOUNDS, adjacency=adjacency)
    release = privatize(query, NUMBERS, promise, Effort(trials=0), columns=["x0", "x1"])
    answer = checked(release.to_dict(), tmp_path)
    assert answer["word"] == "holds", answer
    # the boxes reach what is claimed: less would be proved false, or not be shown
    lowered = copy.deepcopy(release.to_dict())
    for claim in lowered["proof"]["claims"]:
        if claim["kind"] == "gaussian-dp":
            claim["mu"] = str(0.9 * float(claim["mu"]))
    assert checked(lowered, tmp_path)["word"] != "holds"


@pytest.mark.parametrize("pure", [False, True])
def test_people_are_proved_with_the_choice_of_a_radius_and_of_quantiles(
    pure: bool, tmp_path: Path
) -> None:
    rows = np.column_stack([NUMBERS, np.arange(60) % 23])
    asked = {"epsilon": 1.0} if pure else {"success": 0.7}
    promise = Table(person="who", clip=3, bounds=BOUNDS, **asked)
    for query in ("count", "mean", "median"):
        release = privatize(query, rows, promise, Effort(trials=0), columns=["x0", "x1", "who"])
        answer = checked(release.to_dict(), tmp_path)
        assert answer["word"] == "holds", (query, answer)


@pytest.mark.parametrize("name", ["table", "rows", "codes", "adapter"])
def test_a_proof_other_than_that_of_its_release_is_refused(name: str) -> None:
    whole = real(name)
    for change in ("claims", "given", "mechanism"):
        content = copy.deepcopy(whole)
        held = content["proof"][change]
        if change == "mechanism":
            content["proof"][change] = {"kind": "gaussian", "sensitivity": "0.1", "noise": "1"}
        else:
            del held[-1]
        with pytest.raises(ValueError, match=f"'{change}' of its proof is not what"):
            load(content)
    del whole["proof"]
    assert load(whole).kind, "an older file has none"


MECHANISMS = {
    "gaussian": lambda: accounting.gaussian(1.0, 2.0) * 3,
    "laplace": lambda: accounting.laplace(1.0, 2.0).compose(accounting.gaussian(1.0, 3.0)),
    "response": lambda: accounting.randomized_response(0.8, 5) * 2,
    "truth": lambda: accounting.randomized_response(categories=3, truth_probability=0.6),
    "sampled": lambda: accounting.subsampled_gaussian(0.02, 1.1, 50),
    "replaced": lambda: accounting.subsampled_gaussian(0.1, 1.1, 20, "replace"),
    "whole": lambda: accounting.subsampled_gaussian(1.0, 4.0, 20),
    "group": lambda: accounting.subsampled_group(0.02, 1.5, 10, 3),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_account_is_proved_by_the_mechanism_that_its_profile_names(
    name: str, tmp_path: Path
) -> None:
    from tacit.releases.proof import ReleaseProof, claims_of, relation

    profile = MECHANISMS[name]()
    proof = ReleaseProof(
        mechanism=profile.mechanism,
        claims=claims_of([profile.guarantee(delta=1e-4), profile.success()]),
        adjacency=relation(profile.adjacency),
    )
    answer = checked({"proof": proof.to_dict()}, tmp_path)
    assert answer["word"] == "holds", answer


def test_a_release_that_a_seed_repeats_claims_nothing() -> None:
    release = privatize("mean", NUMBERS, Rows(success=0.6), Effort(trials=0), rng=0)
    assert "proof" not in release.to_dict()


# What says its mechanism, and what has no node: `docs/reference/format.md` says why.
NAMED = {
    "discrete_laplace": lambda: accounting.discrete_laplace(1, 2.0),
    "gaussian": lambda: accounting.gaussian(1.0, 2.0),
    "gaussian_shift": lambda: accounting.gaussian_shift(0.5),
    "laplace": lambda: accounting.laplace(1.0, 2.0),
    "noisy_projection": lambda: accounting.noisy_projection(
        dim=20, rank=2, sensitivity=1.0, noise_std=0.5
    ),
    "noisy_projection_steps": lambda: accounting.noisy_projection_steps(
        accounting.ProjectedSteps(dim=20, rank=2, steps=3, sampling_rate=0.1), 1.0
    ),
    "random_allocation": lambda: accounting.random_allocation(1.0, steps=5),
    "randomized_response": lambda: accounting.randomized_response(1.0, 3),
    "sketch": lambda: accounting.sketch(rank=2, dim=3, gamma=0.1),
    "sketch_within": lambda: accounting.sketch_within(rank=2, dim=3, lowest=0.9, highest=1.0),
    "subsampled_gaussian": lambda: accounting.subsampled_gaussian(0.1, 1.0, 5),
    "subsampled_group": lambda: accounting.subsampled_group(0.1, 1.0, 5, 2),
    "vector_projection": lambda: accounting.vector_projection(dim=20, rank=2, alignment=0.5),
}
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "format.md").read_text("utf-8")
UNNAMED = PAGE.partition("### What has no node")[2].partition("###")[0]


def test_every_mechanism_has_a_node_or_a_reason_why_not() -> None:
    every = {
        name
        for name in accounting.__all__
        if getattr(getattr(accounting, name), "__annotations__", {}).get("return")
        == "PrivacyProfile"
    }
    assert len(every) >= 17
    for name in every:
        if name in NAMED:
            node = NAMED[name]().mechanism
            assert node is not None, name
            assert f"`{node['kind']}`" in PAGE
        else:
            assert f"`{name}`" in UNNAMED, name
    assert all(f"| `{name}` |" in UNNAMED for name in WITHOUT)


def test_every_way_to_draw_a_step_has_a_node_or_a_reason_why_not() -> None:
    from typing import get_args

    from tacit.gradients.steps import Schedule
    from tacit.guarantees.adjacency import Adjacency
    from tacit.training import sampling
    from tacit.training.sampling import SampledSteps

    asked = {sampling.TruncatedPoisson: {"largest": 9}, sampling.CyclicPoisson: {"classes": 2}}
    for one in get_args(sampling.AnySampling):
        adjacency = Adjacency.REPLACE if one is sampling.FixedOrder else Adjacency.ADD_REMOVE
        schedule = Schedule(sampling_rate=0.1, steps=10, dims=(1,), adjacency=adjacency)
        made = one(**asked.get(one, {}))
        profile = made.profile(1.0, SampledSteps(schedule, 1, 40))
        assert (profile.mechanism is None) == (f"`{one.__name__}`" in UNNAMED), one


def test_what_a_file_says_beside_its_proof_is_held_against_it(tmp_path: Path) -> None:
    from tacit.cli.account.commands import OutputFlags
    from tacit.cli.account.commands import answer as account_of
    from tacit.cli.account.mechanisms import LaplaceFlags
    from tacit.cli.verify import beside

    path = tmp_path / "file.json"

    def told(content: dict[str, object]) -> str:
        path.write_text(json.dumps(content))
        return beside(str(path))

    release = copy.deepcopy(real("table"))
    assert told(release) == ""
    release["guarantees"][0]["success"] = 0.51
    assert "contradicts itself" in told(release)
    release = copy.deepcopy(real("table"))
    release["secret"] = "all that a person ever did"
    assert "contradicts itself" in told(release)
    # what else is in a release is no account
    answer = tmp_path / "account.json"
    account_of(LaplaceFlags(scale=2.0), OutputFlags(delta=0.0, json=str(answer)))
    account = json.loads(answer.read_text("utf-8"))
    assert "fields of Release" in told({**account, **release})
    # of a release that a seed repeats nothing is claimed
    seeded = copy.deepcopy(real("table"))
    assert "contradicts itself" in told({**seeded, "reproducible": True, "seed": 1})
    assert told(account) == ""
    trivial = {"kind": "success", "prior": "0.01", "success": "0.52"}
    proof = {**account["proof"], "claims": [*account["proof"]["claims"], trivial]}
    assert "success" in told({**account, "success": 0.52, "proof": proof})
    low = {**account["guarantee"], "epsilon": 0.1}
    assert "guarantee" in told({**account, "guarantee": low})
    assert "no account" in told({**account, "guarantee": {}})
    for name, one in (("settings", {"sensitivity": 9.0}), ("parameter", {"value": 0.2})):
        assert "its settings give another" in told({**account, name: {**account[name], **one}})
    assert "advantage" in told({**account, "advantage": 0.1})
    assert "statement" in told({**account, "statement": "Nothing is learnt."})
    whole = {**account["guarantee"], "adjacency": "all that a person ever did"}
    assert "guarantee" in told({**account, "guarantee": whole})
    source = {**account["guarantee"], "source": "proved elsewhere", "evidence": "theorem"}
    assert "guarantee" in told({**account, "guarantee": source})
    assert "those of no account" in told({**account, "certified": 0.1})
    assert told({"proof": account["proof"]}) == ""
    assert "neither" in told({"proof": account["proof"], "epsilon": 0.1})
