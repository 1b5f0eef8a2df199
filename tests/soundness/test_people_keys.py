"""Keys that are found: their exact law, with a person and without, in extended precision."""

import functools
import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import tacit.statistics.people.keys as room
from tacit import Effort, Table
from tacit.guarantees import ApproximateDP, SuccessBound
from tacit.guarantees.adjacency import Adjacency
from tacit.statistics import Session, prepare
from tacit.statistics.people.keys import KeyRound, KeySearch, find_keys, threshold_of, weight_of
from tacit.statistics.people.proof import proof
from tacit.statistics.people.release import recompute
from tacit.statistics.queries import GroupBy, Sum
from tacit_check.claims import check
from tacit_check.reading import parse

from .registry import certifies

QUICK = Effort(trials=0)


@functools.cache
def law_of(variance):
    reach = 16 * math.isqrt(variance) + 16
    law = {k: mpmath.exp(-mpmath.mpf(k * k) / (2 * variance)) for k in range(-reach, reach + 1)}
    return law, mpmath.fsum(law.values())


def tail(variance, least):
    """P(X >= least) of the discrete Gaussian, by its sum; what is left out is below 10⁻⁵⁰."""
    if variance > 10**6:
        # the sum is the integral to far below what is compared: Poisson's formula
        return mpmath.ncdf(-(mpmath.mpf(least) - 0.5) / mpmath.sqrt(variance))
    law, total = law_of(variance)
    return mpmath.fsum(p for k, p in law.items() if k >= least) / total


