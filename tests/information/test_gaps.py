import math
from dataclasses import replace

import numpy as np
import pytest

from tacit.covariance import Dense, Isotropic, LowRank
from tacit.information import (
    Gap,
    gap_donsker_varadhan,
    gap_sliced_wasserstein,
    improve,
    log_det_information,
    mixture,
)

from .oracles import largest_miss_count, line_information, log_det, plane_information

GAPS = {
    "likelihood": lambda *a, **k: gap_donsker_varadhan(*a, critic="likelihood", **k),
    "kernel": lambda *a, **k: gap_donsker_varadhan(*a, critic="kernel", **k),
    "transport": lambda *a, confidence=None, samples=None, **k: gap_sliced_wasserstein(*a, **k),
}
TWO_POINTS = [[-3.0], [3.0]]
OUTLIER = ([[0.0], [40.0]], [0.99, 0.01])
TRIALS, FAILURE = 60, 0.1


def transport_by_quantiles(points, weights, count=400_000):
    """W₂² between the mixture scaled to variance 1 and N(0, 1), by sorted quantiles of both."""
    from scipy.special import ndtr, ndtri

    points, weights = np.asarray(points, dtype=float), np.asarray(weights)
    mean = weights @ points
    scale = math.sqrt(weights @ (points - mean) ** 2 + 1)
    grid = np.linspace(points.min() - 9, points.max() + 9, count)
    levels = ndtr(grid[:, None] - points) @ weights
    shares = (np.arange(count) + 0.5) / count
    quantiles = (np.interp(shares, levels, grid) - mean) / scale
    return float(np.mean((quantiles - ndtri(shares)) ** 2))


