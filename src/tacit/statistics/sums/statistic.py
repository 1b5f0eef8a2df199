"""What every statistic of sums can do: name its terms, its numbers, and compute them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.sums.terms import Condition, Term
from tacit.statistics.sums.totals import Totals

MOST_LEVELS = 1000
ANYTHING, NOT_NEGATIVE = (-np.inf, np.inf), (0.0, np.inf)

Bounds: TypeAlias = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table, and what is known of them before anything is drawn.

    Attributes:
        names: p names.
        rows: the pool where it may be looked at; None where only declared bounds may be.
        bounds: (lowest, highest) of columns by position, where declared.
        levels: categories of columns by position, where declared.
        words: what the codes 0, 1, … of columns stand for, by position.
        grouped: positions of columns that rows are grouped by, which "all columns" leaves out.
    """

    names: tuple[str, ...]
    rows: Array | None = None
    bounds: Mapping[int, tuple[float, float]] | None = None
    levels: Mapping[int, tuple[float, ...]] | None = None
    words: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    grouped: tuple[int, ...] = ()

    def told(self, column: int, level: float) -> str:
        """Return a category of a column as it stands in a name: its word, where it is a code."""
        words = self.words.get(column, ())
        if float(level).is_integer() and 0 <= level < len(words):
            return words[int(level)]
        return text_of(level)

    def positions(self, chosen: Sequence[str] | None) -> tuple[int, ...]:
        """Return where the named columns stand; all that rows are not grouped by where None."""
        if chosen is None:
            places = range(len(self.names))
            left = tuple(place for place in places if place not in self.grouped)
            if not left:
                raise ValueError(
                    "query: expected a column beside those that rows are grouped by, got none"
                )
            return left
        return tuple(self.position(name) for name in chosen)

    def position(self, name: str) -> int:
        """Return where a column stands.

        Raises:
            ValueError: there is none of that name.
        """
        if name not in self.names:
            known = ", ".join(self.names)
            raise ValueError(f"query: expected a column of the table ({known}), got {name!r}")
        return self.names.index(name)

    def categories(self, column: int) -> tuple[float, ...]:
        """Return the declared categories of a column, else those of the pool.

        Raises:
            ValueError: neither may be looked at, or there are too many.
        """
        if self.levels is not None and column in self.levels:
            return self.levels[column]
        if self.rows is None:
            raise ValueError(
                f"levels: expected the categories of {self.names[column]!r}, declared without "
                "looking at the table, got none"
            )
        found = np.unique(self.rows[:, column])
        if found.size > MOST_LEVELS:
            raise ValueError(
                f"query: expected at most {MOST_LEVELS} categories in {self.names[column]!r}, "
                f"got {found.size}; name the edges of bins instead"
            )
        return tuple(found.tolist())

    def range(self, column: int) -> tuple[float, float]:
        """Return the declared bounds of a column, else the range of the pool.

        Raises:
            ValueError: neither may be looked at.
        """
        if self.bounds is not None and column in self.bounds:
            return self.bounds[column]
        if self.rows is None:
            raise ValueError(
                f"bounds: expected (lowest, highest) of {self.names[column]!r}, got none"
            )
        values = self.rows[:, column]
        return float(values.min()), float(values.max())


class Statistic(ABC):
    """Numbers that follow from sums over rows.

    A frozen value says what it is in words of column names; ``bound`` gives it the table.
    """

    def reads(self) -> tuple[str, ...] | None:
        """Return the names of the columns that it reads; None for all that there are."""
        return None

    @abstractmethod
    def bound(self, columns: Columns) -> BoundStatistic:
        """Return the statistic of these columns.

        Raises:
            ValueError: a column that is not there, or categories that are not known.
        """


class BoundStatistic(ABC):
    """A statistic of the columns of one table."""

    #: whether its numbers are linear in the sums
    linear: bool = False
    #: whether they are, however many rows there are: counts and sums, which add up over tables
    additive: bool = False

    @abstractmethod
    def terms(self) -> tuple[Term, ...]:
        """Return the terms whose sums it needs."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return one name for each number."""

    @abstractmethod
    def value(self, totals: Totals) -> Array:
        """Return the numbers, projected on what is possible."""

    @property
    def linear_numbers(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers are linear in the sums, (d,)."""
        return np.full(len(self.names()), self.linear)

    @property
    def additive_numbers(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers add up over tables, (d,)."""
        return np.full(len(self.names()), self.additive)

    @property
    def rounded(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers are rounded to whole ones when they are told, (d,)."""
        return np.zeros(len(self.names()), dtype=bool)

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each number can be, (d, 2), infinite where it is open.

        Args:
            bounds: (lowest, highest) of the columns where declared, (p,) each.
        """
        del bounds
        return np.tile(ANYTHING, (len(self.names()), 1))

    def possible(self, totals: Totals, scales: Array) -> Array:
        """Return sums (…, k) near those given which rows can have; the same where that is open.

        Args:
            totals: noisy sums.
            scales: (k,) standard deviations of their noise.
        """
        del scales
        return totals.sums

    def gaps(self, totals: Totals) -> Array:
        """Return the linear functions of the sums whose signs decide the numbers, (…, g)."""
        return np.zeros((*totals.sums.shape[:-1], 0))

    def ends(self, gaps: Array, spreads: Array) -> Array:
        """Return the (lowest, highest) that each number of the rows surely is, (d, 2), or NaN.

        Args:
            gaps: (g,) from noisy sums.
            spreads: (g,) standard deviations of their noise.
        """
        del gaps, spreads
        return np.full((len(self.names()), 2), np.nan)

    @abstractmethod
    def within(self, condition: Condition, label: str) -> BoundStatistic:
        """Return the same statistic of the rows that meet a condition, and its names with it."""


def text_of(value: float) -> str:
    """Return a category or an edge as it stands in a name."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def listed(value: Any) -> tuple[str, ...] | None:
    """Return column names as a tuple; None stays."""
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)