def outcomes(table, search, found=(), number=0):
    """The chance of every sequence of keys found, of a few persons with few keys."""
    if number == len(search.rounds):
        return {(): mpmath.mpf(1)}
    one, weights = search.rounds[number], {}
    for keys in table.values():
        left = [key for key in keys if key not in found]
        for key in left:
            weights[key] = weights.get(key, 0) + math.isqrt(room.UNIT**2 // len(left))
    law = {}
    chances = {k: tail(one.variance, one.threshold - w) for k, w in sorted(weights.items())}
    for passed in itertools.product((False, True), repeat=len(chances)):
        chance = mpmath.fprod(
            p if yes else 1 - p for p, yes in zip(chances.values(), passed, strict=True)
        )
        now = tuple(k for k, yes in zip(chances, passed, strict=True) if yes)
        for rest, p in outcomes(table, search, (*found, *now), number + 1).items():
            law[(now, *rest)] = law.get((now, *rest), 0) + chance * p
    return law


TABLE = {0: "ab", 1: "a", 2: "abc", 3: "ad", 4: "e"}


@certifies(ApproximateDP)
@pytest.mark.parametrize(("adjacency", "mu"), [("add-remove", 2.0), ("replace", 3.0)])
def test_the_law_of_what_is_found_keeps_its_profile(adjacency, mu):
    delta = 0.02
    search = KeySearch.of(mu, delta, 0.7, adjacency=Adjacency(adjacency), most=4)
    assert search.tells(mu, Adjacency(adjacency))
    spent = delta
    told, seen = mpmath.mpf(mu) * mpmath.sqrt(0.7), 0.0
    with mpmath.workdps(30):
        pairs = []
        for gone in TABLE:
            rest = {who: keys for who, keys in TABLE.items() if who != gone}
            if adjacency == "add-remove":
                pairs.append((TABLE, rest))
            else:
                pairs += [(TABLE, {**rest, 9: keys}) for keys in ("f", "ac")]
        for one, other in pairs:
            p, q = outcomes(one, search), outcomes(other, search)
            for epsilon in (0.0, 0.5, 2.0):
                below = -told / 2 - epsilon / told
                noise = mpmath.ncdf(told / 2 - epsilon / told) - mpmath.exp(epsilon) * mpmath.ncdf(
                    below
                )
                for first, second in ((p, q), (q, p)):
                    exact = mpmath.fsum(
                        max(chance - mpmath.exp(epsilon) * second.get(what, 0), 0)
                        for what, chance in first.items()
                    )
                    assert exact <= noise + spent
                    seen = max(seen, float(exact / (noise + spent)))
    # a control: what is found does tell
    assert seen > 0.05


def test_what_is_found_is_what_the_weights_and_the_noise_say(monkeypatch):
    """The rounds again, by the definition, on noise that is given."""
    rng = np.random.default_rng(47)
    search = KeySearch.of(2.0, 0.02, 1.0, most=5)
    for _ in range(50):
        table = {who: sorted(set(rng.integers(0, 9, rng.integers(1, 6)))) for who in range(12)}
        persons = np.repeat(list(table), [len(keys) for keys in table.values()])
        keys = np.concatenate(list(table.values()))
        noise = [int(one) for one in rng.normal(0.0, 1.2e6, 100)]
        drawn = iter(noise)
        monkeypatch.setattr(room, "discrete_gaussian", lambda *_, drawn=drawn: next(drawn))
        got = find_keys(persons, keys, search, None)
        again, found = iter(noise), set()
        for one in search.rounds:
            weights = {}
            for own in table.values():
                left = [key for key in own if key not in found]
                for key in left:
                    weights[key] = weights.get(key, 0) + math.isqrt(room.UNIT**2 // len(left))
            found |= {k for k, w in sorted(weights.items()) if w + next(again) >= one.threshold}
        assert got.tolist() == sorted(found)
        assert 0 < len(found) < 9


@pytest.mark.parametrize(("variance", "delta"), [(17, 0.1), (50, 1e-3), (2000, 1e-6)])
def test_a_key_of_one_person_alone_passes_rarely(variance, delta, monkeypatch):
    monkeypatch.setattr(room, "UNIT", 30)
    most, seen = 40, []
    with mpmath.workdps(40):
        threshold = threshold_of(variance, delta, most)
        for keys in range(1, most + 1):
            weight = weight_of(keys)
            assert keys * weight**2 <= room.UNIT**2
            passes = 1 - (1 - tail(variance, threshold - weight)) ** keys
            assert passes <= delta
            seen.append(passes / delta)
        # not much more than is needed
        lower = threshold - 3
        assert any(
            1 - (1 - tail(variance, lower - weight_of(keys))) ** keys > delta
            for keys in range(1, most + 1)
        )
    assert max(seen) > 0.4


def test_a_person_of_many_keys_gives_no_more_than_others():
    rng = np.random.default_rng(53)
    pairs = np.array([[0] * 500 + [1], [*range(500), 3]])
    whose, keys = room._at_most(pairs, 20, rng)
    assert np.bincount(whose).tolist() == [20, 1]
    assert len(set(keys[whose == 0])) == 20


@certifies(SuccessBound, ApproximateDP)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_keys_and_numbers_are_one_budget(adjacency):
    rng = np.random.default_rng(59)
    rows = np.stack([rng.integers(0, 4, 3000), rng.integers(0, 900, 3000)], axis=1).astype(float)
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=3, adjacency=adjacency)
    release = prepare("count by x+count", rows, promise, QUICK, columns=["x", "who"]).draw()
    details, stated = release.details, release.guarantees[1]
    assert (stated.epsilon, stated.delta) == (1.0, 1e-6)
    mu, keys = details.level, details.keys
    # all squares of μ: the rounds, and the noise on the numbers
    apart = 2 if adjacency == "replace" else 1
    spent = sum(Fraction(apart * room.UNIT**2, one.variance - 16) for one in keys.rounds)
    spent += Fraction(details.reach**2, details.variance - 16)
    assert spent <= Fraction(mu) ** 2
    assert float(spent) > 0.999 * mu**2
    with mpmath.workdps(30):
        noise = mpmath.ncdf(mpmath.mpf(mu) / 2 - 1 / mpmath.mpf(mu)) - mpmath.e * mpmath.ncdf(
            -mpmath.mpf(mu) / 2 - 1 / mpmath.mpf(mu)
        )
        assert noise + keys.delta <= 1e-6
        assert release.membership.success >= mpmath.ncdf(mpmath.mpf(mu) / 2)
    assert recompute(release) == ""
    kinds = [part["of"]["kind"] for part in proof(release).mechanism["parts"]]
    assert kinds == ["weighted-keys"] * 3 + ["discrete-gaussian"]
    assert release.names[0] == "keys[x]"


@certifies(ApproximateDP)
@pytest.mark.parametrize(("keys", "found", "clip"), [(60, "private", "auto"), (2, "declared", 10)])
def test_a_clip_is_found_where_enough_keys_are(keys, found, clip):
    rng = np.random.default_rng(61)
    rows = np.stack([rng.integers(0, keys, 9000), rng.integers(0, 900, 9000)], axis=1)
    promise = Table(epsilon=4.0, delta=1e-6, person="who", clip="auto")
    prepared = prepare("rows by x", rows.astype(float), promise, QUICK, columns=["x", "who"])
    release = prepared.draw()
    details = release.details
    assert (details.found, details.promise.clip) == (found, clip)
    # rounds, choice and noise are within μ², whose rest ε and δ of the whole leave
    mu, apart = Fraction(details.level), 1
    spent = sum(Fraction(apart * room.UNIT**2, one.variance - 16) for one in details.keys.rounds)
    spent += Fraction(details.reach**2, details.variance - 16)
    left = details.numbers_level
    spent += Fraction(details.share) * Fraction(left) ** 2
    assert 0.999 * mu**2 < spent <= mu**2
    assert recompute(release) == ""
    kinds = [part["of"]["kind"] for part in proof(release).mechanism["parts"]]
    assert kinds[3:] == ["discrete-gaussian", *["exponential"] * (found == "private")]


@certifies(SuccessBound, ApproximateDP)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_what_the_answers_of_a_session_find_is_one_budget(adjacency):
    rng = np.random.default_rng(67)
    rows = np.stack(
        [rng.integers(0, 3, 9000), rng.integers(0, 2, 9000), rng.uniform(5.0, 9.0, 9000),
         rng.integers(0, 2000, 9000)], axis=1,
    ).astype(float)  # fmt: skip
    promise = Table(
        epsilon=3.0, delta=1e-5, person="who", clip=5, adjacency=adjacency,
        levels={"a": "auto", "b": "auto"}, bounds={"x": "auto"},
    )  # fmt: skip
    session = Session(rows, promise, columns=["a", "b", "x", "who"])
    asked = [("rows by a", 0.2), (GroupBy(Sum("x"), "b"), 0.5), ("rows by a by b", 0.1)]
    answers = [session.ask(query, share=share) for query, share in (*asked, ("count", 0.2))]
    apart, spent, passing = (2 if adjacency == "replace" else 1), Fraction(0), Fraction(0)
    for one in answers:
        details, keys, ranges = one.details, one.details.keys, one.details.ranges
        found = [] if keys is None else keys.rounds
        squares = [Fraction(apart * room.UNIT**2, each.variance - 16) for each in found]
        if ranges is not None:
            reach = ranges.reach(promise.adjacency)
            squares.append(Fraction(reach**2, ranges.variance - 16))
        squares.append(Fraction(details.reach**2, details.variance - 16))
        passing += 0 if keys is None else Fraction(keys.delta)
        assert 0.999 * details.level**2 < sum(squares) <= Fraction(details.level) ** 2
        spent += sum(squares)
        assert one.guarantees[1].epsilon == 3.0
        assert recompute(one) == ""
        told = check(parse(json.dumps({"proof": one.published()["proof"]}).encode()))
        assert {held.verdict for held in told.verdicts} == {"holds"}
    assert [one.details.key_column for one in answers] == ["a", "b", None, None]
    assert len(answers[2].names) == 6
    # of every answer within the budget, μ and the chance that an own key passes are (ε, δ)
    mu, delta = session.budget, answers[0].details.session.delta
    assert 0.999 * mu**2 < spent <= Fraction(mu) ** 2
    assert 0.69 * Fraction(delta) < passing <= Fraction(delta)
    with mpmath.workdps(30):
        mu = mpmath.mpf(mu)
        noise = mpmath.ncdf(mu / 2 - 3 / mu) - mpmath.exp(3) * mpmath.ncdf(-mu / 2 - 3 / mu)
        assert 0.99e-5 < noise + (1 - noise) * delta <= 1e-5
        assert session.membership.success >= mpmath.ncdf(mu / 2) + delta / 2
    # a file that sets no δ apart, or says that its part was larger, is refused
    details = answers[0].details
    for turn in (
        replace(details.session, delta=0.0),
        replace(details.session, delta=1.01 * details.session.delta),
        replace(details.session, spend=0.5 * details.session.spend),
    ):
        with pytest.raises(ValueError, match=r"tells|details give|removed|other guarantees"):
            recompute(replace(answers[0], details=replace(details, session=turn)))


def test_noise_that_its_rounding_uses_up_tells_too_much():
    search = KeySearch.of(1.0, 1e-6, 0.5)
    for variance in (1, 15, 16):
        *kept, _ = search.rounds
        bare = KeyRound(variance, threshold_of(variance, 1e-6, search.most))
        assert not replace(search, rounds=(*kept, bare)).tells(1.0, Adjacency.ADD_REMOVE)
