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
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS, LARGEST
from tacit.covariance import Factored
from tacit.design.base import Design
from tacit.design.listed.dual import RootSolver, Solution, mended_root, unit_rows
from tacit.design.listed.maximising import interior_point, newton, second_order_leverage
from tacit.design.listed.problem import Cost, Indices, ListedProblem, finite_cost

# Squared Cholesky pivots of the unit-diagonal Gram below this are not resolved by a Gram matrix: at
# 1e-11 a pivot is known to some 1e-5 of itself.
PIVOT_TOLERANCE = 1e-11
# Rows whose correlation is so near 1 are looked at entry by entry.
COLLINEAR_TOLERANCE = 1e-12
# What rounding may change of an entry that is a multiple.
SAME = 4 * EPS
# Entries that are compared before all of a row are.
PROBES = 8
# Weight of I mixed into a singular C = L Lᵀ: costs this much and leaves no direction bare; more of
# it where only a Gram matrix is known, whose rounding is its square root.
MIXING, GRAM_MIXING = 1e-8, 1e-7
# A pivot of L below it is one of a singular C.
SINGULAR_PIVOT = 1e-13
# Share of the tolerance that lifting and solving short rows apart may cost.
SHORT_SHARE = 1e-3
# Share of the tolerance left to what makes L of the multipliers, for each of the two ways to them.
NEWTON_SHARE, PATH_SHARE = 0.5, 0.9
# Rows that are looked at at once, beside twice the limit.
DISTINCT_STEP = 16


@dataclass(frozen=True, eq=False)
class ReferenceRows:
    """Rows z_i/√g_i, sorted by decreasing cost norm, with coordinates Y of ``Y Yᵀ = G``.

    Attributes:
        order: original index of each kept row.
        norms: cost norm of each kept row.
        coordinates: Y, (n, k); k < n when the rows are dependent.
        gram: G, (n, n), or None where it does not resolve the rows and only Y does.
        multiples: the rows left out, each a multiple of a kept one.
    """

    order: Indices
    norms: Array
    coordinates: Array
    gram: Array | None
    multiples: tuple[Multiple, ...]

    @property
    def independent(self) -> bool:
        """Whether the kept rows are linearly independent under the cost."""
        return bool(self.coordinates.shape[0] == self.coordinates.shape[1])


@dataclass(frozen=True)
class Multiple:
    """Row ``index`` is ``ratio`` times the kept row at ``position``: exactly, or to rounding."""

    index: int
    position: int
    ratio: float
    exact: bool


def prepare(
    rows: Array | None, given: Array | None, gram: Array, order: Indices, cost: Cost | None
) -> ReferenceRows:
    """Merge multiples of one row and factor the Gram matrix, to rounding, of what is left.

    Args:
        rows: (m, d) differences divided by the roots of their budgets, or None.
        given: (m, d) the differences as they came, which say whether a multiple is exact.
        gram: (m, m) Gram matrix of ``rows`` under the cost.
        order: rows to prepare, by decreasing cost norm, none of which is zero.
        cost: the cost, or None when ``rows`` is.
    """
    # to unit rows: what decides is angles, whatever the lengths
    norms = np.sqrt(np.diagonal(gram)[order])
    correlation = gram[np.ix_(order, order)] / norms[:, None] / norms
    multiples: tuple[Multiple, ...] = ()
    if rows is not None and given is not None:
        keep, multiples = _merge(rows, given, correlation, order)
        if keep.size < order.size:
            order, norms = order[keep], norms[keep]
            correlation = correlation[np.ix_(keep, keep)]
    coordinates, resolved = _factor(rows, order, norms, correlation, cost)
    kept_gram = correlation * norms[:, None] * norms if resolved else None
    return ReferenceRows(order, norms, coordinates, kept_gram, multiples)


def _merge(
    rows: Array, given: Array, correlation: Array, order: Indices
) -> tuple[Indices, tuple[Multiple, ...]]:
    """Return the positions kept, exactly, and for each row dropped the longer row it is of.

    A Gram matrix cannot tell a multiple from a neighbour, so each candidate is compared entry by
    entry; only the rounding of that entry may separate it from its multiple.
    """
    # candidates are longer rows, which come first
    close = np.tril(np.abs(correlation) >= 1 - COLLINEAR_TOLERANCE, -1)
    keep = np.ones(order.size, dtype=bool)
    found: list[tuple[int, int, float]] = []
    for i in np.flatnonzero(close.any(axis=1)).tolist():
        row = rows[order[i]]
        candidates = np.flatnonzero(close[i] & keep)
        if candidates.size > 1:
            candidates = candidates[_alike(row, rows, order[candidates])]
        # the ratio from the largest entry, which rounds least
        pivot = int(np.argmax(np.abs(row)))
        for j in candidates.tolist():
            longer = rows[order[j]]
            if longer[pivot] == 0.0:
                continue
            ratio = float(row[pivot] / longer[pivot])
            if (np.abs(row - ratio * longer) <= SAME * np.abs(row)).all():
                keep[i] = False
                found.append((i, j, ratio))
                break
    rank_of = (np.cumsum(keep) - 1).tolist()
    return np.flatnonzero(keep), tuple(
        Multiple(
            int(order[i]), rank_of[j], ratio, _is_exact_multiple(given[order[i]], given[order[j]])
        )
        for i, j, ratio in found
    )


