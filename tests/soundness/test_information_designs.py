"""Designs: the information certified is at least that of the actual source under its noise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from tacit.covariance import Isotropic
from tacit.design import (
    confident_information,
    gaussian_information,
    log_det_information,
)

METHODS = ("exact", "linear", "diagonal")


def information_on_a_line(points, variance):
    """h(Y) − h(noise) of equally likely points, nats: Gauss–Legendre on panels of half a σ."""
    scale = math.sqrt(variance)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    low, high = points.min() - 12 * scale, points.max() + 12 * scale
    edges = np.linspace(low, high, 1 + math.ceil((high - low) / (scale / 2)))
    half = np.diff(edges)[:, None] / 2
    y = (edges[:-1, None] + half * (nodes + 1)).ravel()
    log_kernels = -0.5 * ((y[:, None] - points) / scale) ** 2
    log_density = logsumexp(log_kernels, axis=1) - math.log(
        len(points) * scale * math.sqrt(2 * math.pi)
    )
    entropy = -((half * weights).ravel() * np.exp(log_density)) @ log_density
    return entropy - 0.5 * math.log(2 * math.pi * math.e * variance)


def information_by_sampling(points, covariance, count, seed):
    """E ln p(y | x)/p(y) of equally likely points, with its standard error."""
    rng = np.random.default_rng(seed)
    lower = np.linalg.cholesky(covariance)
    white = np.linalg.solve(lower, points.T).T
    noise = rng.normal(size=(count, points.shape[1]))
    seen = white[rng.integers(len(points), size=count)] + noise
    squared = ((seen[:, None, :] - white[None]) ** 2).sum(axis=2)
    evidence = logsumexp(-0.5 * squared, axis=1) - math.log(len(points))
    samples = -0.5 * (noise**2).sum(axis=1) - evidence
    return samples.mean(), samples.std(ddof=1) / math.sqrt(count)


SOURCES = {
    "two points": np.array([-1.0, 1.0]),
    "lattice": np.arange(8.0),
    "heavy tail": np.array([0.0] * 30 + [1.0, -2.0, 30.0]),
    "clusters": np.r_[np.linspace(0, 0.1, 6), np.linspace(5, 5.2, 6)],
    "skewed": np.exp(np.linspace(0, 4, 12)),
}


@pytest.mark.parametrize("mi_budget", [0.01, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("source", SOURCES)
def test_exact_information_of_a_source_on_a_line(source, mi_budget):
    points = SOURCES[source]
    design = gaussian_information([np.var(points)], mi_budget)
    exact = information_on_a_line(points, design.covariance.trace())
    assert exact <= design.information + 1e-10
    assert exact <= mi_budget + 1e-10


def test_two_points_have_the_information_of_the_table():
    """Two points at ±a, noise σ: .11142148, .33683082, .63272019 nats at a/σ = .5, 1, 2."""
    for ratio, nats in ((0.5, 0.11142148), (1.0, 0.33683082), (2.0, 0.63272019)):
        assert information_on_a_line(np.array([-ratio, ratio]), 1.0) == pytest.approx(
            nats, abs=1e-8
        )
        bound = log_det_information([ratio**2], Isotropic(1.0, 1))
        assert nats <= bound == pytest.approx(0.5 * math.log1p(ratio**2))


def test_a_gaussian_source_meets_the_bound():
    """For a Gaussian output the bound is the information itself, so it cannot be any smaller."""
    quantiles = stats.norm.ppf((np.arange(400) + 0.5) / 400)
    design = gaussian_information([np.var(quantiles)], 0.2)
    assert information_on_a_line(quantiles, design.covariance.trace()) > 0.2 * (1 - 1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mi_budget", [0.2, 1.5])
def test_information_of_sources_in_space(mi_budget, method):
    rng = np.random.default_rng(1)
    mixing = np.array([[2.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.05]])
    sources = {
        "clusters": (rng.integers(3, size=(60, 1)) * 4.0 + rng.normal(size=(60, 3))) @ mixing,
        "heavy tails": rng.standard_t(1.5, size=(60, 3)) @ mixing,
        "lattice": rng.integers(3, size=(60, 3)) @ mixing,
    }
    for points in sources.values():
        covariance = np.cov(points, rowvar=False, ddof=0)
        design = gaussian_information(covariance, mi_budget, method=method)
        estimate, error = information_by_sampling(
            points - points.mean(axis=0), design.covariance.to_dense(), 40_000, seed=2
        )
        assert estimate <= design.information + 4 * error


def test_half_of_the_noise_would_be_caught():
    """The check above fails for a Gaussian-like source when the noise is halved."""
    points = np.random.default_rng(3).normal(size=(400, 2))
    design = gaussian_information(np.cov(points, rowvar=False, ddof=0), 0.5)
    centred = points - points.mean(axis=0)
    honest = information_by_sampling(centred, design.covariance.to_dense(), 40_000, seed=4)
    halved = information_by_sampling(centred, design.covariance.to_dense() / 2, 40_000, seed=4)
    assert honest[0] <= design.information + 4 * honest[1]
    assert halved[0] > design.information + 4 * halved[1]


@given(
    st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=6, unique=True).filter(
        lambda points: np.ptp(points) > 1e-3
    ),
    st.floats(0.05, 2.0),
)
def test_exact_information_of_arbitrary_points(points, mi_budget):
    values = np.array(points)
    design = gaussian_information([np.var(values)], mi_budget)
    assert information_on_a_line(values, design.covariance.trace()) <= mi_budget + 1e-9


def test_a_confident_design_bounds_the_exact_information_as_often_as_it_says():
    """Samples of a lattice source: the information of the true source, by quadrature."""
    points = np.array([-1.0, -1.0, -1.0, 0.0, 1.0])
    rng, level, repetitions, wrong = np.random.default_rng(5), 0.9, 60, 0
    for _ in range(repetitions):
        samples = rng.choice(points, size=(60, 1))
        design = confident_information(samples, 0.4, confidence=level, radius=1.0)
        variance = design.covariance.trace()
        wrong += information_on_a_line(points, variance) > design.information
    assert wrong <= (1 - level) * repetitions
