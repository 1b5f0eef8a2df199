"""Divergences between Gaussians with different covariances, beside integrals and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from tacit.divergences import kl_gaussians, renyi_gaussians, shift_divergence
from tacit.guarantees import RenyiDP

from . import oracles
from .registry import certifies


def divergence(mean0, cov0, mean1, cov1, order):
    if order == 1:
        return kl_gaussians(mean0, cov0, mean1, cov1)
    return renyi_gaussians(mean0, cov0, mean1, cov1, order)


@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2.0, 4.0])
@pytest.mark.parametrize(("variance0", "variance1"), [(1.0, 1.0), (0.5, 2.0), (1.2, 1.0)])
def test_on_the_line_beside_the_integral(variance0, variance1, order):
    certified = divergence([0.3], [[variance0]], [-0.4], [[variance1]], order)
    true = oracles.gaussian_renyi(0.3, variance0, -0.4, variance1, order)
    assert certified >= true - mpf(10) ** -15
    assert certified == pytest.approx(float(true), rel=1e-12)


@pytest.mark.parametrize("order", [0.5, 1, 2.0])
def test_on_the_plane_beside_the_integral(order):
    mean0, mean1 = [0.2, -0.1], [0.0, 0.5]
    cov0, cov1 = [[1.0, 0.4], [0.4, 0.8]], [[1.2, -0.2], [-0.2, 1.0]]
    points = np.linspace(-14, 14, 1401)
    x, y = np.meshgrid(points, points, indexing="ij")
    step = points[1] - points[0]

    def log_density(mean, covariance):
        inverse, z = np.linalg.inv(covariance), np.stack([x - mean[0], y - mean[1]])
        constant = math.log(2 * math.pi) + math.log(np.linalg.det(covariance)) / 2
        return -np.einsum("iab,ij,jab->ab", z, inverse, z) / 2 - constant

    # the trapezoidal rule converges geometrically for Gaussian integrands
    first, second = log_density(mean0, cov0), log_density(mean1, cov1)
    if order == 1:
        true = float(np.sum(np.exp(first) * (first - second))) * step**2
    else:
        mixed = np.exp(order * first + (1 - order) * second)
        true = math.log(float(np.sum(mixed)) * step**2) / (order - 1)
    assert divergence(mean0, cov0, mean1, cov1, order) == pytest.approx(true, rel=1e-10)


@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 5),
    order=st.sampled_from([0.3, 0.9, 1, 1.001, 1.5, 2.0, 8.0, 64.0]),
    spread=st.floats(-6, 0),
)
def test_any_dimension_beside_the_closed_form(seed, size, order, spread):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((size, size)) + 2 * np.eye(size)
    bend = 10**spread * rng.standard_normal((size, size))
    cov1 = factor @ factor.T
    cov0 = (factor + bend) @ (factor + bend).T
    cov0, cov1 = (cov0 + cov0.T) / 2, (cov1 + cov1.T) / 2
    mean0, mean1 = rng.standard_normal((2, size)) * 10**spread
    true = oracles.gaussian_renyi_closed(mean0, cov0, mean1, cov1, order)
    certified = divergence(mean0, cov0, mean1, cov1, order)
    assert certified >= true
    conditioning = np.linalg.cond(cov1) * order
    if math.isfinite(certified) and conditioning < 1e4:
        assert certified <= true * (1 + mpf(10) ** -5)


@certifies(RenyiDP)
@pytest.mark.parametrize("distance", [0.1, 1.0, 2.5])
def test_renyi_curve_of_the_gaussian_mechanism(distance):
    orders = (1.25, 2.0, 4.0)
    guarantee = RenyiDP(
        orders=orders,
        epsilons=tuple(shift_divergence(("renyi", order), distance) for order in orders),
        adjacency="means one sensitivity apart",
        evidence="theorem",
        assumptions=("the noise is Gaussian",),
        source="Mironov (2017), Proposition 7",
    )
    for order, epsilon in zip(guarantee.orders, guarantee.epsilons, strict=True):
        true = oracles.gaussian_renyi(distance, 1.0, 0.0, 1.0, order)
        assert epsilon >= true - mpf(10) ** -15
        assert epsilon == pytest.approx(float(true), rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("order", [0.5, 1, 1.1, 3.0])
def test_ill_conditioned_covariances_err_upwards(seed, order):
    """Nearly equal covariances with eigenvalues over ten decades, where rounding is visible."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    cov1 = (rotation * 10.0 ** -np.arange(0, 12, 2)) @ rotation.T
    root = rotation * 10.0 ** -np.arange(0, 6)
    bend = rng.standard_normal((6, 6))
    cov0 = root @ (np.eye(6) + 1e-6 * (bend + bend.T)) @ root.T
    cov0, cov1 = (cov0 + cov0.T) / 2, (cov1 + cov1.T) / 2
    zero = np.zeros(6)
    assert divergence(zero, cov0, zero, cov1, order) >= oracles.gaussian_renyi_closed(
        zero, cov0, zero, cov1, order
    )
    shift = cov1 @ rng.standard_normal(6)
    certified = divergence(shift, cov1, zero, cov1, order)
    true = oracles.gaussian_renyi_closed(shift, cov1, zero, cov1, order)
    assert true <= certified <= true * (1 + mpf(10) ** -2)


@pytest.mark.parametrize("seed", range(6))
def test_orders_just_inside_the_finite_range(seed):
    """At α = 1 + (1 − t)/e, e the largest eigenvalue of Σ₁⁻¹Σ₀ − I, a rounding of e decides."""
    rng = np.random.default_rng(seed)
    root = np.linalg.qr(rng.standard_normal((4, 4)))[0] * 10.0 ** -np.arange(0, 8, 2)
    bend = rng.standard_normal((4, 4))
    cov1, cov0 = root @ root.T, root @ (np.eye(4) + bend @ bend.T) @ root.T
    cov0, cov1 = (cov0 + cov0.T) / 2, (cov1 + cov1.T) / 2
    with mp.workdps(60):
        inverse = mp.cholesky(mp.matrix(cov1.tolist())) ** -1
        pencil = inverse * mp.matrix(cov0.tolist()) * inverse.T
        excess = max(mp.eigsy(pencil, eigvals_only=True)) - 1
    zero = np.zeros(4)
    for inside in (1e-2, 1e-5, 1e-8, 1e-11):
        order = float(1 + (1 - inside) / excess)
        true = oracles.gaussian_renyi_closed(zero, cov0, zero, cov1, order)
        assert renyi_gaussians(zero, cov0, zero, cov1, order) >= true


@pytest.mark.parametrize("order", [1e-12, 1e-9, 1e-5, 0.3])
def test_small_orders_are_rounded_up(order):
    # all but a share α of two terms cancels
    source = np.random.default_rng(1)
    for _ in range(20):
        spread = source.normal(size=(2, 2))
        cov1 = spread @ spread.T + np.eye(2)
        cov0 = cov1 + np.diag(source.uniform(-0.05, 0.05, 2))
        pairs = ((cov0, cov1), (np.diag(np.diag(cov0)), np.diag(np.diag(cov1))))
        for first, second in pairs:
            certified = renyi_gaussians(np.zeros(2), first, np.zeros(2), second, order)
            true = oracles.gaussian_renyi_closed(np.zeros(2), first, np.zeros(2), second, order)
            assert certified >= true