def _alike(row: Array, rows: Array, candidates: Indices) -> npt.NDArray[np.bool_]:
    """Return which candidates are multiples of a row in the row's largest entries."""
    probes = np.argsort(-np.abs(row), kind="stable")[:PROBES]
    longer = rows[np.ix_(candidates, probes)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = row[probes[0]] / longer[:, 0]
        alike = np.abs(row[probes] - ratios[:, None] * longer) <= SAME * np.abs(row[probes])
    every: npt.NDArray[np.bool_] = alike.all(axis=1)
    return every


def _is_exact_multiple(row: Array, longer: Array) -> bool:
    """Whether a row is another times a power of two, which no rounding enters."""
    pivot = int(np.argmax(longer != 0.0))
    ratio = float(row[pivot] / longer[pivot])
    return abs(math.frexp(ratio)[0]) == 0.5 and bool((row == ratio * longer).all())


def more_distinct_than(rows: Array, limit: int) -> bool:
    """Whether more rows are left when those equal up to a power of two and a sign are one."""
    seen: set[bytes] = set()
    step = 2 * limit + DISTINCT_STEP
    for start in range(0, len(rows), step):
        moved = rows[start : start + step]
        moved = moved[moved.any(axis=1)]
        first = moved[np.arange(len(moved)), np.argmax(moved != 0.0, axis=1)]
        # to a largest entry in [1/2, 1) and a first one > 0, neither of which rounds: equal rows
        # are equal bytes
        exponents = -np.frexp(np.abs(moved).max(axis=1, initial=0.0))[1]
        scaled = np.ldexp(moved, exponents[:, None]) * np.sign(first)[:, None] + 0.0
        seen.update(row.tobytes() for row in scaled)
        if len(seen) > limit:
            return True
    return False


def _factor(
    rows: Array | None, order: Indices, norms: Array, correlation: Array, cost: Cost | None
) -> tuple[Array, bool]:
    """Return Y, to rounding, and whether the Gram matrix resolves the rows."""
    try:
        triangle = scipy_linalg.cholesky(correlation, lower=True, check_finite=False)
    except scipy_linalg.LinAlgError:
        triangle = None
    # the smallest pivot is the squared distance of a row from the span of the others
    if triangle is not None and float(np.diagonal(triangle).min()) ** 2 > PIVOT_TOLERANCE:
        return norms[:, None] * triangle, True
    if rows is None or cost is None:
        # no rows to go back to: the eigenvectors above the rounding of the Gram matrix
        eigenvalues, vectors = scipy_linalg.eigh(correlation)
        kept = eigenvalues > order.size * EPS * eigenvalues[-1]
        return norms[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept]), False
    unit = cost.weigh(rows[order] / norms[:, None])
    # from the rows themselves, whose QR resolves what is the square root of a Gram's rounding
    triangle, pivots = scipy_linalg.qr(unit.T, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > max(unit.shape) * EPS * diagonal[0]).sum())
    coordinates = np.empty((order.size, rank))
    coordinates[pivots] = triangle[:rank].T
    return norms[:, None] * coordinates, False


@dataclass(frozen=True, eq=False)
class MixtureBlock:
    """The rows of L of one group of references, in order, with what they cost."""

    order: Indices
    lower: Array
    spent: float
    references: ReferenceRows
    solution: Solution


def over_references(problem: ListedProblem, rtol: float, ratios: Array | None) -> Design:
    """Solve for no more references than dimensions, or for a Gram matrix alone.

    Args:
        problem: references in units where the longest is about 1.
        rtol: relative gap to reach.
        ratios: (m,) multipliers relative to those of orthogonal rows, from an earlier design.
    """
    # m rows of this length cost SHORT_SHARE of the tolerance at most
    short = math.sqrt(SHORT_SHARE * rtol / problem.count)
    scaled = problem.scaled
    lifts = np.ones(problem.count) if scaled is None else _lifts(problem, scaled, short)
    gram = problem.gram_matrix()
    floor = problem.cost_floor()
    # rows that cost nothing get noise of their own length, and are not solved for
    free = np.flatnonzero((np.diagonal(gram) <= floor) & problem.moving)
    gram = gram * lifts[:, None] * lifts
    lifted = scaled if scaled is None or (lifts == 1.0).all() else scaled * lifts[:, None]
    squared = np.diagonal(gram)
    order = np.flatnonzero(squared > floor * lifts**2)
    # from the longest to the shortest: groups are cut from the front
    order = order[np.argsort(-squared[order], kind="stable")]
    blocks = []
    while order.size:
        # Rows far shorter than the longest are solved apart: their noise costs next to nothing.
        group = order[squared[order] >= short**2 * squared[order[0]]]
        order = order[group.size :]
        prepared = prepare(lifted, problem.rows, gram, group, problem.cost)
        blocks.append(_solve_group(prepared, rtol, ratios, given=lifted is not None))
    return _assemble(problem, blocks, free, lifts)


