"""Any query by pairs: mean success over all coins, or over declared draws, exact here."""

import numpy as np
import pytest
from scipy.special import ndtr

import tacit.statistics.rows.callables
from tacit import Effort, Rows
from tacit.guarantees import SuccessBound
from tacit.statistics import Query, pairs
from tacit.statistics.rows.callables import callable_plan
from tacit.statistics.rows.swaps import certified_scale, dense
from tacit.statistics.workflow import request_statistic

from .registry import certifies
from .swaps import every_draw, pool

# The first of the instances are run every time, all of them by `make test-thorough`.
QUICK, INSTANCES, CHUNKS = 60, 1000, 5
CONFIDENCE = 0.9999

every_instance = pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(QUICK), id="quick"),
        *(
            pytest.param(range(chunk, INSTANCES, CHUNKS), marks=pytest.mark.thorough, id=str(chunk))
            for chunk in range(CHUNKS)
        ),
    ],
)


def median_and_range(rows):
    return np.append(np.median(rows[:, 0]), np.ptp(rows[:, 1]))


def correlation(rows):
    left, right = (column - column.mean() for column in rows.T)
    return float(left @ right / np.sqrt((left @ left) * (right @ right) + 1e-9))


def largest(rows):
    return rows.max(axis=0)


def largest_first(rows):
    return float(rows[:, 0].max())


def majority(rows):
    return float((rows[:, 0] > 0).mean() > 0.5)


QUERIES = {
    "swaps": (median_and_range, correlation, largest, majority),
    # one number each: the posterior is integrated over a line
    "family": (largest_first, correlation, majority),
}


class Remembered:
    """A query that is computed once on the same rows: small pools have few subsets."""

    def __init__(self, function):
        self.function, self.known = function, {}

    def __call__(self, rows):
        key = rows.tobytes()
        if key not in self.known:
            self.known[key] = self.function(rows)
        return self.known[key]


def planned(number, way, simulations):
    rng = np.random.default_rng([43, number])
    rows = pool(rng, 2 * int(rng.integers(3, 6)), 2)
    rows /= np.abs(rows).max()
    function = Remembered(QUERIES[way][number % len(QUERIES[way])])
    success = float(rng.uniform(0.55, 0.95))
    promise = Rows(success=success, method=way, confidence=CONFIDENCE)
    effort = Effort(simulations=simulations, workers=1)
    request = request_statistic(Query(function, None, "query"), rows, promise, effort)
    plan = callable_plan(request, pairs.nearest(rows, progress=False), success, rng)
    return plan, function, rows, success


def planned_or_refused(number, way, simulations):
    """A query that no simulated draw moves is refused, and nothing is released of it."""
    try:
        return planned(number, way, simulations)
    except ValueError as refused:
        if "numbers that change with the rows drawn" not in str(refused):
            raise
        return None, None, None, None


@certifies(SuccessBound)
@every_instance
def test_the_mean_success_over_every_fall_of_the_coins_is_certified(numbers):
    """All 2^P falls, every flip: at failure 1e-4 none of 1,000 pools may be above."""
    used = []
    for number in numbers:
        plan, function, rows, success = planned_or_refused(number, "swaps", 100)
        if plan is None:
            continue
        falls, members = zip(*every_draw(plan.pairing), strict=True)
        outputs = np.array([np.atleast_1d(function(rows[chosen])) for chosen in members])
        # the falls count up in base two: a flip of coin i is ± 2^(P − 1 − i)
        count = len(plan.pairing)
        bits = 1 << np.arange(count)[::-1]
        np.testing.assert_array_equal(np.array(falls) @ bits, np.arange(2**count))
        flipped = np.arange(2**count)[:, None] ^ bits
        moves = outputs[flipped] - outputs[:, None]
        root = np.linalg.inv(np.linalg.cholesky(plan.design.covariance.to_dense()))
        exact = ndtr(0.5 * np.linalg.norm(moves @ root.T, axis=2)).mean(axis=0)
        assert exact.max() <= success
        used.append((exact.max() - 0.5) / (success - 0.5))
    # not by drowning everything, or by refusing it
    assert len(used) > 0.7 * len(numbers)
    assert max(used) > 0.9
    assert np.median(used) > 0.75


@certifies(SuccessBound)
@every_instance
def test_the_posterior_over_the_declared_draws_is_certified(numbers, monkeypatch):
    """Families with one output: the success on every row by quadrature over the line."""
    monkeypatch.setattr(tacit.statistics.rows.callables, "CERTIFIED_RELEASES", 1500)
    monkeypatch.setattr(tacit.statistics.rows.callables, "PILOT_RELEASES", 300)
    used = []
    for number in numbers:
        plan, _, _, success = planned_or_refused(number, "family", 24)
        if plan is None:
            continue
        deviation = float(np.sqrt(plan.design.covariance.to_dense()[0, 0]))
        spots, place = np.unique(plan.outputs[:, 0] / deviation, return_inverse=True)
        fallen = plan.halves.fallen.astype(float)
        # how many declared draws give an output, and in how many of them a coin is one
        counts, ones = np.zeros(len(spots)), np.zeros((len(spots), fallen.shape[1]))
        np.add.at(counts, place, 1.0)
        np.add.at(ones, place, fallen)
        grid = np.linspace(spots.min() - 8, spots.max() + 8, 4001)
        step = grid[1] - grid[0]
        densities = np.exp(-0.5 * np.square(grid[:, None] - spots)) / np.sqrt(2 * np.pi)
        inside = densities @ ones
        outside = (densities @ counts)[:, None] - inside
        exact = np.maximum(inside, outside).sum(axis=0) * step / len(fallen)
        assert exact.max() <= success + 1e-6
        used.append((exact.max() - 0.5) / (success - 0.5))
    assert max(used) > 0.9
    assert np.median(used) > 0.75


@certifies(SuccessBound)
def test_the_attacker_told_every_other_coin_and_a_control_with_less_noise():
    plan, _, _, success = planned(2, "swaps", 4000)
    honest = plan.attack(4000, np.random.default_rng(1))
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
