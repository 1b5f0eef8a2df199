"""Intervals of means of few values hold them as often as they say, against exact sums."""

import numpy as np
import pytest
from scipy import stats

from tacit.attacks.intervals import mean_interval, share_interval


@pytest.mark.parametrize("count", [1, 2, 24, 100])
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.93, 0.999])
def test_the_interval_of_a_share_covers_by_the_binomial_law(count, share):
    hits = np.arange(count + 1)
    ends = [share_interval((np.arange(count) < one).astype(float), 0.95) for one in hits]
    held = np.array([low <= share <= high for low, high in ends])
    assert stats.binom.pmf(hits, count, share)[held].sum() >= 0.95


def test_values_between_are_held_and_ends_are_those_of_chernoff():
    draws = np.random.default_rng(0)
    missed = 0
    for _ in range(2000):
        low, high = share_interval(draws.beta(0.4, 0.2, size=30), 0.9)
        missed += not low <= 2 / 3 <= high
    assert missed <= 2000 * 0.1
    low, high = share_interval(np.ones(24), 0.95)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 24)), 1.0)
    many = draws.random(501)
    assert share_interval(many, 0.95) == mean_interval(many, 0.95)
    with pytest.raises(ValueError, match="values"):
        share_interval(np.array([0.5, 1.5]), 0.95)