def _lifts(problem: ListedProblem, rows: Array, short: float) -> Array:
    """Return by how much to lengthen rows so that rounding cannot hide them: a choice only.

    A row every entry of which is below ``short`` times the largest of its column is lengthened to
    that share: the variance of no coordinate grows by more than ``short²`` for it.
    """
    lengths = np.abs(rows).max(axis=1)
    lifts = np.ones(problem.count)
    if float(lengths.min()) >= short * float(lengths.max()):
        return lifts
    # how far a row stands out in the column where it stands out most
    columns = np.abs(rows).max(axis=0)
    columns[columns == 0.0] = 1.0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        visible = (np.abs(rows) / columns).max(axis=1)
        by_column = np.where(visible > 0.0, short / 2 / visible, 1.0)
        norms = np.sqrt(np.diagonal(problem.gram_matrix()))
        by_cost = np.where(norms > 0.0, short / 2 * float(norms.max()) / norms, 1.0)
    # no more than costs nothing by both measures, and never shorter
    lifts = np.maximum(np.minimum(by_column, by_cost), 1.0)
    return np.where(np.isfinite(lifts), lifts, 1.0)


def _solve_group(
    references: ReferenceRows, rtol: float, ratios: Array | None, *, given: bool
) -> MixtureBlock:
    """Solve one group and extend its L to the multiples that only rounding makes one."""
    # in units of the longest row
    unit = float(references.norms[0])
    # orthogonal rows have λ = ‖y‖²: a start for any, an earlier design's ratios a better one
    start = (references.norms / unit) ** 2
    if ratios is not None:
        start = start * ratios[references.order]
    rows = references.coordinates / unit
    gram = None if references.gram is None else references.gram / unit**2
    # the leverages of Y to second order, where the Gram matrix is at hand
    if gram is not None and ratios is None:
        start = start * second_order_leverage(gram) ** 2
    solution = _multipliers(rows, gram, start, rtol)
    lower, spent = _lower(references, rows, solution, MIXING if given else GRAM_MIXING)
    bound = solution.spectrum.lower_bound
    # what the rough spectrum hid costs more than the tolerance: once more without the Gram matrix
    if solution.spectrum.rough and bound < (1 - rtol) * spent:
        solution = _multipliers(rows, None, solution.multipliers, rtol)
        lower, spent = _lower(references, rows, solution, MIXING if given else GRAM_MIXING)
    spent *= unit**2
    # rows that are multiples only up to rounding keep a constraint of their own
    inexact = [multiple for multiple in references.multiples if not multiple.exact]
    count = rows.shape[0]
    whole = np.zeros((count + len(inexact), count + len(inexact)))
    whole[:count, :count] = lower
    for place, multiple in enumerate(inexact, start=count):
        # row j = ratio √(1 − δ) L_longer + √δ e_j: of norm <= 1, as |ratio| <= 1
        whole[place, :count] = multiple.ratio * math.sqrt(1 - MIXING) * lower[multiple.position]
        whole[place, place] = math.sqrt(MIXING)
        own = multiple.ratio * float(references.norms[multiple.position]) * math.sqrt(MIXING)
        # Its own noise is (z − √(1−δ) ratio z_longer)/√δ, of length ratio ‖z_longer‖ √δ/2.
        spent += own**2 / 4
    order = np.concatenate([references.order, [multiple.index for multiple in inexact]])
    return MixtureBlock(order.astype(np.intp), whole, spent, references, solution)


def _lower(
    references: ReferenceRows, rows: Array, solution: Solution, mixing: float
) -> tuple[Array, float]:
    """Return the triangle L of C = L Lᵀ, rows at most 1, and its cost ``tr G C⁻¹``, to rounding."""
    root = _constraint_root(rows, solution)
    lower = _triangular(root) if references.independent else None
    if lower is None:
        # (1 − δ) C + δ I is definite, and its rows are no longer
        identity = np.sqrt(mixing) * np.eye(rows.shape[0])
        lower = _triangular(np.hstack([np.sqrt(1 - mixing) * root, identity]))
    assert lower is not None
    # ‖L⁻¹ Y‖²: no inverse, no product of C
    solved = scipy_linalg.solve_triangular(lower, rows, lower=True, check_finite=False)
    return lower, float(np.vdot(solved, solved))


