"""Worst-case noise for more references than dimensions, from a working set that is checked.

At most d(d + 1)/2 constraints are active, so a few rows are solved for and all are measured: the
dual of the few is a lower bound for all, and noise scaled by the worst distance is feasible. Noise
gets ``δ diag Σ`` on top: it costs δ and keeps every correlation away from 1, so that no direction
is bare, whatever the rank and the scales of the rows, and double precision can measure them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS, LARGEST
from tacit.covariance import Factored, Isotropic
from tacit.covariance.span import row_norms
from tacit.design.base import Design
from tacit.design.listed.dual import RootSolver, Solution, cheapest_repair
from tacit.design.listed.maximising import interior_point
from tacit.design.listed.problem import (
    LONGEST,
    SHORTEST,
    Cost,
    Indices,
    RowBlocks,
    finite_cost,
    power_of_two,
)

# Working rows at first: so many for each column, fewer where they would be more than CHEAP_ROWS,
# whose systems take less than a look at all rows; rows for each column taken in at a look.
FIRST_ROWS, FEWER_ROWS, CHEAP_ROWS, MORE_ROWS = 40, 10, 1500, 20
# Looks at all rows.
ROUNDS = 20
# Until no row is further over its budget than this, or so many rounds have passed, solving to this
# gap is enough, unless so few rows are at work that solving to the end takes less than a look.
EARLY_GAP, EARLY_EXCESS, EARLY_ROUNDS, QUICK_ROWS = 1e-3, 0.01, 1, 500
# Working rows that use less of their budget than this are let go, after a solution to the early gap
# and after one to the end.
NEARLY_ACTIVE, ACTIVE = 0.97, 0.99
# Rows over their budget by less than this share of the tolerance are not taken in.
OVER_SHARE = 0.1
# δ relative to the tolerance, and its largest value; what columns too small to solve for may use.
FLOOR_SHARE, LARGEST_FLOOR, SMALL_SHARE = 0.01, 1e-8, 1e-8
# Rows this much shorter than the longest are covered as they are.
SHORT = 1e-7
# An earlier design's multiplier that is smaller counts as this, relative to the largest.
LEAST_RATIO = 1e-6
# Rounding in a measured distance that can still be added to it.
WORST_ROUNDING = 0.1
# Added to the number of columns, for the roundings beside those of a back substitution.
SOLVE_UNITS = 4
# The second moment needs no more rows than this, and its correlations a floor to be factored.
MOMENT_ROWS, MOMENT_FLOOR = 100_000, 1e-10
# Columns further below the largest have no room for the squares of their noise.
SMALLEST_COLUMN = 1e-280
# Leaders are sought among this many times as many rows.
CROWD = 50
# All rows are worked on where there are few, and more than one in so many stands out.
MANY_OUTSTANDING = 4
# Entries of rows read side by side where columns are few.
BESIDE = 512
# Share of a budget that directions without a cost may use.
FREE_SHARE = 1e-8


@dataclass(frozen=True, eq=False)
class Working:
    """Multipliers of the working rows at dual value ``bound``, also relative to ‖y‖²."""

    values: Array
    ratios: Array
    bound: float
    iterations: int


@dataclass(frozen=True, eq=False)
class ManyNoise:
    """Noise ``ηᵀ triangle diag(scales)`` on the live columns, in the unit."""

    triangle: Array
    scales: Array
    rounding: float

    def whitened(self, rows: Array, unit: float, into: Array | None = None) -> Array:
        """Return u, ``z/√g = uᵀ triangle diag(scales)``, for rows of live columns, to rounding.

        ``into`` is where they are written, row by row.
        """
        scaled = np.divide(rows, unit * self.scales, out=into)
        # back substitution: no inverse, and only rounding of the triangle's own rows; in place, as
        # the transpose of rows is in the order of LAPACK
        solved: Array = scipy_linalg.solve_triangular(
            self.triangle, scaled.T, trans="T", overwrite_b=True, check_finite=False
        ).T
        if into is not None and not np.may_share_memory(solved, into):
            into[:] = solved
        return solved


def over_many(blocks: RowBlocks, cost: Cost, rtol: float, ratios: Array | None) -> Design:
    """Solve for any number of rows in few dimensions.

    Args:
        blocks: the differences with their budgets.
        cost: F.
        rtol: relative gap to reach.
        ratios: (m,) multipliers relative to those of orthogonal rows, from an earlier design.
    """
    seen = survey(blocks, cost)
    if seen.live.size == 0:
        return _no_noise(blocks, seen)
    working, start = seen.candidates, None
    # where all rows are at work there is no second look
    few = working.size == seen.count or working.size <= QUICK_ROWS
    aim = rtol if few else max(rtol, EARLY_GAP)
    if ratios is not None:
        # an earlier design knows which rows matter
        heavy = np.argsort(-ratios, kind="stable")[: first_rows(seen.live.size)]
        working = np.union1d(working, heavy)
        start = ratios[working]
    # u of all rows under the noise measured last
    white = np.empty((seen.count, seen.live.size)) if blocks.in_memory else None
    best: tuple[float, ManyNoise, float, Working, Indices] | None = None
    for number in range(ROUNDS):
        solution, covering = _solve(seen.weighed(blocks.rows(working)), seen, aim, start)
        noise = _noise(covering, seen, rtol)
        # the noise of the few on all rows: divided by the worst distance it is feasible for all
        worst, distances, violated = _measure(blocks, seen, noise, working, rtol, white)
        # weak duality: the few rows' dual bounds all rows' optimum from below
        gap = 1 - solution.bound / (_cost_of(seen, noise) * worst)
        if best is None or gap < best[0]:
            best = (gap, noise, worst, solution, working)
        if gap <= rtol or (violated.size == 0 and aim <= rtol):
            break
        # rows with a multiplier stay at work, with it as the next start
        share = ACTIVE if aim <= rtol else NEARLY_ACTIVE
        kept = (distances > share * float(distances.max())) | (solution.values > 0.0)
        # Solving to the end pays once no other row is far over its budget.
        aim = rtol if worst < 1 + EARLY_EXCESS or number >= EARLY_ROUNDS else aim
        following = np.union1d(working[kept], violated)
        start = np.zeros(following.size)
        start[np.searchsorted(following, working[kept])] = solution.ratios[kept]
        working = following
    assert best is not None
    return _design(blocks, seen, *best, white if best[1] is noise else None)


def _solve(
    weighed: Array, seen: Survey, rtol: float, earlier: Array | None
) -> tuple[Working, Array]:
    """Return multipliers of the working rows, their dual value, rounded down, and W feasible.

    The noise ``Wᵀ W`` leaves each working row at distance 1 at most, to rounding.
    """
    # columns that are solved for apart are left out of the rows
    small = _small_columns(seen, rtol)
    main = np.where(small, 0.0, weighed)
    norms = row_norms(main)
    unit = float(norms.max())
    long = norms > SHORT * unit
    rows, lengths = main[long] / unit, norms[long] / unit
    # unit rows in an orthonormal basis of their span: pivots are rows that span it well
    orthonormal, triangle, pivots = scipy_linalg.qr(
        (rows / lengths[:, None]).T, mode="economic", pivoting=True, check_finite=False
    )
    # pivots at rounding level of the first span nothing
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > max(rows.shape) * EPS * diagonal[0]).sum())
    coordinates = np.empty((rows.shape[0], rank))
    coordinates[pivots] = triangle[:rank].T
    coordinates *= lengths[:, None]
    # λ = ‖y‖² is exact for orthogonal rows
    start = lengths**2
    if earlier is not None and earlier[long].any():
        start = start * np.maximum(earlier[long] / float(earlier[long].max()), LEAST_RATIO)
    try:
        found = interior_point(coordinates, start, rtol / 2, pivots[:rank])
    except scipy_linalg.LinAlgError:
        spectrum = RootSolver(coordinates, None, rtol).narrow_spectrum(start)
        # what cannot be solved stays at its start, whose dual value is a bound all the same
        found = Solution(start, spectrum, math.inf, 0, by_diagonal=False)
    singular, right = found.spectrum.singular, found.spectrum.right
    assert right is not None
    # distances of all long rows under S; short of 1 by scaling S, above by adding rows to it
    leverage = ((coordinates @ right) ** 2) @ (1 / singular)
    trace = float(singular.sum())
    scale = cheapest_repair(trace, leverage, lengths**2)[0]
    excess = np.maximum(1 - scale / leverage, 0.0)
    mended = excess > 0
    # Rounding of the basis would tie columns of another scale to these.
    orthonormal[small] = 0.0
    # c^½ S^½, the rows added, and the short rows as they are
    covering = [
        np.sqrt(scale * singular)[:, None] * (orthonormal[:, :rank] @ right).T,
        np.sqrt(excess[mended])[:, None] * rows[mended],
        main[~long] / unit,
    ]
    # At the best scaling of λ both tr S and Σ λ equal the dual value.
    values = np.zeros(len(weighed))
    values[long] = found.multipliers * (trace / float(found.multipliers.sum())) ** 2 * unit**2
    bound = found.spectrum.lower_bound * unit**2
    ratios = np.zeros(len(weighed))
    ratios[long] = values[long] / norms[long] ** 2
    return Working(values, ratios, bound, found.iterations), unit * np.vstack(covering)


def _small_columns(seen: Survey, rtol: float) -> npt.NDArray[np.bool_]:
    """Return the columns so small that noise on each of them alone costs next to nothing."""
    size = seen.largest.size
    share = math.sqrt(_floor(rtol) * SMALL_SHARE) / size
    small: npt.NDArray[np.bool_] = seen.largest <= share * float(seen.largest.max())
    return small


def _floor(rtol: float) -> float:
    """Return δ, the share of each variance that is added on its own: good for a choice only."""
    return min(LARGEST_FLOOR, FLOOR_SHARE * rtol)


def _noise(covering: Array, seen: Survey, rtol: float) -> ManyNoise:
    """Return the triangle of ``Wᵀ W`` with a floor on every live coordinate, to rounding."""
    # √δ of each coordinate's deviation, no less than its largest entry
    deviations = np.maximum(row_norms(covering.T), seen.largest)
    floors = math.sqrt(_floor(rtol)) * deviations
    small = _small_columns(seen, rtol)
    # Each of k small columns takes its own share of a budget: variance k largest² / share.
    floors[small] = math.sqrt(seen.largest.size / SMALL_SHARE) * seen.largest[small]
    # W is never squared: its QR has the triangle of Wᵀ W, back in the rows' own coordinates
    stacked = np.vstack([covering, np.diag(floors)])
    stacked = np.vstack([seen.cost.unweigh(stacked), seen.free])
    scales = row_norms(stacked.T)
    triangle = scipy_linalg.qr(stacked / scales, mode="r", check_finite=False)[0][: scales.size]
    return ManyNoise(triangle, scales, _rounding(triangle))


def _rounding(triangle: Array) -> float:
    """Return how far the norm of a solution with the triangle may be off, relative, at most.

    Back substitution solves ``(R + E)ᵀ u = z`` with ``|E| ≤ (k + 4) ε |R|`` entry by entry, so
    that u is off by at most ``(k + 4) ε ‖|R⁻¹| |R|‖ ‖u‖``.
    """
    size = triangle.shape[0]
    inverse = scipy_linalg.solve_triangular(triangle, np.eye(size), check_finite=False)
    # ‖A‖₂ <= √(‖A‖₁ ‖A‖_∞)
    product = np.abs(inverse) @ np.abs(triangle)
    norm = math.sqrt(float(product.sum(axis=0).max()) * float(product.sum(axis=1).max()))
    return float((size + SOLVE_UNITS) * EPS * norm)


def _cost_of(seen: Survey, noise: ManyNoise) -> float:
    """Return tr(FΣ) in the unit, to rounding."""
    weighed = seen.cost.weigh(noise.triangle * noise.scales)
    return float(np.vdot(weighed, weighed))


def _measure(
    blocks: RowBlocks,
    seen: Survey,
    noise: ManyNoise,
    working: Indices,
    rtol: float,
    white: Array | None,
) -> tuple[float, Array, Indices]:
    """Return the worst squared distance, rounded up, those of working rows and the worst others.

    ``white`` takes u of all rows.
    """
    if not noise.rounding < WORST_ROUNDING:
        raise ValueError(
            "cost: expected one that double precision can invert on these differences, got "
            f"distances that rounding may change by {noise.rounding:.2g} of themselves"
        )
    leaders = Leaders(MORE_ROWS * seen.live.size, seen.live.size)
    largest, own, count = 0.0, np.zeros(working.size), 0
    for first, rows in blocks:
        count = first + len(rows)
        into = None if white is None else white[first:count]
        block = noise.whitened(seen.alive(rows), seen.unit, into)
        distances = np.einsum("ij,ij->i", block, block)
        largest = max(largest, float(distances.max()))
        low, high = np.searchsorted(working, [first, first + len(rows)])
        inside = working[low:high] - first
        own[low:high] = distances[inside]
        # rows at work are no newcomers
        distances[inside] = 0.0
        leaders.take(first, block, distances, above=1 + OVER_SHARE * rtol)
    if count != seen.count:
        raise ValueError(
            f"differences: expected the same {seen.count} rows whenever they are read, got {count}"
        )
    # u is off by the rounding of a solution, its square by twice that
    return largest * (1 + noise.rounding) ** 2, own, leaders.indices()


def _design(
    blocks: RowBlocks,
    seen: Survey,
    gap: float,
    noise: ManyNoise,
    worst: float,
    found: Working,
    working: Indices,
    white: Array | None,
) -> Design:
    """Scale the noise by the worst distance and return it in the caller's units.

    ``white`` is u of all rows under this noise, where it is still there; it is scaled in place.
    """
    # Σ times the worst distance
    root = math.sqrt(worst)
    rows = np.zeros((seen.live.size, seen.dim))
    rows[:, seen.live] = noise.triangle * (noise.scales * (root * seen.unit))
    with np.errstate(over="ignore"):
        dual = np.minimum(found.values * seen.unit**2 / blocks.limits(working), LARGEST)
    multipliers, ratios, constraint = dual, found.ratios, None
    if blocks.in_memory:
        multipliers, ratios = np.zeros(seen.count), np.zeros(seen.count)
        multipliers[working], ratios[working] = dual, found.ratios
        if white is None:
            white = np.empty((seen.count, seen.live.size))
            for first, rows_of in blocks:
                into = white[first : first + len(rows_of)]
                noise.whitened(seen.alive(rows_of), seen.unit, into)
        # L_i = u_i/√worst: of norm at most 1 for every row
        constraint = np.divide(white, root, out=white)
    return Design(
        covariance=Factored(rows),
        cost=finite_cost(_cost_of(seen, noise) * worst * seen.unit**2) if seen.priced else 0.0,
        gap=max(gap, 0.0) if seen.priced else 0.0,
        method="worst-case",
        multipliers=multipliers,
        iterations=found.iterations,
        constraint_factor=constraint,
        multiplier_ratios=ratios,
        working_set=None if blocks.in_memory else working,
    )


def _no_noise(blocks: RowBlocks, seen: Survey) -> Design:
    """Return the design for differences that are all zero."""
    count = seen.count if blocks.in_memory else 0
    return Design(
        Isotropic(0.0, seen.dim),
        0.0,
        0.0,
        "worst-case",
        np.zeros(count),
        0,
        constraint_factor=np.zeros((count, seen.dim)) if blocks.in_memory else None,
        working_set=None if blocks.in_memory else np.zeros(0, dtype=np.intp),
    )


@dataclass(frozen=True, eq=False)
class Survey:
    """What a look at all rows tells.

    Attributes:
        count: number of rows m.
        dim: number of columns d.
        unit: power of two near the longest entry of z_i/√g_i.
        live: columns that are not zero throughout.
        cost: the cost of the live columns.
        priced: whether any row has a cost at all; where none has, ``cost`` is the identity.
        largest: (k,) largest |y_j| of ``y = z K/√g`` in the unit.
        free: (f, k) directions without a cost, each times the noise it gets.
        candidates: rows that stand out in the metric of the second moment of y.
    """

    count: int
    dim: int
    unit: float
    live: Indices
    cost: Cost
    priced: bool
    largest: Array
    free: Array
    candidates: Indices

    def alive(self, rows: Array) -> Array:
        """Return the live columns of rows, exactly."""
        return rows if self.live.size == self.dim else rows[:, self.live]

    def weighed(self, rows: Array) -> Array:
        """Return y for rows z/√g, to rounding."""
        return self.cost.weigh(self.alive(rows) / self.unit)


def survey(blocks: RowBlocks, cost: Cost) -> Survey:
    """Look at all rows: their columns, their largest costs, and which stand out.

    Raises:
        ValueError: noise for some row or column would overflow or vanish.
    """
    count, columns = _columns(blocks)
    live = np.flatnonzero(columns)
    empty = np.empty((0, 0))
    unit = power_of_two(float(columns.max()))
    if live.size == 0:
        return Survey(count, columns.size, unit, live, cost, False, np.empty(0), empty, live)
    # a column so much smaller has noise whose square is no double
    if float(columns[live].min()) / unit < SMALLEST_COLUMN:
        raise ValueError(
            f"differences: expected columns within {SMALLEST_COLUMN:g} of the largest, got column "
            f"{int(live[np.argmin(columns[live])])} at {float(columns[live].min() / unit):.3g}"
        )
    # first with the cost as given; where no row has a cost, all noise is free, and F = I decides
    bare = Survey(count, columns.size, unit, live, cost, True, np.empty(0), empty, live)
    free_of_cost = Cost(None, live.size)
    if cost.diagonal[live].any():
        bare = replace(bare, cost=cost.restrict(live))
    else:
        bare = replace(bare, cost=free_of_cost, priced=False)
    largest, free = _largest(blocks, bare, columns[live])
    if not largest.any():
        bare = replace(bare, cost=free_of_cost, priced=False)
        largest, free = _largest(blocks, bare, columns[live])
    return Survey(
        count,
        columns.size,
        unit,
        live,
        bare.cost,
        bare.priced,
        largest,
        free,
        _outstanding(blocks, bare, largest),
    )


def _columns(blocks: RowBlocks) -> tuple[int, Array]:
    """Return the number of rows and the largest |entry| of each column of z/√g, exactly."""
    count, columns = 0, np.zeros(0)
    for first, rows in blocks:
        block = _largest_entries(rows)
        columns = np.maximum(columns, block) if columns.size else block
        count = first + len(rows)
    live = columns[columns > 0.0]
    if live.size and not (float(live.max()) <= LONGEST and float(live.max()) >= SHORTEST):
        raise ValueError(
            f"differences: expected lengths between {SHORTEST:g} and {LONGEST:g} over the root of "
            f"their budgets, got a longest of {float(live.max()):.3g}"
        )
    return count, columns


def _largest_entries(rows: Array) -> Array:
    """Return the largest |entry| of each column, exactly."""
    count, columns = rows.shape
    # rows side by side: a pass along few columns takes four times as long
    beside = max(1, min(count, BESIDE // columns))
    whole = count - count % beside
    folded = rows[:whole].reshape(-1, beside * columns)
    most: Array = np.maximum(folded.max(axis=0), -folded.min(axis=0))
    most = most.reshape(beside, columns).max(axis=0)
    for row in rows[whole:]:
        most = np.maximum(most, np.abs(row))
    return most


def _largest(blocks: RowBlocks, found: Survey, columns: Array) -> tuple[Array, Array]:
    """Return the largest |y_j|, to rounding, and free directions times noise to hide all in."""
    # a diagonal cost scales columns
    if found.cost.matrix is None and found.cost.definite:
        return columns * np.sqrt(found.cost.diagonal) / found.unit, np.empty((0, columns.size))
    largest = np.zeros(found.live.size)
    free, length = found.cost.free_directions(), 0.0
    for _, rows in blocks:
        weighed = found.weighed(rows)
        block = _largest_entries(weighed)
        largest = np.maximum(largest, block)
        if free.size:
            # how far a row reaches in a direction that costs nothing
            length = max(length, float(row_norms(found.alive(rows) / found.unit @ free.T).max()))
    # so much noise, which costs nothing, that the reach of a row uses FREE_SHARE of its budget
    return largest, free * max(length / math.sqrt(FREE_SHARE), float(largest.max()))


def _outstanding(blocks: RowBlocks, found: Survey, largest: Array) -> Indices:
    """Return the rows longest in the metric of the second moment: good for a choice only."""
    scales = np.where(largest > 0.0, largest, 1.0)
    moment = np.zeros((largest.size, largest.size))
    stride = max(1, found.count // MOMENT_ROWS)
    for _, rows in blocks:
        weighed = found.weighed(rows[::stride]) / scales
        moment += weighed.T @ weighed
    # A column that the sample does not show counts by its largest entry.
    moment[np.diag_indices_from(moment)] += 1.0
    spread = np.sqrt(np.diagonal(moment))
    correlation = moment / spread[:, None] / spread
    correlation[np.diag_indices_from(correlation)] = 1 + MOMENT_FLOOR
    # Σ y yᵀ = L Lᵀ: rows solved by L are long where few others are
    lower = scipy_linalg.cholesky(correlation, lower=True, check_finite=False)
    # L⁻¹ in single precision: a product takes less than a back substitution
    identity = np.eye(largest.size)
    inverse = scipy_linalg.solve_triangular(lower, identity, lower=True, check_finite=False)
    whitening = np.ascontiguousarray(inverse.T, dtype=np.float32)
    leaders = Leaders(first_rows(largest.size), largest.size)
    for first, rows in blocks:
        weighed = found.weighed(rows)
        single = np.empty(weighed.shape, np.float32)
        white = np.divide(weighed, scales * spread, out=single, casting="same_kind") @ whitening
        squared = np.einsum("ij,ij->i", white, white)
        leaders.take(first, white, squared.astype(np.float64), above=0.0)
    chosen = leaders.indices()
    few = found.count <= first_rows(largest.size) and chosen.size > found.count // MANY_OUTSTANDING
    return np.arange(found.count) if few else chosen


def first_rows(columns: int) -> int:
    """Return how many rows are worked on at first."""
    return max(FEWER_ROWS * columns, min(FIRST_ROWS * columns, CHEAP_ROWS))


class Leaders:
    """Rows with the largest values in a stream, one for each way they point.

    Rows that point alike constrain alike: of those on the same sides of some fixed hyperplanes,
    as lines, only the largest is kept, so that repeated rows do not fill the working set.
    """

    def __init__(self, limit: int, dim: int) -> None:
        self.limit = limit
        bits = math.ceil(math.log2(2 * limit))
        # A low-discrepancy choice: any fixed directions do, and no randomness enters a design.
        angles = np.arange(1, dim * bits + 1) * (math.sqrt(5) - 1) / 2
        self.planes = np.cos(2 * np.pi * angles**1.5).reshape(dim, bits)
        self.found = np.empty(0, dtype=np.intp)
        self.values = np.empty(0)
        self.sides = np.empty(0, dtype=np.int64)

    def take(
        self,
        first: int,
        white: Array | npt.NDArray[np.float32],
        values: Array,
        above: float,
    ) -> None:
        """Add the rows from ``first`` on whose values are larger than ``above``."""
        inside = np.flatnonzero(values > above)
        if inside.size > CROWD * self.limit:
            # Rows this far behind the leaders would not be kept.
            least = np.partition(values[inside], -CROWD * self.limit)[-CROWD * self.limit]
            inside = inside[values[inside] >= least]
        if inside.size == 0:
            return
        # on which sides of the planes a row is, a line counted once: its first side is made
        # positive
        positive = white[inside] @ self.planes > 0.0
        positive ^= positive[:, :1]
        sides = positive @ (1 << np.arange(self.planes.shape[1], dtype=np.int64))
        found = np.concatenate([self.found, inside + first])
        values = np.concatenate([self.values, values[inside]])
        sides = np.concatenate([self.sides, sides])
        # of equal sides the largest, of all no more than the limit
        order = np.argsort(-values, kind="stable")
        kept = order[np.sort(np.unique(sides[order], return_index=True)[1])[: self.limit]]
        self.found, self.values, self.sides = found[kept], values[kept], sides[kept]

    def indices(self) -> Indices:
        """Return the indices, increasing."""
        return np.sort(self.found)
