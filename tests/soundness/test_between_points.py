"""Noise between the points of a simplex: no pair is farther, and no other solver finds less."""

import numpy as np
import pytest
from mpmath import mp

from tacit.design import worst_case
from tacit.design.listed.simplex import between_points, spans_simplex
from tacit.guarantees import Indistinguishability
from tests.soundness.exact import exact_distances
from tests.soundness.registry import certifies

# Patterns of a row: a histogram that a row may be outside of, one that it may not, thresholds.
POINTS = {
    "bins": np.vstack([np.zeros(6), np.eye(6)]),
    "categories": np.eye(6),
    "thresholds": np.tril(np.ones((7, 6)), -1),
}


def prices(kind, seed=5):
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(6, 6))
    return {
        "equal": np.eye(6),
        "apart": np.diag(10.0 ** rng.uniform(-2.0, 1.0, 6)),
        "mixed": mixed @ mixed.T + 0.1 * np.eye(6),
    }[kind]


def pairs(points):
    first, second = np.triu_indices(len(points), 1)
    return points[first] - points[second]


@certifies(Indistinguishability)
@pytest.mark.parametrize("kind", ["equal", "apart", "mixed"])
@pytest.mark.parametrize("points", POINTS)
def test_every_pair_is_covered_in_exact_arithmetic_at_the_least_cost(points, kind):
    rows, cost = pairs(POINTS[points]), prices(kind)
    assert spans_simplex(POINTS[points])
    design = between_points(POINTS[points], cost)
    distances = exact_distances(design.covariance, rows)
    assert (distances <= 1 + 1e-12).all()
    assert design.cost == pytest.approx(np.vdot(cost, design.covariance.to_dense()), rel=1e-12)
    # the dual of another solver, in the multipliers of all pairs, lies below and next to it
    other = worst_case(rows, 1.0, cost=cost, rtol=1e-8)
    bound = other.cost * (1 - other.gap)
    assert bound <= design.cost * (1 + 1e-10)
    assert design.cost * (1 - design.gap) <= other.cost * (1 + 1e-10)
    assert design.covariance.to_dense() == pytest.approx(other.covariance.to_dense(), abs=1e-5)
    # a pair with a multiplier is at its budget
    assert distances[design.multipliers > 1e-6 * design.multipliers.max()] == pytest.approx(1.0)


def test_a_gap_is_not_below_the_exact_one_where_a_direction_is_all_but_free():
    """Its price is 1e-10 of the largest: the root of the square of it has no digit."""
    half = np.triu(np.random.default_rng(6).normal(size=(6, 6)))
    np.fill_diagonal(half, np.geomspace(1.0, 1.5e-4, 6)[::-1])
    cost = half.T @ half
    design = between_points(np.vstack([np.zeros(6), np.eye(6)]), cost)
    with mp.workdps(40):
        moved = mp.zeros(7)
        for i, j, one in zip(*np.triu_indices(7, 1), design.multipliers.tolist(), strict=True):
            moved[i, i] += one
            moved[j, j] += one
            moved[i, j] = moved[j, i] = -mp.mpf(one)
        root = mp.cholesky(mp.matrix(cost.tolist()))
        squares = mp.eigsy(root.T * moved[1:, 1:] * root, eigvals_only=True)
        trace = sum(mp.sqrt(one) for one in squares)
        exact = 1 - trace**2 / sum(design.multipliers.tolist()) / design.cost
    assert 5e-11 < exact <= design.gap <= 1e-6


def test_equal_prices_of_bins_have_a_closed_form():
    count = 150
    design = between_points(np.vstack([np.zeros(count), np.eye(count)]), np.eye(count))
    # Σ⁻¹ = ½(I + 11ᵀ)
    expected = 2 * (np.eye(count) - 1 / (count + 1))
    assert design.covariance.to_dense() == pytest.approx(expected, abs=1e-12)
    assert design.iterations == 0


def test_points_that_span_no_simplex_and_prices_too_far_apart_are_left_to_the_other_solver():
    square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert not spans_simplex(square)
    assert not spans_simplex(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    rng = np.random.default_rng(0)
    hard = np.diag(10.0 ** rng.uniform(-12.0, 0.0, 15))
    found = between_points(np.tril(np.ones((16, 15)), -1), hard)
    assert found is None or found.gap <= 1e-6
