"""The checks beside the game: true bounds, whatever the noise, against quadrature."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from tacit.covariance import Dense
from tacit.information import mixture
from tacit_lab.stackelberg import (
    EllipticalNoise,
    FullGaussianNoise,
    MixtureNoise,
    finite_information,
)
from tacit_lab.stackelberg.checks import CheckedSecret, run_checks

POINTS = np.array([[-2.0], [-1.0], [0.5], [2.5]])
ONE = np.eye(1)
LAWS = {
    "gaussian": (FullGaussianNoise(lift=ONE, factor=1.2 * ONE), stats.norm(scale=1.2).pdf),
    "laplace": (
        EllipticalNoise(lift=ONE, factor=0.5 * ONE, shape=0.5),
        # exp(−½ |x|/L) with L = ½.
        stats.laplace(scale=1.0).pdf,
    ),
    "mixture": (
        MixtureNoise(
            lift=ONE,
            weights=np.array([0.5, 0.5]),
            means=np.array([[-1.0], [1.0]]),
            factors=0.6 * np.ones((2, 1, 1)),
        ),
        lambda x: 0.5 * (stats.norm(-1, 0.6).pdf(x) + stats.norm(1, 0.6).pdf(x)),
    ),
}


def exact_information(density, groups):
    """∫ Σ_g p(g) f(y|g) ln f(y|g)/f(y) dy."""
    values = np.unique(groups)

    def integrand(y):
        each = density(y - POINTS[:, 0])
        whole = each.mean()
        parts = [
            (groups == value).mean() * one * math.log(one / whole)
            for value in values
            if (one := each[groups == value].mean()) > 0
        ]
        return sum(parts)

    nodes = [-40, *POINTS[:, 0], *(POINTS[:, 0] - 1), *(POINTS[:, 0] + 1), 40]
    pieces = np.unique(nodes)
    return sum(integrate.quad(integrand, a, b, limit=200)[0] for a, b in itertools.pairwise(pieces))


@pytest.mark.parametrize("groups", [(0, 1, 2, 3), (0, 1, 1, 0)], ids=["rows", "groups"])
@pytest.mark.parametrize("name", LAWS)
def test_finite_information_is_bounded_on_both_sides(name, groups):
    noise, density = LAWS[name]
    groups = np.array(groups)
    exact = exact_information(density, groups)
    missed = 0
    for seed in range(20):
        bound = finite_information(noise, POINTS, groups, samples=4000, confidence=0.95, rng=seed)
        assert bound.upper - bound.lower < 0.15
        missed += not bound.lower <= exact <= bound.upper
    # At most Bin(20, 0.1): 7 or more have probability 0.002.
    assert missed <= 6


def test_noise_of_another_scale_is_found_out():
    noise, _ = LAWS["gaussian"]
    exact = exact_information(stats.norm(scale=1.8).pdf, np.arange(4))
    bound = finite_information(noise, POINTS, samples=20_000, confidence=0.99, rng=0)
    assert not bound.lower <= exact <= bound.upper


@pytest.mark.thorough
def test_fano_never_exceeds_the_information():
    noise, density = LAWS["gaussian"]
    groups, labels = np.arange(4), np.array([0, 0, 1, 1])
    subject = CheckedSecret(points=POINTS, groups=groups)
    exact = exact_information(density, labels)
    for seed in range(20):
        checks = run_checks(
            noise, subject, {"half": labels}, 4000, 0.99, np.random.default_rng(seed)
        )
        assert checks[0].name == "Fano on 'half'"
        assert 0.05 < checks[0].lower <= exact
        assert checks[1].lower <= exact_information(density, groups) <= checks[1].upper


def test_a_sampled_secret_is_not_recognised_by_itself():
    """Labels without any relation to the outputs are not learned, though rows are distinct."""
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(400, 2)), rng.integers(2, size=400)
    quiet = FullGaussianNoise(lift=np.eye(2), factor=1e-3 * np.eye(2))
    found = {}
    for groups in (None, np.arange(400)):
        subject = CheckedSecret(points=points, groups=groups)
        found[groups is None] = run_checks(
            quiet, subject, {"coin": labels}, 2000, 0.99, np.random.default_rng(1)
        )[0]
    assert found[True].lower < 0.05
    # Where the rows are the whole secret, its label is a function of the row, and leaks.
    assert found[False].lower > 0.6


def test_one_label_leaks_nothing():
    noise, _ = LAWS["gaussian"]
    subject = CheckedSecret(points=POINTS, groups=np.arange(4))
    check = run_checks(
        noise, subject, {"same": np.zeros(4, int)}, 1000, 0.99, np.random.default_rng(0)
    )[0]
    assert check.lower == 0.0


def test_only_a_gaussian_has_a_covariance_that_a_gaussian_certificate_takes():
    """Its second moment certifies less of an elliptical law than it tells."""
    points = np.array([[-1.0], [-0.3], [0.9], [1.0]])
    noise = EllipticalNoise(lift=ONE, factor=0.1 * ONE, shape=0.4)
    assert not hasattr(noise, "covariance")
    assert not hasattr(LAWS["mixture"][0], "covariance")
    assert hasattr(LAWS["gaussian"][0], "covariance")
    told = finite_information(noise, points, samples=20_000, confidence=0.999, rng=0)
    grid = np.linspace(-60.0, 60.0, 600_001)[:, None]
    density = np.exp(noise.pairwise_log_density(grid, points))
    whole = density.mean(axis=1)
    terms = np.where(density > 0.0, density * np.log(density / whole[:, None]), 0.0)
    exact = float(np.trapezoid(terms.mean(axis=1), grid[:, 0]))
    assert told.lower <= exact <= told.upper
    wrong = mixture(points, Dense(noise.second_moment), samples=20_000, rng=0)
    assert wrong.upper < exact


def test_outputs_that_noise_does_not_cover_are_refused():
    noise = EllipticalNoise(lift=np.array([[1.0, 0.0]]), factor=ONE, shape=0.5)
    with pytest.raises(ValueError, match="where there is noise"):
        finite_information(noise, [[0.0, 0.0], [1.0, 1.0]])
    assert finite_information(noise, [[0.0, 3.0], [1.0, 3.0]], rng=0).upper > 0.0
