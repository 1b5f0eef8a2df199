"""Releases of a table: whatever one row within or outside its bounds adds is covered."""

import numpy as np
import pytest
from scipy import stats

import tacit.statistics.bounded.plan
from tacit import Effort, Table
from tacit.guarantees import GaussianDP, SuccessBound
from tacit.statistics import prepare
from tacit.statistics.bounded.contributions import probe
from tacit.statistics.queries import Quantiles

from .registry import certifies
from .swaps import exact_success

QUERIES = (
    "mean",
    "sum+count",
    "mean+std",
    "second-moments",
    "covariance",
    Quantiles((0.5,), columns=("x0",), grid={"x0": (-1.0, 0.0, 1.0)}),
    "histogram:x0:-1,0,1",
    "two-way:x0,x1",
    "mean by x0:-2,0,2",
    "cumulative:x0:-1,0,1+mean",
    "variance by x1",
    "least-squares",
)
INSTANCES, CHUNKS = 1000, 5


def instance(number):
    rng = np.random.default_rng([31, number])
    centres = rng.normal(size=3) * 10.0 ** rng.uniform(-3, 3)
    widths = 10.0 ** rng.uniform(-3, 3, 3)
    bounds = np.stack([centres - widths, centres + widths], axis=1)
    rows = centres + widths * rng.standard_t(1.5, (int(rng.integers(4, 9)), 3))
    rows[:, 1] = rng.integers(0, 3, len(rows))
    prepared = prepare(
        QUERIES[number % len(QUERIES)],
        rows,
        Table(
            success=float(rng.uniform(0.51, 0.999)),
            bounds=bounds,
            levels={"x0": [-1, 0, 1], "x1": [0, 1, 2]},
            adjacency=["add-remove", "replace"][int(rng.integers(2))],
        ),
        Effort(trials=0),
        cost=["relative", "squared"][int(rng.integers(2))],
    )
    return prepared, rows, rng


def hard_rows(added, rows, rng):
    """Corners of the box and beyond, the edges of every condition, and the table's own rows."""
    choices = []
    for column in range(rows.shape[1]):
        low, high = added.lows[column], added.highs[column]
        conditions = {
            c for term in added.query.terms for c in term.conditions if c.column == column
        }
        values = list(probe(sorted(conditions))) if conditions else []
        if np.isfinite(low):
            values += [
                low,
                high,
                added.centres[column],
                1e9 * abs(high) + 1,
                rng.uniform(low, high),
            ]
        choices.append(values or [0.0])
    every = np.array([[rng.choice(values) for values in choices] for _ in range(12)])
    return np.unique(np.concatenate([every, rows]), axis=0)


@certifies(SuccessBound, GaussianDP)
@pytest.mark.parametrize(
    "chunk", [0, 1, *(pytest.param(one, marks=pytest.mark.thorough) for one in range(2, CHUNKS))]
)
def test_no_row_is_found_better_than_certified_whatever_it_holds(chunk, monkeypatch):
    monkeypatch.setattr(tacit.statistics.bounded.plan, "SIMULATED", 10)
    used = []
    for number in range(chunk * INSTANCES // CHUNKS, (chunk + 1) * INSTANCES // CHUNKS):
        prepared, rows, rng = instance(number)
        plan = prepared.plan
        values = plan.added.values(hard_rows(plan.added, rows, rng)).values
        if plan.adjacency == "replace":
            values = (values[:, None] - values).reshape(-1, values.shape[1])
            values = values[rng.choice(len(values), 30)]
        bare = np.diagonal(plan.noise.covariance) == 0.0
        assert not values[:, bare].any()
        if not plan.noise.parts:
            continue
        exact = exact_success(plan.noise.parts, values).max()
        assert exact <= prepared.membership.success
        assert prepared.guarantees[1].success().success == prepared.membership.success
        used.append((exact - 0.5) / (prepared.membership.success - 0.5))
    assert np.median(used) > 0.8


@certifies(GaussianDP)
def test_neighbouring_tables_move_the_sums_by_what_the_row_adds_to_the_last_bit():
    for number in range(60):
        prepared, rows, _ = instance(number)
        plan = prepared.plan
        values = plan.added.values(rows)
        total = values.total(np.arange(len(rows)))
        for gone in range(len(rows)):
            rest = np.delete(rows, gone, axis=0)
            without = plan.added.values(rest).total(np.arange(len(rest)))
            np.testing.assert_array_equal(total - without, values.values[gone])


def test_the_noise_does_not_depend_on_the_table():
    """Two tables of other sizes and numbers: the same noise, to the last bit."""
    bounds = {"x0": (0.0, 1.0), "x1": (-5.0, 5.0)}
    rng = np.random.default_rng(37)
    laws = [
        prepare(
            "mean+std+histogram:x0:0,0.5,1",
            rng.normal(size=(size, 2)) * scale,
            Table(success=0.6, bounds=bounds),
            Effort(trials=0),
        ).plan.noise.covariance
        for size, scale in ((10, 1.0), (1000, 100.0))
    ]
    np.testing.assert_array_equal(*laws)


@certifies(SuccessBound)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_the_strongest_attacker_on_what_is_released(adjacency):
    """Knows every other row; a third of the noise would be found out."""
    rng = np.random.default_rng(41)
    rows = rng.uniform(0, 1, (20, 2))
    rows[0] = 1.0
    other = np.zeros((1, 2))
    promise = Table(success=0.7, bounds=[(0.0, 1.0)] * 2, adjacency=adjacency)
    changed = rows[1:] if adjacency == "add-remove" else np.concatenate([other, rows[1:]])
    plans = [prepare("mean", table, promise, Effort(trials=0)).plan for table in (rows, changed)]
    totals = [plan.values.total(np.arange(len(plan.values.integers))) for plan in plans]
    noise = plans[0].noise
    live = np.diagonal(noise.covariance) > 0.0
    direction = np.linalg.pinv(noise.covariance[np.ix_(live, live)]) @ (totals[0] - totals[1])[live]
    middle = 0.5 * (totals[0] + totals[1])[live]
    hits, weaker, trials = 0, 0, 6000
    for _ in range(trials):
        world = int(rng.integers(2))
        published = noise.release(totals[world], None)
        quiet = totals[world] + (published - totals[world]) / 3
        hits += ((published[live] - middle) @ direction > 0) == (world == 0)
        weaker += ((quiet[live] - middle) @ direction > 0) == (world == 0)
    tolerance = stats.norm.isf(1e-9) * (0.25 / trials) ** 0.5
    assert hits / trials <= 0.7 + tolerance
    assert weaker / trials > 0.7 + tolerance
