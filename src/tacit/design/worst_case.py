"""The least noise that keeps every listed difference within its budget (dsi, Thm 3.3, Alg. 1)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._threads import one_thread
from tacit._validation import Array, array, in_interval, vector
from tacit.covariance import Covariance, Factored, Isotropic
from tacit.design.base import Design
from tacit.design.multipliers import (
    NORM_ROUNDING,
    RootSolver,
    Solution,
    interior_point,
    mended_root,
    newton,
    second_order_leverage,
)
from tacit.design.references import (
    Cost,
    References,
    checked_differences,
    checked_gram,
    prepare,
)
from tacit.linalg import MACHINE_EPSILON

# Weight of I mixed into a singular C = L Lᵀ: costs this much and leaves no direction bare.
MIXING = 1e-8
GRAM_MIXING = 1e-7
SINGULAR_PIVOT = 1e-13
# From this many independent differences on, threads gain more than they lose.
THREADS_PAY = 1500


def worst_case(
    differences: Any,
    budgets: Any,
    *,
    cost: Any = None,
    gram: Any = None,
    rtol: float = 1e-6,
    warm_start: Design | Any = None,
) -> Design:
    """Least-cost Gaussian noise with every difference in its budget.

    ``minimise tr(FΣ) subject to z_iᵀ Σ⁻¹ z_i ≤ g_i, i = 1 … m``. With ``ỹ_i = F^½ z_i / √g_i`` and
    ``G = ỸỸᵀ`` this is ``min tr(G C⁻¹) : diag C ≤ 1``, solved in the m multipliers and returned as
    the factor L of ``C = L Lᵀ``: the noise ``Σ_i (z_i/√g_i) (L⁻ᵀ η)_i`` is a linear image of
    ``Lᵀe_i + η``, so it is feasible exactly when the rows of L have norm at most 1, whatever the
    rounding in G or its rank. No difference is ever dropped, however short or collinear.

    Args:
        differences: (m, d), z_i = f(U) − f(R_i); None when only ``gram`` is known.
        budgets: g > 0, scalar or (m,): largest squared distance, e.g.
            ``shift_distance("kl", nats) ** 2``.
        cost: F, None (identity), a scalar, a diagonal (d,) or a PSD matrix (d, d).
        gram: (m, m) matrix z_iᵀ F z_j when it is already known; ``cost`` must be the same F.
        rtol: relative duality gap to reach; what was reached is in ``gap``.
        warm_start: an earlier Design with the same number of differences, or (m,) multipliers.

    Returns:
        A Design whose covariance is feasible and whose ``gap`` is certified by the dual. With
        ``differences=None`` the covariance is that of the coefficients c of the noise Σ c_i z_i.

    Raises:
        ValueError: an entry is not finite, a shape does not fit, a budget is not positive, the
            cost is not PSD.

    Example:
        >>> design = worst_case([[3.0, 0.0], [0.0, 4.0]], budgets=1.0)
        >>> round(design.cost, 6), design.covariance.mahalanobis([3.0, 0.0]) <= 1 + 1e-12
        (25.0, True)
    """
    in_interval("rtol", rtol, 1e-14, 1.0, open_high=True)
    with one_thread() if _independent_at_most(differences, gram) < THREADS_PAY else nullcontext():
        rows, gram_matrix, metric, limits = _read(differences, budgets, cost, gram)
        scaled = None if rows is None else rows / np.sqrt(limits)[:, None]
        if gram_matrix is not None:
            gram_matrix = gram_matrix / np.sqrt(limits)[:, None] / np.sqrt(limits)
        references = prepare(scaled, gram_matrix, metric)
        if references.order.size == 0:
            return _nothing_to_hide(scaled, limits)
        start = _start(references, limits, warm_start)
        unit = float(references.norms[0])
        solution = _solve(references, start / unit**2, unit, rtol, warm=warm_start is not None)
        pieces = None
        if not references.independent and scaled is not None and metric is not None:
            pieces = _in_subspace(references, solution, unit, scaled, metric)
        if pieces is None:
            pieces = _over_references(references, solution, unit, scaled, limits)
    return _wrap(pieces, references, solution, unit, limits)


Pieces = tuple[Covariance, float, Array]


def _independent_at_most(differences: Any, gram: Any) -> int:
    """Return how many differences can be independent, 0 where the shapes are yet to be refused."""
    try:
        shape = np.shape(gram if differences is None else differences)
    except ValueError:
        return 0
    return min(shape) if len(shape) == 2 else 0


def _read(
    differences: Any, budgets: Any, cost: Any, gram: Any
) -> tuple[Array | None, Array | None, Cost | None, Array]:
    if differences is None and gram is None:
        raise ValueError("differences: expected an (m, d) array, got None without a gram")
    rows = None if differences is None else checked_differences(differences)
    given = None if gram is None else checked_gram(gram, None if rows is None else rows.shape[0])
    if rows is None and cost is not None:
        raise ValueError("cost: expected None when only gram is given, since gram contains it")
    metric = None if rows is None else Cost(cost, rows.shape[1])
    count = rows.shape[0] if rows is not None else given.shape[0] if given is not None else 0
    limits = array("budgets", budgets, ndim=(0, 1))
    if limits.ndim == 0:
        limits = np.full(count, float(limits))
    limits = vector("budgets", limits, size=count)
    if (limits <= 0).any():
        where = int(np.argmin(limits))
        raise ValueError(f"budgets: expected numbers > 0, got {float(limits[where])!r} at {where}")
    return rows, given, metric, limits


def _start(references: References, limits: Array, warm_start: Design | Any) -> Array:
    """Return starting multipliers of the kept rows: ‖ỹ‖², times earlier ratios if there are any."""
    orthogonal: Array = references.norms**2
    if warm_start is None:
        return orthogonal
    if isinstance(warm_start, Design):
        if warm_start.multiplier_ratios is None or warm_start.multiplier_ratios.size != limits.size:
            raise ValueError(
                f"warm_start: expected a worst-case design of {limits.size} differences"
            )
        ratios = warm_start.multiplier_ratios[references.order]
    else:
        multipliers = vector("warm_start", warm_start, size=limits.size)
        if (multipliers < 0).any():
            raise ValueError("warm_start: expected multipliers >= 0, got a negative one")
        ratios = (multipliers * limits)[references.order] / orthogonal
    largest = float(ratios.max())
    if largest == 0.0:
        return orthogonal
    result: Array = orthogonal * np.maximum(ratios / largest, 1e-6)
    return result


def _solve(
    references: References, start: Array, unit: float, rtol: float, *, warm: bool
) -> Solution:
    """Solve in units where the longest row is 1, so that nothing over- or underflows."""
    rows = references.coordinates / unit
    if references.independent:
        gram = None if references.gram is None else references.gram / unit**2
        if gram is not None and not warm:
            start = start * second_order_leverage(gram) ** 2
        # Half the tolerance: factoring C costs a little of the gap again.
        solution = newton(RootSolver(rows, gram, rtol), start, rtol / 2, warm=warm)
        if solution.gap <= rtol:
            return solution
        # Nearly dependent rows: a constraint may be active for a multiplier of no weight.
        other = interior_point(rows, start, rtol / 2)
        return other if other.gap < solution.gap else solution
    return interior_point(rows, start, rtol * 0.9)


def _over_references(
    references: References,
    solution: Solution,
    unit: float,
    scaled: Array | None,
    limits: Array,
) -> Pieces:
    """Noise as a mixture of the references themselves: C = L Lᵀ positive definite, rows ≤ 1."""
    rows = references.coordinates / unit
    count = rows.shape[0]
    root = _constraint_root(rows, solution)
    lower = _triangular(root) if references.independent else None
    if lower is None:
        mixing = GRAM_MIXING if scaled is None else MIXING
        identity = np.sqrt(mixing) * np.eye(count)
        lower = _triangular(np.hstack([np.sqrt(1 - mixing) * root, identity]))
    assert lower is not None
    solved = scipy_linalg.solve_triangular(lower, rows, lower=True, check_finite=False)
    spent = unit**2 * float(np.vdot(solved, solved))
    free = references.free
    total = count + free.size
    whole = np.eye(total)
    whole[:count, :count] = lower
    order = np.concatenate([references.order, free])
    if scaled is None:
        mixed = np.zeros((total, limits.size))
        mixed[np.arange(total), order] = 1 / np.sqrt(limits[order])
    else:
        mixed = scaled[order]
    constraint = np.zeros((limits.size, total))
    constraint[order] = whole
    for index, (position, ratio) in references.merged.items():
        constraint[index] = ratio * whole[position]
    return Factored(mixed, whole), spent, constraint


def _in_subspace(
    references: References, solution: Solution, unit: float, scaled: Array, metric: Cost
) -> Pieces | None:
    """Noise in the span of the references, or None where that does not cover each of them."""
    spectrum, basis = solution.spectrum, references.basis
    if not metric.definite or basis is None:
        return None
    constraint, triangle = mended_root(metric.weigh(scaled) @ basis / unit, spectrum)
    root = unit * triangle
    columns = metric.unweigh(basis @ root)
    size = np.abs(scaled) + np.abs(constraint) @ np.abs(columns.T)
    rounding = 64 * MACHINE_EPSILON * np.sqrt(max(scaled.shape)) * np.linalg.norm(size, axis=1)
    if (np.linalg.norm(scaled - constraint @ columns.T, axis=1) > rounding).any():
        return None
    spent = float(np.vdot(root, root))
    return Factored(np.ascontiguousarray(columns.T)), spent, constraint


def _constraint_root(rows: Array, solution: Solution) -> Array:
    """Return R with rows of norm ≤ 1 and R Rᵀ = C, from the cheaper way to make λ feasible."""
    spectrum = solution.spectrum
    if solution.by_diagonal:
        scale = np.sqrt(solution.multipliers * spectrum.leverage)
        root: Array = spectrum.left * np.sqrt(spectrum.singular) / scale[:, None]
        return root
    if spectrum.right is None:
        right = (rows.T * np.sqrt(solution.multipliers)) @ spectrum.left / spectrum.singular
        spectrum = replace(spectrum, right=right)
    return mended_root(rows, spectrum)[0]


def _triangular(root: Array) -> Array | None:
    """Return the lower triangle L with L Lᵀ = R Rᵀ and rows ≤ 1, None where it is singular."""
    count = root.shape[0]
    triangle = scipy_linalg.qr(root.T, mode="r", check_finite=False)[0][:count]
    if triangle.shape[0] < count:
        return None
    diagonal = np.diagonal(triangle)
    if float(np.abs(diagonal).min()) < SINGULAR_PIVOT:
        return None
    lower: Array = triangle.T * np.sign(diagonal)
    return _unit_rows(lower)


def _unit_rows(rows: Array) -> Array:
    """Return rows scaled down to norm 1, less the rounding of a norm, where they are longer."""
    norms: Array = np.sqrt((rows**2).sum(axis=1))
    scaled: Array = rows / np.maximum(norms * (1 + NORM_ROUNDING), 1.0)[:, None]
    return scaled


def _wrap(
    pieces: Pieces, references: References, solution: Solution, unit: float, limits: Array
) -> Design:
    """Attach cost, certified gap and multipliers in the caller's units and order."""
    covariance, spent, constraint = pieces
    multipliers = np.zeros(limits.size)
    trace = float(solution.spectrum.singular.sum())
    # At the best scaling of λ both tr S and Σ λ equal the dual value.
    scale = (trace / float(solution.multipliers.sum())) ** 2
    values = solution.multipliers * scale * unit**2
    multipliers[references.order] = values / limits[references.order]
    ratios = np.zeros(limits.size)
    ratios[references.order] = values / references.norms**2
    lower_bound = solution.spectrum.lower_bound * unit**2
    return Design(
        covariance=covariance,
        cost=spent,
        gap=max(1 - lower_bound / spent, 0.0),
        method="worst-case",
        multipliers=multipliers,
        iterations=solution.iterations,
        constraint_factor=constraint,
        multiplier_ratios=ratios,
    )


def _nothing_to_hide(scaled: Array | None, limits: Array) -> Design:
    """Return the design for differences that cost nothing: cover them as they are."""
    count = limits.size
    if scaled is None or not scaled.any():
        covariance: Covariance = Isotropic(0.0, count if scaled is None else scaled.shape[1])
        constraint = np.zeros((count, count))
    else:
        covariance, constraint = Factored(scaled), np.eye(count)
    return Design(
        covariance, 0.0, 0.0, "worst-case", np.zeros(count), 0, constraint_factor=constraint
    )
