"""Sums, means, second moments, and what they give: variances, covariances, correlations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.sums.statistic import (
    ANYTHING,
    NOT_NEGATIVE,
    Bounds,
    BoundStatistic,
    Columns,
    Statistic,
    listed,
)
from tacit.statistics.sums.terms import Condition, Term, term
from tacit.statistics.sums.totals import Totals

Conditions: TypeAlias = tuple[Condition, ...]
Compute: TypeAlias = Callable[[Totals, tuple[int, ...], Conditions], Array]
Name: TypeAlias = Callable[[Sequence[str]], tuple[str, ...]]
Limits: TypeAlias = list[tuple[float, float]]
Limit: TypeAlias = Callable[[tuple[int, ...], Bounds | None], Limits]

# Of sums that are possible, in deviations of the noise in a variance.
LEAST_VARIANCE = 0.1


@dataclass(frozen=True)
class BoundMoments(BoundStatistic):
    """Numbers from the moments, to some order, of some columns of the rows that meet conditions.

    Attributes:
        columns: positions.
        labels: their names.
        order: 1 for sums, 2 for sums of products too; −2 for squares without other products.
        compute: totals, positions and conditions to numbers.
        name: names of the columns to names of the numbers.
        straight: whether the numbers are linear in the sums where no condition is set.
        suffix: what stands behind every name.
        conditions: which rows count.
        limit: columns and their declared bounds to what each number can be; None for anything.
    """

    columns: tuple[int, ...]
    labels: tuple[str, ...]
    order: int
    compute: Compute
    name: Name
    straight: bool
    suffix: str = ""
    conditions: Conditions = ()
    limit: Limit | None = None

    @property
    def linear(self) -> bool:  # type: ignore[override]
        """Whether the numbers are linear in the sums: ratios of noisy counts are not."""
        return self.additive or (self.straight and not self.conditions)

    @property
    def additive(self) -> bool:  # type: ignore[override]
        """Whether the numbers are sums, which no count divides."""
        return self.compute is _sums

    def terms(self) -> tuple[Term, ...]:
        """Return the count, the sums and the sums of products."""
        found = [term(self.conditions)]
        found += [term(self.conditions, (column,)) for column in self.columns]
        if self.order == -2:
            found += [term(self.conditions, (column, column)) for column in self.columns]
        elif self.order == 2:
            found += [
                term(self.conditions, (first, second))
                for place, first in enumerate(self.columns)
                for second in self.columns[place:]
            ]
        return tuple(found)

    def names(self) -> tuple[str, ...]:
        """Return the names, with the condition behind each."""
        return tuple(name + self.suffix for name in self.name(self.labels))

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each number can be, (d, 2)."""
        if self.limit is None:
            return super().limits(bounds)
        return np.array(self.limit(self.columns, bounds))

    def value(self, totals: Totals) -> Array:
        """Return the numbers."""
        return self.compute(totals, self.columns, self.conditions)

    def possible(self, totals: Totals, scales: Array) -> Array:
        """Return sums whose covariances are positive: variances are lifted, in units of noise."""
        if abs(self.order) != 2:
            return totals.sums
        together = [self.columns] if self.order == 2 else [(one,) for one in self.columns]
        sums = totals.sums.copy()
        for columns in together:
            squares = [totals.terms[term(self.conditions, (one, one))] for one in columns]
            count = totals.divisor(self.conditions)[..., None]
            noise = np.maximum(scales[squares], np.finfo(float).tiny) / count
            matrix = totals.central(columns, self.conditions)
            roots = np.sqrt(noise)
            least = np.linalg.eigvalsh(matrix / (roots[..., :, None] * roots[..., None, :]))[
                ..., :1
            ]
            sums[..., squares] += np.maximum(LEAST_VARIANCE - least, 0.0) * noise * count
        return sums

    def within(self, condition: Condition, label: str) -> BoundMoments:
        """Return the same of the rows that meet a condition."""
        conditions = tuple(sorted({*self.conditions, condition}))
        return replace(self, conditions=conditions, suffix=f"{self.suffix}{label}")


@dataclass(frozen=True)
class _OfColumns(Statistic):
    """A statistic of some columns.

    Attributes:
        columns: their names; all when None.
    """

    columns: Sequence[str] | None = None

    def _bound(
        self,
        columns: Columns,
        order: int,
        compute: Compute,
        name: Name,
        *,
        linear: bool = False,
        limit: Limit | None = None,
    ) -> BoundMoments:
        positions = columns.positions(listed(self.columns))
        labels = tuple(columns.names[position] for position in positions)
        return BoundMoments(positions, labels, order, compute, name, linear, limit=limit)


