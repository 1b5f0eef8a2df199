import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.design import worst_case
from tacit.design.listed.dual import kernel_factors
from tests.design.families import FAMILIES, instance

SHAPES = [(1, 4), (6, 20), (40, 60), (40, 40), (120, 300), (60, 8), (600, 12)]


def check_certificate(design, rows, budgets, cost=None, cost_rtol=1e-9):
    """Rows of the factor have norm ≤ 1 and reproduce the differences under the noise factor."""
    norms = np.linalg.norm(design.constraint_factor, axis=1)
    assert norms.max() <= 1
    scaled = rows / np.sqrt(budgets)[:, None]
    reproduced = design.constraint_factor @ design.factor.T
    size = np.abs(design.constraint_factor) @ np.abs(design.factor.T) + np.abs(scaled)
    assert np.all(np.abs(reproduced - scaled) <= 1e-12 * size)
    assert design.covariance.weighted_trace(cost) == pytest.approx(design.cost, rel=cost_rtol)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_reaches_the_gap_and_is_feasible_on_every_family(family, shape):
    rows, budgets = instance(family, *shape, seed=shape[0])
    design = worst_case(rows, budgets)
    assert 0 <= design.gap <= 1e-6
    check_certificate(design, rows, budgets)
    assert np.all(design.covariance.mahalanobis(rows) <= budgets * (1 + 1e-8))
    # Weak duality by hand: (tr S)² / Σλ is a lower bound for any λ ≥ 0.
    weights = design.multipliers * budgets
    scaled = rows / np.sqrt(budgets)[:, None]
    trace = np.linalg.svd(np.sqrt(weights)[:, None] * scaled, compute_uv=False).sum()
    assert trace**2 / weights.sum() >= design.cost * (1 - 2e-6)
    assert weights.sum() == pytest.approx(design.cost, rel=2e-6)


def test_one_difference():
    fisher = np.diag([2.0, 0.5])
    z, budget = np.array([[3.0, 4.0]]), 0.7
    design = worst_case(z, budget, cost=fisher)
    assert design.cost == pytest.approx((z @ fisher @ z.T).item() / budget, rel=1e-12)


def test_orthogonal_differences():
    lengths, budgets = np.array([1.0, 3.0, 1e-4, 20.0]), np.array([1.0, 0.5, 2.0, 1e3])
    design = worst_case(np.diag(lengths), budgets)
    assert design.cost == pytest.approx((lengths**2 / budgets).sum(), rel=1e-12)


@pytest.mark.parametrize("cosine", [-0.99, -0.3, 0.0, 0.5, 0.9999])
def test_two_unit_vectors(cosine):
    rows = np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]])
    expected = (np.sqrt(1 + cosine) + np.sqrt(1 - cosine)) ** 2 / 2
    assert worst_case(rows, 1.0).cost == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("m", [2, 3, 8, 30])
def test_regular_simplex(m):
    rows = np.eye(m) - 1 / m
    assert worst_case(rows, 1.0).cost == pytest.approx((m - 1) ** 2 / m, rel=1e-6)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(m=st.integers(2, 25), spread=st.floats(0, 3), seed=st.integers(0, 10**6))
def test_planted_optimum(m, spread, seed):
    # G = C Λ C with diag C = 1 has value Σ Λ, attained at this C.
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((m, 2 * m))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    correlation = rows @ rows.T
    planted = 10.0 ** rng.uniform(-spread, spread, m)
    design = worst_case(None, 1.0, gram=correlation * planted @ correlation)
    assert design.cost == pytest.approx(planted.sum(), rel=2e-6)
    assert design.cost >= planted.sum() * (1 - 1e-9)


