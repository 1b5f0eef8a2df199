"""AUC that a profile certifies, where the trade-off curve is known."""

import math

import pytest
from scipy import stats

from tacit.accounting import gaussian, noisy_projection, profile_from_curves
from tacit_lab.canary_game import auc_from_profile


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 2.0, 4.0])
def test_of_a_gaussian_is_hardly_above_what_its_best_test_has(mu):
    exact = stats.norm.cdf(mu / math.sqrt(2.0))
    assert exact <= auc_from_profile(gaussian(mu, 1.0)) < exact + 2e-3


def test_of_a_mixture_of_gaussians_is_between_its_parts():
    """At r = d nothing is lost of a matrix and at r = 1 nearly all; the bound grows with r."""
    found = [
        auc_from_profile(
            noisy_projection(dim=64, rank=r, sensitivity=2.0, noise_std=1.0, difference_rank=1)
        )
        for r in (1, 8, 32, 64)
    ]
    assert found == sorted(found)
    assert 0.5 < found[0] < 0.6
    assert found[-1] == pytest.approx(stats.norm.cdf(2.0 / math.sqrt(2.0)), abs=2e-3)


def test_where_something_is_surely_told_it_is_one():
    def certain(epsilon):
        return 0.0 * epsilon + 1.0

    profile = profile_from_curves(
        certain, name="none", source="by hand", infinite_mass=1.0,
        adjacency="any", assumptions=(),
    )  # fmt: skip
    assert auc_from_profile(profile) == 1.0
