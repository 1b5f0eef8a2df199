"""A look at all rows of a worst-case problem: scales, columns, and the rows that stand out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit.covariance.span import row_norms
from tacit.design.listed.blocks import Blocks
from tacit.design.listed.problem import LONGEST, SHORTEST, power_of_two
from tacit.design.listed.references import Cost, Indices

FIRST_ROWS = 40
# The second moment needs no more rows than this.
MOMENT_ROWS = 100_000
MOMENT_FLOOR = 1e-10
SMALLEST_COLUMN = 1e-280
# Leaders are sought among this many times as many rows.
CROWD = 50
# Share of a budget that directions without a cost may use.
FREE_SHARE = 1e-8


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
        """Return the live columns of rows."""
        return rows if self.live.size == self.dim else rows[:, self.live]

    def weighed(self, rows: Array) -> Array:
        """Return y for rows z/√g."""
        return self.cost.weigh(self.alive(rows) / self.unit)


def survey(blocks: Blocks, cost: Cost) -> Survey:
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
    if float(columns[live].min()) / unit < SMALLEST_COLUMN:
        raise ValueError(
            f"differences: expected columns within {SMALLEST_COLUMN:g} of the largest, got column "
            f"{int(live[np.argmin(columns[live])])} at {float(columns[live].min() / unit):.3g}"
        )
    bare = Survey(count, columns.size, unit, live, cost, True, np.empty(0), empty, live)
    if not _any_cost(cost, live):
        bare = _with_cost(bare, Cost(None, live.size), priced=False)
    else:
        bare = _with_cost(bare, cost.restricted(live), priced=True)
    largest, free = _largest(blocks, bare, columns[live])
    if not largest.any():
        bare = _with_cost(bare, Cost(None, live.size), priced=False)
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


def _columns(blocks: Blocks) -> tuple[int, Array]:
    """Return the number of rows and the largest |entry| of each column of z/√g."""
    count, columns = 0, np.zeros(0)
    for first, rows in blocks:
        block = np.maximum(rows.max(axis=0), -rows.min(axis=0))
        columns = np.maximum(columns, block) if columns.size else block
        count = first + len(rows)
    live = columns[columns > 0.0]
    if live.size and not (float(live.max()) <= LONGEST and float(live.max()) >= SHORTEST):
        raise ValueError(
            f"differences: expected lengths between {SHORTEST:g} and {LONGEST:g} over the root of "
            f"their budgets, got a longest of {float(live.max()):.3g}"
        )
    return count, columns


def _any_cost(cost: Cost, live: Indices) -> bool:
    return bool(cost.diagonal[live].any())


def _with_cost(found: Survey, cost: Cost, *, priced: bool) -> Survey:
    return replace(found, cost=cost, priced=priced)


def _largest(blocks: Blocks, found: Survey, columns: Array) -> tuple[Array, Array]:
    """Return the largest |y_j|, and the free directions times a noise that hides all rows there."""
    if found.cost.matrix is None and found.cost.definite:
        return columns * np.sqrt(found.cost.diagonal) / found.unit, np.empty((0, columns.size))
    largest = np.zeros(found.live.size)
    free, length = found.cost.free_directions(), 0.0
    for _, rows in blocks:
        weighed = found.weighed(rows)
        block = np.maximum(weighed.max(axis=0), -weighed.min(axis=0))
        largest = np.maximum(largest, block)
        if free.size:
            length = max(length, float(row_norms(found.alive(rows) / found.unit @ free.T).max()))
    return largest, free * max(length / math.sqrt(FREE_SHARE), float(largest.max()))


def _outstanding(blocks: Blocks, found: Survey, largest: Array) -> Indices:
    """Return the rows longest in the metric of the second moment, all where few are left out."""
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
    lower = scipy_linalg.cholesky(correlation, lower=True, check_finite=False)
    leaders = Leaders(FIRST_ROWS * largest.size, largest.size)
    for first, rows in blocks:
        weighed = found.weighed(rows) / (scales * spread)
        white = scipy_linalg.solve_triangular(lower, weighed.T, lower=True, check_finite=False).T
        leaders.take(first, white, np.einsum("ij,ij->i", white, white), above=0.0)
    chosen = leaders.indices()
    few = found.count <= FIRST_ROWS * largest.size and chosen.size > found.count // 4
    return np.arange(found.count) if few else chosen


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

    def take(self, first: int, white: Array, values: Array, above: float) -> None:
        """Add the rows from ``first`` on whose values are larger than ``above``."""
        inside = np.flatnonzero(values > above)
        if inside.size > CROWD * self.limit:
            # Rows this far behind the leaders would not be kept.
            least = np.partition(values[inside], -CROWD * self.limit)[-CROWD * self.limit]
            inside = inside[values[inside] >= least]
        if inside.size == 0:
            return
        positive = white[inside] @ self.planes > 0.0
        positive ^= positive[:, :1]
        sides = positive @ (1 << np.arange(self.planes.shape[1], dtype=np.int64))
        found = np.concatenate([self.found, inside + first])
        values = np.concatenate([self.values, values[inside]])
        sides = np.concatenate([self.sides, sides])
        order = np.argsort(-values, kind="stable")
        kept = order[np.sort(np.unique(sides[order], return_index=True)[1])[: self.limit]]
        self.found, self.values, self.sides = found[kept], values[kept], sides[kept]

    def indices(self) -> Indices:
        """Return the indices, increasing."""
        return np.sort(self.found)
