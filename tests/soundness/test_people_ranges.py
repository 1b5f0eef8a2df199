"""Bounds that were found: what one person moves, the tails of the noise, and one budget."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest

from tacit import Effort, Table
from tacit.guarantees import ApproximateDP, GaussianDP, SuccessBound
from tacit.guarantees.adjacency import Adjacency
from tacit.statistics import prepare, prepare_sql
from tacit.statistics.engines.workflow import answer
from tacit.statistics.people.keys import UNIT
from tacit.statistics.people.ranges import (
    EDGES,
    MISTAKE,
    PARTS,
    RangeSearch,
    ends_of,
    part_of,
    reach_of,
    weigh_parts,
    weights_of,
)
from tacit.statistics.people.release import recompute
from tacit_check.claims import check
from tacit_check.reading import parse

from .registry import certifies

QUICK = Effort(trials=0)
ODD = [0.0, -0.0, 5e-324, 1e300, -1e300, math.inf, -math.inf, 1.0, -1.0, 2.0**-20, 2.0**62, 1e-9]


def table(seed, persons=7, rows=40):
    rng = np.random.default_rng(seed)
    values = rng.choice([*ODD, *rng.normal(0.0, 1e3, 20)], rows)
    return values, rng.integers(0, persons, rows)


def test_a_number_is_within_the_ends_of_its_part():
    values = np.array([*ODD, *np.random.default_rng(1).standard_cauchy(500) * 1e4])
    for value, part in zip(values.tolist(), part_of(values).tolist(), strict=True):
        low, high = ends_of(part)
        beyond = abs(part) == len(EDGES) and abs(value) >= EDGES[-1]
        assert beyond or low <= value <= high
    places = [ends_of(part) for part in range(-len(EDGES), len(EDGES) + 1)]
    assert len(places) == PARTS
    assert all(one[1] == other[0] for one, other in itertools.pairwise(places))


@pytest.mark.parametrize("pure", [True, False])
def test_one_person_moves_the_weights_by_no_more_than_the_noise_covers(pure):
    seen = {"add-remove": 0, "replace": 0}
    for seed in range(20):
        values, persons = table(seed)
        other, others = table(seed + 100)
        whole = weigh_parts(values, persons, pure=pure)
        for gone in np.unique(persons):
            kept = persons != gone
            rest = weigh_parts(values[kept], persons[kept], pure=pure)
            pairs = [("add-remove", whole - rest)]
            for comes in (0, 1):
                new = np.concatenate([values[kept], other[others == comes]])
                whose = np.concatenate([persons[kept], np.full((others == comes).sum(), gone)])
                pairs.append(("replace", whole - weigh_parts(new, whose, pure=pure)))
            for adjacency, change in pairs:
                moved = [int(one) for one in change]
                far = sum(map(abs, moved)) if pure else sum(one * one for one in moved)
                reach = reach_of(1, pure, Adjacency(adjacency))
                assert far <= (reach if pure else reach**2)
                seen[adjacency] = max(seen[adjacency], far / (reach if pure else reach**2))
    assert min(seen.values()) > 0.95
    # several columns lie side by side
    for columns in (2, 5):
        for adjacency in Adjacency:
            one, all_of = (reach_of(count, pure, adjacency) for count in (1, columns))
            assert all_of >= (columns * one if pure else math.isqrt(columns * (one - 1) ** 2))


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("level", [0.05, 1.0, 30.0])
def test_a_part_without_a_person_passes_rarely(pure, level):
    search = RangeSearch.of(["x"], level, pure=pure, adjacency=Adjacency.ADD_REMOVE)
    assert search.tells(level, Adjacency.ADD_REMOVE, pure=pure)
    assert not search.tells(0.999 * level, Adjacency.ADD_REMOVE, pure=pure)
    with mpmath.workdps(30):
        if pure:
            rate = mpmath.exp(-mpmath.mpf(search.scale[1]) / search.scale[0])
            passes = rate**search.threshold / (1 + rate)
        else:
            # the tail of the whole noise is the integral to far below what is compared
            spread = mpmath.sqrt(search.variance)
            passes = mpmath.ncdf(-(mpmath.mpf(search.threshold) - 0.5) / spread)
        assert 0.9 * MISTAKE < passes * PARTS <= MISTAKE


def people(count, seed=3):
    rng = np.random.default_rng(seed)
    who = rng.integers(0, count, 2 * count)
    return pd.DataFrame({"who": who, "x": rng.lognormal(10.5, 0.4, 2 * count)})


PROMISES = [
    {"epsilon": 1.0, "delta": 1e-6},
    {"epsilon": 1.0},
    {"mu": 0.4, "adjacency": "replace"},
    {"epsilon": 1.0, "adjacency": "replace"},
]


@certifies(SuccessBound, ApproximateDP, GaussianDP)
@pytest.mark.parametrize("given", PROMISES)
def test_bounds_and_numbers_are_one_budget(given):
    promise = Table(person="who", bounds={"x": "auto"}, clip=4, **given)
    release = prepare("mean", people(2000), promise, QUICK).draw()
    details = release.details
    low, high = details.promise.bounds["x"]
    assert low <= 20_000.0 < 60_000.0 <= high
    assert recompute(release) == ""
    told = check(parse(json.dumps({"proof": release.published()["proof"]}).encode()))
    assert {one.verdict for one in told.verdicts} == {"holds"}
    level, search = Fraction(details.level), details.ranges
    if promise.pure:
        below, above = search.scale[1], search.scale[0]
        spent = Fraction(search.reach(promise.adjacency) * below, above)
        spent += Fraction(details.reach * details.scale[1], details.scale[0])
        assert 0.99 * level < spent <= level * (1 + Fraction(1, 2**30))
    else:
        spent = Fraction(search.reach(promise.adjacency) ** 2, search.variance - 16)
        spent += Fraction(details.reach**2, details.variance - 16)
        assert 0.99 * level**2 < spent <= level**2 * (1 + Fraction(1, 2**30))
    # less noise, another share, or a column of which nothing is known is refused
    for wrong in (
        replace(search, variance=search.variance // 2, scale=(search.scale[0], 3)),
        replace(search, share=0.2),
        replace(search, columns=("y",)),
    ):
        with pytest.raises(ValueError, match=r"bounds|lies farther|assumptions"):
            recompute(replace(release, details=replace(details, ranges=wrong)))


def test_few_persons_are_refused_with_the_reason():
    promise = Table(epsilon=0.1, person="who", bounds={"x": "auto"}, clip=4)
    prepared = prepare("mean", people(400), promise, QUICK)
    with pytest.raises(ValueError, match=r"bounds: expected about 1,\d\d\d persons or more"):
        prepared.draw()
    with pytest.raises(ValueError, match="person"):
        prepare("mean", people(40), Table(epsilon=1.0, delta=1e-6, bounds={"x": "auto"}), QUICK)
    # bounds of a divisor that are found may reach below 0, when the budget of finding them is spent
    divisor = Table(epsilon=1.0, person="who", bounds={"x": "auto"}, clip=2)
    with pytest.raises(ValueError, match="declared bounds are not below 0"):
        prepare("ratio:x,x", people(40), divisor, QUICK)


@pytest.mark.parametrize("pure", [True, False])
def test_an_engine_weighs_parts_as_memory_does(pure):
    values, persons = table(5, persons=9, rows=80)
    frame = pd.DataFrame({"who": [*persons, -1], "x": [*values, math.nan]})
    promise = Table(epsilon=1.0, delta=1e-6, person="who", bounds={"x": "auto"}, clip=2)
    asked = answer("SELECT AVG(x) FROM t", {"t": frame}, promise).request.pool.parts_elsewhere
    found = asked(0, weights_of(pure))
    ours = weigh_parts(values, persons, pure=pure)
    kept = {int(at) - len(EDGES): int(ours[at]) for at in np.flatnonzero(ours)}
    assert found == kept
    assert max(found.values()) > UNIT


def test_a_select_finds_bounds_and_keys_together():
    frame = people(3000).assign(city=lambda rows: np.where(rows.who % 3 == 0, "Bern", "Oslo"))
    promise = Table(epsilon=2.0, delta=1e-6, person="who", bounds={"x": "auto"}, clip=3)
    sql = "SELECT city, AVG(x) AS mean FROM t GROUP BY city"
    release = prepare_sql(sql, {"t": frame}, promise).draw()
    assert release.names == ("keys[city]", "mean|city=Bern", "mean|city=Oslo")
    assert recompute(release) == ""
    told = check(parse(json.dumps({"proof": release.published()["proof"]}).encode()))
    assert {one.verdict for one in told.verdicts} == {"holds"}
    with pytest.raises(ValueError, match="an expression of x"):
        prepare_sql("SELECT AVG(x * 2) FROM t", {"t": frame}, promise)
