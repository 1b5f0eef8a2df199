import math

import numpy as np
import pytest

from tacit.information import mean_lower_bound, mean_upper_bound

from .oracles import largest_miss_count

TRIALS, SAMPLE, PILOT, FAILURE = 400, 300, 40, 0.05


def outliers(source, size):
    """0 nearly always, 200 with probability 1/200: mean 1."""
    return 200.0 * (source.random(size) < 1 / 200)


def misses(bound, draw, mean, *, below):
    source = np.random.default_rng(7)
    missed = 0
    for _ in range(TRIALS):
        values = draw(source, SAMPLE + PILOT)
        found = bound(values[:PILOT], values[PILOT:])
        missed += found > mean if below else found < mean
    return missed


LAWS = {
    "exponential": (lambda source, n: source.exponential(size=n), 1.0),
    "uniform": (lambda source, n: source.random(n), 0.5),
    "outliers": (outliers, 1.0),
    "pareto": (lambda source, n: source.pareto(1.5, size=n), 2.0),
    "constant": (lambda source, n: np.full(n, 0.3), 0.3),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_lower_bound_misses_no_more_often_than_it_says(law):
    draw, mean = LAWS[law]
    limit = largest_miss_count(TRIALS, FAILURE)

    def bound(pilot, sample):
        return mean_lower_bound(pilot, sample, 1 - FAILURE)

    assert misses(bound, draw, mean * (1 + 1e-12), below=True) < limit


@pytest.mark.parametrize("law", ["uniform", "outliers", "constant"])
def test_an_upper_bound_misses_no_more_often_than_it_says(law):
    draw, mean = LAWS[law]
    limit = largest_miss_count(TRIALS, FAILURE)

    def bound(pilot, sample):
        return mean_upper_bound(pilot, sample, 1 - FAILURE, ceiling=200.0)

    assert misses(bound, draw, mean * (1 - 1e-12), below=False) < limit


def test_the_same_count_finds_a_normal_interval_out():
    """Mean plus 1.645 standard errors has no coverage when outliers are rare."""

    def normal(pilot, sample):
        return sample.mean() + 1.645 * sample.std(ddof=1) / math.sqrt(sample.size)

    assert misses(normal, outliers, 1.0, below=False) >= largest_miss_count(TRIALS, FAILURE)


def test_the_same_count_finds_a_plain_mean_out():
    def plain(pilot, sample):
        return sample.mean()

    draw, mean = LAWS["uniform"]
    assert misses(plain, draw, mean, below=True) >= largest_miss_count(TRIALS, FAILURE)


def test_width_is_near_the_normal_one_for_many_draws():
    values = np.random.default_rng(3).random(220_000)
    found = mean_lower_bound(values[:20_000], values[20_000:], 0.99)
    width = math.sqrt(2 * math.log(100) / 200_000 / 12)
    assert 0 < values[20_000:].mean() - found < 1.5 * width


def test_values_outside_the_range_are_refused():
    with pytest.raises(ValueError, match="at least 0"):
        mean_lower_bound([0.1, 0.2], [0.1, -0.1], 0.9)
    with pytest.raises(ValueError, match="at most 1"):
        mean_upper_bound([0.1, 0.2], [0.1, 1.1], 0.9, ceiling=1.0)
    with pytest.raises(ValueError, match="at least 2 and 1"):
        mean_lower_bound([0.1], [0.1], 0.9)
    with pytest.raises(ValueError, match="confidence"):
        mean_lower_bound([0.1, 0.2], [0.1], 1.0)
    with pytest.raises(ValueError, match="sample"):
        mean_lower_bound([0.1, 0.2], [math.nan], 0.9)
