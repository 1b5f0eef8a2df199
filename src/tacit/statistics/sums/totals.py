"""Sums that are exact: what rows add is rounded to integers of a grid, once and for every row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.pairs.pairing import Indices
from tacit.statistics.sums.terms import Condition, Term, term

# Sums of integers below 2⁵² are exact in double precision, in any order.
EXACT_BITS = 52
ROWS_TOGETHER = 2**16
SMALLEST_EXPONENT, LARGEST_EXPONENT = -400, 400


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

    def total(self, rows: Indices) -> Array:
        """Return the exact sum over some rows, (k,)."""
        summed = sum(self.integers[some].sum(axis=0) for some in _pieces(rows))
        return np.asarray(np.ldexp(summed, self.exponents))

    def weighed(self, rows: Indices, weights: Array) -> Array:
        """Return ``Σ w φ`` over some rows, (k,)."""
        both = zip(_pieces(weights), _pieces(rows), strict=True)
        summed = sum(some @ self.integers[places] for some, places in both)
        return np.asarray(np.ldexp(summed, self.exponents))

    def times(self, matrix: Array, rows: Indices) -> Array:
        """Return ``φ M`` of some rows, (…, r), for rows (…) and M of shape (k, r)."""
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
    whole &= largest < 2.0**EXACT_BITS / count
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
            noise needs them; what is told is never.
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

    def moved(self, column: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of ``x − c`` of a column."""
        return np.asarray(self._sum(conditions, column) / self.divisor(conditions))

    def mean(self, column: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of a column, within its bounds where they are declared."""
        mean: Array = self.centres[column] + self.moved(column, conditions)
        if self.bounds is None:
            return mean
        return np.clip(mean, self.bounds[0][column], self.bounds[1][column])

    def total(self, column: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the sum of a column."""
        return np.asarray(
            self.centres[column] * self.count(conditions) + self._sum(conditions, column)
        )

    def product(self, first: int, second: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of the product of two columns, both less their centres."""
        return np.asarray(self._sum(conditions, first, second) / self.divisor(conditions))

    def raw_product(self, first: int, second: int, conditions: Sequence[Condition] = ()) -> Array:
        """Return the mean of the product of two columns."""
        left, right = float(self.centres[first]), float(self.centres[second])
        return (
            self.product(first, second, conditions)
            + left * self.moved(second, conditions)
            + right * self.moved(first, conditions)
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
        means = self.sums[..., singles] / count[..., 0]
        products = self.sums[..., pairs] / count
        return np.asarray(products - means[..., :, None] * means[..., None, :])

    def _sum(self, conditions: Sequence[Condition], *factors: int) -> Array:
        return np.asarray(self.sums[..., self.terms[term(conditions, factors)]])
