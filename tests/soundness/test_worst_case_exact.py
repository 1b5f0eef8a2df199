"""Ten thousand hostile worst-case designs in exact arithmetic, and attackers on what is drawn."""

import os

import numpy as np
import pytest
from mpmath import mp
from scipy import stats

from tacit.covariance import Factored, whiten
from tacit.design import worst_case
from tacit.guarantees import Indistinguishability
from tacit.information import log_det_information
from tests.design.hostile import FAMILIES, decades, hostile
from tests.soundness.exact import exact_distances
from tests.soundness.registry import certifies

NIGHTLY = bool(os.environ.get("TACIT_NIGHTLY"))
DESIGNS, LARGEST = (1000, 40) if NIGHTLY else (500, 9)
QUICK, DRAWS = 80, 4000


@certifies(Indistinguishability)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("designs", [QUICK, pytest.param(DESIGNS, marks=pytest.mark.thorough)])
def test_every_difference_is_covered_in_exact_arithmetic(family, designs):
    rng = np.random.default_rng(list(FAMILIES).index(family))
    for _ in range(designs):
        m, d = rng.integers(1, LARGEST, 2)
        rows, budgets = hostile(family, m, d, rng)
        design = worst_case(rows, budgets)
        if not rows.any():
            assert design.rank == 0
            continue
        assert (exact_distances(design.covariance, rows) <= budgets * (1 + 1e-9)).all()
        assert (design.covariance.mahalanobis(rows) <= budgets * (1 + 1e-6)).all()
        # Reached nearly always; where it is not, the gap is certified all the same.
        assert 0 <= design.gap <= 1e-3


def test_the_oracle_sees_a_bare_direction_and_noise_that_is_too_small():
    rows = np.array([[1.0, 0.0, 0.0], [1.0, 8e-16, 0.0]])
    bare = worst_case(rows[:1], 1.0).covariance
    assert exact_distances(bare, rows).tolist() == [pytest.approx(1.0), np.inf]
    half = worst_case(rows, 1.0).covariance.scaled(0.5)
    assert exact_distances(half, rows).max() == pytest.approx(2.0, rel=1e-6)


