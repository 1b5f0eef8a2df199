"""Quantiles mean one thing, and their intervals hold those of the rows."""

import numpy as np
import pytest

from tacit import Effort, Rows, Table
from tacit.statistics import prepare, privatize
from tacit.statistics.queries import Columns, Quantiles, bind_query


def tables():
    rng = np.random.default_rng(4)
    clusters = np.where(rng.random((300, 1)) < 0.5, 0.0, 10.0) + rng.normal(0, 0.01, (300, 1))
    return {
        "whole numbers": rng.integers(18, 90, (200, 1)).astype(float),
        "ties": rng.integers(0, 3, (40, 1)).astype(float),
        "clusters": clusters,
        "two columns": rng.normal(size=(60, 2)),
        "heavy tails": np.exp(2.0 * rng.normal(size=(500, 1))),
        "four rows": rng.normal(size=(4, 1)),
        "tiny": 1e-9 * rng.normal(size=(80, 1)),
        "many": rng.normal(size=(20_000, 1)),
    }


def bounds_of(rows, far=1.0):
    low, high = rows.min(axis=0), rows.max(axis=0)
    width = np.maximum(high - low, 1e-12)
    return list(zip((low - 0.1 * width).tolist(), (high + far * width).tolist(), strict=True))


PROMISES = {
    "rows": lambda rows: Rows(success=0.75),
    "table": lambda rows: Table(mu=1.0, bounds=bounds_of(rows)),
    "table, far bounds": lambda rows: Table(
        mu=0.5, bounds=bounds_of(rows, 1e3), adjacency="replace"
    ),
}
QUIET = Effort(trials=0)


def coverage(rows, promise, level, releases, rng):
    """Share of releases whose interval holds NumPy's quantile of the rows, and its median."""
    prepared = prepare(Quantiles((level,)), rows, promise, QUIET)
    held = np.zeros((2, rows.shape[1]))
    for _ in range(releases):
        if isinstance(promise, Rows):
            drawn = prepared.plan.pairing.draw(rng)
            values, errors = prepared.plan.at(drawn, rng)
            seen = rows[drawn]
        else:
            (values, errors), seen = prepared.plan.draw(rng), rows
        exact = np.quantile(seen, level, axis=0, method="inverted_cdf")
        middle = np.median(seen, axis=0) if level == 0.5 else exact
        reach = 1.959964 * errors + 1e-9 * np.abs(values)
        held += [np.abs(values - exact) <= reach, np.abs(values - middle) <= reach]
    return held / releases


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("name", tables())
def test_intervals_hold_numpys_quantiles_of_the_rows(name, promise):
    rows, releases = tables()[name], 40
    found = coverage(rows, PROMISES[promise](rows), 0.5, releases, np.random.default_rng(7))
    # three standard errors below 95%
    assert found.min() >= 0.95 - 3 * (0.05 * 0.95 / releases) ** 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("name", tables())
def test_intervals_hold_numpys_quantiles_in_many_releases(name, promise):
    rows = tables()[name]
    for level in (0.5, 0.25, 0.9):
        found = coverage(rows, PROMISES[promise](rows), level, 600, np.random.default_rng(8))
        assert found.min() >= 0.93


def test_what_is_the_same_in_every_draw_is_told_exactly():
    """25 pairs of equal rows: every draw is the same 25 whole numbers."""
    rows = np.repeat(np.arange(37.0, 62.0), 2)[:, None]
    pairs = np.arange(50).reshape(25, 2)
    for query, exact in (("median", [49.0]), ("quantiles", [43.0, 49.0, 55.0])):
        release = privatize(query, rows, Rows(pairs=pairs, success=0.6), QUIET)
        assert release.values.tolist() == exact
        assert release.errors.tolist() == [0.0] * len(exact)
        own = [float(np.quantile(rows, q, method="inverted_cdf")) for q in (0.25, 0.5, 0.75)]
        assert set(exact) <= set(own)


@pytest.mark.parametrize("count", [4, 7, 10, 25, 101])
def test_one_meaning_in_every_way_of_asking(count):
    rows = np.random.default_rng(count).integers(0, 12, (count, 2)).astype(float)
    levels = (0.0, 0.1, 0.3, 0.5, 0.75, 1.0)
    exact = np.quantile(rows, levels, axis=0, method="inverted_cdf").T.ravel()
    text = "quantiles:" + ",".join(map(str, levels))
    columns = Columns(("a", "b"), rows)
    np.testing.assert_array_equal(bind_query(text, columns)(rows), exact)
    grid = {"a": range(13), "b": range(13)}
    summed = bind_query(Quantiles(levels, grid=grid), columns)
    np.testing.assert_array_equal(summed(rows), exact)
    # from counts up to thresholds
    sums = summed.row_values(rows, np.zeros(2)).sum(axis=0)
    np.testing.assert_array_equal(summed.finish(sums, np.zeros(2), float(count)), exact)


def test_a_step_that_is_not_seen_is_in_the_interval():
    """On a coarse public grid the error is a step, whatever the noise."""
    rows = np.full((400, 1), 3.3)
    promise = Table(mu=50.0, bounds=[(0.0, 64.0)], adjacency="replace")
    release = privatize("median", rows, promise, QUIET)
    assert release.values[0] == 4.0
    low, high = release.intervals()[0]
    assert low <= 3.3 <= high
    assert high - low >= 1.0