def _multipliers(rows: Array, gram: Array | None, start: Array, rtol: float) -> Solution:
    """Solve in units where the longest row is 1, so that nothing over- or underflows."""
    try:
        if rows.shape[0] > rows.shape[1]:
            return interior_point(rows, start, rtol * PATH_SHARE)
        # Half the tolerance: factoring C costs a little of the gap again.
        solution = newton(RootSolver(rows, gram, rtol * NEWTON_SHARE), start, rtol * NEWTON_SHARE)
        if solution.gap <= rtol:
            return solution
        # Nearly dependent rows: a constraint may be active for a multiplier of no weight.
        other = interior_point(rows, start, rtol * NEWTON_SHARE)
    except scipy_linalg.LinAlgError:
        # C = I is feasible whatever the rows are; the gap says what it costs.
        solver = RootSolver(rows, None, rtol)
        squared = np.einsum("ij,ij->i", rows, rows)
        return Solution(squared, solver.spectrum(squared), math.inf, 0, by_diagonal=True)
    return other if other.gap < solution.gap else solution


def _constraint_root(rows: Array, solution: Solution) -> Array:
    """Return R with rows of norm at most 1 and R Rᵀ = C, from the cheaper repair of λ."""
    spectrum = solution.spectrum
    if solution.by_diagonal:
        # C = Δ^-½ Λ^-½ U diag(s) Uᵀ Λ^-½ Δ^-½
        scale = np.sqrt(solution.multipliers * spectrum.leverage)
        root: Array = spectrum.left * np.sqrt(spectrum.singular) / scale[:, None]
        return root
    if spectrum.right is None:
        # V = Yᵀ Λ^½ U/s
        right = (rows.T * np.sqrt(solution.multipliers)) @ spectrum.left / spectrum.singular
        spectrum = replace(spectrum, right=right)
    return mended_root(rows, spectrum, solution.floor)


def _triangular(root: Array) -> Array | None:
    """Return the lower triangle L, rows at most 1, L Lᵀ = R Rᵀ, None where it is singular."""
    count = root.shape[0]
    # Rᵀ = Q T, so that R Rᵀ = Tᵀ T without the product
    triangle = scipy_linalg.qr(root.T, mode="r", check_finite=False)[0][:count]
    # fewer columns than rows: C is singular
    if triangle.shape[0] < count:
        return None
    diagonal = np.diagonal(triangle)
    if float(np.abs(diagonal).min()) < SINGULAR_PIVOT:
        return None
    lower: Array = triangle.T * np.sign(diagonal)
    return unit_rows(lower)


def _assemble(
    problem: ListedProblem, blocks: list[MixtureBlock], free: Indices, lifts: Array
) -> Design:
    """Put the groups side by side, in the caller's units and order."""
    order = np.concatenate([*(block.order for block in blocks), free]).astype(np.intp)
    if order.size == 0:
        return problem.nothing_to_hide()
    # L of all groups, back from the lengthened rows to the rows as they came
    whole = scipy_linalg.block_diag(*(block.lower for block in blocks), np.eye(free.size))
    whole /= lifts[order][:, None]
    roots = problem.roots[order]
    # noise is A η, A = Zᵀ √g L: as many normals as references
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
    # rows without a cost of their own pay what their rounding may cost
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


def _lower_bound(blocks: list[MixtureBlock], lifts: Array) -> float:
    """Return the largest dual value among groups whose rows were not lengthened, rounded down."""
    values = [
        block.solution.spectrum.lower_bound * float(block.references.norms[0]) ** 2
        for block in blocks
        if (lifts[block.references.order] == 1.0).all()
    ]
    return max(values, default=0.0)


def _fill_multipliers(
    problem: ListedProblem, block: MixtureBlock, multipliers: Array, ratios: Array
) -> None:
    """Set the multipliers of one group, at the scale where tr S and Σ λ equal the dual value."""
    found, references = block.solution, block.references
    # at the best scale tr S = Σ λ
    trace = float(found.spectrum.singular.sum())
    scale = (trace / float(found.multipliers.sum())) ** 2 * float(references.norms[0]) ** 2
    values = found.multipliers * scale
    with np.errstate(over="ignore"):
        # λ of the rows as they came: units and budgets undone
        own = values * problem.unit**2 / problem.roots[references.order] ** 2
    multipliers[references.order] = np.minimum(own, LARGEST)
    ratios[references.order] = values / references.norms**2
