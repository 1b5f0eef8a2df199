"""The exact mixture likelihood: closed forms, invariances, blocks, singular noise, bad input."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from tacit.covariance import Dense, Diagonal, Isotropic, ScaleMixture
from tacit.information import mixture
from tacit.information.finite import likelihood

from . import oracles

# RESULTS of quadrature at 30 digits: two points at ±a, noise 1.
TWO_POINTS = {0.5: 0.11142148, 1.0: 0.33683082, 2.0: 0.63272019}


@pytest.mark.parametrize("distance", TWO_POINTS)
def test_two_points_at_default_samples(distance):
    exact = TWO_POINTS[distance]
    bound = mixture([[-distance], [distance]], Isotropic(1.0, 1), rng=1)
    assert bound.lower <= exact <= bound.upper <= exact + 1e-3
    assert abs(bound.estimate - exact) < 1e-3
    assert exact == pytest.approx(oracles.line_information([-distance, distance]), abs=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_gaussian_outputs_reach_the_closed_form(spread):
    quantiles = norm.ppf((np.arange(4000) + 0.5) / 4000)
    outputs = spread * quantiles[:, None]
    closed = 0.5 * math.log1p(spread**2 * float(np.mean(quantiles**2)))
    bound = mixture(outputs, Isotropic(1.0, 1), rng=2)
    assert bound.upper == pytest.approx(closed, abs=1e-3)
    assert bound.upper <= closed * (1.0 + 1e-10)


@pytest.mark.thorough
def test_weights_are_priors():
    points, weights = np.array([-1.0, 0.5, 4.0]), np.array([0.6, 0.3, 0.1])
    exact = oracles.line_information(points, weights)
    bound = mixture(points[:, None], Isotropic(1.0, 1), weights=weights, rng=3)
    assert bound.lower <= exact <= bound.upper
    assert bound.upper - bound.lower < 0.01
    uniform = mixture(points[:, None], Isotropic(1.0, 1), rng=3)
    assert not uniform.lower <= exact <= uniform.upper


@pytest.mark.thorough
def test_weight_zero_is_not_there():
    with_it = mixture([[0.0], [1.0], [9.0]], Isotropic(1.0, 1), weights=[0.5, 0.5, 0.0], rng=4)
    without = mixture([[0.0], [1.0]], Isotropic(1.0, 1), rng=4)
    assert with_it.upper == pytest.approx(without.upper, rel=1e-3)


def test_units_rotation_and_origin_do_not_matter():
    source = np.random.default_rng(5)
    outputs, noise = source.normal(size=(40, 3)), np.diag([1.0, 2.0, 0.5])
    turn = np.linalg.qr(source.normal(size=(3, 3)))[0] @ np.diag([1e-3, 1.0, 1e4])
    plain = mixture(outputs, Dense(noise), samples=20_000, rng=6)
    turned = mixture(outputs @ turn.T + 1e3, Dense(turn @ noise @ turn.T), samples=20_000, rng=6)
    assert turned.lower - 5e-3 < plain.upper < turned.upper + 5e-3
    assert plain.lower <= turned.upper
    assert turned.lower <= plain.upper


def test_more_dimensions_than_outputs_lose_nothing():
    points = np.array([[-1.0], [1.0]])
    wide = points @ np.random.default_rng(7).normal(size=(1, 50))
    unit = wide / (np.linalg.norm(wide[1] - wide[0]) / 2.0)
    bound = mixture(unit, Isotropic(1.0, 50), rng=8)
    assert bound.lower <= TWO_POINTS[1.0] <= bound.upper <= TWO_POINTS[1.0] + 1e-3


def test_blocks_and_tiles_give_the_same_posterior(monkeypatch):
    source = np.random.default_rng(9)
    secret = likelihood.principal_secret(3.0 * source.normal(size=(300, 4)), np.full(300, 1 / 300))
    _, noisy = secret.draw(500, source)
    whole = likelihood.posterior(secret, noisy, means=True)
    monkeypatch.setattr(likelihood, "ENTRIES_PER_BLOCK", 700)
    monkeypatch.setattr(likelihood, "OUTPUTS_PER_TILE", 37)
    parts = likelihood.posterior(secret, noisy, means=True)
    for name in ("log_sum", "entropy", "means"):
        np.testing.assert_allclose(
            getattr(parts, name), getattr(whole, name), rtol=1e-11, atol=1e-12
        )


def test_the_posterior_is_bayes_rule():
    source = np.random.default_rng(10)
    points, weights = source.normal(size=(6, 2)), source.dirichlet(np.ones(6))
    secret = likelihood.principal_secret(points, weights)
    noisy = source.normal(size=(20, 2))
    found = likelihood.posterior(secret, noisy, means=True)
    distances = ((noisy[:, None] - secret.points) ** 2).sum(axis=2)
    joint = weights * np.exp(-0.5 * distances)
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.means, expected @ secret.points, rtol=1e-10)
    np.testing.assert_allclose(
        found.entropy, -(expected * np.log(expected)).sum(axis=1), rtol=1e-10
    )
    np.testing.assert_allclose(
        found.log_sum, np.log(joint.sum(axis=1)) + 0.5 * (noisy**2).sum(axis=1), rtol=1e-9
    )


@pytest.mark.thorough
def test_far_and_large_outputs_stay_sound():
    """Two pairs 10⁶ noise deviations apart: ln 2 for the pair, and the pair's own share."""
    points = np.array([[-1.0], [1.0], [1e6 - 1.0], [1e6 + 1.0]])
    exact = math.log(2.0) + TWO_POINTS[1.0]
    bound = mixture(points, Isotropic(1.0, 1), rng=11)
    assert bound.lower <= exact <= bound.upper <= exact + 2e-2
    shifted = mixture(points + 1e9, Isotropic(1.0, 1), rng=11)
    assert shifted.upper >= exact - 1e-6


