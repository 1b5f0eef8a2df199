"""Noisy hidden states: the Rényi guarantee of a release against exact divergences of its noise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from mpmath import mp, mpf

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from tacit.covariance import Dense, Diagonal, Factored, Isotropic, LowRank
from tacit.design import Design
from tacit.guarantees import ApproximateDP, RenyiDP
from tacit.hidden_states import Differences, release

from . import oracles
from .registry import certifies

ORDERS = (1.25, 2.0, 4.0, 64.0)
WIDTH = 5


def certified(covariance, differences, orders=ORDERS):
    design = Design(covariance, math.nan, math.nan, "as given", np.empty(0), 0)
    return release(
        np.zeros((1, covariance.dim)), design, Differences(listed=differences, orders=orders)
    ).guarantees[0]


def written(covariance):
    """Σ from the numbers that describe it, at 60 digits, as an mpmath matrix."""
    if isinstance(covariance, LowRank):
        basis, core = mp.matrix(covariance.basis.tolist()), mp.matrix(covariance.core.tolist())
        return basis.T * core * basis + mpf(covariance.floor) * mp.eye(covariance.dim)
    if isinstance(covariance, Factored):
        rows = mp.matrix(covariance.rows.tolist())
        lower = mp.eye(rows.rows) if covariance.lower is None else covariance.lower.tolist()
        factor = mp.matrix(lower) ** -1 * rows
        return factor.T * factor
    return mp.matrix(covariance.to_dense().tolist())


def divergences(covariance, difference, orders=ORDERS):
    """D_α(N(Δ, Σ) ‖ N(0, Σ)) at every order."""
    zero = np.zeros(len(difference))
    with mp.workdps(oracles.DIGITS):
        sigma = written(covariance).tolist()
        return [
            oracles.gaussian_renyi_closed(difference, sigma, zero, sigma, order) for order in orders
        ]


def rotated(source, variances):
    rotation = np.linalg.qr(source.standard_normal((len(variances),) * 2))[0]
    dense = (rotation * variances) @ rotation.T
    return rotation, (dense + dense.T) / 2


def covariances(seed, decades):
    """One covariance of every type, standard deviations over the decades given."""
    source = np.random.default_rng(seed)
    variances = 10.0 ** -np.linspace(0, 2 * decades, WIDTH)
    rotation, dense = rotated(source, variances)
    lower = np.tril(source.standard_normal((WIDTH, WIDTH)), -1) + np.diag(variances**-0.5)
    return {
        "isotropic": Isotropic(float(variances[1]), WIDTH),
        "diagonal": Diagonal(variances),
        "dense": Dense(dense),
        "low-rank": LowRank(rotation[:, :3].T, np.diag(variances[:3]), float(variances[-1])),
        "factored": Factored(rotation.T, lower),
    }, rotation


@certifies(RenyiDP)
@pytest.mark.parametrize("decades", [0, 2, 5])
@pytest.mark.parametrize("seed", range(6))
def test_no_listed_pair_is_farther_than_certified(seed, decades):
    noises, rotation = covariances(seed, decades)
    source = np.random.default_rng(100 + seed)
    differences = np.vstack([source.standard_normal((3, WIDTH)), rotation.T[[0, -1]]])
    for name, noise in noises.items():
        found = certified(noise, differences)
        true = [divergences(noise, row) for row in differences]
        worst = [max(column) for column in zip(*true, strict=True)]
        for order, epsilon, exact in zip(ORDERS, found.epsilons, worst, strict=True):
            assert epsilon >= exact, (name, order)
            assert decades == 5 or epsilon <= exact * (1 + mpf(10) ** -6), (name, order)
        # alone, a pair that the farthest one does not cover up
        for row, exact in zip(differences, true, strict=True):
            alone = certified(noise, row[None])
            assert all(e >= t for e, t in zip(alone.epsilons, exact, strict=True)), name


@certifies(RenyiDP)
@pytest.mark.parametrize("order", [1.25, 2.0, 4.0])
@pytest.mark.parametrize(("difference", "variance"), [(0.7, 1.0), (-2.0, 3.0)])
def test_on_the_line_beside_the_integral(difference, variance, order):
    found = certified(Isotropic(variance, 1), [[difference]], [order])
    for shift in (difference, -difference):
        true = oracles.gaussian_renyi(shift, variance, 0.0, variance, order)
        assert found.epsilons[0] >= true - mpf(10) ** -15
        assert found.epsilons[0] == pytest.approx(float(true), rel=1e-12)


@certifies(RenyiDP)
def test_a_difference_outside_the_noise_is_infinite():
    """Integer vectors, so that range and distance are known without rounding."""
    along, across = np.array([1.0, 2.0, 2.0]), np.array([2.0, -1.0, 0.0])
    singular = {
        "dense": Dense(np.outer(along, along)),
        "factored": Factored(along[None]),
        "low-rank": LowRank(along[None] / 3, [[9.0]]),
    }
    for name, noise in singular.items():
        inside = certified(noise, [3 * along])
        for order, epsilon in zip(ORDERS, inside.epsilons, strict=True):
            assert order / 2 * 9 <= epsilon <= order / 2 * 9 * (1 + 1e-9), name
        for outside in (across, along + across, 3 * along + 1e-9 * across):
            assert certified(noise, [3 * along, outside]).epsilons == (math.inf,) * 4, name
    assert certified(Isotropic(0.0, 3), [along]).epsilons == (math.inf,) * 4
    assert certified(Diagonal([1.0, 0.0]), [[1.0, 1e-300]]).epsilons == (math.inf,) * 4


@certifies(RenyiDP, ApproximateDP)
@pytest.mark.parametrize("seed", range(4))
def test_several_states_of_one_prompt_add_up(seed):
    """The joint law of three layers' releases has block diagonal noise."""
    source = np.random.default_rng(seed)
    noises = [Dense(rotated(source, source.uniform(0.5, 4.0, 3))[1]) for _ in range(3)]
    pairs = source.standard_normal((4, 3, 3))  # neighbours, layers, coordinates
    parts = [certified(noise, pairs[:, i]) for i, noise in enumerate(noises)]
    totals = tuple(math.fsum(column) for column in zip(*(p.epsilons for p in parts), strict=True))
    joint = replace(parts[0], epsilons=totals)
    for layers in pairs:
        exact = [mp.fsum(column) for column in zip(*map(divergences, noises, layers), strict=True)]
        assert all(e >= t for e, t in zip(joint.epsilons, exact, strict=True))
    # at order 2 the divergence is the squared distance
    farthest = max(
        mp.sqrt(
            mp.fsum(
                divergences(noise, row, [2.0])[0] for noise, row in zip(noises, layers, strict=True)
            )
        )
        for layers in pairs
    )
    for delta in (1e-2, 1e-6):
        assert oracles.hockey_stick(joint.approximate(delta).epsilon, farthest) <= delta


