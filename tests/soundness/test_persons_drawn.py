"""Persons that are drawn with all of their rows: every coin of small pools, by enumeration."""

import math

import numpy as np
import pytest

import tacit.statistics.rows.errors
import tacit.statistics.rows.plan
from tacit import Draw, Effort, Rows
from tacit.guarantees import GaussianDP, InformationBound, SuccessBound
from tacit.statistics import prepare

from .registry import certifies
from .swaps import every_draw, exact_success, pool

QUERIES = ("mean", "sum+count", "mean+std", "histogram:x0:-1,0,1", "correlation", "median")
NAMES = ["x0", "x1", "who"]


def instance(number):
    rng = np.random.default_rng([71, number])
    persons = int(rng.integers(4, 10))
    count = int(rng.integers(2 * persons, 5 * persons))
    who = np.concatenate([np.arange(persons), rng.integers(0, 2, count - persons)])
    rows = np.column_stack([pool(rng, count, 2), who[rng.permutation(count)]])
    pairs = [None, "random", "column:x0"][number % 3]
    success = float(rng.uniform(0.51, 0.99))
    promise = Rows(success=success, person="who", pairs=pairs)
    query = QUERIES[number % len(QUERIES)]
    return prepare(query, rows, promise, Effort(trials=0), columns=NAMES), rows


@certifies(SuccessBound, GaussianDP)
@pytest.mark.parametrize("pools", [80, pytest.param(300, marks=pytest.mark.thorough)])
def test_no_coin_of_persons_is_guessed_better_than_certified(pools, monkeypatch):
    """Pools in which the rows of a person add together, summed row by row."""
    monkeypatch.setattr(tacit.statistics.rows.plan, "COMPARED", 20)
    monkeypatch.setattr(tacit.statistics.rows.errors, "SIMULATED", 20)
    used = []
    for number in range(pools):
        prepared, rows = instance(number)
        plan = prepared.plan
        added = plan.query.row_values(rows[:, :2], plan.centres)
        people = np.unique(rows[:, 2])
        owned = np.array(
            [[math.fsum(column) for column in added[rows[:, 2] == who].T] for who in people]
        )
        # what is released moves by differences of these, which are on a grid, to the last bit
        held = np.array([plan.values.total(np.array([one])) for one in range(len(people))])
        scale = np.abs(owned).max(axis=0)
        paired = np.sort(plan.pairing.members, axis=None)
        assert (np.abs(held - owned)[paired] <= 1e-9 * scale).all()
        moves = np.array([held[a] - held[b] for a, b in plan.pairing.members])
        for _, drawn in every_draw(plan.pairing):
            # the sums that are released are of all rows of the persons drawn
            assert (plan.values.total(drawn) == held[drawn].sum(axis=0)).all()
        if plan.noise.design is None:
            assert not moves[:, plan.noise.live].any()
            continue
        exact = exact_success([(plan.noise.live, plan.noise.law)], moves).max()
        assert exact <= prepared.membership.success * (1 + 1e-9)
        used.append((exact - 0.5) / (prepared.membership.success - 0.5))
    assert np.median(used) > 0.95


@certifies(SuccessBound)
def test_numbers_are_of_noisy_sums_alone():
    """How many rows the persons drawn have enters no number but by its noisy sum."""
    prepared, _ = instance(0)
    plan = prepared.plan
    sums = plan.values.total(plan.pairing.members[:, 0])
    numbers = plan.query.finish(sums, plan.centres, None)
    for _, drawn in every_draw(plan.pairing):
        assert not plan.counted
        plan.noise.release(plan.values.total(drawn), 1)
    np.testing.assert_array_equal(plan.query.finish(sums, plan.centres, None), numbers)


@certifies(InformationBound, SuccessBound)
def test_candidates_are_of_whole_persons():
    rng = np.random.default_rng(73)
    rows = np.column_stack([rng.normal(size=(90, 2)), rng.integers(0, 15, 90)])
    promise = Draw(success=0.65, person="who")
    prepared = prepare("mean", rows, promise, Effort(trials=0, simulations=80), columns=NAMES)
    plan, people = prepared.plan, np.unique(rows[:, 2])
    inside = np.zeros(len(people))
    for candidate in range(len(plan.family)):
        drawn = people[plan.family.members(candidate)]
        inside[plan.family.members(candidate)] += 1
        own = rows[np.isin(rows[:, 2], drawn), :2].mean(axis=0)
        np.testing.assert_allclose(plan.outputs[candidate], own, rtol=1e-12)
    assert set(inside) == {len(plan.family) / 2}
    # the information of the outputs under the noise, by its definition, is no more than told
    noise = plan.design.covariance.to_dense()
    drawn = rng.integers(len(plan.outputs), size=4000)
    seen = plan.outputs[drawn] + rng.multivariate_normal(np.zeros(2), noise, 4000)
    gaps = seen[:, None] - plan.outputs
    scores = -0.5 * np.einsum("abi,ij,abj->ab", gaps, np.linalg.inv(noise), gaps)
    own = scores[np.arange(4000), drawn]
    density = own - np.log(np.exp(scores).mean(axis=1))
    assert density.mean() - 4 * density.std() / 4000**0.5 <= prepared.guarantees[1].nats