def best_success(draws, row):
    """Largest success at telling noise from noise + row by a threshold on one direction.

    Directions: where the draws vary least, where the covariance says the row stands out most, and
    single coordinates; in extended precision, so that only the rounding of the draws is left.
    """
    scales = np.abs(draws).max(axis=0).astype(np.longdouble)
    scales[scales == 0] = 1
    white, signal = draws / scales, row / scales
    thin = np.linalg.svd(white.astype(np.float64), full_matrices=False)[2]
    spread = np.atleast_2d(np.cov(white.astype(np.float64).T))
    pointed = np.linalg.pinv(spread, rcond=1e-13) @ signal.astype(np.float64)
    candidates = [thin[-1], thin[len(thin) // 2], pointed, *np.eye(len(row))]
    found = 0.0
    for direction in candidates:
        shift = signal @ direction.astype(np.longdouble)
        # A projection that cancels to rounding says nothing about the row.
        if abs(shift) <= 2e-14 * np.abs(signal * direction).sum():
            continue
        cut = np.sign(shift) * (white @ direction.astype(np.longdouble))
        right = (cut < abs(shift) / 2).mean() + (cut + abs(shift) > abs(shift) / 2).mean()
        found = max(found, right / 2)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_no_direction_of_the_drawn_noise_tells_more_than_is_certified(family):
    rng = np.random.default_rng(1000 + list(FAMILIES).index(family))
    for _ in range(20 if NIGHTLY else 5):
        m, d = rng.integers(1, 16, 2)
        rows, budgets = hostile(family, m, d, rng)
        draws = worst_case(rows, budgets).sample(DRAWS, rng=int(rng.integers(2**31)))
        for row, budget in zip(rows[:4], budgets[:4], strict=True):
            certified = stats.norm.cdf(np.sqrt(budget) / 2)
            error = np.sqrt(certified * (1 - certified) / DRAWS) + 1 / DRAWS
            assert best_success(draws, row) <= certified + 5 * error


def duplicates_at(m, d, base, distance, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((base, d))
    copies = np.tile(rows, (-(-m // base), 1))[:m]
    copies[base:] += distance * rng.standard_normal((m - base, d))
    return copies


@pytest.mark.parametrize(
    ("rows", "budget"),
    [
        (np.array([[1.0, 1e-16], [2.0, -1e-16], [-1.0, 3e-16]]), 1.0),
        (np.array([[1.0, 0.0, 0.0], [1.0, 8e-16, 0.0]]), 1.0),
        (duplicates_at(300, 150, 75, 1e-14), 1.0),
        pytest.param(duplicates_at(600, 300, 150, 1e-13), 1.0, marks=pytest.mark.thorough),
        pytest.param(duplicates_at(200, 300, 100, 3e-14), 0.1, marks=pytest.mark.thorough),
        (duplicates_at(100, 60, 20, 3e-15), 1.0),
        (
            np.random.default_rng(1).standard_normal((400, 80)) * np.exp(-0.7 * np.arange(80)),
            0.01,
        ),
        (np.random.default_rng(2).standard_normal((200, 50)) * np.exp(-np.arange(50)), 1.0),
    ],
    ids=["3x2", "2x3", "300x150", "600x300", "200x300", "100x60", "400x80", "200x50"],
)
def test_near_duplicates_and_graded_columns_leave_no_direction_bare(rows, budget):
    design = worst_case(rows, budget)
    covariance = design.covariance
    assert (covariance.mahalanobis(rows) <= budget * (1 + 1e-9)).all()
    assert np.linalg.norm(design.constraint_factor, axis=1).max() <= 1
    # Every coordinate that any row moves is moved by the noise at least as much.
    assert (covariance.diagonal() * budget >= (rows**2).max(axis=0) * (1 - 1e-9)).all()
    if len(rows) < 100:
        assert (exact_distances(covariance, rows) <= budget * (1 + 1e-9)).all()
    draws = design.sample(DRAWS, rng=3)
    certified = stats.norm.cdf(np.sqrt(budget) / 2)
    error = np.sqrt(certified * (1 - certified) / DRAWS) + 1 / DRAWS
    for row in rows[:: max(1, len(rows) // 6)]:
        assert best_success(draws, row) <= certified + 5 * error


@pytest.mark.parametrize("spread", [10, 12, 16, 20, 100, 200, 280])
@pytest.mark.parametrize("seed", range(4))
def test_lengths_over_many_decades_are_feasible(spread, seed):
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(3, 20)), int(rng.integers(1, 7))
    rows = rng.standard_normal((m, d)) * 10.0 ** rng.uniform(-spread / 2, spread / 2, (m, 1))
    design = worst_case(rows, 1.0)
    assert (exact_distances(design.covariance, rows) <= 1 + 1e-9).all()
    assert design.gap <= 2e-6


def near_duplicates(seed, count):
    """Designs for rows that differ from the first by 1e-15 to 1e-4 of its entries."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = int(rng.integers(2, 5))
        base = rng.standard_normal((1, size)) * decades(rng, -4, 4, (1, size))
        apart = decades(rng, -15, -4, ())
        rows = base * (
            1 + apart * np.vstack([np.zeros(size), rng.standard_normal((size - 1, size))])
        )
        differences = np.vstack([np.diff(rows, axis=0), base * rng.standard_normal((3, size))])
        yield worst_case(rows, 0.25).covariance, differences


def test_inverting_noise_of_near_duplicates_is_off_by_no_more_than_is_said():
    """The factor is solved for by a triangle that is nearly singular."""
    inverted, beyond_rounding = 0, 0
    for covariance, differences in near_duplicates(1, 400):
        if covariance.lower is None or covariance.rank < covariance.dim:
            continue
        whitened, rounding = whiten(differences, covariance)
        if rounding < 0.5:
            exact = exact_distances(covariance, differences)
            found = (whitened**2).sum(axis=1)
            assert (found >= exact / (1 + rounding) * (1 - 1e-13)).all()
            assert (found <= exact / (1 - rounding) * (1 + 1e-13)).all()
            stored = exact_distances(Factored(covariance.factor.T), differences)
            assert (np.abs(stored / exact - 1) <= rounding * (1 + rounding) + 1e-13).all()
            inverted += 1
            beyond_rounding += bool((np.abs(found / exact - 1) > 1e-8).any())
    assert inverted > 100
    assert beyond_rounding > 5


def test_information_through_noise_of_near_duplicates_is_rounded_up():
    inverted = 0
    for covariance, differences in near_duplicates(2, 150):
        outputs = np.cov(differences.T) + np.diag(differences.var(axis=0))
        bound = log_det_information(outputs, covariance)
        if covariance.lower is not None and np.isfinite(bound):
            with mp.workdps(120):
                rows, lower = (
                    mp.matrix(part.tolist()) for part in (covariance.rows, covariance.lower)
                )
                factor = (lower**-1 * rows).T
                ratios = mp.matrix(outputs.tolist()) * (factor * factor.T) ** -1
                exact = mp.log(mp.det(mp.eye(covariance.dim) + ratios)) / 2
                assert bound >= exact
            inverted += 1
    assert inverted > 30
