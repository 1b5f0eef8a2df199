"""Robust aggregation against a plain computation whose cone is found by numerical optimisation."""

import numpy as np
import pytest
from scipy import optimize

from tacit_lab.poisoning import robust_aggregate
from tacit_lab.poisoning.aggregation import robust_mean


def nearest(gradient, mean, degrees):
    """The nearest vector of the same norm within the cone, by optimisation on the sphere."""
    length, direction = np.linalg.norm(gradient), mean / np.linalg.norm(mean)
    least = np.cos(np.radians(degrees))
    if gradient @ direction >= least * length:
        return gradient
    found = [
        optimize.minimize(
            lambda x: ((x - gradient) ** 2).sum() / length**2,
            start * length,
            jac=lambda x: 2 * (x - gradient) / length**2,
            method="SLSQP",
            constraints=[
                {"type": "eq", "fun": lambda x: (x @ x) / length**2 - 1.0},
                {"type": "ineq", "fun": lambda x: x @ direction / length - least},
            ],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        for start in (direction, direction + 0.3 * gradient / length)
    ]
    return min((one for one in found if one.success), key=lambda one: one.fun).x


def naive(gradients, degrees, clip=True):
    norms = np.linalg.norm(gradients, axis=1)
    limit = np.median(norms) if clip else np.inf
    clipped = gradients * np.minimum(1.0, limit / norms)[:, None]
    mean = clipped.mean(axis=0)
    if degrees is not None:
        clipped = np.array([nearest(row, mean, degrees) for row in clipped])
    return clipped.mean(axis=0)


def spread(count, size, seed):
    """Gradients of very different lengths, one against all others."""
    source = np.random.default_rng(seed)
    rows = source.normal(size=(count, size)) + 0.7
    rows *= source.lognormal(size=(count, 1))
    rows[0] = -3.0 * rows[1:].mean(axis=0) + 0.2 * source.normal(size=size)
    return rows


@pytest.mark.parametrize("degrees", [30.0, 60.0, 90.0, 120.0])
@pytest.mark.parametrize("count", [3, 6])
def test_the_aggregate_is_that_of_the_nearest_vectors_in_the_cone(degrees, count):
    gradients = spread(count, 4, seed=count)
    found, differences = robust_aggregate(gradients, angle=degrees)
    np.testing.assert_allclose(found, naive(gradients, degrees), atol=1e-5)
    for left_out in range(count):
        kept = np.delete(gradients, left_out, axis=0)
        np.testing.assert_allclose(found + differences[left_out], naive(kept, degrees), atol=1e-5)


def test_a_reference_has_a_median_and_a_mean_direction_of_its_own():
    gradients = spread(5, 3, seed=1)
    found, differences = robust_aggregate(gradients, angle=60.0)
    # a plain mean of what all the others gave in the whole aggregate would be another vector
    alone = robust_mean(gradients[1:], angle=60.0)
    np.testing.assert_allclose(found + differences[0], alone, rtol=1e-12)
    whole, _ = robust_aggregate(gradients, angle=None, clip=False)
    assert not np.allclose(whole + differences[0], alone)


def test_without_clipping_and_cone_it_is_the_mean():
    gradients = spread(4, 3, seed=2)
    found, differences = robust_aggregate(gradients, angle=None, clip=False)
    np.testing.assert_allclose(found, gradients.mean(axis=0))
    without = (gradients.sum(axis=0) - gradients) / 3
    np.testing.assert_allclose(found + differences, without)


def test_no_source_moves_the_aggregate_further_however_long_its_gradient():
    gradients = spread(5, 3, seed=3)
    moved = []
    for length in (1e2, 1e8):
        gradients[0] *= length / np.linalg.norm(gradients[0])
        moved.append(robust_aggregate(gradients)[1][0])
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-6)


def test_opposite_and_vanishing_gradients_stay_finite():
    for gradients in ([[1.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0]] * 3, [[3.0], [-1.0], [2.0]]):
        found, differences = robust_aggregate(gradients, angle=45.0)
        assert np.isfinite(found).all()
        assert np.isfinite(differences).all()


def test_exactly_opposite_is_turned_to_the_mean_of_the_nearest():
    # mean direction (1, 0); the third lies opposite, and both sides of the cone are as near
    found, _ = robust_aggregate([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], angle=60.0)
    np.testing.assert_allclose(found, [(1.0 + 1.0 + np.cos(np.pi / 3)) / 3, 0.0], atol=1e-12)


@pytest.mark.parametrize(
    ("gradients", "options", "said"),
    [
        ([[1.0, 2.0]], {}, "gradients: expected at least 2"),
        ([[1.0], [np.nan]], {}, "gradients"),
        ([[1.0], [2.0]], {"angle": 0.0}, "angle"),
        ([[1.0], [2.0]], {"angle": 200.0}, "angle"),
        ([[1.0], [2.0]], {"clip": 1}, "clip"),
    ],
)
def test_bad_arguments_are_named(gradients, options, said):
    with pytest.raises(ValueError, match=said):
        robust_aggregate(gradients, **options)
