"""Quantiles of people: the exact chances of every choice, with a person, without, and replaced."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

import tacit.statistics.people.quantiles as chosen
from tacit import Effort, Table
from tacit.design.grid import random_bits
from tacit.guarantees import ApproximateDP, GaussianDP
from tacit.statistics import prepare
from tacit.statistics.people.release import recompute
from tacit.statistics.queries import Quantiles

from .registry import certifies

QUICK = Effort(trials=0)
POINTS = (0.0, 1.0, 2.5, 3.0, 7.0)


def prepared(rows, level, adjacency="add-remove", **strength):
    query = Quantiles((level,), columns=("x",), grid={"x": POINTS})
    promise = Table(**strength, person="who", adjacency=adjacency)
    return prepare(query, rows, promise, QUICK, columns=["x", "who"])


def laws(plan, monkeypatch):
    """The gaps and rates of the three choices of a quantile, place by place, as they are drawn."""
    seen = []

    class Counting:
        def __init__(self, place):
            self.place = place

        def randrange(self, size):
            assert self.place < size
            return self.place

    def every(self, target, rate, bits, *, beyond=False):
        found = {}

        def choose(gaps, sizes, own, _):
            assert own == rate
            choose.sizes, choose.gaps = sizes, gaps
            return choose.place

        choose.place = 0
        monkeypatch.setattr(chosen, "choose", choose)
        real(self, target, rate, Counting(0), beyond=beyond)
        for stretch, (size, gap) in enumerate(zip(choose.sizes, choose.gaps, strict=True)):
            for inner in range(size):
                choose.place = stretch
                place = real(self, target, rate, Counting(inner), beyond=beyond)
                assert place not in found
                found[place] = gap
        seen.append((rate, found))
        return min(max(found, key=lambda one: -found[one]), self.last)

    real = chosen.Ranks.choose
    with monkeypatch.context() as patch:
        patch.setattr(chosen.Ranks, "choose", every)
        plan.chooser._one(plan.chooser.asked[0], random_bits(None))
    return seen


def log_chances(rate, gaps):
    rate = mpmath.mpf(rate.numerator) / rate.denominator
    total = mpmath.log(mpmath.fsum(mpmath.exp(-rate * gap) for gap in gaps.values()))
    return {place: -rate * gap - total for place, gap in gaps.items()}


def neighbours(rows, adjacency):
    people = np.unique(rows[:, 1])
    for gone in people:
        left = rows[rows[:, 1] != gone]
        if adjacency == "add-remove":
            yield rows, left
            continue
        for numbers in ([0.0], [7.0, 7.0, 0.0], [2.5] * 4):
            other = np.column_stack([numbers, np.full(len(numbers), 99.0)])
            yield rows, np.concatenate([left, other])


@certifies(ApproximateDP, GaussianDP)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
@pytest.mark.parametrize("strength", [{"epsilon": 0.8}, {"epsilon": 2.0, "delta": 1e-6}])
def test_no_person_moves_a_choice_by_more_than_its_range(adjacency, strength, monkeypatch):
    rng = np.random.default_rng(31)
    used = []
    for level in (0.0, 0.13, 0.5, 0.9, 1.0):
        rows = np.column_stack(
            [rng.choice([*POINTS, 1.7, -4.0, 1e300], 14), rng.integers(0, 6, 14)]
        )
        for one, other in neighbours(rows.astype(float), adjacency):
            mine = prepared(one, level, adjacency, **strength)
            theirs = prepared(other, level, adjacency, **strength)
            details, spent = mine.planned.details, 0
            pairs = zip(laws(mine.plan, monkeypatch), laws(theirs.plan, monkeypatch), strict=True)
            ranges = [details.quantile_ranges[0], *[details.quantile_ranges[1]] * 2]
            for allowed, ((rate, p), (_, q)) in zip(ranges, pairs, strict=True):
                p, q = log_chances(rate, p), log_chances(rate, q)
                assert set(p) == set(q)
                ratios = [p[place] - q[place] for place in p]
                assert max(ratios) - min(ratios) <= allowed * (1 + 1e-12)
                used.append((max(ratios) - min(ratios)) / allowed)
                spent += max(map(abs, ratios))
            if details.promise.pure:
                assert spent <= mine.guarantees[1].epsilon
    assert max(used) > 0.95


def test_gaps_are_distances_in_ranks_of_persons():
    """By the definition, in fractions of persons, number by number."""
    rng = np.random.default_rng(37)
    for _ in range(2):
        rows = np.column_stack([rng.choice(POINTS, 20), rng.integers(0, 7, 20)]).astype(float)
        weights = chosen.person_weights(rows[:, 0], rows[:, 1].astype(int))
        for who in np.unique(rows[:, 1]):
            assert weights[rows[:, 1] == who].sum() == chosen.PERSON
        whole = chosen.PERSON * chosen.LEVELS
        places = np.searchsorted(POINTS, rows[:, 0])
        ranks = chosen.Ranks.of(places, weights, len(POINTS) - 1)
        starts, sizes, below, upto = ranks._stretches()
        found = {
            start + inner: (b, u)
            for start, size, b, u in zip(starts, sizes, below, upto, strict=True)
            for inner in range(size)
        }
        people = {who: rows[rows[:, 1] == who, 0] for who in np.unique(rows[:, 1])}
        for place, point in enumerate(POINTS):
            less = sum(Fraction(int((n < point).sum()), len(n)) for n in people.values())
            most = sum(Fraction(int((n <= point).sum()), len(n)) for n in people.values())
            # of every person less than a unit is rounded
            assert 0 <= less * chosen.PERSON - found[place][0] < len(people)
            assert 0 <= most * chosen.PERSON - found[place][1] < len(people)
        assert ranks.whole * chosen.LEVELS == len(people) * whole


@pytest.mark.parametrize("strength", [{"epsilon": 1.0}, {"mu": 0.8}])
def test_the_ranges_of_all_choices_are_the_budget(strength):
    from tacit.design.choosing import range_of

    promise = Table(**strength, person="who", clip=2, bounds={"x": (0, 9)})
    rows = np.column_stack([np.arange(20.0) % 9, np.arange(20) % 5])
    release = prepare("median+mean+count", rows, promise, QUICK, columns=["x", "who"]).draw()
    details = release.details
    value, end = details.quantile_ranges
    share = details.quantile_share
    assert (details.quantiles, share) == (1, pytest.approx(1 / 3))
    if details.promise.pure:
        assert value + 2 * end <= share * details.level
        assert value + 2 * end > 0.999 * share * details.level
    else:
        told = details.level * np.sqrt(share * np.array([0.8, 0.1]))
        assert value <= range_of(told[0])
        assert end <= range_of(told[1])
    assert recompute(release) == ""


@pytest.mark.parametrize("kind", ["smooth", "atom", "cluster", "few", "one"])
def test_intervals_hold_the_quantile_whatever_the_table(kind):
    rng = np.random.default_rng(41)
    numbers = {
        "smooth": rng.normal(50, 10, 900),
        "atom": np.full(900, 17.0),
        "cluster": np.concatenate([rng.normal(20, 1e-4, 500), rng.normal(90, 1e-4, 400)]),
        "few": rng.uniform(0, 100, 6),
        "one": np.array([99.0]),
    }[kind]
    rows = np.column_stack([numbers, np.arange(len(numbers))])
    promise = Table(epsilon=1.0, person="who", bounds={"x": (0, 100)})
    plan = prepare("quantiles:0.3", rows, promise, QUICK, columns=["x", "who"]).plan
    truth, held = np.quantile(numbers, 0.3, method="inverted_cdf"), 0
    for _ in range(60):
        value, error = plan.draw(None)
        # the points are 100/2^24 apart
        held += abs(value[0] - truth) <= 1.96 * error[0] + 1e-5
    assert held >= 55


def test_a_rank_is_near_where_there_are_many():
    rng = np.random.default_rng(43)
    numbers = rng.uniform(0, 100, 4000)
    rows = np.column_stack([numbers, np.arange(4000)])
    promise = Table(epsilon=1.0, person="who", bounds={"x": (0, 100)})
    plan = prepare("median", rows, promise, QUICK, columns=["x", "who"]).plan
    errors = [abs((numbers <= plan.draw(None)[0][0]).sum() - 2000) for _ in range(100)]
    # two-sided exponential of rate .8: 95% within 4 persons
    assert np.quantile(errors, 0.95) <= 6
    # a control: they are not exact
    assert max(errors) >= 2
