"""Any query by pairs: mean success over all coins, or over declared draws, exact here."""

import numpy as np
import pytest
from scipy.special import ndtr

import tacit.statistics.rows.callables
from tacit.guarantees import SuccessBound
from tacit.statistics import Query, pairs
from tacit.statistics.rows.callables import callable_plan
from tacit.statistics.rows.expected import certified_scale, dense

from .registry import certifies
from .swaps import every_draw, pool

INSTANCES, CHUNKS = 1000, 5
CONFIDENCE = 0.9999


def median_and_range(rows):
    return np.append(np.median(rows[:, 0]), np.ptp(rows[:, 1]))


def correlation(rows):
    left, right = (column - column.mean() for column in rows.T)
    return float(left @ right / np.sqrt((left @ left) * (right @ right) + 1e-9))


def largest(rows):
    return rows.max(axis=0)


def majority(rows):
    return float((rows[:, 0] > 0).mean() > 0.5)


QUERIES = (median_and_range, correlation, largest, majority)


def planned(number, way, simulations):
    rng = np.random.default_rng([43, number])
    rows = pool(rng, 2 * int(rng.integers(3, 6)), 2)
    rows /= np.abs(rows).max()
    function = QUERIES[number % len(QUERIES)]
    if way == "family":
        function = largest_first if function is median_and_range else function
    success = float(rng.uniform(0.55, 0.95))
    plan = callable_plan(
        Query(function, None, "query"),
        rows,
        pairs.nearest(rows, progress=False),
        success,
        way=way,
        cost=None,
        simulations=simulations,
        confidence=CONFIDENCE,
        source=rng,
        workers=1,
        progress=False,
    )
    return plan, function, rows, success


def largest_first(rows):
    return float(rows[:, 0].max())


@certifies(SuccessBound)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_mean_success_over_every_fall_of_the_coins_is_certified(chunk):
    """1,000 pools, all 2^P falls, every flip: at failure 1e-4 none may be above."""
    used = []
    for number in range(chunk * INSTANCES // CHUNKS, (chunk + 1) * INSTANCES // CHUNKS):
        plan, function, rows, success = planned(number, "swaps", 150)
        outputs = {
            fallen: np.atleast_1d(function(rows[members]))
            for fallen, members in every_draw(plan.pairing)
        }
        noise = plan.design.covariance.to_dense()
        root = np.linalg.inv(np.linalg.cholesky(noise))
        for coin in range(len(plan.pairing)):
            moves = np.array(
                [
                    outputs[(*fallen[:coin], 1 - fallen[coin], *fallen[coin + 1 :])] - output
                    for fallen, output in outputs.items()
                ]
            )
            exact = ndtr(0.5 * np.linalg.norm(moves @ root.T, axis=1)).mean()
            assert exact <= success
            used.append((exact - 0.5) / (success - 0.5))
    assert max(used) > 0.9


@certifies(SuccessBound)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_posterior_over_the_declared_draws_is_certified(chunk, monkeypatch):
    """1,000 families with one output: the success on every row by quadrature over the line."""
    monkeypatch.setattr(tacit.statistics.rows.callables, "CERTIFIED_RELEASES", 1500)
    monkeypatch.setattr(tacit.statistics.rows.callables, "PILOT_RELEASES", 300)
    for number in range(chunk * INSTANCES // CHUNKS, (chunk + 1) * INSTANCES // CHUNKS):
        plan, _, _, success = planned(4 * number + 3 if number % 2 else 4 * number, "family", 24)
        deviation = float(np.sqrt(plan.design.covariance.to_dense()[0, 0]))
        spots = plan.outputs[:, 0] / deviation
        grid = np.linspace(spots.min() - 8, spots.max() + 8, 4001)
        step = grid[1] - grid[0]
        densities = np.exp(-0.5 * np.square(grid[:, None] - spots)) / np.sqrt(2 * np.pi)
        coins = plan.halves.fallen.astype(float)
        inside = densities @ coins
        outside = densities.sum(axis=1)[:, None] - inside
        exact = np.maximum(inside, outside).sum(axis=0) * step / len(spots)
        assert exact.max() <= success + 1e-6


@certifies(SuccessBound)
def test_the_attacker_told_every_other_coin_and_a_control_with_less_noise():
    plan, _, _, success = planned(2, "swaps", 4000)
    honest = plan.attacked(4000, np.random.default_rng(1))
    assert honest.worst_interval[0] <= success
    quiet = plan.design.covariance.scaled(0.2)
    weak = tacit.attacks.swap_attack(plan.swaps, quiet, rng=2)
    assert weak.worst_interval[0] > success


def test_the_scale_found_is_the_one_that_a_mean_known_exactly_asks_for():
    """One coin whose flip moves the output by ±1 or not at all, half of the time each."""
    rng = np.random.default_rng(3)
    swaps = np.where(rng.random((20_000, 1, 1)) < 0.5, 1.0, 0.0)
    success = 0.6
    scale = certified_scale(swaps[:2000], swaps[2000:], dense(np.eye(1)), success, 1e-3)
    mean = 0.5 * (0.5 + ndtr(0.5 / np.sqrt(scale)))
    assert 0.97 * success < mean <= success


def test_measured_distances_are_those_of_the_noise_drawn():
    plan, *_ = planned(5, "swaps", 100)
    some = plan.swaps.reshape(-1, plan.swaps.shape[2])[:50]
    covariance = plan.design.covariance
    values, vectors = np.linalg.eigh(covariance.to_dense())
    white = some @ vectors / np.sqrt(values)
    np.testing.assert_allclose(
        covariance.mahalanobis(some), np.square(white).sum(axis=1), rtol=1e-6, atol=1e-12
    )