def test_any_cost_is_the_identity_in_other_coordinates():
    rng = np.random.default_rng(1)
    rows, root = rng.standard_normal((7, 10)), rng.standard_normal((10, 10))
    fisher = root @ root.T
    budgets = rng.uniform(0.5, 2.0, 7)
    design = worst_case(rows, budgets, cost=fisher)
    plain = worst_case(rows @ root, budgets)
    assert design.cost == pytest.approx(plain.cost, rel=1e-6)
    check_certificate(design, rows, budgets, fisher)
    diagonal = rng.uniform(0.1, 10.0, 10)
    weighted = worst_case(rows, budgets, cost=diagonal)
    same = worst_case(rows, budgets, cost=np.diag(diagonal))
    assert weighted.cost == pytest.approx(same.cost, rel=1e-6)
    assert worst_case(rows, budgets, cost=3.0).cost == pytest.approx(
        3 * worst_case(rows, budgets).cost, rel=1e-6
    )


@pytest.mark.parametrize("rank", [1, 3, 5])
@pytest.mark.parametrize("m", [2, 5, 30])
def test_a_cost_that_ignores_directions_still_covers_them(rank, m):
    rng = np.random.default_rng(m)
    rows, root = rng.standard_normal((m, 8)), rng.standard_normal((8, rank))
    fisher = root @ root.T
    design = worst_case(rows, 1.0, cost=fisher)
    # Free directions carry much noise, so that rounding in F shows in the cost.
    check_certificate(design, rows, np.ones(m), fisher, cost_rtol=1e-6)
    assert np.all(design.covariance.mahalanobis(rows) <= 1 + 1e-7)
    assert design.gap <= 1e-6


def test_the_192_dimensional_program():
    # hidden-state, U.4: 40 adjacency differences, condition of F 1e12.
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((192, 192)))[0]
    fisher = basis * np.logspace(0, -12, 192) @ basis.T
    fisher = (fisher + fisher.T) / 2 + 1e-13 * np.eye(192)
    rows = rng.standard_normal((40, 192))
    design = worst_case(rows, 1.0, cost=fisher)
    assert design.gap <= 1e-6
    check_certificate(design, rows, np.ones(40), fisher)


def test_zero_duplicate_and_opposite_rows():
    rng = np.random.default_rng(3)
    base = rng.standard_normal((4, 9))
    rows = np.vstack([np.zeros((2, 9)), base, -base, 0.5 * base, 2 * base[:2], 1e-9 * base])
    design = worst_case(rows, 1.0)
    longest = np.vstack([2 * base[:2], base[2:]])
    assert design.cost == pytest.approx(worst_case(longest, 1.0).cost, rel=1e-6)
    check_certificate(design, rows, np.ones(len(rows)))
    assert np.all(design.covariance.mahalanobis(rows) <= 1 + 1e-9)
    assert design.rank == 4


@pytest.mark.parametrize("separation", [1e-3, 1e-6, 1e-9, 1e-12])
def test_a_neighbour_is_not_taken_for_a_duplicate(separation):
    rng = np.random.default_rng(4)
    base = rng.standard_normal((3, 7))
    rows = np.vstack([base, base + separation * rng.standard_normal(base.shape)])
    design = worst_case(rows, 1.0)
    # What tells the neighbours apart is covered too, not dropped below a tolerance.
    assert np.all(design.covariance.mahalanobis(rows) <= 1 + 1e-7)
    check_certificate(design, rows, np.ones(6))
    assert design.gap <= 1e-6


def test_all_zero_differences_need_no_noise():
    design = worst_case(np.zeros((3, 4)), 1.0)
    assert (design.cost, design.gap, design.rank) == (0.0, 0.0, 0)
    assert not design.sample(2, rng=0).any()


@pytest.mark.parametrize("scale", [1e-140, 1e-20, 1e20, 1e140])
def test_scale_does_not_matter(scale):
    rows, budgets = instance("budgets-over-decades", 20, 30)
    design = worst_case(rows * scale, budgets)
    assert design.cost / scale**2 == pytest.approx(worst_case(rows, budgets).cost, rel=1e-6)
    assert design.gap <= 1e-6


