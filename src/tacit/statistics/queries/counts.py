"""Counts: of all rows, in bins, in two-way tables, up to thresholds; and a statistic by group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from tacit._ground.checks import Array, vector
from tacit.statistics.queries.chosen import KnownNumber
from tacit.statistics.queries.statistic import (
    NOT_NEGATIVE,
    Bounds,
    Columns,
    Flags,
    SeveralSums,
    Statistic,
    SumStatistic,
    text_of,
)
from tacit.statistics.queries.sums import Condition, Term, Totals, at_most, equals, term


@dataclass(frozen=True)
class BoundCounts(SumStatistic):
    """How many rows meet each of some conditions.

    Attributes:
        cells: conditions of every cell.
        labels: a name for each.
        whole: whether counts are rounded to whole numbers.
        suffix: what stands behind every name.
        once: whether persons are counted, each once in every cell, and no rows.
    """

    cells: tuple[tuple[Condition, ...], ...]
    labels: tuple[str, ...]
    whole: bool
    suffix: str = ""
    once: bool = False

    linear = additive = True

    def terms(self) -> tuple[Term, ...]:
        """Return one term for each cell."""
        return self._terms

    @cached_property
    def _terms(self) -> tuple[Term, ...]:
        return tuple(term(cell, once=self.once) for cell in self.cells)

    def names(self) -> tuple[str, ...]:
        """Return one name for each cell."""
        return tuple(label + self.suffix for label in self.labels)

    @property
    def whole_numbers(self) -> Flags:
        """Which of the counts are rounded to whole ones when they are published, (d,)."""
        return np.full(len(self.cells), self.whole)

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each count can be, (d, 2)."""
        return np.tile(NOT_NEGATIVE, (len(self.cells), 1))

    def value(self, totals: Totals) -> Array:
        """Return the counts, none negative."""
        return np.maximum(totals.counts(self._terms), 0.0)

    def within(self, condition: Condition, label: str) -> BoundCounts:
        cells = tuple((*cell, condition) for cell in self.cells)
        return replace(self, cells=cells, suffix=f"{self.suffix}{label}")


@dataclass(frozen=True)
class BoundCumulative(BoundCounts):
    """Counts of nested conditions."""

    # noise that makes one count fall below another is spread over both
    linear = additive = False

    def value(self, totals: Totals) -> Array:
        """Return the counts, none negative or less than the one before."""
        return np.maximum(make_rising(totals.counts(self._terms)), 0.0)


@dataclass(frozen=True)
class Count(Statistic):
    """How many rows are drawn; a constant where one of every pair is.

    Attributes:
        whole: whether it is rounded to a whole number.

    Example:
        >>> Count().bind(Columns(("age",))).names()
        ('count',)
    """

    word: ClassVar[str] = "count"

    whole: bool = False

    def reads(self) -> tuple[str, ...] | None:
        return ()

    def bind(self, columns: Columns) -> BoundCounts:
        people = columns.people
        return BoundCounts(((),), ("count",), self.whole or people, once=people)


@dataclass(frozen=True)
class RowCount(Statistic):
    """How many rows there are, where ``Count`` counts persons.

    Example:
        >>> RowCount().bind(Columns(("age",))).names()
        ('rows',)
    """

    word: ClassVar[str] = "rows"

    def reads(self) -> tuple[str, ...] | None:
        return ()

    def bind(self, columns: Columns) -> BoundCounts:
        return BoundCounts(((),), ("rows",), columns.people)


@dataclass(frozen=True)
class KeyCount(Statistic):
    """How many keys of a column were found, where nobody declared them.

    Attributes:
        column: its name.
        keys: how many.

    Example:
        >>> KeyCount("city", 3).bind(Columns(("city",))).names()
        ('keys[city]',)
    """

    word: ClassVar[str] = "keys"

    column: str
    keys: int

    def reads(self) -> tuple[str, ...] | None:
        """Return no column: what was found is known."""
        return ()

    def bind(self, columns: Columns) -> KnownNumber:
        return KnownNumber(f"keys[{self.column}]", float(self.keys))


@dataclass(frozen=True)
class Histogram(Statistic):
    """How many rows have each category of a column, or fall in each bin.

    Attributes:
        column: its name.
        edges: e_0 < … < e_b of b bins ``[e_i, e_(i+1))``, the last with its upper end; None for
            one bin for each category.
        whole: whether counts are rounded to whole numbers.

    Example:
        >>> Histogram("age", (0, 18, 120)).bind(Columns(("age",))).names()
        ('count[0≤age<18]', 'count[18≤age≤120]')
    """

    word: ClassVar[str] = "histogram"

    column: str
    edges: tuple[float, ...] | None = None
    whole: bool = False

    def reads(self) -> tuple[str, ...] | None:
        return (self.column,)

    def bind(self, columns: Columns) -> BoundCounts:
        """Return the counts of the table's column.

        Raises:
            ValueError: no such column, or edges that do not increase.
        """
        cells = bins(columns, self.column, self.edges)
        labels = tuple(f"count[{label}]" for _, label in cells)
        people = columns.people
        chosen = tuple((cell,) for cell, _ in cells)
        return BoundCounts(chosen, labels, self.whole or people, once=people)


