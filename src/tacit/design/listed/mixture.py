"""Worst-case noise as a mixture of the references themselves, exact whatever their rank.

With ``C = L Lᵀ`` the noise is ``Σ_i z_i x_i``, ``(√g L)ᵀ x = η``: the differences enter as they
came, so that difference i lies at squared distance ``g_i ‖L_i‖²`` at most without any rounding.
What the solver does not resolve gets a row of L of its own: a multiple of another row that differs
from it by rounding, and a row so short that the rounding of its neighbours' noise would hide it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit.covariance import Factored
from tacit.design.base import Design
from tacit.design.listed.dual import RootSolver, Solution, mended_root, unit_rows
from tacit.design.listed.maximising import interior_point, newton, second_order_leverage
from tacit.design.listed.problem import Problem, finite_cost
from tacit.design.listed.references import Indices, References, prepare

# Weight of I mixed into a singular C = L Lᵀ: costs this much and leaves no direction bare.
MIXING = 1e-8
GRAM_MIXING = 1e-7
SINGULAR_PIVOT = 1e-13
# Share of the tolerance that lifting and solving short rows apart may cost.
SHORT_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Block:
    """The rows of L of one group of references, in order, with what they cost."""

    order: Indices
    lower: Array
    spent: float
    references: References
    solution: Solution


def over_references(problem: Problem, rtol: float, ratios: Array | None) -> Design:
    """Solve for no more references than dimensions, or for a Gram matrix alone.

    Args:
        problem: references in units where the longest is about 1.
        rtol: relative gap to reach.
        ratios: (m,) multipliers relative to those of orthogonal rows, from an earlier design.
    """
    short = math.sqrt(SHORT_SHARE * rtol / problem.count)
    scaled = problem.scaled
    lifts = np.ones(problem.count) if scaled is None else _lifts(problem, scaled, short)
    gram = problem.gram_matrix()
    floor = problem.cost_floor()
    free = np.flatnonzero((np.diagonal(gram) <= floor) & problem.moving)
    gram = gram * lifts[:, None] * lifts
    lifted = scaled if scaled is None or (lifts == 1.0).all() else scaled * lifts[:, None]
    squared = np.diagonal(gram)
    order = np.flatnonzero(squared > floor * lifts**2)
    order = order[np.argsort(-squared[order], kind="stable")]
    blocks = []
    while order.size:
        # Rows far shorter than the longest are solved apart: their noise costs next to nothing.
        group = order[squared[order] >= short**2 * squared[order[0]]]
        order = order[group.size :]
        prepared = prepare(lifted, problem.rows, gram, group, problem.cost)
        blocks.append(_solved(prepared, rtol, ratios, given=lifted is not None))
    return _assembled(problem, blocks, free, lifts)


def _lifts(problem: Problem, rows: Array, short: float) -> Array:
    """Return by how much to lengthen each row so that rounding of the noise cannot hide it.

    A row every entry of which is below ``short`` times the largest of its column is lengthened to
    that share: the variance of no coordinate grows by more than ``short²`` for it.
    """
    lengths = np.abs(rows).max(axis=1)
    lifts = np.ones(problem.count)
    if float(lengths.min()) >= short * float(lengths.max()):
        return lifts
    columns = np.abs(rows).max(axis=0)
    columns[columns == 0.0] = 1.0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        visible = (np.abs(rows) / columns).max(axis=1)
        by_column = np.where(visible > 0.0, short / 2 / visible, 1.0)
        norms = np.sqrt(np.diagonal(problem.gram_matrix()))
        by_cost = np.where(norms > 0.0, short / 2 * float(norms.max()) / norms, 1.0)
    lifts = np.maximum(np.minimum(by_column, by_cost), 1.0)
    return np.where(np.isfinite(lifts), lifts, 1.0)


def _solved(references: References, rtol: float, ratios: Array | None, *, given: bool) -> Block:
    """Solve one group and extend its L to the multiples that only rounding makes one."""
    unit = float(references.norms[0])
    start = (references.norms / unit) ** 2
    if ratios is not None:
        start = start * ratios[references.order]
    rows = references.coordinates / unit
    gram = None if references.gram is None else references.gram / unit**2
    if gram is not None and ratios is None:
        start = start * second_order_leverage(gram) ** 2
    solution = _multipliers(rows, gram, start, rtol)
    lower, spent = _lower(references, rows, solution, MIXING if given else GRAM_MIXING)
    bound = solution.spectrum.lower_bound
    if solution.spectrum.rough and bound < (1 - rtol) * spent:
        solution = _multipliers(rows, None, solution.multipliers, rtol)
        lower, spent = _lower(references, rows, solution, MIXING if given else GRAM_MIXING)
    spent *= unit**2
    inexact = [multiple for multiple in references.multiples if not multiple.exact]
    count = rows.shape[0]
    whole = np.zeros((count + len(inexact), count + len(inexact)))
    whole[:count, :count] = lower
    for place, multiple in enumerate(inexact, start=count):
        whole[place, :count] = multiple.ratio * math.sqrt(1 - MIXING) * lower[multiple.position]
        whole[place, place] = math.sqrt(MIXING)
        own = multiple.ratio * float(references.norms[multiple.position]) * math.sqrt(MIXING)
        # Its own noise is (z − √(1−δ) ratio z_longer)/√δ, of length ratio ‖z_longer‖ √δ/2.
        spent += own**2 / 4
    order = np.concatenate([references.order, [multiple.index for multiple in inexact]])
    return Block(order.astype(np.intp), whole, spent, references, solution)


def _lower(
    references: References, rows: Array, solution: Solution, mixing: float
) -> tuple[Array, float]:
    """Return the triangle L of C = L Lᵀ for these multipliers and its cost ``tr G C⁻¹``."""
    root = _constraint_root(rows, solution)
    lower = _triangular(root) if references.independent else None
    if lower is None:
        identity = np.sqrt(mixing) * np.eye(rows.shape[0])
        lower = _triangular(np.hstack([np.sqrt(1 - mixing) * root, identity]))
    assert lower is not None
    solved = scipy_linalg.solve_triangular(lower, rows, lower=True, check_finite=False)
    return lower, float(np.vdot(solved, solved))


def _multipliers(rows: Array, gram: Array | None, start: Array, rtol: float) -> Solution:
    """Solve in units where the longest row is 1, so that nothing over- or underflows."""
    try:
        if rows.shape[0] > rows.shape[1]:
            return interior_point(rows, start, rtol * 0.9)
        # Half the tolerance: factoring C costs a little of the gap again.
        solution = newton(RootSolver(rows, gram, rtol / 2), start, rtol / 2)
        if solution.gap <= rtol:
            return solution
        # Nearly dependent rows: a constraint may be active for a multiplier of no weight.
        other = interior_point(rows, start, rtol / 2)
    except scipy_linalg.LinAlgError:
        # C = I is feasible whatever the rows are; the gap says what it costs.
        solver = RootSolver(rows, None, rtol)
        squared = np.einsum("ij,ij->i", rows, rows)
        return Solution(squared, solver.spectrum(squared), math.inf, 0, by_diagonal=True)
    return other if other.gap < solution.gap else solution


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
    return mended_root(rows, spectrum, solution.floor)


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
    return unit_rows(lower)


def _assembled(problem: Problem, blocks: list[Block], free: Indices, lifts: Array) -> Design:
    """Put the groups side by side, in the caller's units and order."""
    order = np.concatenate([*(block.order for block in blocks), free]).astype(np.intp)
    if order.size == 0:
        return problem.nothing_to_hide()
    whole = scipy_linalg.block_diag(*(block.lower for block in blocks), np.eye(free.size))
    whole /= lifts[order][:, None]
    roots = problem.roots[order]
    mixed = np.eye(problem.count)[order] if problem.rows is None else problem.rows[order]
    constraint = np.zeros((problem.count, order.size))
    constraint[order] = whole
    multipliers, ratios = np.zeros(problem.count), np.zeros(problem.count)
    start = 0
    for block in blocks:
        _fill_multipliers(problem, block, multipliers, ratios)
        for multiple in block.references.multiples:
            if multiple.exact:
                # Relative to what was solved, which both rows are lifted from.
                longer = order[start + multiple.position]
                lift = lifts[longer] / lifts[multiple.index]
                constraint[multiple.index] = multiple.ratio * lift * constraint[longer]
        start += block.order.size
    at_rounding = float(np.diagonal(problem.gram_matrix())[free].sum())
    spent = finite_cost(problem.unit**2 * (sum(block.spent for block in blocks) + at_rounding))
    bound = problem.unit**2 * _lower_bound(blocks, lifts)
    return Design(
        covariance=Factored(mixed, roots[:, None] * whole),
        cost=spent,
        gap=max(1 - bound / spent, 0.0) if spent > 0.0 else 0.0,
        method="worst-case",
        multipliers=multipliers,
        iterations=max((block.solution.iterations for block in blocks), default=0),
        constraint_factor=constraint,
        multiplier_ratios=ratios,
    )


def _lower_bound(blocks: list[Block], lifts: Array) -> float:
    """Return the largest dual value among groups none of whose rows was lengthened."""
    values = [
        block.solution.spectrum.lower_bound * float(block.references.norms[0]) ** 2
        for block in blocks
        if (lifts[block.references.order] == 1.0).all()
    ]
    return max(values, default=0.0)


def _fill_multipliers(problem: Problem, block: Block, multipliers: Array, ratios: Array) -> None:
    """Set the multipliers of one group, at the scale where tr S and Σ λ equal the dual value."""
    found, references = block.solution, block.references
    trace = float(found.spectrum.singular.sum())
    scale = (trace / float(found.multipliers.sum())) ** 2 * float(references.norms[0]) ** 2
    values = found.multipliers * scale
    with np.errstate(over="ignore"):
        own = values * problem.unit**2 / problem.roots[references.order] ** 2
    multipliers[references.order] = np.minimum(own, np.finfo(np.float64).max)
    ratios[references.order] = values / references.norms**2
