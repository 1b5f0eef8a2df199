"""Noise laws of the game: densities, draws and covariances agree with each other."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from tacit_lab.stackelberg import EllipticalNoise, FullGaussianNoise, MixtureNoise

LIFT = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -1.0]])
LOWER = np.array([[1.5, 0.0], [-0.4, 0.7]])


def gaussian(lift=LIFT, factor=LOWER):
    return FullGaussianNoise(lift=lift, factor=factor)


def mixture(lift=LIFT):
    return MixtureNoise(
        lift=lift,
        weights=np.array([0.25, 0.75]),
        means=np.array([[-1.5, 0.6], [0.5, -0.2]]),
        factors=np.stack([LOWER, 0.5 * LOWER]),
    )


def elliptical(shape, lift=LIFT, factor=LOWER):
    return EllipticalNoise(lift=lift, factor=factor, shape=shape)


LAWS = {
    "gaussian": gaussian(),
    "mixture": mixture(),
    "laplace": elliptical(0.5),
    "light": elliptical(2.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_density_integrates_to_one_and_to_the_covariance(name):
    noise = LAWS[name]
    reach = 12.0 * np.sqrt(np.diagonal(noise.coordinate_covariance))
    axes = [np.linspace(-one, one, 901) for one in reach]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    density = np.exp(noise.pairwise_log_density(grid.reshape(-1, 2), np.zeros((1, 2))))
    density = density.reshape(901, 901)

    def integral(values):
        return integrate.simpson(integrate.simpson(values, x=axes[1]), x=axes[0])

    # The cusp of the Laplace law costs the rule accuracy: h² = (reach / 450)².
    assert integral(density) == pytest.approx(1.0, abs=2e-3)
    second = integral(density * grid[..., 0] * grid[..., 1])
    assert second == pytest.approx(noise.coordinate_covariance[0, 1], abs=5e-3)


@pytest.mark.parametrize("name", LAWS)
def test_draws_have_the_covariance_and_another_scale_has_not(name):
    noise, count = LAWS[name], 40_000
    direction = np.array([0.3, -1.0, 0.8])
    squares = (noise.sample(count, 1) @ direction) ** 2
    expected = direction @ noise.second_moment @ direction
    error = squares.std(ddof=1) / math.sqrt(count)
    assert abs(squares.mean() - expected) < 5 * error
    assert abs(1.1 * squares.mean() - expected) > 5 * error


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_density(name):
    """E log f over draws is the integral of f log f for a law with a known entropy."""
    noise, count = LAWS[name], 40_000
    found = noise.pairwise_log_density(noise.sample_coordinates(count, 2), np.zeros((1, 2)))[:, 0]
    reach = 12.0 * np.sqrt(np.diagonal(noise.coordinate_covariance))
    axes = [np.linspace(-one, one, 901) for one in reach]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = noise.pairwise_log_density(grid, np.zeros((1, 2)))[:, 0]
    terms = (np.exp(log_density) * log_density).reshape(901, 901)
    expected = integrate.simpson(integrate.simpson(terms, x=axes[1]), x=axes[0])
    error = found.std(ddof=1) / math.sqrt(count)
    assert abs(found.mean() - expected) < 5 * error + 5e-3


def test_shape_one_is_gaussian():
    rng = np.random.default_rng(0)
    points, centres = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    plain = gaussian().pairwise_log_density(points, centres)
    assert elliptical(1.0).pairwise_log_density(points, centres) == pytest.approx(plain)
    assert elliptical(1.0).second_moment == pytest.approx(gaussian().covariance)
    law = stats.multivariate_normal(cov=gaussian().coordinate_covariance)
    assert plain[2, 3] == pytest.approx(law.logpdf(points[2] - centres[3]))


def test_released_noise_comes_from_the_system():
    noise = gaussian()
    assert not np.array_equal(noise.sample(3), noise.sample(3))
    assert np.array_equal(noise.sample(3, 7), noise.sample(3, 7))


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: gaussian(factor=np.array([[1.0, 1.0], [0.0, 1.0]])), "factor"),
        (lambda: gaussian(factor=-LOWER), "factor"),
        (lambda: gaussian(lift=np.ones((2, 3))), "lift"),
        (lambda: elliptical(0.0), "shape"),
        (
            lambda: MixtureNoise(
                lift=np.eye(1),
                weights=np.ones(1),
                means=np.ones((1, 1)),
                factors=np.ones((1, 1, 1)),
            ),
            "means",
        ),
        (
            lambda: MixtureNoise(
                lift=np.eye(1),
                weights=np.array([0.5]),
                means=np.zeros((1, 1)),
                factors=np.ones((1, 1, 1)),
            ),
            "weights",
        ),
    ],
)
def test_bad_parameters_are_named(build, name):
    with pytest.raises(ValueError, match=name):
        build()


def test_values_cannot_be_changed():
    noise = gaussian()
    with pytest.raises(ValueError, match="read-only"):
        noise.factor[0, 0] = 5.0