def test_a_bare_direction_certifies_nothing_below_the_entropy():
    outputs = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    bound = mixture(outputs, Diagonal([1.0, 0.0]), rng=12)
    assert bound.upper == pytest.approx(math.log(3.0), rel=1e-12)
    assert bound.upper >= math.log(3.0)
    assert bound.deterministic
    same_there = np.array([[-1.0, 7.0], [1.0, 7.0]])
    covered = mixture(same_there, Diagonal([1.0, 0.0]), rng=12)
    assert covered.upper == pytest.approx(TWO_POINTS[1.0], abs=1e-3)


def test_the_same_output_says_nothing():
    bound = mixture([[2.0, 1.0]] * 5, Isotropic(1.0, 2), rng=13)
    assert (bound.lower, bound.estimate, bound.upper) == (0.0, 0.0, 0.0)
    assert bound.deterministic


def test_outputs_far_apart_say_which_secret_it_was():
    bound = mixture(1e3 * np.arange(7.0)[:, None], Isotropic(1.0, 1), rng=14)
    assert bound.upper == pytest.approx(math.log(7.0), rel=1e-9)
    assert bound.lower == pytest.approx(math.log(7.0), rel=0.02)


def test_a_seed_repeats_and_confidence_widens():
    outputs = np.random.default_rng(15).standard_t(2, size=(50, 2))
    bounds = [mixture(outputs, Isotropic(2.0, 2), samples=5000, rng=16) for _ in range(2)]
    assert bounds[0] == bounds[1]
    surer = mixture(outputs, Isotropic(2.0, 2), samples=5000, confidence=1 - 1e-9, rng=16)
    assert surer.lower <= bounds[0].lower <= bounds[0].upper <= surer.upper


def scale_mixture_information(points, noise):
    """h(Y) − h(B) on a dense grid."""
    y = np.linspace(points.min() - 60.0, points.max() + 60.0, 400_001)
    step = y[1] - y[0]

    def density(shifted):
        parts = [
            p * norm.pdf(shifted, scale=math.sqrt(s * noise.base.trace()))
            for p, s in zip(noise.probabilities, noise.scales, strict=True)
        ]
        return np.sum(parts, axis=0)

    def entropy(values):
        kept = values[values > 0]
        return -float((kept * np.log(kept)).sum()) * step

    return entropy(np.mean([density(y - p) for p in points], axis=0)) - entropy(density(y))


