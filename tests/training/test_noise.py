"""The noisy coefficients: within budget as drawn, whatever is known of the gradients."""

import numpy as np
import pytest
from scipy.stats import norm, rankdata

pytest.importorskip("torch")

import torch
from torch import nn

from tacit.design import worst_case
from tacit.gradients import per_example
from tacit.training import carry_over, noisy_coefficients
from tacit.training.noise import draw, independent
from tests.gradients.layers import curved
from tests.gradients.naive import naive_gradients, relative, written

BUDGETS = np.array([0.5, 1.0, 1.0, 2.0, 4.0])


def problem(seed=0):
    """20 parameters, 10 examples, 5 references that each leave two of them out."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    inputs, targets = torch.randn(10, 3).double(), torch.randn(10, 2).double()
    membership = np.ones((5, 10), dtype=bool)
    membership[np.repeat(np.arange(5), 2), np.arange(10)] = False
    return model, inputs, targets, membership


def differences(gradients, membership):
    """z_r = (sum over the reference − sum over all)/B, from gradients of its own making."""
    whole = gradients.sum(axis=0)
    kept = membership.astype(float) @ gradients
    return (kept - whole) / len(gradients)


def squared_distances(z, design):
    """zᵀ Σ⁺ z in the span, from the covariance of the noise Σ_r x_r z_r."""
    covariance = z.T @ design.covariance.to_dense() @ z
    return np.einsum("ij,jk,ik->i", z, np.linalg.pinv(covariance, rcond=1e-12), z)


def test_the_problem_has_twenty_parameters():
    assert sum(one.numel() for one in problem()[0].parameters()) == 20


@pytest.mark.parametrize("seed", range(3))
def test_the_drawn_noise_lies_within_every_budget_and_meets_it(seed):
    model, inputs, targets, membership = problem(seed)
    z = differences(naive_gradients(model, curved, inputs, targets), membership)
    found = per_example(model, curved, inputs, targets)
    _, design = noisy_coefficients(found.gram, membership, BUDGETS, rng=0)
    used = squared_distances(z, design) / BUDGETS
    assert used.max() <= 1 + 1e-9
    assert used.max() >= 1 - 1e-6
    best = worst_case(z, BUDGETS)
    energy = float(np.trace(z.T @ design.covariance.to_dense() @ z))
    assert best.cost * (1 - best.gap) <= energy * (1 + 1e-9)
    assert energy <= best.cost * (1 + 1e-5)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_gram_costs_energy_and_no_guarantee(seed, share):
    model, inputs, targets, membership = problem(seed)
    gradients = naive_gradients(model, curved, inputs, targets)
    z = differences(gradients, membership)
    rng = np.random.default_rng(seed)
    wrong = rng.uniform(-share, share, (10, 10))
    gram = gradients @ gradients.T * (1 + (wrong + wrong.T) / 2)
    _, design = noisy_coefficients(gram, membership, BUDGETS, rng=0)
    assert (squared_distances(z, design) <= BUDGETS * (1 + 1e-9)).all()


@pytest.mark.parametrize("gram", ["forward", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_an_approximate_gram_or_none_keeps_the_budgets(gram, seed):
    model, inputs, targets, membership = problem(seed)
    z = differences(naive_gradients(model, curved, inputs, targets), membership)
    found = per_example(model, curved, inputs, targets, gram=gram)
    _, design = noisy_coefficients(found.gram, membership, BUDGETS, rng=0)
    assert (squared_distances(z, design) <= BUDGETS * (1 + 1e-9)).all()


def test_a_gram_that_misses_a_reference_altogether_keeps_its_budget():
    model, inputs, targets, membership = problem()
    gradients = naive_gradients(model, curved, inputs, targets)
    gram = gradients @ gradients.T
    gram[:2], gram[:, :2] = 0.0, 0.0
    _, design = noisy_coefficients(gram, membership, BUDGETS, rng=0)
    z = differences(gradients, membership)
    assert (squared_distances(z, design) <= BUDGETS * (1 + 1e-9)).all()
    _, design = noisy_coefficients(np.zeros((10, 10)), membership, BUDGETS, rng=0)
    assert (squared_distances(z, design) <= BUDGETS * (1 + 1e-9)).all()


def test_references_that_hold_the_whole_batch_ask_for_nothing():
    membership = np.ones((3, 4), dtype=bool)
    for gram in (np.eye(4), None):
        coefficients, _ = noisy_coefficients(gram, membership, 1.0)
        np.testing.assert_array_equal(coefficients, np.full(4, 0.25))
    membership[1, 2] = False
    coefficients, _ = noisy_coefficients(np.eye(4), membership, 1.0)
    np.testing.assert_array_equal(coefficients[[0, 1, 3]], 0.25)
    assert coefficients[2] != 0.25


def test_single_precision_grams_are_taken():
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((20, 300)), 2, axis=0).astype(np.float32)
    gram = (rows @ rows.T).astype(np.float64)
    gram *= 1 + 1e-6 * rng.standard_normal(gram.shape)
    gram = (gram + gram.T) / 2
    assert np.linalg.eigvalsh(gram).min() < -1e-10 * np.linalg.eigvalsh(gram).max()
    coefficients, design = noisy_coefficients(gram, ~np.eye(40, dtype=bool), 1.0)
    assert np.isfinite(coefficients).all()
    z = -rows.astype(np.float64) / 40
    assert (squared_distances(z, design) <= 1 + 1e-6).all()


def steps(seed, count, *, shrunk=1.0):
    """Noisy gradients of steps that are drawn one after the other, less the mean's."""
    model, inputs, targets, membership = problem(seed)
    found = per_example(model, curved, inputs, targets)
    found.weighted(np.full(10, 0.1))
    mean = written(model)
    rng = np.random.default_rng(seed)
    _, design = noisy_coefficients(found.gram, membership, BUDGETS, rng=rng)
    mixing = np.where(membership, 0.0, -0.1)
    outcomes = []
    for _ in range(count):
        found.weighted(0.1 + shrunk * draw(design, BUDGETS, rng) @ mixing)
        outcomes.append(written(model) - mean)
    return np.array(outcomes), design


