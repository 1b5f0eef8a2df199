"""Intervals of released numbers: 95% of them hold the truth, over noise, and over pools."""

import numpy as np
import pytest

from tacit.statistics import prepare, privatize
from tacit.statistics.sums import LeastSquares, Mean

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


def table(rng, count=400):
    a = rng.normal(5.0, 1.0, count)
    b = 0.5 * a + rng.normal(0.0, 1.0, count)
    g, h = rng.integers(0, 3, count), rng.integers(0, 2, count)
    return np.column_stack([a, g, h, b])


@pytest.mark.parametrize("query", QUERIES)
def test_the_interval_of_the_noise_holds_the_statistic_of_the_rows_drawn(query):
    rows = table(np.random.default_rng(3))
    plan = prepare(
        query, rows, protect="rows", success=0.75, columns=list("aghb"), target="b",
        attack=False, progress=False,
    ).plan  # fmt: skip
    drawn = plan.pairing.draw(1)
    # the same numbers from the rows themselves, with no sums kept
    clean = plan.query(rows[drawn])
    count = float(len(drawn))
    total = plan.values.total(drawn)
    np.testing.assert_allclose(
        plan.query.finish(total, plan.centres, count), clean, rtol=1e-9, atol=1e-9
    )
    noise = plan.noise.sample(DRAWS, np.random.default_rng(5))
    seen = np.array([plan.query.finish(total + e, plan.centres, count) for e in noise])
    live = (plan.errors > 0.0) & (clean != 0.0)
    held = (np.abs(seen - clean) <= 1.959964 * plan.errors).mean(axis=0)[live]
    assert held.min() >= 0.92
    assert np.median(held) <= 0.98


@pytest.mark.parametrize(
    ("statistics", "chosen", "truth", "pools"),
    [
        pytest.param([Mean()], [0, 1], [5.0, 2.5], 200, id="mean"),
        pytest.param(
            [LeastSquares(), Mean()], [0, 2, 3], [0.5, 5.0, 2.5], 200,
            marks=pytest.mark.thorough, id="least squares",
        ),
    ],
)  # fmt: skip
def test_the_interval_with_sampling_holds_what_the_rows_were_drawn_from(
    statistics, chosen, truth, pools
):
    """Pools of one law: the slope is ½, the means are 5 and 2½."""
    held = np.zeros(len(chosen))
    for number in range(pools):
        rows = table(np.random.default_rng([7, number]), 120)[:, [0, 3]]
        release = privatize(statistics, rows, protect="rows", mu=2.0, attack=False, progress=False)
        low, high = release.intervals(sampling=True)[chosen].T
        held += (low <= truth) & (truth <= high)
        np.testing.assert_allclose(
            (high - low) / 2, 1.959964 * release.standard_errors[chosen], rtol=1e-6
        )
    assert (held / pools >= 0.9).all()
    assert (held / pools <= 0.995).all()