@pytest.mark.parametrize(("m", "d"), [(10, 30), (30, 6)])
def test_gram_alone_gives_the_same_noise_in_coefficients(m, d):
    rng = np.random.default_rng(5)
    rows, budgets = rng.standard_normal((m, d)), rng.uniform(0.5, 2, m)
    known = worst_case(rows, budgets)
    design = worst_case(None, budgets, gram=rows @ rows.T)
    assert design.covariance.dim == m
    assert design.cost == pytest.approx(known.cost, rel=3e-6)
    noise = rows.T @ design.covariance.to_dense() @ rows
    assert np.trace(noise) == pytest.approx(design.cost, rel=1e-6)
    values, vectors = np.linalg.eigh(noise)
    kept = values > 1e-12 * values[-1]
    distances = ((rows @ vectors[:, kept]) ** 2 / values[kept]).sum(axis=1)
    assert np.all(distances <= budgets * (1 + 1e-6))
    assert np.linalg.norm(design.constraint_factor, axis=1).max() <= 1 + 1e-15
    both = worst_case(rows, budgets, gram=rows @ rows.T)
    assert both.cost == pytest.approx(known.cost, rel=1e-6)


def test_warm_start_continues_from_a_design_or_multipliers():
    rows, budgets = instance("decaying", 60, 100)
    cold = worst_case(rows, budgets)
    moved = rows + 1e-3 * np.random.default_rng(6).standard_normal(rows.shape)
    warm = worst_case(moved, budgets, warm_start=cold)
    assert warm.iterations < worst_case(moved, budgets).iterations
    assert warm.gap <= 1e-6
    again = worst_case(rows, budgets, warm_start=cold.multipliers)
    assert again.iterations == 1
    assert again.cost == pytest.approx(cold.cost, rel=1e-6)
    wide, limits = instance("random", 200, 10)
    first = worst_case(wide, limits)
    assert worst_case(wide, limits, warm_start=first).gap <= 1e-6


def test_the_noise_drawn_is_the_noise_certified():
    rows, budgets = instance("heavy-tails", 5, 8)
    design = worst_case(rows, budgets)
    draws = design.sample(40_000, rng=1)
    # Back in the coordinates of η the draws are white.
    white = np.linalg.lstsq(design.factor, draws.T, rcond=None)[0]
    deviation = np.abs(np.cov(white) - np.eye(5))
    assert deviation.max() < 5 * np.sqrt(2 / 40_000)
    assert np.abs(np.cov(1.1 * white) - np.eye(5)).max() > 5 * np.sqrt(2 / 40_000)


def test_tighter_tolerance_is_reached():
    rows, budgets = instance("random", 50, 80)
    loose, tight = worst_case(rows, budgets, rtol=1e-3), worst_case(rows, budgets, rtol=1e-10)
    assert tight.gap <= 1e-10
    assert tight.cost <= loose.cost * (1 + 1e-12)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(seed=st.integers(0, 10**6), decades=st.floats(0, 12), n=st.integers(1, 60))
