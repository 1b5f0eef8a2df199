"""Information certified for finite secrets: at least the true one, in 240 random secrets."""

import math

import numpy as np
import pytest

from tacit.covariance import Dense
from tacit.design import gaussian_information, true_information
from tacit.guarantees import InformationBound
from tacit.information import mixture

from ..information.oracles import largest_miss_count, plane_information
from .registry import certifies

SECRETS = 240
CONFIDENCE = 0.99


def line_information(points, weights):
    """h(Y) − h(noise) on the line: the trapezoidal rule, exact to rounding for Gaussians."""
    step = 0.05
    y = np.arange(points.min() - 9.0, points.max() + 9.0, step)
    kernel = np.exp(-0.5 * (y[:, None] - points) ** 2) / math.sqrt(2 * math.pi)
    density = kernel @ weights
    kept = density[density > 0]
    return -float((kept * np.log(kept)).sum()) * step - 0.5 * math.log(2 * math.pi * math.e)


def random_line(source, size):
    """Points on the line: clusters, heavy tails, a lattice, or a bell."""
    scale = math.exp(source.uniform(-1.5, 1.5))
    kinds = [
        source.choice([-4.0, 0.0, 6.0], size) + 0.2 * source.normal(size=size),
        np.clip(source.standard_t(1, size=size), -60.0, 60.0),
        np.arange(float(size)),
        source.normal(size=size),
    ]
    return scale * kinds[int(source.integers(4))]


def random_secret(seed):
    """A secret in up to 20 dimensions whose information is a sum over independent lines."""
    source = np.random.default_rng(seed)
    lines = int(source.integers(1, 4))
    sizes = [int(source.integers(2, (500, 22, 7)[lines - 1] + 1)) for _ in range(lines)]
    parts = [random_line(source, size) for size in sizes]
    priors = [
        source.dirichlet(np.ones(size)) if seed % 2 else np.full(size, 1 / size) for size in sizes
    ]
    exact = sum(line_information(p, w) for p, w in zip(parts, priors, strict=True))
    grid = np.stack([a.ravel() for a in np.meshgrid(*parts, indexing="ij")], axis=1)
    weights = priors[0]
    for prior in priors[1:]:
        weights = np.outer(weights, prior).ravel()
    dim = int(source.integers(lines, 21))
    # Any full-rank map of output and noise together leaves the information as it is.
    frame = source.normal(size=(dim, dim)) * np.exp(source.uniform(-2, 2, size=dim))
    outputs = grid @ frame[:, :lines].T
    return outputs, weights / weights.sum(), Dense(frame @ frame.T), exact


@pytest.mark.thorough
@certifies(InformationBound)
def test_no_more_secrets_beyond_the_bound_than_its_confidence_allows():
    above = below = careless = loose = 0
    for seed in range(SECRETS):
        outputs, weights, covariance, exact = random_secret(seed)
        bound = mixture(
            outputs, covariance, weights=weights, samples=8000, confidence=CONFIDENCE, rng=seed
        )
        guarantee = bound.guarantee("the secret")
        above += guarantee.nats < exact - 1e-9
        below += bound.lower > exact + 1e-9
        careless += bound.estimate < exact - 1e-9
        loose += guarantee.nats > exact * 1.1 + 0.05
    allowed = largest_miss_count(SECRETS, 1 - CONFIDENCE)
    assert above < allowed
    assert below < allowed
    # The estimate itself would not pass, and the bound is not vacuous.
    assert careless > allowed
    assert loose < SECRETS // 8


def plane_secret(seed):
    source = np.random.default_rng(1000 + seed)
    size = int(source.integers(3, 40))
    kinds = [
        source.choice([-5.0, 5.0], (size, 1)) * [1.0, 0.3] + source.normal(size=(size, 2)),
        np.clip(source.standard_t(2, size=(size, 2)), -30, 30),
        np.stack(np.divmod(np.arange(size), 5), axis=1) * [2.0, 0.5],
    ]
    return kinds[seed % 3]


@certifies(InformationBound)
@pytest.mark.parametrize("seed", range(12))
def test_least_noise_designs_keep_their_budget(seed):
    outputs = plane_secret(seed)
    budget = (0.3, 0.7, 1.2)[seed % 3 - seed // 6]
    design = true_information(
        outputs, budget, family=("full", "diagonal", "scale")[seed // 4], rng=seed, progress=False
    )
    factor = np.linalg.cholesky(design.covariance.to_dense())
    exact = plane_information(np.linalg.solve(factor, outputs.T).T, step=0.1)
    assert exact <= design.information + 1e-9
    assert design.information <= budget
    guarantee = InformationBound(
        nats=design.information,
        secret="the secret",
        evidence="numerical" if design.confidence is None else "statistical",
        assumptions=(),
        source="test",
        confidence=design.confidence,
    )
    assert exact <= guarantee.nats + 1e-9
    method = "diagonal" if seed // 4 == 1 else "exact"
    gaussian = gaussian_information(np.cov(outputs.T, bias=True), budget, method=method)
    assert design.cost <= gaussian.cost * (1 + 1e-9)