@dataclass(frozen=True)
class TwoWayTable(Statistic):
    """How many rows have each pair of categories of two columns, or fall in each pair of bins.

    Attributes:
        first: name of a column.
        second: name of another.
        first_edges: edges of bins of the first, as for ``Histogram``.
        second_edges: of the second.
        whole: whether counts are rounded to whole numbers.
    """

    word: ClassVar[str] = "two-way"

    first: str
    second: str
    first_edges: tuple[float, ...] | None = None
    second_edges: tuple[float, ...] | None = None
    whole: bool = False

    def reads(self) -> tuple[str, ...] | None:
        return (self.first, self.second)

    def bind(self, columns: Columns) -> BoundCounts:
        """Return the counts of the table's two columns, row by row.

        Raises:
            ValueError: no such column, one column twice, or edges that do not increase.
        """
        if self.first == self.second:
            raise ValueError(f"query: expected two different columns, got {self.first!r} twice")
        left = bins(columns, self.first, self.first_edges)
        right = bins(columns, self.second, self.second_edges)
        return BoundCounts(
            tuple((a, b) for a, _ in left for b, _ in right),
            tuple(f"count[{a},{b}]" for _, a in left for _, b in right),
            self.whole or columns.people,
            once=columns.people,
        )


@dataclass(frozen=True)
class CumulativeCounts(Statistic):
    """How many rows are at most each of some thresholds; never decreasing.

    Attributes:
        column: its name.
        thresholds: increasing numbers.
        whole: whether counts are rounded to whole numbers.
    """

    word: ClassVar[str] = "cumulative"

    column: str
    thresholds: tuple[float, ...]
    whole: bool = False

    def reads(self) -> tuple[str, ...] | None:
        return (self.column,)

    def bind(self, columns: Columns) -> BoundCumulative:
        """Return the counts of the table's column.

        Raises:
            ValueError: no such column, or thresholds that do not increase.
        """
        points = check_increasing("thresholds", self.thresholds)
        place = columns.position(self.column)
        labels = tuple(f"count[{self.column} ≤ {text_of(point)}]" for point in points)
        cells = tuple((at_most(place, point),) for point in points)
        people = columns.people
        return BoundCumulative(cells, labels, self.whole or people, once=people)


@dataclass(frozen=True)
class GroupBy(Statistic):
    """A statistic of the rows of each category of a column, or of each of its bins.

    Attributes:
        statistic: what is computed in each group.
        column: name of the column.
        edges: edges of bins, as for ``Histogram``; None for one group for each category.

    Example:
        >>> GroupBy(Count(), "age", (0, 18, 120)).bind(Columns(("age",))).names()
        ('count|0≤age<18', 'count|18≤age≤120')
    """

    word: ClassVar[str] = "by"

    statistic: Statistic
    column: str
    edges: tuple[float, ...] | None = None

    def reads(self) -> tuple[str, ...] | None:
        """Return the columns of the statistic and that of the groups."""
        inner = self.statistic.reads()
        return None if inner is None else tuple(dict.fromkeys((*inner, self.column)))

    def bind(self, columns: Columns) -> SeveralSums:
        """Return the statistic of every group, one after the other.

        Raises:
            ValueError: no such column, edges that do not increase, or a statistic that does not
                add up.
        """
        place = columns.position(self.column)
        inner = self.statistic.bind(replace(columns, grouped=(*columns.grouped, place)))
        if not isinstance(inner, SumStatistic):
            raise ValueError(
                f"query: expected a statistic that adds up in each group of {self.column!r}, got "
                f"{self.statistic.word}"
            )
        cells = bins(columns, self.column, self.edges)
        return SeveralSums(tuple(inner.within(cell, f"|{label}") for cell, label in cells))


@dataclass(frozen=True)
class Present(Statistic):
    """A statistic of the rows in which a column holds a number.

    Attributes:
        statistic: what is computed of them.
        column: name of the column.

    Example:
        >>> Present(RowCount(), "age").bind(Columns(("age",))).names()
        ('rows',)
    """

    word: ClassVar[str] = "present"

    statistic: Statistic
    column: str

    def reads(self) -> tuple[str, ...] | None:
        """Return the columns of the statistic and the one that holds something."""
        inner = self.statistic.reads()
        return None if inner is None else tuple(dict.fromkeys((*inner, self.column)))

    def bind(self, columns: Columns) -> SumStatistic:
        """Return the statistic of those rows.

        Raises:
            ValueError: no such column, or a statistic that does not add up.
        """
        place, inner = columns.position(self.column), self.statistic.bind(columns)
        if not isinstance(inner, SumStatistic):
            raise ValueError(
                f"query: expected a statistic that adds up where {self.column!r} holds something, "
                f"got {self.statistic.word}"
            )
        # NaN is within no interval
        return inner.within(Condition(place, -math.inf, math.inf, closed=True), "")


def bins(columns: Columns, name: str, edges: Sequence[float] | None) -> list[tuple[Condition, str]]:
    """Return the cells of a column with their labels: its bins, or its categories."""
    place = columns.position(name)
    if edges is None:
        levels = columns.categories(place)
        return [(equals(place, level), f"{name}={columns.label(place, level)}") for level in levels]
    points = check_increasing("edges", edges)
    if len(points) < 2:
        raise ValueError(f"edges: expected at least two, got {len(points)}")
    last = len(points) - 2
    return [
        (
            Condition(place, low, high, closed=number == last),
            f"{text_of(low)}≤{name}{'≤' if number == last else '<'}{text_of(high)}",
        )
        for number, (low, high) in enumerate(pairwise(points))
    ]


def check_increasing(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers that increase.

    Raises:
        ValueError: they do not.
    """
    points = vector(name, list(values))
    if (np.diff(points) <= 0.0).any():
        raise ValueError(f"{name}: expected increasing numbers, got {points.tolist()[:6]}")
    return tuple(points.tolist())


def make_rising(counts: Array) -> Array:
    """Return (…, k) that never decrease, between the running maximum and the minimum ahead."""
    # the mean of both is the fit of least largest error, and changes nothing where counts rise
    ahead = np.minimum.accumulate(counts[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(0.5 * (np.maximum.accumulate(counts, axis=-1) + ahead))