def test_kernel_factors_approximate_small_and_large_alike(seed, decades, n):
    singular = 10.0 ** -np.random.default_rng(seed).uniform(0, decades, n)
    factors = np.array(kernel_factors(singular, 1e-3))
    exact = singular[:, None] * singular / (singular[:, None] + singular)
    error = np.abs(factors.T @ factors - exact) / np.sqrt(np.outer(singular, singular))
    assert error.max() <= 1e-3


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[1.0, np.nan]], 1.0), {}, r"differences: expected finite numbers, got nan at.*\(0, 1\)"),
        (([[1.0, np.inf]], 1.0), {}, "differences: expected finite numbers, got inf"),
        ((np.empty((0, 3)), 1.0), {}, "differences: expected at least one entry"),
        ((np.ones((2, 2, 2)), 1.0), {}, "differences: expected a 1-dimensional or 2-dim"),
        ((np.eye(2), 0.0), {}, "budgets: expected numbers > 0, got 0.0 at 0"),
        ((np.eye(2), [1.0, -1.0]), {}, "budgets: expected numbers > 0, got -1.0 at 1"),
        ((np.eye(2), [1.0]), {}, r"budgets: expected 2 entries, got shape \(1,\)"),
        ((np.eye(2), np.inf), {}, "budgets: expected finite numbers, got inf"),
        ((np.eye(2), 1.0), {"cost": [1.0]}, "cost: expected 2 entries"),
        ((np.eye(2), 1.0), {"cost": [1.0, -1.0]}, "cost: expected entries >= 0, got -1.0"),
        (
            (np.eye(2), 1.0),
            {"cost": np.diag([1.0, -1.0])},
            "cost: expected a positive semidefinite",
        ),
        ((np.eye(2), 1.0), {"cost": [[1.0, 2.0], [0.0, 1.0]]}, "cost: expected a symmetric matrix"),
        ((np.eye(2), 1.0), {"cost": 0.0}, "cost: expected a non-zero cost"),
        ((np.eye(2), 1.0), {"rtol": 0.0}, "rtol: expected a number in"),
        ((np.eye(2), 1.0), {"gram": np.eye(3)}, r"gram: expected shape \(2, 2\)"),
        ((None, 1.0), {}, "differences: expected an .m, d. array, got None"),
        ((None, 1.0), {"gram": np.diag([1.0, -1.0])}, "gram: expected a"),
        ((None, 1.0), {"gram": np.eye(2), "cost": 2.0}, "cost: expected None when only gram"),
        ((np.eye(2), 1.0), {"warm_start": [1.0]}, "warm_start: expected 2 entries"),
        ((np.eye(2), 1.0), {"warm_start": [1.0, -1.0]}, "warm_start: expected multipliers >= 0"),
        (
            (np.eye(2), 1.0),
            {"warm_start": worst_case(np.eye(3), 1.0)},
            "warm_start: expected a worst-case design of 2 differences",
        ),
    ],
)
def test_bad_input_gets_a_sentence(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        worst_case(*arguments, **options)


def test_a_cheap_direction_keeps_its_cost():
    # A diagonal or Cholesky-resolved cost has no rounding to hide behind.
    prices = 10.0 ** np.linspace(0, -15, 192)
    rows = np.zeros((40, 192))
    rows[:, 170:] = np.random.default_rng(0).standard_normal((40, 22))
    alone = worst_case(rows[:, 170:], 1.0, cost=prices[170:])
    for cost in (prices, np.diag(prices)):
        design = worst_case(rows, 1.0, cost=cost)
        assert design.cost == pytest.approx(alone.cost, rel=1e-6)
        assert design.covariance.weighted_trace(cost) == pytest.approx(design.cost, rel=1e-9)
    design = worst_case([[1.0, 0.0], [0.0, 1e12]], 1.0, cost=[1.0, 1e-20])
    assert design.cost == pytest.approx(10_001.0)
    assert worst_case([[0.0, 1.0], [0.0, 2.0]], 1.0, cost=[1.0, 1e-20]).cost == pytest.approx(4e-20)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[1e154, 0.0], [0.0, 1.0]], 1.0), {}, "differences: expected lengths between"),
        ((np.eye(2), 1e-309), {}, "differences: expected lengths between"),
        ((None, 1e-10), {"gram": np.eye(2) * 1e300}, "differences: expected lengths between"),
        ((np.eye(2), 1.0), {"cost": np.eye(2) * 1e308}, "cost: expected entries of at most 1e.150"),
        ((np.eye(2) * 1e151, 1.0), {"cost": 1e10}, "cost: expected noise whose cost is a double"),
    ],
)
def test_what_no_double_holds_gets_a_sentence(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        worst_case(*arguments, **options)


def test_rows_that_nearly_agree_and_rows_that_repeat():
    rng = np.random.default_rng(3)
    near = rng.standard_normal((1, 210)) * (1 + 1e-7 * rng.standard_normal((200, 210)))
    assert worst_case(near, 1.0).gap <= 1e-5
    base = rng.standard_normal((10, 10))
    repeated = base[rng.integers(10, size=4_096)]
    assert worst_case(repeated, 1.0).cost == pytest.approx(worst_case(base, 1.0).cost, rel=2e-6)