@pytest.mark.parametrize(
    ("scales", "probabilities"), [([1.0], [1.0]), ([0.2, 4.0], [0.5, 0.5]), ([0.01, 9], [0.3, 0.7])]
)
def test_noise_of_random_size_against_quadrature(scales, probabilities):
    points = np.array([-1.5, 0.0, 2.0])
    noise = ScaleMixture(Isotropic(1.3, 1), scales, probabilities)
    exact = scale_mixture_information(points, noise)
    bound = mixture(points[:, None], noise, samples=100_000, rng=17)
    assert bound.lower <= exact <= bound.upper
    assert bound.upper - bound.lower < 0.03
    wrong = ScaleMixture(Isotropic(1.3 * 1.3, 1), scales, probabilities)
    apart = mixture(points[:, None], wrong, samples=100_000, rng=17)
    assert not apart.lower <= exact <= apart.upper


@pytest.mark.parametrize(
    ("scales", "chances", "ratio"),
    [([1.0, 30.0], [0.2, 0.8], 2.39), ([1.0, 4.0], [0.5, 0.5], 1.35)],
)
def test_at_tiny_information_noise_of_random_size_costs_what_is_said(scales, chances, ratio):
    # I(X; Y) = a² J/2 + O(a⁴) with J = ∫ f'²/f the Fisher information of the noise's density
    shift = 0.003
    y = np.linspace(-80.0, 80.0, 400_001)
    parts = [
        p * np.exp(-(y**2) / 2 / s) / math.sqrt(2 * math.pi * s)
        for s, p in zip(scales, chances, strict=True)
    ]
    density = sum(parts)
    slope = sum(-y / s * part for s, part in zip(scales, parts, strict=True))
    seen = density > 0
    truth = shift**2 / 2 * float((slope[seen] ** 2 / density[seen]).sum()) * (y[1] - y[0])
    bound = mixture(
        [[-shift], [shift]], ScaleMixture(Isotropic(1.0, 1), scales, chances), samples=2000, rng=1
    )
    assert bound.upper / truth == pytest.approx(ratio, abs=0.01)


def test_scale_mixture_draws_have_its_covariance():
    noise = ScaleMixture(Diagonal([1.0, 4.0]), [0.5, 3.0], [0.25, 0.75])
    draws = noise.sample(200_000, rng=18)
    seen = (draws**2).mean(axis=0)
    error = (draws**2).std(axis=0) / math.sqrt(len(draws))
    expected = noise.covariance.diagonal()
    assert (np.abs(seen - expected) < 5 * error).all()
    assert (np.abs(seen - 1.1 * expected) > 5 * error).all()
    again = ScaleMixture.from_dict(noise.to_dict())
    np.testing.assert_array_equal(again.sample(5, rng=1), noise.sample(5, rng=1))
    assert noise.sample(3).shape == (3, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outputs": [[np.nan]]}, "outputs"),
        ({"outputs": [1.0, 2.0]}, "outputs"),
        ({"covariance": Isotropic(1.0, 2)}, "covariance: expected dimension 1"),
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"weights": [1.5, -0.5]}, "weights"),
        ({"weights": [1.0]}, "weights"),
        ({"samples": 10}, "samples"),
        ({"samples": 10**400}, "samples"),
        ({"confidence": 1.0}, "confidence"),
        ({"rng": -1}, "rng"),
    ],
)
def test_bad_input_is_named(change, words):
    arguments = {"outputs": [[0.0], [1.0]], "covariance": Isotropic(1.0, 1), **change}
    outputs, covariance = arguments.pop("outputs"), arguments.pop("covariance")
    with pytest.raises(ValueError, match=words):
        mixture(outputs, covariance, **arguments)


@pytest.mark.parametrize(
    ("scales", "probabilities"),
    [([0.0], [1.0]), ([], []), ([1.0, 2.0], [1.0]), ([1.0], [0.5]), ([1.0, 2.0], [1.5, -0.5])],
)
def test_bad_scale_mixtures_are_refused(scales, probabilities):
    with pytest.raises(ValueError, match=r"scales|probabilities"):
        ScaleMixture(Isotropic(1.0, 1), scales, probabilities)