@certifies(RenyiDP)
def test_released_states_by_monte_carlo():
    """E_p (p/q)^(α − 1) over states as released; a wrong scale would be seen."""
    source = np.random.default_rng(0)
    _, dense = rotated(source, np.array([0.2, 0.5, 1.0, 2.0, 5.0, 9.0]))
    difference = source.standard_normal(6)
    precision = np.linalg.inv(dense)
    difference *= math.sqrt(0.5 / (difference @ precision @ difference))
    design = Design(Dense(dense), math.nan, math.nan, "as given", np.empty(0), 0)
    clean, count = source.standard_normal(6), 20_000
    released = release(np.tile(clean, (count, 1)), design, rng=1).details.states.astype(np.float64)
    # ln p/q for p = N(h, Σ), q = N(h + Δ, Σ)
    ratios = -(released - clean - difference / 2) @ precision @ difference
    orders = (1.25, 1.5, 2.0)
    certain = certified(Dense(dense), [difference], orders).epsilons
    wrong = certified(Dense(1.3 * dense), [difference], orders).epsilons
    for order, epsilon, small in zip(orders, certain, wrong, strict=True):
        weights = np.exp((order - 1) * ratios)
        error = weights.std(ddof=1) / math.sqrt(count) / weights.mean() / (order - 1)
        estimate = math.log(weights.mean()) / (order - 1)
        assert abs(estimate - epsilon) < 5 * error
        assert estimate - 5 * error > small
