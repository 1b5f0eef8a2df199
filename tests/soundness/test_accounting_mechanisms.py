"""Guarantees of projections and sketches beside events of the real mechanisms."""

import math
from functools import partial

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import ndtr
from scipy.stats import binomtest

from tacit.accounting import (
    ProjectedSteps,
    noisy_projection,
    noisy_projection_steps,
    projected_plus_noise,
    renyi_over_adjacency,
    sketch,
    sketch_from_ratio,
    sketch_within,
    vector_projection,
)
from tacit.guarantees import ApproximateDP, RenyiDP
from tests.accounting import quadrature

from .registry import certifies

COUNT = 100_000
CONFIDENCE = 1 - 1e-6
DELTA = 0.05


def wishart(pair, rank, rng):
    """Mv for both vectors, and the statistic vᵀy − v'ᵀy over ‖y‖."""
    releases = []
    for vector in pair:
        z = rng.standard_normal((COUNT, rank, vector.size)) / math.sqrt(rank)
        releases.append(np.einsum("nrd,nr->nd", z, z @ vector))
    return releases


def vectors(dim, alignment):
    first = np.eye(dim)[0]
    return first, alignment * first + math.sqrt(1 - alignment**2) * np.eye(dim)[1]


def projected(rng):
    pair = vectors(4, 0.95)
    profile = vector_projection(dim=4, rank=3, alignment=0.95)
    scores = [(y @ (pair[0] - pair[1])) / np.linalg.norm(y, axis=1) for y in wishart(pair, 3, rng)]
    return profile, scores


def projected_then_noisy(rng, rank=3, alignment=0.95, std=0.1):
    pair = vectors(4, alignment)
    apart = math.sqrt(2 - 2 * alignment)
    profile = projected_plus_noise(
        dim=4, rank=rank, sensitivity=apart, noise_std=std, alignment=alignment
    )
    releases = [y + std * rng.standard_normal(y.shape) for y in wishart(pair, rank, rng)]
    return profile, [y @ (pair[0] - pair[1]) for y in releases]


def noisy_then_projected(rng):
    dim, rank, ratio = 5, 2, 2.0
    scores = []
    for shift in (ratio, 0.0):
        z = rng.standard_normal((COUNT, dim, rank))
        noisy = rng.standard_normal((COUNT, dim))
        noisy[:, 0] += shift
        # given M the likelihood ratio depends on P_M y through its product with P_M Δ
        frames = np.linalg.qr(z)[0]
        moved, seen = ratio * frames[:, 0], np.einsum("ndr,nd->nr", frames, noisy)
        scores.append((moved * seen).sum(axis=1) - (moved**2).sum(axis=1) / 2)
    return noisy_projection(
        dim=dim, rank=rank, sensitivity=ratio, noise_std=1.0, difference_rank=1
    ), scores


def sketched(rng):
    rank, dim, gamma = 3, 2, 0.3
    widths = [np.sqrt([1 + gamma, 1 - gamma]), np.ones(2)]
    draws = [w[:, None] * rng.standard_normal((COUNT, dim, rank)) for w in widths]
    scores = [(c[:, 0] ** 2).sum(axis=1) - (c[:, 1] ** 2).sum(axis=1) for c in draws]
    return sketch(rank=rank, dim=dim, gamma=gamma), scores


@certifies(ApproximateDP)
@pytest.mark.parametrize(
    "mechanism",
    [
        projected,
        projected_then_noisy,
        partial(projected_then_noisy, rank=1, alignment=0.5, std=0.3),
        partial(projected_then_noisy, rank=12, alignment=0.9, std=1.0),
        noisy_then_projected,
        sketched,
    ],
)
def test_no_threshold_exceeds_the_guarantee(mechanism):
    profile, scores = mechanism(np.random.default_rng(6))
    guarantee = profile.guarantee(delta=DELTA)
    factor = math.exp(guarantee.epsilon)
    beaten = 0.0
    for one, other in (scores, scores[::-1]):
        for level in np.quantile(np.concatenate(scores), np.linspace(0.02, 0.98, 25)):
            for sign in (1, -1):
                p, q = (int((sign * s > sign * level).sum()) for s in (one, other))
                low = binomtest(p, COUNT).proportion_ci(CONFIDENCE, "exact").low
                high = binomtest(q, COUNT).proportion_ci(CONFIDENCE, "exact").high
                assert low <= factor * high + guarantee.delta
                beaten = max(beaten, low - high)
    # a guarantee of half the advantage would be found out
    assert beaten > profile.advantage() / 2


