"""Intervals of released numbers: 95% of them hold the truth, over noise, and over pools."""

import json
import math

import numpy as np
import pytest

from tacit import Effort, Rows, Table
from tacit.gate import Policy, check_release
from tacit.releases import Release
from tacit.statistics import prepare, privatize
from tacit.statistics.queries import LeastSquares, Mean

QUERIES = (
    "mean+sum+second-moments",
    "std+covariance+correlation",
    "least-squares",
    "principal-components:1",
    "median",
    "histogram:g+two-way:g,h+cumulative:a:4,5,6",
    "mean by g",
)
DRAWS = 1000
QUIET = Effort(trials=0)


def table(rng, count=400):
    a = rng.normal(5.0, 1.0, count)
    b = 0.5 * a + rng.normal(0.0, 1.0, count)
    g, h = rng.integers(0, 3, count), rng.integers(0, 2, count)
    return np.column_stack([a, g, h, b])


@pytest.mark.parametrize("query", QUERIES)
def test_the_interval_of_the_noise_holds_the_statistic_of_the_rows_drawn(query):
    rows = table(np.random.default_rng(3))
    options = {"columns": list("aghb"), "target": "b"}
    plan = prepare(query, rows, Rows(success=0.75), QUIET, **options).plan
    drawn = plan.pairing.draw(1)
    count = float(len(drawn))
    total = plan.values.total(drawn)
    clean = plan.query.finish(total, plan.centres, count)
    if query != "median":
        # the same numbers from the rows themselves, with no sums kept; a quantile has its grid
        np.testing.assert_allclose(clean, plan.query(rows[drawn]), rtol=1e-9, atol=1e-9)
    noise = plan.noise.sample(DRAWS, np.random.default_rng(5))
    seen = np.array([plan.query.finish(total + e, plan.centres, count) for e in noise])
    live = (plan.errors > 0.0) & (clean != 0.0)
    held = (np.abs(seen - clean) <= 1.959964 * plan.errors).mean(axis=0)[live]
    assert held.min() >= 0.92
    # a quantile is one of the grid's: its interval holds a whole step
    assert query == "median" or np.median(held) <= 0.98


@pytest.mark.thorough
def test_the_interval_with_sampling_holds_what_the_rows_were_drawn_from():
    """Pools of one law: the slope is ½, the means are 5 and 2½."""
    statistics, chosen, truth, pools = [LeastSquares(), Mean()], [0, 2, 3], [0.5, 5.0, 2.5], 200
    held = np.zeros(len(chosen))
    for number in range(pools):
        rows = table(np.random.default_rng([7, number]), 120)[:, [0, 3]]
        release = privatize(statistics, rows, Rows(mu=2.0), QUIET)
        low, high = release.intervals(sampling=True)[chosen].T
        held += (low <= truth) & (truth <= high)
        np.testing.assert_allclose(
            (high - low) / 2, 1.959964 * release.standard_errors[chosen], rtol=1e-6
        )
    assert (held / pools >= 0.9).all()
    assert (held / pools <= 0.995).all()


def hard_table(law, count, rng):
    """Columns a, c, g and b = a/2 + e: heavy tails, skewness, or a and c almost the same."""
    draw = {
        "normal": rng.normal,
        "t3": lambda size: rng.standard_t(3, size),
        "lognormal": lambda size: rng.lognormal(0.0, 1.0, size),
        "collinear": rng.normal,
    }[law]
    a, c, e = (draw(size=count) for _ in range(3))
    c = a + 1e-2 * c if law == "collinear" else c
    return np.column_stack([a, c, rng.permutation(np.arange(count) % 2), 0.5 * a + e])


NOT_LINEAR = (
    "correlation", "std+variance", "std by g", "covariance", "least-squares",
    "principal-components:1", "quantiles:0.25,0.5",
)  # fmt: skip


def held_by_noise(query, law, count, success, releases, rng):
    """Shares of releases, coins and noise anew, whose interval holds the rows drawn."""
    rows = hard_table(law, count, rng)
    plan = prepare(query, rows, Rows(success=success), QUIET, columns=list("acgb")).plan
    held = []
    for _ in range(releases):
        drawn = plan.pairing.draw(rng)
        clean = plan.query.finish(plan.values.total(drawn), plan.centres, float(len(drawn)))
        numbers, errors = plan.at(drawn, rng)
        held.append(np.abs(numbers - clean) <= 1.959964 * errors + 1e-12 * np.abs(clean))
    return np.mean(held, axis=0)


@pytest.mark.parametrize("law", ["t3", "lognormal", "collinear"])
@pytest.mark.parametrize("query", NOT_LINEAR)
def test_intervals_hold_under_hard_laws_in_small_tables(query, law):
    releases = 400
    held = held_by_noise(query, law, 12, 0.7, releases, np.random.default_rng(11))
    assert (held >= 0.95 - 5.0 * math.sqrt(0.95 * 0.05 / releases)).all()


@pytest.mark.thorough
@pytest.mark.parametrize("law", ["t3", "collinear"])
@pytest.mark.parametrize("query", NOT_LINEAR)
def test_intervals_hold_in_tables_of_every_size_and_strength(query, law):
    tables, releases = 2, 100
    for count in (4, 40):
        for success in (0.55, 0.95):
            rng = np.random.default_rng([19, count])
            held = [held_by_noise(query, law, count, success, releases, rng) for _ in range(tables)]
            least = 0.95 - 5.0 * math.sqrt(0.95 * 0.05 / (tables * releases))
            assert (np.mean(held, axis=0) >= least).all(), (count, success)


