"""Noise between the points of a simplex: no pair is farther, and no other solver finds less."""

import numpy as np
import pytest

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