@pytest.mark.parametrize("kind", GAPS)
def test_never_above_the_gap_of_two_points(kind):
    exact = log_det(TWO_POINTS) - line_information([-3.0, 3.0])
    gap = GAPS[kind](TWO_POINTS, Isotropic(1.0, 1), rng=0)
    assert 0.1 * exact < gap.nats < exact
    assert gap.gaussian == pytest.approx(0.5 * math.log(10), rel=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", GAPS)
@pytest.mark.parametrize("seed", range(3))
def test_clusters_in_the_plane_with_unequal_weights(kind, seed):
    source = np.random.default_rng(seed)
    points, weights = source.normal(scale=4, size=(7, 2)), source.dirichlet(np.ones(7))
    factor = np.array([[1.0, 0.0], [0.5, 2.0]])
    exact = log_det(points, weights) - plane_information(points, weights)
    outputs, noise = points @ factor.T, Dense(factor @ factor.T)
    gap = GAPS[kind](outputs, noise, weights=weights, rng=seed, confidence=0.999)
    assert 0.0 < gap.nats < exact
    if kind == "likelihood":
        assert gap.nats > 0.9 * exact - 0.01


@pytest.mark.parametrize(
    ("points", "weights"), [(TWO_POINTS, [0.5, 0.5]), OUTLIER], ids=["two", "outlier"]
)
@pytest.mark.parametrize("kind", ["likelihood", "kernel"])
def test_misses_no_more_often_than_it_says(kind, points, weights):
    line = [p[0] for p in points]
    exact = log_det(points, weights) - line_information(line, weights)
    options = {"weights": weights, "samples": 400, "confidence": 1 - FAILURE}
    found = [GAPS[kind](points, Isotropic(1.0, 1), rng=s, **options).nats for s in range(TRIALS)]
    assert sum(nats > exact for nats in found) < largest_miss_count(TRIALS, FAILURE)


def test_the_same_count_finds_a_plug_in_objective_out():
    """The objective at the likelihood ratio without its confidence bound is above half the time."""
    exact = log_det(TWO_POINTS) - line_information([-3.0, 3.0])
    source, found = np.random.default_rng(0), []
    for _ in range(TRIALS):
        noisy = source.choice([-3.0, 3.0], 400) + source.standard_normal(400)
        density = 0.5 * (np.exp(-0.5 * (noisy - 3) ** 2) + np.exp(-0.5 * (noisy + 3) ** 2))
        gaussian = np.exp(-(noisy**2) / 20) / math.sqrt(10)
        found.append(float(np.log(density / gaussian).mean()))
    assert sum(nats > exact for nats in found) >= largest_miss_count(TRIALS, FAILURE)


@pytest.mark.parametrize(
    ("points", "weights"),
    [(TWO_POINTS, [0.5, 0.5]), OUTLIER, ([[-1.0], [0.0], [5.0]], [0.2, 0.3, 0.5])],
    ids=["two", "outlier", "three"],
)
def test_transport_is_that_of_the_quantiles_rounded_down(points, weights):
    oracle = 0.5 * transport_by_quantiles([p[0] for p in points], weights)
    gap = gap_sliced_wasserstein(points, Isotropic(1.0, 1), weights=weights)
    assert gap.nats <= oracle + 1e-5
    assert gap.nats == pytest.approx(oracle, abs=1e-4)
    assert gap.confidence == 1.0
    assert gap.samples == 0


def test_transport_proves_nothing_about_a_gaussian_release():
    """Where the release is nearly Gaussian the published sample distance is above the gap."""
    source = np.random.default_rng(0)
    points = 0.2 * source.standard_normal((300, 1))
    grid = np.linspace(-10, 10, 4_001)
    density = np.exp(-0.5 * (grid[:, None] - points[:, 0]) ** 2).mean(axis=1)
    density /= math.sqrt(2 * math.pi)
    entropy = -float((density * np.log(density)).sum()) * (grid[1] - grid[0])
    exact = log_det(points) - entropy + 0.5 * math.log(2 * math.pi * math.e)
    assert gap_sliced_wasserstein(points, Isotropic(1.0, 1)).nats <= max(exact, 0.0)
    first = np.sort(points[source.integers(300, size=1_000), 0] + source.standard_normal(1_000))
    second = np.sort(source.standard_normal(1_000) * math.sqrt(1 + points.var()))
    published = 0.5 * float(np.mean((first - second) ** 2)) / (1 + points.var())
    assert published > exact


def test_axes_add_up():
    """Independent signs on two axes: the gap of the product is twice that of one axis."""
    square = [[a, b] for a in (-3.0, 3.0) for b in (-3.0, 3.0)]
    one = gap_sliced_wasserstein(TWO_POINTS, Isotropic(1.0, 1)).nats
    two = gap_sliced_wasserstein(square, Isotropic(1.0, 2), bases=1).nats
    assert two == pytest.approx(2 * one, rel=1e-3)
    many = gap_sliced_wasserstein(square, Isotropic(1.0, 2), bases=20).nats
    assert two <= many < 2 * (log_det(TWO_POINTS) - line_information([-3.0, 3.0]))


@pytest.mark.parametrize("kind", GAPS)
def test_improving_keeps_the_bound_above_the_information(kind):
    exact = line_information([-3.0, 3.0])
    gap = GAPS[kind](TWO_POINTS, Isotropic(1.0, 1), rng=0)
    bound = improve(log_det_information([9.0], Isotropic(1.0, 1)), gap)
    assert exact < bound.upper < 0.5 * math.log(10)
    assert bound.deterministic == (kind == "transport")
    # Adding the gap in place of subtracting it, or doubling it, would be seen.
    assert bound.upper == pytest.approx(gap.gaussian - gap.nats, rel=1e-12)


def test_confidences_add_up_to_the_union_bound():
    gap = gap_donsker_varadhan(TWO_POINTS, Isotropic(1.0, 1), confidence=0.98, samples=500, rng=0)
    measured = mixture(TWO_POINTS, Isotropic(10.0, 1), confidence=0.99, samples=500, rng=0)
    sampled = replace(measured, upper=2.0, deterministic=False)
    bound = improve(sampled, gap)
    assert bound.confidence == pytest.approx(0.97)
    assert bound.confidence <= 0.97
    assert bound.lower == sampled.lower
    assert bound.samples == 1_000
    with pytest.raises(ValueError, match="confidences"):
        improve(replace(sampled, confidence=0.01), replace(gap, confidence=0.01))


def test_a_gap_is_not_taken_off_a_tighter_bound():
    gap = gap_sliced_wasserstein(TWO_POINTS, Isotropic(1.0, 1))
    tight = mixture(TWO_POINTS, Isotropic(1.0, 1), rng=0)
    with pytest.raises(ValueError, match="tighter bound"):
        improve(tight, gap)
    with pytest.raises(ValueError, match="tighter bound"):
        improve(1.0, gap)


def test_never_below_the_lower_bound():
    measured = mixture(TWO_POINTS, Isotropic(1.0, 1), rng=0)
    loose = replace(measured, upper=1.2, deterministic=False)
    gap = Gap(nats=1.0, confidence=0.9, samples=1, method="too much", gaussian=1.16)
    assert improve(loose, gap).upper >= measured.lower


def test_a_bare_direction_has_no_gap():
    noise = LowRank([[1.0, 0.0]], [[1.0]])
    outputs = [[0.0, 0.0], [1.0, 1.0]]
    for make in GAPS.values():
        gap = make(outputs, noise, rng=0)
        assert gap.nats == 0.0
        assert math.isinf(gap.gaussian)
        assert math.isinf(improve(gap.gaussian, gap).upper)


def test_equal_outputs_have_no_gap():
    for make in GAPS.values():
        assert make(np.ones((5, 2)), Isotropic(1.0, 2), samples=2_000, rng=0).nats == 0.0


@pytest.mark.parametrize("function", [gap_donsker_varadhan, gap_sliced_wasserstein])
def test_bad_arguments_get_a_sentence(function):
    noise = Isotropic(1.0, 1)
    with pytest.raises(ValueError, match="outputs"):
        function([[math.inf]], noise)
    with pytest.raises(ValueError, match="outputs"):
        function(np.ones((3, 2)), noise)
    with pytest.raises(ValueError, match="weights"):
        function(TWO_POINTS, noise, weights=[0.5, 0.6])
    with pytest.raises(ValueError, match="rng"):
        function(TWO_POINTS, noise, rng="x")
    with pytest.raises(ValueError, match="critic"):
        gap_donsker_varadhan(TWO_POINTS, noise, critic="network")
    with pytest.raises(ValueError, match="samples"):
        gap_donsker_varadhan(TWO_POINTS, noise, samples=10)
    with pytest.raises(ValueError, match="bases"):
        gap_sliced_wasserstein(TWO_POINTS, noise, bases=0)
    with pytest.raises(ValueError, match="gap: expected a Gap"):
        improve(1.0, 0.5)
    with pytest.raises(ValueError, match="nats"):
        Gap(nats=-1.0, confidence=0.9, samples=1, method="-", gaussian=1.0)
