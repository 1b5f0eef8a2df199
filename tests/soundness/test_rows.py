"""Releases by pairs: every coin of every small pool, by exact enumeration and by attack."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

import tacit.statistics.rows.errors
import tacit.statistics.rows.plan
from tacit import Effort, Rows
from tacit.guarantees import GaussianDP, SuccessBound
from tacit.releases.strength import naming_success, success_of
from tacit.statistics import prepare

from .registry import certifies
from .swaps import every_draw, exact_success, pool

QUERIES = (
    "mean",
    "sum+count",
    "mean+std",
    "second-moments",
    "covariance",
    "correlation",
    "median",
    "histogram:x0:-1,0,1",
    "mean by x0:-1e9,0,1e9",
    "least-squares",
)
INSTANCES = 1000
CHUNKS, QUICK_CHUNKS = 10, 2


def instance(number, group_size=2):
    rng = np.random.default_rng([13, number])
    columns = int(rng.integers(2, 4))
    groups = int(rng.integers(2, 7))
    rows = pool(rng, groups * group_size + int(rng.integers(group_size)), columns)
    # some pairings are bad on purpose
    pairs = [None, "random", "column:x0"][int(rng.integers(3))]
    rate = 1.0 / group_size
    blind = max(rate, 1.0 - rate)
    prepared = prepare(
        QUERIES[number % len(QUERIES)],
        rows,
        Rows(success=float(rng.uniform(blind + 0.01 * (1 - blind), 0.999)), rate=rate, pairs=pairs),
        Effort(trials=0),
        cost=["relative", "squared"][int(rng.integers(2))],
    )
    return prepared, rng


@certifies(SuccessBound, GaussianDP)
@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(chunk, marks=() if chunk < QUICK_CHUNKS else pytest.mark.thorough)
        for chunk in range(CHUNKS)
    ],
)
def test_no_coin_is_guessed_better_than_certified_whatever_the_others_are(chunk, monkeypatch):
    """1,000 pools: all 2^P outcomes, all flips; the sums move by the swap, to the last bit."""
    # errors that are simulated for the reader have no part in the certificate
    monkeypatch.setattr(tacit.statistics.rows.plan, "COMPARED", 20)
    monkeypatch.setattr(tacit.statistics.rows.errors, "SIMULATED", 20)
    used = []
    for number in range(chunk * INSTANCES // CHUNKS, (chunk + 1) * INSTANCES // CHUNKS):
        prepared, _ = instance(number)
        plan = prepared.plan
        totals = {fallen: plan.values.total(rows) for fallen, rows in every_draw(plan.pairing)}
        swaps = {}
        for fallen, total in totals.items():
            for coin in range(len(plan.pairing)):
                flipped = (*fallen[:coin], 1 - fallen[coin], *fallen[coin + 1 :])
                moved = (total - totals[flipped]) * (1 if fallen[coin] == 0 else -1)
                swaps.setdefault(coin, moved)
                assert (moved == swaps[coin]).all()
        moves = np.array(list(swaps.values()))
        assert (moves[:, ~plan.noise.live] == 0.0).all()
        if plan.noise.design is None:
            assert not moves.any()
            continue
        exact = exact_success([(plan.noise.live, plan.noise.law)], moves).max()
        assert exact <= prepared.membership.success
        certified = prepared.guarantees[1].success().success
        assert certified == prepared.membership.success
        used.append((exact - 0.5) / (certified - 0.5))
    # not by drowning everything: the worst coin is at its limit in most pools
    assert np.median(used) > 0.95


@certifies(SuccessBound)
@pytest.mark.parametrize("group_size", [3, 4])
def test_one_of_k_rows_is_not_found_better_than_certified(group_size):
    """Quadrature over a line, or the plane, of the exact posterior of each group."""
    for number in range(40):
        rng = np.random.default_rng([17, number])
        rows = pool(rng, 4 * group_size, 1)
        prepared = prepare(
            "mean",
            rows,
            Rows(success=float(rng.uniform(1 - 1 / group_size + 0.02, 0.99)), rate=1 / group_size),
            Effort(trials=0),
        )
        plan = prepared.plan
        if plan.noise.design is None:
            continue
        deviation = math.sqrt(plan.noise.design.covariance.trace())
        for group in plan.values.values[plan.pairing.members][:, :, plan.noise.live.argmax()]:
            spots = np.sort(group) / deviation
            grid = np.linspace(spots[0] - 9, spots[-1] + 9, 40_001)
            densities = stats.norm.pdf(grid[:, None] - spots)
            step = grid[1] - grid[0]
            named = densities.max(axis=1).sum() * step / group_size
            assert named <= prepared.guarantees[2].success + 1e-9
            total = densities.sum(axis=1)
            for place in range(group_size):
                right = np.maximum(densities[:, place], total - densities[:, place])
                member = right.sum() * step / group_size
                assert member <= prepared.membership.success + 1e-9


@certifies(SuccessBound)
def test_a_regular_simplex_is_the_easiest_of_k_points_no_farther_apart():
    """Success of naming one of k, by simulation, of points within distance μ of each other."""
    rng = np.random.default_rng(19)
    for choices in (3, 4, 6):
        for mu in (0.5, 1.5, 3.0):
            noise = rng.normal(size=(40_000, choices))
            simplex = np.eye(choices) * mu / math.sqrt(2)
            bound = naming_success(mu, choices)

            def success(points, noise=noise):
                scores = noise @ points.T
                halves = 0.5 * (points**2).sum(axis=1)
                gram = points @ points.T
                right = [
                    (scores + gram[j] - halves).argmax(axis=1) == j for j in range(len(points))
                ]
                return np.concatenate(right).mean()

            error = 5 * math.sqrt(0.25 / (40_000 * choices))
            assert abs(success(simplex) - bound) < error
            for _ in range(20):
                points = rng.normal(size=(choices, choices))
                gaps = np.linalg.norm(points[:, None] - points, axis=2)
                assert success(points * mu / gaps.max()) <= bound + error


def test_naming_one_of_two_is_telling_them_apart_and_one_of_k_is_a_known_integral():
    for mu in (0.0, 0.1, 1.0, 5.0, 20.0):
        exact = float(mpmath.ncdf(mpmath.mpf(mu) / 2))
        assert exact <= naming_success(mu, 2) <= exact + 1e-9
        assert exact <= success_of(mu) <= exact + 1e-12
        for choices in (3, 17):
            with mpmath.workdps(30):
                truth = mpmath.quad(
                    lambda t, mu=mu, k=choices: (
                        mpmath.npdf(t) * mpmath.ncdf(t + mu / mpmath.sqrt(2)) ** (k - 1)
                    ),
                    [-12, -4, -2, 0, 2, 4, 12],
                )
            assert truth <= naming_success(mu, choices) <= truth + 1e-9


@certifies(SuccessBound)
@pytest.mark.parametrize("query", ["mean", "covariance", "histogram:x0:-1,0,1"])
def test_the_strongest_attacker_on_what_is_really_drawn_and_released(query):
    """Told every other coin, on the published sums themselves, the grid included."""
    rng = np.random.default_rng(23)
    rows = pool(rng, 12, 2) if query != "covariance" else rng.standard_t(2, (12, 2))
    rows[:, 0] = rng.normal(size=12)
    prepared = prepare(query, rows, Rows(success=0.7), Effort(trials=0))
    plan = prepared.plan
    live, trials = plan.noise.live, 4000
    noise = plan.noise.covariance[np.ix_(live, live)]
    inverse = np.linalg.pinv(noise)
    values = plan.values.values[:, live]
    hits = np.zeros(len(plan.pairing))
    weaker = np.zeros(len(plan.pairing))
    for _ in range(trials):
        drawn = plan.pairing.draw()
        total = plan.values.total(drawn)
        published = plan.noise.release(total, None)[live]
        quiet = total[live] + 0.5 * (published - total[live])
        for coin, (a, b) in enumerate(plan.pairing.members):
            others = total[live] - values[drawn[coin]]
            z = values[a] - values[b]
            middle = others + 0.5 * (values[a] + values[b])
            for seen, count in ((published, hits), (quiet, weaker)):
                guess = a if z @ inverse @ (seen - middle) > 0 else b
                count[coin] += guess == drawn[coin]
    tolerance = stats.norm.isf(1e-9) * math.sqrt(0.25 / trials)
    assert hits.max() / trials <= 0.7 + tolerance
    # the same with half of the noise is found out
    assert weaker.max() / trials > 0.7 + tolerance


def test_pairs_and_noise_are_functions_of_the_pool_alone():
    """Prepared twice, before any coin: the same groups and the same noise, to the last bit."""
    rows = np.random.default_rng(29).standard_t(3, (301, 3))
    first, second = (
        prepare("mean+std", rows, Rows(success=0.6), Effort(trials=0)) for _ in range(2)
    )
    np.testing.assert_array_equal(first.plan.pairing.members, second.plan.pairing.members)
    np.testing.assert_array_equal(first.plan.noise.covariance, second.plan.noise.covariance)
    first.draw()
    np.testing.assert_array_equal(first.plan.noise.covariance, second.plan.noise.covariance)
