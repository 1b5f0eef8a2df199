"""What any row within declared bounds can add to the sums: patterns of counts, boxes of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.covariance import Covariance, Diagonal
from tacit.guarantees.adjacency import Adjacency
from tacit.statistics.queries.statistic import SumQuery
from tacit.statistics.queries.sums import Condition, GridValues, Term, row_values, term

# Bits of the largest number that a row may add; sums of 2²⁶ rows are exact.
GRID_BITS = 26
MOST_ROWS = 2**26
# Cells into which the conditions of counts that share columns may split the rows.
MOST_PATTERNS = 4096
# Squares of what rows add, as noise has them, stay within double precision.
SMALLEST_WIDTH, LARGEST_WIDTH = 1e-100, 1e100

Law: TypeAlias = tuple[npt.NDArray[np.intp], Covariance]


@dataclass(frozen=True, eq=False)
class Contributions:
    """What rows add when they are clamped to bounds that were declared.

    A term with factors adds a number in ``[−w, w]`` after a public offset is taken from it, and 0
    outside its conditions; a term without adds 0 or 1.

    Attributes:
        query: what is computed.
        centres: (p,) middles of the bounds.
        lows: (p,) lower bounds, −inf where none is needed.
        highs: (p,) upper bounds.
        widths: (k,) w of each term; 1 for those without factors.
        offsets: (k,) what is taken from a term inside its conditions.
        counts: (k,) places of the counts by which the offsets are given back.
    """

    query: SumQuery
    centres: Array
    lows: Array
    highs: Array
    widths: Array
    offsets: Array
    counts: npt.NDArray[np.intp]

    @cached_property
    def numeric(self) -> npt.NDArray[np.bool_]:
        """Which terms have factors, (k,)."""
        return np.array([bool(one.factors) for one in self.query.terms])

    @cached_property
    def parts(self) -> tuple[tuple[npt.NDArray[np.intp], Array], ...]:
        """Counts whose conditions share columns: their places, and every pattern of one row.

        A row adds one pattern (m, places) of zeros and ones to each part.
        """
        terms = self.query.terms
        left = np.flatnonzero(~self.numeric).tolist()
        found = []
        while left:
            together = [left.pop(0)]
            # conditions that share a column depend on each other: closure under sharing
            columns = _columns([terms[together[0]]])
            grown = True
            while grown:
                joining = [place for place in left if columns & _columns([terms[place]])]
                grown = bool(joining)
                for place in joining:
                    left.remove(place)
                    together.append(place)
                    columns |= _columns([terms[place]])
            places = sorted(together)
            found.append((np.array(places), _patterns([terms[place] for place in places])))
        return tuple(found)

    def values(self, rows: Array) -> GridValues:
        """Return what clamped rows add, on a grid that the bounds alone set; none beyond w."""
        return self.values_of(rows, self.query.terms, np.arange(len(self.query.terms)))

    def values_of(
        self, rows: Array, terms: Sequence[Term], places: npt.NDArray[np.intp]
    ) -> GridValues:
        """Return what clamped rows add to terms, each on the grid of the one at a place."""
        # clamped first: no row adds more than the bounds allow, whatever the table holds
        clamped = np.clip(rows, self.lows, self.highs)
        exponents = self.exponents[places]
        # φ less its offset inside its conditions, where it is in [−w, w]
        added = row_values(terms, clamped, self.centres)
        conditions = [term(one.conditions) for one in terms]
        inside = row_values(conditions, clamped, self.centres)
        added -= self.offsets[places] * inside
        # to the grid, and never beyond w: rounding to nearest might step over it
        integers = np.rint(np.ldexp(added, -exponents))
        most = np.floor(np.ldexp(self.widths[places], -exponents))
        np.clip(integers, -most, most, out=integers)
        integers += 0.0
        return GridValues(integers, exponents)

    def count_clamped(self, rows: Array) -> int:
        """Return how many rows have a number outside its bounds; for the holder of the table."""
        outside = (rows < self.lows) | (rows > self.highs)
        return int(outside.any(axis=1).sum())

    @cached_property
    def exponents(self) -> npt.NDArray[np.int64]:
        """Exponents of the grid, (k,)."""
        # w < 2^top, so that |integers| < 2²⁶ and 2²⁶ rows sum to less than 2⁵²: exact
        top = np.frexp(self.widths)[1]
        return np.where(self.numeric, top - GRID_BITS, 0).astype(np.int64)

    def finish(self, sums: Array, drawn: float | None) -> Array:
        """Return the numbers that follow from sums without the offsets, means within bounds."""
        return self.query.finish(
            self.restore(sums), self.centres, drawn, bounds=(self.lows, self.highs)
        )

    def limits(self) -> Array:
        """Return the (lowest, highest) that each number can be, (d, 2)."""
        return self.query.limits((self.lows, self.highs))

    def restore(self, sums: Array) -> Array:
        """Return sums (k,) or (n, k) of the terms from those without the offsets."""
        return sums + self.offsets * sums[..., self.counts]


def contributions(
    query: SumQuery, columns: Sequence[str], bounds: Mapping[int, tuple[float, float]]
) -> Contributions:
    """Return what rows within the bounds can add.

    Raises:
        ValueError: a column whose numbers are added has no bounds, or too wide ones.
    """
    terms = query.terms
    needed = sorted({column for one in terms for column in one.factors})
    missing = [columns[column] for column in needed if column not in bounds]
    if missing:
        raise ValueError(
            f"bounds: expected the lowest and highest of {', '.join(missing)}, such as "
            f"{missing[0]}=0:100, declared without looking at the table, got none"
        )
    lows, highs = np.full(query.width, -np.inf), np.full(query.width, np.inf)
    centres, half = np.zeros(query.width), np.zeros(query.width)
    for column in needed:
        lows[column], highs[column] = bounds[column]
        centres[column] = 0.5 * lows[column] + 0.5 * highs[column]
        reach = max(highs[column] - centres[column], centres[column] - lows[column])
        # the difference was rounded
        half[column] = math.nextafter(reach, math.inf)
    widths, offsets = np.ones(len(terms)), np.zeros(len(terms))
    counts = np.zeros(len(terms), dtype=np.intp)
    places = {one: place for place, one in enumerate(terms)}
    for place, one in enumerate(terms):
        if not one.factors:
            continue
        # |Π (x_j − c_j)| <= Π half-widths
        width = math.prod(half[column] for column in one.factors)
        base = places.get(Term(one.conditions))
        if len(one.factors) == 2 and one.factors[0] == one.factors[1] and base is not None:
            # a square lies in [0, w]: from its middle it is half as far
            offsets[place], counts[place] = 0.5 * width, base
            width = 0.5 * width
        if not SMALLEST_WIDTH <= width <= LARGEST_WIDTH:
            named = " and ".join(sorted({columns[column] for column in one.factors}))
            raise ValueError(
                "bounds: expected those within which a row adds at most something between "
                f"{SMALLEST_WIDTH:g} and {LARGEST_WIDTH:g}, got others of {named}: choose other "
                "units"
            )
        # products were rounded to nearest: up, by more than they lost
        widths[place] = width * (1.0 + 2.0**-50)
    return Contributions(query, centres, lows, highs, widths, offsets, counts)


def farthest_distance(added: Contributions, noise: Sequence[Law], adjacency: Adjacency) -> float:
    """Return the squared distance that one row can make, rounded up; infinite where noise is bare.

    Args:
        added: what a row can add.
        noise: (which sums, the law of the noise on them), independent of each other.
        adjacency: which tables are neighbours.

    Raises:
        ValueError: a law of numbers that is not diagonal, or of sums that are not independent.
    """
    # max zᵀ Σ⁻¹ z <= Σ of the parts' largest: rounded up, as one row need not reach all
    total = 0.0
    bare = np.ones(added.numeric.size, dtype=bool)
    counts = {int(place): part for part in added.parts for place in part[0]}
    for chosen, law in noise:
        bare[chosen] = False
        if added.numeric[chosen].all() and isinstance(law, Diagonal):
            # a box: every number at ±w, at most one cell of each family
            # Σ_j (r w_j)²/σ_j² of a cell; a row adds to one cell of a family: the largest counts
            inverse = np.zeros(added.numeric.size)
            # infinite where a number that moves has no noise
            squares, variances = (reach(adjacency) * added.widths[chosen]) ** 2, law.diagonal()
            bare_ones = np.where(squares > 0.0, math.inf, 0.0)
            # beyond doubles it is infinite as well
            with np.errstate(over="ignore"):
                np.divide(squares, variances, out=bare_ones, where=variances > 0.0)
            inverse[chosen] = bare_ones
            total += sum(max(inverse[cell].sum() for cell in family) for family in families(added))
            continue
        places, patterns = counts.get(int(chosen[0]), (np.zeros(0, dtype=np.intp), np.zeros(0)))
        if not np.isin(chosen, places).all():
            raise ValueError("noise: expected independent laws of numbers and of counts")
        moves = differences(patterns, adjacency)[:, np.isin(places, chosen)]
        total += float(np.max(law.mahalanobis(moves)))
    # a sum that a row moves and no law covers is published as it is: infinitely far
    moved = added.numeric.copy()
    for places, patterns in added.parts:
        moved[places] = changing(patterns, adjacency)
    return math.inf if (moved & bare).any() else total


def families(added: Contributions) -> list[list[list[int]]]:
    """Return families of cells of numbers: a row adds to one cell of each family at most.

    The numbers of a cell have the same conditions.
    """
    terms = added.query.terms
    # numbers under the same conditions move together; greedy families that exclude each other
    cells: dict[tuple[Condition, ...], list[int]] = {}
    for place in np.flatnonzero(added.numeric).tolist():
        cells.setdefault(terms[place].conditions, []).append(place)
    found: list[list[tuple[Condition, ...]]] = []
    for conditions in cells:
        for family in found:
            if all(_exclusive(conditions, other) for other in family):
                family.append(conditions)
                break
        else:
            found.append([conditions])
    return [[cells[conditions] for conditions in family] for family in found]


def _exclusive(first: Sequence[Condition], second: Sequence[Condition]) -> bool:
    return any(one.excludes(other) for one in first for other in second)


def reach(adjacency: Adjacency) -> float:
    """Return by how many half-widths a row, or its replacement, moves a number."""
    return 2.0 if adjacency is Adjacency.REPLACE else 1.0


def differences(patterns: Array, adjacency: Adjacency) -> Array:
    """Return what one row, or its replacement, changes of the counts: each once."""
    kinds = np.unique(patterns, axis=0)
    if adjacency is Adjacency.REPLACE:
        # one row becomes another: every difference of two patterns, either sign being as far
        first, second = np.triu_indices(len(kinds), 1)
        kinds = np.unique(kinds[first] - kinds[second], axis=0)
    return kinds if len(kinds) else np.zeros((1, patterns.shape[1]))


def changing(patterns: Array, adjacency: Adjacency) -> npt.NDArray[np.bool_]:
    """Return which counts one row, or its replacement, changes."""
    if adjacency is Adjacency.REPLACE:
        # those in which two patterns differ
        return np.asarray(np.ptp(patterns, axis=0) != 0.0)
    return np.asarray((patterns != 0.0).any(axis=0))


def _columns(terms: Sequence[Term]) -> set[int]:
    return {one.column for term in terms for one in term.conditions}


def _patterns(terms: Sequence[Term]) -> Array:
    """Return every set of terms whose conditions one row can meet together, (m, terms)."""
    # columns are independent of each other: the product of what each can meet
    conditions = sorted({one for term in terms for one in term.conditions})
    pieces = [
        _pieces([one for one in conditions if one.column == column])
        for column in sorted({one.column for one in conditions})
    ]
    cells = math.prod(len(piece) for piece in pieces)
    if cells > MOST_PATTERNS:
        raise ValueError(
            f"query: expected conditions that split the rows into at most {MOST_PATTERNS} cells, "
            f"got {cells}: ask for fewer bins or thresholds together"
        )
    found = set()
    for chosen in itertools.product(*pieces):
        held = set().union(*chosen)
        found.add(tuple(set(term.conditions) <= held for term in terms))
    return np.array(sorted(found), dtype=np.float64)


def _pieces(conditions: Sequence[Condition]) -> list[set[Condition]]:
    """Return the sets of conditions on one column that some value meets together."""
    probes = probe(conditions)[:, None]
    held = [Condition(0, one.low, one.high, one.closed).holds(probes) for one in conditions]
    found = {tuple(bool(h[i]) for h in held) for i in range(len(probes))}
    return [
        {one for one, met in zip(conditions, pattern, strict=True) if met}
        for pattern in sorted(found)
    ]


def probe(conditions: Sequence[Condition]) -> Array:
    """Return a value for every way in which conditions on one column can hold together."""
    edges = sorted({end for one in conditions for end in (one.low, one.high)})
    finite = [edge for edge in edges if math.isfinite(edge)]
    if not finite:
        return np.zeros(1)
    # every edge, a point between each two and one beyond each end: no set of conditions is missed
    inner = [0.5 * (low + high) for low, high in itertools.pairwise(finite)]
    outer = [finite[0] - 1.0 - abs(finite[0]), finite[-1] + 1.0 + abs(finite[-1])]
    return np.array([*finite, *inner, *outer])