@pytest.mark.parametrize("query", ["correlation", "std", "least-squares", "covariance"])
@pytest.mark.parametrize("success", [0.55, 0.95])
def test_intervals_of_a_table_hold_where_noise_is_larger_than_the_numbers(query, success):
    rng, releases = np.random.default_rng(13), 60
    rows = hard_table("normal", 40, rng)[:, [0, 1, 3]]
    plan = prepare(query, rows, Table(bounds=[(-4.0, 4.0)] * 3, success=success), QUIET).plan
    clean = plan.added.finish(plan.values.total(np.arange(40)), None)
    held = []
    for _ in range(releases):
        numbers, errors = plan.draw(rng)
        held.append(np.abs(numbers - clean) <= 1.959964 * errors)
    assert (np.mean(held, axis=0) >= 0.95 - 5.0 * math.sqrt(0.95 * 0.05 / releases)).all()


def test_sums_are_finished_together_as_one_by_one():
    rows = hard_table("normal", 60, np.random.default_rng(4))
    query = "+".join([*NOT_LINEAR, "mean+sum+count+second-moments", "cumulative:a:-1,0,1"])
    plan = prepare(query, rows, Rows(success=0.7), QUIET, columns=list("acgb")).plan
    sums = plan.values.total(plan.pairing.draw(1)) + plan.noise.sample(6, np.random.default_rng(2))
    together = plan.query.finish(sums.reshape(2, 3, -1), plan.centres, 30.0)
    single = [plan.query.finish(one, plan.centres, 30.0) for one in sums]
    np.testing.assert_allclose(together.reshape(6, -1), single, rtol=1e-9, atol=1e-9)


def test_a_sampling_error_that_few_rows_make_is_not_told():
    rows = hard_table("normal", 60, np.random.default_rng(4))[:, [0, 1]]
    rows[7, 0] = 1e4
    release = privatize("mean+std", rows, Rows(success=0.7), QUIET)
    assert np.isnan(release.sampling).tolist() == [False, False, True, False]
    assert np.isnan(release.intervals(sampling=True)[2]).all()
    assert any(note.endswith("small pools: std[x0]") for note in release.notes)
    content = json.loads(json.dumps(release.to_dict()))
    assert content["numbers"]["sampling"][2] is None
    assert content["numbers"]["sampling"][3] is not None
    assert Release.from_dict(content) == release
    assert check_release(content, Policy(max_success=0.71)).passed


def test_nearly_collinear_columns_have_the_sampling_error_of_their_coefficients():
    """Var of slopes is σ²/(n ε²/2)-like: large because the rows do not tell them apart."""
    rng = np.random.default_rng(5)
    a = rng.normal(size=200)
    rows = np.column_stack([a, a + 1e-3 * rng.normal(size=200), a + rng.normal(size=200)])
    plan = prepare("least-squares", rows, Rows(success=0.95), QUIET).plan
    # homoscedastic least squares on n = 100 rows at random: an upper end for matched pairs
    design = np.column_stack([rows[:, :2], np.ones(200)])
    classic = np.sqrt(np.diagonal(np.linalg.inv(design.T @ design)) * 2.0)
    ratio = plan.spread.deviations[:2] / classic[:2]
    assert ((ratio > 0.6) & (ratio < 1.5)).all()


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_counts_and_sums_of_a_table_have_the_exact_error_of_their_noise(adjacency):
    """One row is in one bin: 1/μ by theorem where it is in or not, of a sum by simulation."""
    rows = np.random.default_rng(0).uniform(0, 10, size=(500, 2))
    promise = Table(mu=0.5, bounds=[(0, 10), (0, 10)], adjacency=adjacency)
    bins = prepare("histogram:x0:0,2,4,6,8,10", rows, promise, QUIET)
    if adjacency == "add-remove":
        assert [one.error for one in bins.expected] == pytest.approx([1.0 / 0.5] * 5, rel=1e-6)
    for query in ("sum", "sum by x1:0,5,10", "histogram:x0:0,5,10"):
        prepared = prepare(query, rows, promise, QUIET)
        plan, source = prepared.plan, np.random.default_rng(1)
        clean = plan.numbers_here()
        assert clean.shape == (len(prepared.expected),)
        total = plan.values.total(np.arange(len(rows)))
        sums = np.stack([plan.noise.release(total, source) for _ in range(1500)])
        gaps = plan.added.finish(sums, plan._drawn) - clean
        # what is drawn is finished so, one by one
        drawn = plan.draw(np.random.default_rng(1))[0]
        np.testing.assert_allclose(drawn - clean, gaps[0], rtol=1e-9, atol=1e-9)
        expected = np.array([one.error for one in prepared.expected])
        # the error of a standard deviation of n draws is 1/√(2n) of it
        assert np.abs(gaps.std(axis=0) / expected - 1.0).max() < 5.0 / np.sqrt(2 * 1500)
        assert plan.errors_here() == pytest.approx(expected, rel=1e-9)