def one_of_two_at_each_end(epsilon, gamma):
    """Two columns, k = 2: the loss is −ln(1 − γ²) + γ(E₁ − E₂) under P, E exponential."""
    first, second = gamma / (1 + gamma), gamma / (1 - gamma)  # of E₁ and E₂ under Q
    gap = epsilon + mp.log(1 - gamma**2)
    if gap > 0:
        present = mp.exp(-gap / gamma) / 2
        absent = first / (first + second) * mp.exp(-gap / first)
    else:
        present = 1 - mp.exp(gap / gamma) / 2
        absent = 1 - second / (first + second) * mp.exp(gap / second)
    return present - mp.exp(epsilon) * absent


@certifies(ApproximateDP)
@pytest.mark.parametrize("gamma", [1e-12, 1e-9, 1e-6, 1e-4, 0.05, 0.9, 1 - 1e-6])
@pytest.mark.parametrize(("rank", "dim"), [(1, 1), (6, 1), (2, 2)])
def test_sketches_hold_at_every_gamma(rank, dim, gamma):
    profile = sketch(rank=rank, dim=dim, gamma=gamma)
    for share in (0.5, 1e-3, 1e-9, 1e-20):
        guarantee = profile.guarantee(delta=share * profile.advantage())
        with mp.workdps(80):
            g, epsilon = mpf(gamma), mpf(guarantee.epsilon)
            truths = [quadrature.equal_sketch(epsilon, end, rank * dim) for end in (1 + g, 1 - g)]
            if dim == 2:
                truths.append(one_of_two_at_each_end(epsilon, g))
            assert max(truths) <= guarantee.delta
            assert max(truths) >= guarantee.delta * (1 - mpf("1e-6"))


@certifies(RenyiDP)
@pytest.mark.parametrize("order", [1.5, 3.0])
def test_renyi_over_adjacency_is_at_least_the_moment(order):
    # E_Q (dP/dQ)^α for a shift of the mean, by Gauss-Hermite along the difference
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    differences = np.array([[0.5, 0.1], [0.3, -0.6], [0.0, 0.0]])
    bound = renyi_over_adjacency(differences, covariance, [order]).epsilons[0]
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    moments = []
    for difference in differences:
        distance = float(np.linalg.norm(root @ difference))
        ratio = np.exp(order * (distance * nodes - distance**2 / 2))
        moments.append(math.log(weights @ ratio / math.sqrt(2 * math.pi)) / (order - 1))
    assert max(moments) * (1 - 1e-12) <= bound <= max(moments) * (1 + 1e-9)


@pytest.mark.parametrize("noise", [0.03, 0.2, 1.0])
@pytest.mark.parametrize("rank", [1, 3])
@certifies(ApproximateDP)
def test_a_replaced_gradient_of_rank_one_moves_the_sum_by_rank_two(noise, rank):
    """g xᵀ − g' x'ᵀ with all four orthogonal: the sum of two directions' squared projections.

    They are those of the first two axes on the span of r Gaussian vectors; δ of the mixture is the
    mean of the Gaussians' own.
    """
    dim, draws = 20, 20_000
    source = np.random.default_rng(rank)
    basis, _ = np.linalg.qr(source.standard_normal((draws, dim, rank)))
    squares = np.square(basis[:, :2, :]).sum(axis=(1, 2))
    work = ProjectedSteps(dim=dim, rank=rank, difference_rank=1, neighbours="replace")
    held = noisy_projection_steps(work, noise)
    mu = np.sqrt(squares) / noise
    for epsilon in (0.0, 0.8, 4.0, 12.0):
        deltas = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        error = deltas.std() / draws**0.5
        assert held.delta(epsilon) >= deltas.mean() - 5 * error - 1e-12


@pytest.mark.parametrize("ratio", [1e-6, 7.3e-14, 2.0**-47, 1e13])
def test_one_ratio_far_from_1_holds(ratio):
    # l − 1 as a double has lost digits of l: they count against us
    profile = sketch_from_ratio([ratio], 1)
    within = sketch_within(rank=1, dim=1, lowest=min(ratio, 1.0), highest=max(ratio, 1.0))
    with mp.workdps(80):
        for epsilon in (0.0, 1.0, 12.0):
            least = max(
                quadrature.equal_sketch(mpf(epsilon), r, 1) for r in (ratio, 1 / mpf(ratio))
            )
            assert least <= profile.delta(epsilon) <= float(least) * (1 + 1e-8)
            assert least <= within.delta(epsilon)


def test_ratios_without_digits_are_refused():
    with pytest.raises(ValueError, match="eigenvalues: expected numbers between"):
        sketch_from_ratio([1e-20], 1)
    with pytest.raises(ValueError, match="lowest: expected at least"):
        sketch_within(rank=2, dim=2, lowest=1e-20, highest=2.0)
    with pytest.raises(ValueError, match="highest: expected a number >= 1"):
        sketch_within(rank=2, dim=2, lowest=0.5, highest=1e20)