def areas(outcomes, z, covariance):
    """Area under the ROC curve of the likelihood ratio, for every reference, and its error."""
    half = len(outcomes) // 2
    directions = np.linalg.pinv(covariance, rcond=1e-12) @ z.T
    found = []
    for r, direction in enumerate(directions.T):
        whole, left_out = outcomes[:half] @ direction, (outcomes[half:] + z[r]) @ direction
        ranks = rankdata(np.concatenate([whole, left_out]))
        found.append((ranks[half:].sum() - half * (half + 1) / 2) / half**2)
    return np.array(found), 1 / np.sqrt(6 * half)


@pytest.mark.thorough
def test_ten_thousand_steps_stay_within_the_certified_divergence_and_halved_noise_does_not():
    model, inputs, targets, membership = problem()
    z = differences(naive_gradients(model, curved, inputs, targets), membership)
    # two Gaussians at distance μ: area Φ(μ/√2)
    certified = norm.cdf(np.sqrt(BUDGETS / 2))
    outcomes, design = steps(0, 10_000)
    covariance = z.T @ design.covariance.to_dense() @ z
    empirical = np.cov(outcomes.T, bias=True)
    assert relative(empirical, covariance) < 5 * np.sqrt(2 * 5 / 10_000)
    found, error = areas(outcomes, z, covariance)
    assert (found <= certified + 4 * error).all()
    active = squared_distances(z, design) > BUDGETS * (1 - 1e-3)
    assert active.any()
    assert (found[active] >= certified[active] - 4 * error).all()
    halved, _ = steps(0, 10_000, shrunk=0.5)
    found, error = areas(halved, z, covariance)
    assert (found[active] > certified[active] + 4 * error).all()


def test_a_triangle_beyond_a_budget_is_never_drawn_from():
    design = independent(1.0, 3)
    with pytest.raises(RuntimeError, match="exceeds a budget"):
        draw(design, [1.0, 0.5, 1.0])


def test_a_warm_start_takes_no_more_iterations():
    model, inputs, targets, membership = problem()
    found = per_example(model, curved, inputs, targets)
    _, cold = noisy_coefficients(found.gram, membership, BUDGETS)
    _, warm = noisy_coefficients(found.gram, membership, BUDGETS, warm_start=cold)
    assert warm.iterations <= cold.iterations
    assert warm.cost == pytest.approx(cold.cost, rel=1e-5)


def test_multipliers_follow_their_references():
    model, inputs, targets, membership = problem()
    found = per_example(model, curved, inputs, targets)
    _, design = noisy_coefficients(found.gram, membership, BUDGETS)
    moved = carry_over(design, "abcde", "edxab")
    ratios = design.multiplier_ratios
    np.testing.assert_array_equal(moved.multiplier_ratios[[0, 1, 3, 4]], ratios[[4, 3, 0, 1]])
    assert moved.multiplier_ratios[2] == np.median(ratios[ratios > 0])
    order = [4, 3, 2, 0, 1]
    _, after = noisy_coefficients(found.gram, membership[order], BUDGETS[order], warm_start=moved)
    assert after.cost == pytest.approx(design.cost, rel=1e-5)
    assert carry_over(independent(1.0, 3), "abc", "abc") is None


def test_seeds_repeat_and_the_operating_system_does_not():
    gram, membership = np.eye(4), ~np.eye(4, dtype=bool)
    first, _ = noisy_coefficients(gram, membership, 1.0, rng=1)
    again, _ = noisy_coefficients(gram, membership, 1.0, rng=1)
    np.testing.assert_array_equal(first, again)
    fresh = [noisy_coefficients(gram, membership, 1.0)[0] for _ in range(2)]
    assert (fresh[0] != fresh[1]).all()


def test_arguments():
    gram, membership = np.eye(4), ~np.eye(4, dtype=bool)
    with pytest.raises(ValueError, match=r"^membership: .* got shape \(4, 4\) of float64"):
        noisy_coefficients(gram, np.eye(4), 1.0)
    with pytest.raises(ValueError, match=r"^gram: expected shape \(4, 4\)"):
        noisy_coefficients(np.eye(3), membership, 1.0)
    with pytest.raises(ValueError, match=r"^gram: expected finite"):
        noisy_coefficients(np.full((4, 4), np.nan), membership, 1.0)
    for kind in (gram, None):
        with pytest.raises(ValueError, match=r"^budgets: expected numbers > 0"):
            noisy_coefficients(kind, membership, [1.0, 0.0, 1.0, 1.0])
        with pytest.raises(ValueError, match=r"^budgets: expected 4 entries"):
            noisy_coefficients(kind, membership, [1.0, 1.0])
