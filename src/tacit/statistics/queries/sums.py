"""What rows add to sums, and the sums: exact, on a grid, and what follows from noisy ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array

# Terms that are asked for again and again, while errors are simulated.
REMEMBERED = 2**14
# Sums of integers below 2⁵² are exact in double precision, in any order.
EXACT_BITS = 52
# Rows that are worked on at a time: a few megabytes.
ROWS_TOGETHER = 2**16
# Of a grid: 2^±400 is about 1e±120, so that squares of sums stay within double precision.
SMALLEST_EXPONENT, LARGEST_EXPONENT = -400, 400


@dataclass(frozen=True, order=True)
class Condition:
    """``low <= x < high`` of one column, or ``<= high`` where ``closed``.

    Attributes:
        column: position of the column.
        low: lower end, which belongs to it.
        high: upper end.
        closed: whether the upper end belongs to it.
    """

    column: int
    low: float
    high: float
    closed: bool

    def holds(self, rows: Array) -> npt.NDArray[np.bool_]:
        """Return for every row whether it holds, (n,)."""
        values = rows[:, self.column]
        below = values <= self.high if self.closed else values < self.high
        return np.asarray((values >= self.low) & below)

    def excludes(self, other: Condition) -> bool:
        """Whether no row can meet both."""
        if self.column != other.column:
            return False
        first, second = (self, other) if self.low <= other.low else (other, self)
        if first.high < second.low:
            return True
        # intervals that touch share the point, unless the first leaves it out
        return first.high == second.low and not first.closed


def equals(column: int, value: float) -> Condition:
    """Return the condition that the column has this value."""
    return Condition(column, value, value, closed=True)


def at_most(column: int, value: float) -> Condition:
    """Return the condition that the column is at most this value."""
    return Condition(column, -math.inf, value, closed=True)


@dataclass(frozen=True, order=True)
class Term:
    """``φ(x) = Π 1[condition] · Π (x_j − c_j)``: one number that a row adds to a sum.

    Attributes:
        conditions: all of which must hold, ascending.
        factors: columns whose numbers, less a centre c, are multiplied, ascending; at most two.
        once: whether all rows of a person together add what one of them does.
    """

    conditions: tuple[Condition, ...] = ()
    factors: tuple[int, ...] = ()
    once: bool = False

    @cached_property
    def _hash(self) -> int:
        return hash((self.conditions, self.factors, self.once))

    def __hash__(self) -> int:
        """Return a hash that is computed once: sums are looked up by their terms."""
        return self._hash

    @property
    def columns(self) -> tuple[int, ...]:
        """Positions of the columns that the conditions read."""
        return tuple(one.column for one in self.conditions)


def term(
    conditions: Sequence[Condition] = (), factors: Sequence[int] = (), *, once: bool = False
) -> Term:
    """Return the term with conditions and factors in their order."""
    return _term(tuple(conditions), tuple(factors), once)


@lru_cache(REMEMBERED)
def _term(conditions: tuple[Condition, ...], factors: tuple[int, ...], once: bool) -> Term:
    return Term(tuple(sorted(set(conditions))), tuple(sorted(factors)), once)


def row_values(terms: Sequence[Term], rows: Array, centres: Array) -> Array:
    """Return φ of every row, (n, k), each entry a function of its own row.

    Args:
        terms: k terms.
        rows: (n, p).
        centres: (p,) what is taken from the columns.
    """
    held: dict[tuple[Condition, ...], npt.NDArray[np.bool_] | None] = {(): None}
    moved: dict[int, Array] = {}
    values = np.empty((len(rows), len(terms)))
    for place, one in enumerate(terms):
        # many terms share their conditions and columns: each is computed once
        if one.conditions not in held:
            held[one.conditions] = np.logical_and.reduce([c.holds(rows) for c in one.conditions])
        for column in one.factors:
            if column not in moved:
                moved[column] = rows[:, column] - centres[column]
        # Π (x_j − c_j) in place; what overflows is refused by the grid
        product = values[:, place]
        product[:] = 1.0
        with np.errstate(over="ignore"):
            for column in one.factors:
                product *= moved[column]
        inside = held[one.conditions]
        if inside is not None:
            # 0.0 instead of a product: what is outside adds nothing, whatever its number
            product[~inside] = 0.0
    return values


@dataclass(frozen=True, eq=False)
class GridValues:
    """φ of every row as ``integers · 2^exponents``, whose sums and differences are exact.

    Attributes:
        integers: (n, k) whole numbers as doubles.
        exponents: (k,) integers.
    """

    integers: Array
    exponents: npt.NDArray[np.int64]

    @property
    def values(self) -> Array:
        """The numbers themselves, (n, k)."""
        return np.asarray(np.ldexp(self.integers, self.exponents))

    def total(self, rows: npt.NDArray[np.intp]) -> Array:
        """Return the exact sum over some rows, (k,)."""
        summed = sum(self.integers[some].sum(axis=0) for some in _pieces(rows))
        return np.asarray(np.ldexp(summed, self.exponents))

    def weighted_total(self, rows: npt.NDArray[np.intp], weights: Array) -> Array:
        """Return ``Σ w φ`` over some rows, (k,)."""
        both = zip(_pieces(weights), _pieces(rows), strict=True)
        summed = sum(some @ self.integers[places] for some, places in both)
        return np.asarray(np.ldexp(summed, self.exponents))

    def times(self, matrix: Array, rows: npt.NDArray[np.intp]) -> Array:
        """Return ``φ M`` of some rows, (…, r), for rows (…) and M of shape (k, r)."""
        # the exponents go to M, which is small: φ M = integers (2^exponents M)
        return np.asarray(self.integers[rows] @ np.ldexp(matrix, self.exponents[:, None]))


def _pieces(rows: Any) -> Iterator[Any]:
    """Yield some rows at a time, none at once where there are none."""
    for start in range(0, max(len(rows), 1), ROWS_TOGETHER):
        yield rows[start : start + ROWS_TOGETHER]


def on_grid(values: Array) -> GridValues:
    """Round what rows add to a grid so fine that n of them are summed without rounding.

    The grid is the power of two above ``2⁻⁵² n max|φ|``, and 1 where all are whole and small.

    Raises:
        ValueError: numbers beyond the range of the grid.
    """
    count = max(len(values), 1)
    largest = np.zeros(values.shape[1])
    whole = np.ones(values.shape[1], dtype=bool)
    for some in _pieces(values):
        largest = np.maximum(largest, np.abs(some).max(axis=0, initial=0.0))
        whole &= (some == np.rint(some)).all(axis=0)
    # n whole numbers below 2⁵²/n sum to less than 2⁵²: they are their own integers
    whole &= largest < 2.0**EXACT_BITS / count
    # max|φ| < 2^top and n < 2^bit_length, so that n · max|φ| / 2^exponent < 2⁵²
    _, top = np.frexp(largest)
    exponents = top + count.bit_length() - EXACT_BITS
    exponents = np.where(whole | (largest == 0.0), 0, exponents)
    within = (exponents <= LARGEST_EXPONENT) & (exponents >= SMALLEST_EXPONENT)
    if not (within & np.isfinite(largest)).all():
        raise ValueError(
            "query: expected numbers whose products are within 1e-100 and 1e100, got one beyond: "
            "choose other units"
        )
    integers = np.ldexp(values, -exponents)
    np.rint(integers, out=integers)
    # zeros with one sign
    integers += 0.0
    return GridValues(integers, exponents.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over the rows drawn, noisy or not, from which statistics are computed.

    Several are several sets of sums, along leading axes that all results have.

    Attributes:
        terms: place of every term.
        sums: (…, k).
        centres: (p,) what was taken from the columns.
        drawn: number of rows, where it is public; None where the noisy count stands for it.
        bounds: (lowest, highest) of the columns where declared, (p,) each.
        smooth: whether numbers that jump with the sums are read between the jumps, as the cost of
            noise needs them; what is published never is.
    """

    terms: Mapping[Term, int] = field(repr=False)
    sums: Array
    centres: Array
    drawn: float | None
    bounds: tuple[Array, Array] | None = None
    smooth: bool = False

    def count(self, conditions: Sequence[Condition] = ()) -> Array:
        """Return how many rows meet the conditions; noisy, and maybe negative."""
        if not conditions and self.drawn is not None:
            return np.full(self.sums.shape[:-1], self.drawn)
        return self._sum(conditions)

    def counts(self, terms: Sequence[Term]) -> Array:
        """Return how many rows meet the conditions of each term, noisy, (…, terms)."""
        public = self.drawn is not None
        places = np.array(
            [self.terms[one] if one.conditions or not public else -1 for one in terms]
        )
        return np.where(places < 0, self.drawn or 0.0, self.sums[..., places])

    def divisor(self, conditions: Sequence[Condition] = ()) -> Array:
        """Return the count as something to divide by: at least 1."""
        return np.maximum(self.count(conditions), 1.0)

    def mean_offset(self, column: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of ``x − c`` of a column."""
        return np.asarray(self._sum(conditions, column) / self.divisor(conditions))

    def mean(self, column: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of a column, within its bounds where they are declared."""
        mean: Array = self.centres[column] + self.mean_offset(column, conditions)
        if self.bounds is None:
            return mean
        return np.clip(mean, self.bounds[0][column], self.bounds[1][column])

    def total(self, column: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the sum of a column."""
        # Σ x = n c + Σ (x − c)
        return np.asarray(
            self.centres[column] * self.count(conditions) + self._sum(conditions, column)
        )

    def product(self, first: int, second: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of the product of two columns, both less their centres."""
        return np.asarray(self._sum(conditions, first, second) / self.divisor(conditions))

    def raw_product(self, first: int, second: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of the product of two columns."""
        left, right = float(self.centres[first]), float(self.centres[second])
        # E xy = E (x − a)(y − b) + a E (y − b) + b E (x − a) + ab
        return (
            self.product(first, second, conditions)
            + left * self.mean_offset(second, conditions)
            + right * self.mean_offset(first, conditions)
            + left * right
        )

    def covariance(self, columns: Sequence[int], conditions: Sequence[Condition] = ()) -> Array:
        """Return covariances of some columns (…, p, p), with n − 1; no variance is negative."""
        count = self.divisor(conditions)[..., None, None]
        matrix = self.central(columns, conditions) * (count / np.maximum(count - 1.0, 1.0))
        places = np.arange(len(columns))
        matrix[..., places, places] = np.maximum(matrix[..., places, places], 0.0)
        return matrix

    def central(self, columns: Sequence[int], conditions: Sequence[Condition] = ()) -> Array:
        """Return means of products less products of means (…, p, p), as noise has them."""
        size = len(columns)
        count = self.divisor(conditions)[..., None, None]
        singles = [self.terms[term(conditions, (column,))] for column in columns]
        pairs = np.array(
            [[self.terms[term(conditions, (a, b))] for b in columns] for a in columns]
        ).reshape(size, size)
        # E uv − E u E v of columns less their centres, which cancel
        means = self.sums[..., singles] / count[..., 0]
        products = self.sums[..., pairs] / count
        return np.asarray(products - means[..., :, None] * means[..., None, :])

    def _sum(self, conditions: Sequence[Condition], *factors: int) -> Array:
        return np.asarray(self.sums[..., self.terms[term(conditions, factors)]])
