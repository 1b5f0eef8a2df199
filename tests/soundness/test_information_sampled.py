"""Bounds for sampled secrets, improved Gaussian bounds and compositions, beside quadrature."""

import math

import numpy as np
import pytest

from tacit.covariance import Isotropic
from tacit.guarantees import InformationBound, ResidualPrivacy
from tacit.information import (
    compose_joint,
    gap_donsker_varadhan,
    gap_sliced_wasserstein,
    improve,
    leave_one_out,
)
from tacit.information.residual import finite_intrinsic

from . import oracles
from .registry import certifies

CONFIDENCE = 0.999


def secret(seed):
    source = np.random.default_rng(seed)
    size = int(source.integers(2, 6))
    kinds = [
        source.normal(scale=2.0, size=size),
        source.standard_t(2, size=size),
        np.arange(float(size)),
        np.repeat([-3.0, 3.0], size)[:size] + 0.1 * source.normal(size=size),
    ]
    points = kinds[seed % 4]
    weights = source.dirichlet(np.ones(size))
    exact = float(oracles.mixture_information(points, weights, 1.0))
    return points[:, None], weights, exact


@certifies(InformationBound)
@pytest.mark.parametrize("seed", range(8))
def test_upper_bounds_are_above_the_information(seed):
    points, weights, exact = secret(seed)
    noise = Isotropic(1.0, 1)

    def draw(count, source):
        return points[source.choice(len(points), size=count, p=weights)]

    options = {"confidence": CONFIDENCE, "rng": seed}
    gaps = [
        gap_donsker_varadhan(points, noise, weights=weights, samples=5_000, **options),
        gap_sliced_wasserstein(points, noise, weights=weights),
    ]
    radius = float(np.abs(points).max())
    found = [
        leave_one_out(draw, noise, radius=radius, context=300, samples=5_000, **options),
        *(improve(gap.gaussian, gap) for gap in gaps),
    ]
    for bound in found:
        guarantee = bound.guarantee("the point drawn")
        assert guarantee.nats >= exact
        # and none of them is so far above that halving it would go unseen everywhere
        assert guarantee.nats < exact + 1.5
    assert found[1].upper < exact + 0.1


@certifies(InformationBound)
@pytest.mark.parametrize("seed", range(4))
def test_releases_together_are_one_release_of_less_noise(seed):
    points, weights, _ = secret(seed)
    exact = float(oracles.mixture_information(points[:, 0], weights, 1 / math.sqrt(3.0)))
    releases = [(points, Isotropic(1.0, 1)), (2.0 * points, Isotropic(2.0, 1))]
    joint = compose_joint(releases, weights=weights, samples=5_000, confidence=CONFIDENCE, rng=seed)
    assert joint.guarantee("the point drawn").nats >= exact
    assert joint.lower <= exact
    assert joint.upper < exact + 0.1


@certifies(ResidualPrivacy)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_is_below_the_conditional_entropy(seed):
    points, weights, exact = secret(seed)
    gap = gap_sliced_wasserstein(points, Isotropic(1.0, 1), weights=weights)
    left = finite_intrinsic(weights).after(improve(gap.gaussian, gap))
    entropy = -float(weights @ np.log(weights))
    assert left.residual <= entropy - exact - math.log(len(points)) + 1e-12