class Sum(_OfColumns):
    """Column sums over the rows drawn."""

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the sums of the table's columns."""
        return self._bound(columns, 1, _sums, _each("sum"), linear=True)


class Mean(_OfColumns):
    """Column means."""

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the means of the table's columns."""
        return self._bound(columns, 1, _means, _each("mean"), linear=True, limit=_declared)


class SecondMoments(_OfColumns):
    """Means of the products of every two columns, row by row of the upper triangle."""

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the second moments of the table's columns."""
        return self._bound(columns, 2, _second, _triangle("moment"), linear=True)


class Variance(_OfColumns):
    """Column variances, with n − 1; never negative."""

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the variances of the table's columns."""
        return self._bound(columns, -2, _variances, _each("variance"), limit=_not_negative)


class StandardDeviation(_OfColumns):
    """Column standard deviations, with n − 1."""

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the standard deviations of the table's columns."""

        def roots(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
            return np.sqrt(_variances(totals, places, conditions))

        return self._bound(columns, -2, roots, _each("std"), limit=_not_negative)


class Covariance(_OfColumns):
    """Upper triangle of the covariance matrix, with n − 1, row by row."""

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the covariances of the table's columns."""
        return self._bound(columns, 2, _covariances, _triangle("cov"), limit=_squares)


class Correlation(_OfColumns):
    """Correlations of every two columns, in [−1, 1], row by row of the upper triangle."""

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the correlations of the table's columns.

        Raises:
            ValueError: fewer than two columns.
        """
        if len(columns.positions(listed(self.columns))) < 2:
            raise ValueError("query: correlation needs at least two columns, got one")
        return self._bound(columns, 2, _correlations, _pairs_of("corr"), limit=_within_one)


def _declared(columns: tuple[int, ...], bounds: Bounds | None) -> Limits:
    return [ANYTHING if bounds is None else (bounds[0][one], bounds[1][one]) for one in columns]


def _not_negative(columns: tuple[int, ...], bounds: Bounds | None) -> Limits:
    del bounds
    return [NOT_NEGATIVE] * len(columns)


def _squares(columns: tuple[int, ...], bounds: Bounds | None) -> Limits:
    """Return limits of the upper triangle, of which the diagonal is not negative."""
    del bounds
    size = len(columns)
    return [NOT_NEGATIVE if i == j else ANYTHING for i in range(size) for j in range(i, size)]


def _within_one(columns: tuple[int, ...], bounds: Bounds | None) -> Limits:
    del bounds
    return [(-1.0, 1.0)] * (len(columns) * (len(columns) - 1) // 2)


def _each(word: str) -> Name:
    return lambda labels: tuple(f"{word}[{label}]" for label in labels)


def _triangle(word: str) -> Name:
    return lambda labels: tuple(
        f"{word}[{labels[i]},{labels[j]}]"
        for i in range(len(labels))
        for j in range(i, len(labels))
    )


def _pairs_of(word: str) -> Name:
    return lambda labels: tuple(
        f"{word}[{labels[i]},{labels[j]}]"
        for i in range(len(labels))
        for j in range(i + 1, len(labels))
    )


def _sums(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
    return np.stack([totals.total(place, conditions) for place in places], axis=-1)


def _means(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
    return np.stack([totals.mean(place, conditions) for place in places], axis=-1)


def _second(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
    found = [
        totals.raw_product(first, second, conditions)
        for place, first in enumerate(places)
        for second in places[place:]
    ]
    return np.stack(found, axis=-1)


def _variances(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
    count = totals.divisor(conditions)[..., None]
    unbiased = count / np.maximum(count - 1.0, 1.0)
    values = [
        totals.product(place, place, conditions) - totals.moved(place, conditions) ** 2
        for place in places
    ]
    return np.maximum(np.stack(values, axis=-1) * unbiased, 0.0)


def _covariances(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
    rows, columns = np.triu_indices(len(places))
    return np.asarray(totals.covariance(places, conditions)[..., rows, columns])


def _correlations(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
    matrix = totals.covariance(places, conditions)
    deviations = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
    rows, columns = np.triu_indices(len(places), 1)
    sizes = deviations[..., rows] * deviations[..., columns]
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = np.where(sizes > 0.0, matrix[..., rows, columns] / sizes, 0.0)
    return np.clip(correlations, -1.0, 1.0)
