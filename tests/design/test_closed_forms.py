import json

import numpy as np
import pytest

from tacit.covariance import covariance_from_dict
from tacit.design import (
    average,
    ball,
    complement,
    generalized_eigen,
    isotropic,
    power,
)
from tacit.linalg import bures_fidelity


def psd(rng, d, rank=None):
    rows = rng.standard_normal((rank or d, d))
    return rows.T @ rows / d


RNG = np.random.default_rng(0)
F, S = psd(RNG, 6), psd(RNG, 6)
BUDGET = 0.37
DESIGNS = {
    "isotropic": (isotropic(F, BUDGET), 6),
    "ball": (ball(F, BUDGET), 6),
    "ball-diagonal": (ball(F, BUDGET, diagonal=True), 6),
    "complement": (complement(F, 2, BUDGET), 4),
    "complement-whitened": (complement(F, 2, BUDGET, whiten=True), 4),
    "generalized-eigen-1": (generalized_eigen(F, S, BUDGET, 1), 1),
    "generalized-eigen-3": (generalized_eigen(F, S, BUDGET, 3), 3),
    "generalized-eigen-6": (generalized_eigen(F, S, BUDGET, 6), 6),
    "average": (average(F, S, BUDGET), 6),
    "average-floor": (average(F, psd(RNG, 6, 2), BUDGET, ridge=0.1, floor=1e-3), 6),
    "average-singular": (average(F, psd(RNG, 6, 2), BUDGET), 2),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_spends_exactly_the_budget_and_says_its_rank(name):
    design, rank = DESIGNS[name]
    spent = 0.5 * np.trace(F @ design.covariance.to_dense())
    assert spent == pytest.approx(BUDGET, rel=1e-12)
    assert design.cost == pytest.approx(BUDGET, rel=1e-12)
    assert design.rank == rank
    assert np.linalg.matrix_rank(design.covariance.to_dense(), tol=1e-9) == rank


@pytest.mark.parametrize("name", DESIGNS)
def test_a_bare_direction_has_infinite_distance(name):
    design, rank = DESIGNS[name]
    distance = design.covariance.mahalanobis(np.linspace(1, 2, 6))
    assert np.isinf(distance) == (rank < 6)


@pytest.mark.parametrize("name", DESIGNS)
def test_design_summary_is_strict_json(name):
    design, _ = DESIGNS[name]
    text = json.dumps(design.to_dict(), allow_nan=False)
    assert covariance_from_dict(json.loads(text)["covariance"]) == design.covariance


def test_power_and_diagonal_fisher_spend_the_budget():
    diagonal = np.array([4.0, 1.0, 1e-3, 1e3])
    for alpha in (-1.0, 0.0, 0.25, 0.5, 1.0, 1.5):
        design = power(diagonal, alpha, BUDGET)
        assert 0.5 * diagonal @ design.covariance.variances == pytest.approx(BUDGET, rel=1e-12)
    np.testing.assert_allclose(
        power(diagonal, 1.0, BUDGET).covariance.variances,
        ball(diagonal, BUDGET).covariance.diagonal(),
    )
    assert np.ptp(power(diagonal, 0.0, BUDGET).covariance.variances) < 1e-12
    assert isotropic(diagonal, BUDGET).cost == pytest.approx(BUDGET, rel=1e-12)


def worst_over_ball(covariance, fisher, radius=1.0):
    """sup of zᵀ Σ⁻¹ z over zᵀ F z ≤ ρ² is ρ² times the largest eigenvalue of F^-½ Σ⁻¹ F^-½."""
    product = np.linalg.inv(covariance.to_dense()) @ np.linalg.inv(fisher)
    return radius**2 * np.linalg.eigvals(product).real.max()


def test_ball_attains_the_lower_bound_and_nothing_else_beats_it():
    # hidden-state, Thm 13: every covariance has sup >= ρ² d / 2K.
    bound = 6 / (2 * BUDGET)
    assert worst_over_ball(ball(F, BUDGET).covariance, F) == pytest.approx(bound, rel=1e-9)
    for name in ("isotropic", "ball-diagonal", "average"):
        assert worst_over_ball(DESIGNS[name][0].covariance, F) >= bound * (1 - 1e-9)


def test_diagonal_ball_is_best_among_diagonals():
    diagonal = np.array([3.0, 1.0, 0.2])
    fisher = np.diag(diagonal)
    bound = worst_over_ball(ball(diagonal, BUDGET).covariance, fisher)
    assert bound == pytest.approx(3 / (2 * BUDGET), rel=1e-12)
    rng = np.random.default_rng(5)
    for _ in range(50):
        variances = rng.uniform(0.1, 1.0, 3)
        variances *= 2 * BUDGET / (diagonal @ variances)
        assert (1 / (variances * diagonal)).max() >= bound * (1 - 1e-12)


def test_average_attains_its_closed_value_and_is_a_minimum():
    design = DESIGNS["average"][0].covariance.to_dense()
    value = np.trace(S @ np.linalg.inv(design))
    # hidden-state, Eq. 21: J* = (tr C^½)² / 2K with tr C^½ the fidelity of F and S.
    assert value == pytest.approx(bures_fidelity(F, S) ** 2 / (2 * BUDGET), rel=1e-9)
    rng = np.random.default_rng(6)
    for _ in range(50):
        other = design + 0.05 * np.abs(design).max() * psd(rng, 6)
        other *= 2 * BUDGET / np.trace(F @ other)
        assert np.trace(S @ np.linalg.inv(other)) >= value * (1 - 1e-9)


def test_two_dimensional_average_differs_from_worst_case():
    # hidden-state, Prop. 12: average wants √L : √l, worst case wants equal.
    design = average(np.eye(2), np.diag([9.0, 1.0]), 1.0)
    np.testing.assert_allclose(design.covariance.diagonal(), [1.5, 0.5])


def test_rank_one_generalized_eigen_is_the_euclidean_optimum():
    # hidden-state, Eq. 3: tr(SΣ) at most 2K times the largest generalised eigenvalue.
    largest = np.linalg.eigvals(np.linalg.solve(F, S)).real.max()
    sigma = generalized_eigen(F, S, BUDGET, 1).covariance.to_dense()
    assert np.trace(S @ sigma) == pytest.approx(2 * BUDGET * largest, rel=1e-9)


def test_complement_leaves_the_leading_directions_alone():
    leading = np.linalg.eigh(F)[1][:, -2:]
    for whiten in (False, True):
        sigma = complement(F, 2, BUDGET, whiten=whiten).covariance.to_dense()
        assert np.abs(leading.T @ sigma).max() < 1e-12 * np.abs(sigma).max() + 1e-14
    values = np.linalg.eigvalsh(complement(F, 2, BUDGET).covariance.to_dense())[2:]
    np.testing.assert_allclose(values, values[0])


def test_whitened_complement_reports_a_null_space():
    fisher = np.diag([4.0, 2.0, 1.0, 0.0])
    design = complement(fisher, 1, BUDGET, whiten=True)
    assert design.rank == 2
    assert "counted as zero" in design.notes[0]


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_scale_does_not_matter(scale):
    np.testing.assert_allclose(
        average(F * scale, S, BUDGET).covariance.to_dense() * scale,
        average(F, S, BUDGET).covariance.to_dense(),
        rtol=1e-6,
        atol=1e-9,
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: isotropic(F, 0.0), "kl_budget: expected a finite number > 0, got 0.0"),
        (lambda: isotropic(F, float("nan")), "kl_budget: expected a number, got NaN"),
        (lambda: isotropic(np.zeros((2, 2)), 1.0), "fisher: expected a non-zero matrix"),
        (lambda: isotropic([1.0, -1.0], 1.0), "fisher: expected entries >= 0"),
        (lambda: ball(np.diag([1.0, 0.0]), 1.0), "fisher: expected a positive definite.*rank 1"),
        (lambda: ball([1.0, 0.0], 1.0), "fisher: expected diagonal entries > 0, got 0.0 at 1"),
        (lambda: ball(-np.eye(2), 1.0), "fisher: expected a positive semidefinite"),
        (lambda: power([1.0, 0.0], 1.0, 1.0), "fisher_diagonal: expected diagonal entries > 0"),
        (lambda: power([1.0], float("inf"), 1.0), "exponent: expected a finite number"),
        (lambda: complement(F, 6, 1.0), "rank: expected an integer <= 5, got 6"),
        (lambda: complement(F, 0, 1.0), "rank: expected an integer >= 1, got 0"),
        (lambda: complement(np.diag([1.0, 0, 0]), 1, 1.0), "fisher: expected information outside"),
        (lambda: generalized_eigen(F, S, 1.0, 7), "rank: expected an integer <= 6, got 7"),
        (lambda: generalized_eigen(F, S[:3, :3], 1.0, 1), r"spread: expected shape \(6, 6\)"),
        (lambda: generalized_eigen(np.diag([1.0, 0]), np.eye(2), 1, 1), "b: expected a positive"),
        (lambda: average(F, -S, 1.0), "spread: expected a positive semidefinite"),
        (lambda: average(np.diag([1.0, 0.0]), np.eye(2), 1.0), r"fisher: expected F \+ ridge I"),
        (lambda: average(F, np.zeros((6, 6)), 1.0), "spread: expected a non-zero matrix"),
        (lambda: average(F, S, 1.0, ridge=-1.0), "ridge: expected a finite number >= 0"),
        (lambda: average(F, S, 1.0, floor=-1.0), "floor: expected a finite number >= 0"),
    ],
)
def test_bad_input_gets_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("exponent", [400.0, -400.0, 1e5, 1e308])
def test_a_power_beyond_double_precision_is_named(exponent):
    with pytest.raises(ValueError, match="fisher_diagonal, exponent, kl_budget"):
        power([1.0, 4.0, 1e-3], exponent, 1.0)


@pytest.mark.parametrize("entry", [1e-320, 1e300, 1.7e308])
@pytest.mark.parametrize("make", [isotropic, ball])
def test_noise_beyond_double_precision_is_named(make, entry):
    with pytest.raises(ValueError, match="fisher, kl_budget: expected variances between"):
        make([entry, entry], 1.0)
