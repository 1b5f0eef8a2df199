"""What may be asked of a table: values in words of its columns, and the same of one table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.frozen import FrozenMapping, array_value
from tacit.statistics.queries.sums import Condition, Term, Totals, row_values

# More categories than this are numbers, and named by the edges of bins.
MOST_LEVELS = 1000
ANYTHING, NOT_NEGATIVE = (-np.inf, np.inf), (0.0, np.inf)
# Quantile of the normal law beyond which, on both sides, lie 5%.
NORMAL_95 = 1.959963984540054
# Standard deviation of what is lost to whole numbers: uniform on an interval of length 1.
ROUNDING = 12.0**-0.5

Bounds: TypeAlias = tuple[Array, Array]
Flags: TypeAlias = npt.NDArray[np.bool_]
RowFunction: TypeAlias = Callable[[Array], Any]


@array_value()
class Columns:
    """The columns of a table, and what is known of them before anything is drawn.

    Attributes:
        names: p names.
        rows: the pool where it may be looked at; None where only declared bounds may be.
        bounds: (lowest, highest) of columns by position, where declared.
        levels: categories of columns by position, where declared.
        words: what the codes 0, 1, … of columns stand for, by position.
        grouped: positions of columns that rows are grouped by, which "all columns" leaves out.
        people: whether counts are of persons, who may have several rows each.
    """

    names: tuple[str, ...]
    rows: Array | None = None
    bounds: Mapping[int, tuple[float, float]] | None = None
    levels: Mapping[int, tuple[float, ...]] | None = None
    words: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    grouped: tuple[int, ...] = ()
    people: bool = False

    def label(self, column: int, level: float) -> str:
        """Return a category of a column as it stands in a name: its word, where it is a code."""
        words = self.words.get(column, ())
        if float(level).is_integer() and 0 <= level < len(words):
            return words[int(level)]
        return text_of(level)

    def positions(self, chosen: Sequence[str] | str | None) -> tuple[int, ...]:
        """Return where the named columns stand; all that rows are not grouped by where None.

        Of a table that is hidden, what has categories and no bounds groups rows, and is no number.
        """
        if chosen is None:
            places = range(len(self.names))
            left = tuple(place for place in places if not self._groups(place))
            if not left:
                raise ValueError(
                    "query: expected a column beside those that rows are grouped by, got none"
                )
            return left
        listed = (chosen,) if isinstance(chosen, str) else chosen
        return tuple(self.position(name) for name in listed)

    def _groups(self, place: int) -> bool:
        declared = self.rows is None and place in (self.levels or {})
        return place in self.grouped or (declared and place not in (self.bounds or {}))

    def position(self, name: str, argument: str = "query") -> int:
        """Return where a column stands.

        Raises:
            ValueError: there is none of that name; the message names the argument.
        """
        if name not in self.names:
            known = ", ".join(self.names)
            raise ValueError(f"{argument}: expected a column of the table ({known}), got {name!r}")
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
                f"looking at the table ({self.names[column]}=A,B), got none"
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


@dataclass(frozen=True)
class Statistic(ABC):
    """Numbers of the rows of a table.

    A frozen value says what it is in words of column names; ``bind`` gives it the table.
    """

    word: ClassVar[str]

    def __post_init__(self) -> None:
        # what is asked is the value's own: nobody changes it afterwards
        for one in fields(self):
            object.__setattr__(self, one.name, _own(getattr(self, one.name)))

    def reads(self) -> tuple[str, ...] | None:
        """Return the names of the columns that it reads; None for all that there are."""
        named: tuple[str, ...] | str | None = getattr(self, "columns", None)
        return (named,) if isinstance(named, str) else named

    @abstractmethod
    def bind(self, columns: Columns) -> BoundStatistic:
        """Return the statistic of these columns.

        Raises:
            ValueError: a column that is not there, or categories that are not known.
        """


def _own(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenMapping({key: _own(entry) for key, entry in value.items()})
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return tuple(value) if isinstance(value, list) else value


class BoundStatistic(ABC):
    """A statistic of the columns of one table."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return one name for each number."""

    @abstractmethod
    def __call__(self, rows: Array) -> Array:
        """Return the numbers of some rows themselves, (d,)."""


class SumStatistic(BoundStatistic):
    """Numbers of the columns of one table that follow from sums over its rows."""

    #: whether its numbers are linear in the sums
    linear: bool = False
    #: whether they are, however many rows there are: counts and sums, which add up over tables
    additive: bool = False

    @abstractmethod
    def terms(self) -> tuple[Term, ...]:
        """Return the terms whose sums it needs."""

    @abstractmethod
    def value(self, totals: Totals) -> Array:
        """Return the numbers, projected on what is possible."""

    @abstractmethod
    def within(self, condition: Condition, label: str) -> SumStatistic:
        """Return the same statistic of the rows that meet a condition, and its names with it."""

    def __call__(self, rows: Array) -> Array:
        """Return the numbers of some rows themselves, (d,), from their sums about their means."""
        terms, centres = self.terms(), rows.mean(axis=0)
        places = {one: place for place, one in enumerate(terms)}
        sums = row_values(terms, rows, centres).sum(axis=0)
        return self.value(Totals(places, sums, centres, float(len(rows))))

    @property
    def linear_numbers(self) -> Flags:
        """Which of the numbers are linear in the sums, (d,)."""
        return np.full(len(self.names()), self.linear)

    @property
    def additive_numbers(self) -> Flags:
        """Which of the numbers add up over tables, (d,)."""
        return np.full(len(self.names()), self.additive)

    @property
    def whole_numbers(self) -> Flags:
        """Which of the numbers are rounded to whole ones when they are published, (d,)."""
        return np.zeros(len(self.names()), dtype=bool)

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each number can be, (d, 2), infinite where it is open.

        Args:
            bounds: (lowest, highest) of the columns where declared, (p,) each.
        """
        return np.tile(ANYTHING, (len(self.names()), 1))

    def possible(self, totals: Totals, scales: Array) -> Array:
        """Return sums (…, k) near those given which rows can have; the same where that is open.

        Args:
            totals: noisy sums.
            scales: (k,) standard deviations of their noise.
        """
        return totals.sums

    def gaps(self, totals: Totals) -> Array:
        """Return linear functions of the sums by whose tests intervals are found, (…, g)."""
        return np.zeros((*totals.sums.shape[:-1], 0))

    def ends(self, gaps: Array, spreads: Array) -> Array:
        """Return the (lowest, highest) that each number of the rows surely is, (d, 2), or NaN.

        Args:
            gaps: (g,) from noisy sums.
            spreads: (g,) standard deviations of their noise.
        """
        return np.full((len(self.names()), 2), np.nan)


@dataclass(frozen=True)
class Several(BoundStatistic):
    """Statistics one after the other, of which some do not add up."""

    parts: tuple[BoundStatistic, ...]

    def names(self) -> tuple[str, ...]:
        """Return the names of all."""
        return tuple(name for part in self.parts for name in part.names())

    def __call__(self, rows: Array) -> Array:
        """Return the numbers of all."""
        return np.concatenate([part(rows) for part in self.parts])


@dataclass(frozen=True)
class SeveralSums(Several, SumStatistic):
    """Statistics of sums one after the other."""

    parts: tuple[SumStatistic, ...]

    @property
    def linear(self) -> bool:  # type: ignore[override]
        """Whether all are."""
        return all(part.linear for part in self.parts)

    def terms(self) -> tuple[Term, ...]:
        return tuple(dict.fromkeys(one for part in self.parts for one in part.terms()))

    def value(self, totals: Totals) -> Array:
        return np.concatenate([part.value(totals) for part in self.parts], axis=-1)

    @property
    def whole_numbers(self) -> Flags:
        return np.concatenate([part.whole_numbers for part in self.parts])

    def limits(self, bounds: Bounds | None) -> Array:
        return np.concatenate([part.limits(bounds) for part in self.parts])

    @property
    def linear_numbers(self) -> Flags:
        return np.concatenate([part.linear_numbers for part in self.parts])

    @property
    def additive_numbers(self) -> Flags:
        return np.concatenate([part.additive_numbers for part in self.parts])

    def possible(self, totals: Totals, scales: Array) -> Array:
        """Return sums near those given that are possible for all."""
        for part in self.parts:
            totals = replace(totals, sums=part.possible(totals, scales))
        return totals.sums

    def gaps(self, totals: Totals) -> Array:
        return np.concatenate([part.gaps(totals) for part in self.parts], axis=-1)

    def ends(self, gaps: Array, spreads: Array) -> Array:
        # how many gaps each part has, from sums of zeros
        terms = self.terms()
        places = {one: place for place, one in enumerate(terms)}
        width = 1 + max((column for one in terms for column in one.factors), default=0)
        empty = Totals(places, np.zeros(len(terms)), np.zeros(width), 0.0)
        cuts = np.cumsum([part.gaps(empty).shape[-1] for part in self.parts])[:-1]
        pieces = zip(self.parts, np.split(gaps, cuts), np.split(spreads, cuts), strict=True)
        return np.concatenate([part.ends(own, wide) for part, own, wide in pieces])

    def within(self, condition: Condition, label: str) -> SeveralSums:
        return SeveralSums(tuple(part.within(condition, label) for part in self.parts))


@dataclass(frozen=True)
class Query:
    """What is computed of rows, with a name for every number.

    Attributes:
        function: takes (n, p) rows of the pool, returns a number or an array of numbers, the same
            ones for the same rows; or a name or a statistic whose numbers get other names.
        names: one label per number returned, or None to have them numbered.
        description: what the function is, in a few words.
        imported: whether the function was named as ``module:function``.

    Example:
        >>> Query(np.ptp, ("range",), "the range").names
        ('range',)
    """

    function: Any
    names: tuple[str, ...] | None = None
    description: str = ""
    imported: bool = False

    def __call__(self, rows: Array) -> Any:
        """Return the numbers of some rows."""
        return self.function(rows)

    def labels(self, size: int) -> tuple[str, ...]:
        """Return the labels of the d numbers that it returned: its names, or ``y0`` ….

        Raises:
            ValueError: it has another number of names.
        """
        if self.names is None:
            return tuple(f"y{index}" for index in range(size))
        if len(self.names) != size:
            raise ValueError(
                f"names: expected {size} labels, one per output, got {len(self.names)}"
            )
        return self.names


@dataclass(frozen=True, eq=False)
class SumQuery(Query):
    """Statistics of the columns of one table, as one function of sums over rows.

    Attributes:
        function: the statistics, bound to the columns.
        asked: the statistics, in words of column names.
        width: p, columns of the table.
    """

    function: SeveralSums = field(repr=False)
    names: tuple[str, ...]
    asked: tuple[Statistic, ...] = ()
    width: int = 0

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The k terms that rows add, each once."""
        return self.function.terms()

    @cached_property
    def linear(self) -> bool:
        """Whether the numbers are linear in the sums when the number of rows is known."""
        return self.function.linear

    @cached_property
    def linear_numbers(self) -> Flags:
        """Which of the numbers are, (d,)."""
        return self.function.linear_numbers

    @cached_property
    def additive_numbers(self) -> Flags:
        """Which of the numbers are counts and sums, which add up over tables, (d,)."""
        return self.function.additive_numbers

    @property
    def counting(self) -> bool:
        """Whether rows add zeros and ones only."""
        return all(not one.factors for one in self.terms)

    @cached_property
    def _places(self) -> dict[Term, int]:
        return {one: place for place, one in enumerate(self.terms)}

    def row_values(self, rows: Array, centres: Array) -> Array:
        """Return what every row adds, (n, k)."""
        return row_values(self.terms, rows, centres)

    def finish(
        self,
        sums: Array,
        centres: Array,
        drawn: float | None,
        *,
        bounds: Bounds | None = None,
        smooth: bool = False,
    ) -> Array:
        """Return the numbers (…, d) that follow from the sums (…, k): post-processing.

        Args:
            sums: over the rows drawn, noisy or not.
            centres: (p,) what was taken from the columns.
            drawn: number of rows, None where the noisy count stands for it.
            bounds: declared (lowest, highest) of the columns, (p,) each, that means stay within.
            smooth: read numbers that jump with the sums between the jumps.
        """
        return self.function.value(Totals(self._places, sums, centres, drawn, bounds, smooth))

    def round_whole(self, numbers: Array) -> Array:
        """Return numbers (…, d) as they are published: whole where that was asked for."""
        return np.where(self.function.whole_numbers, np.rint(numbers), numbers)

    def widen_whole(self, errors: Array) -> Array:
        """Return errors (d,) of the numbers as published: rounding adds a variance of 1/12."""
        widened = self.function.whole_numbers & (errors > 0.0)
        return np.where(widened, np.hypot(errors, ROUNDING), errors)

    def limits(self, bounds: Bounds | None = None) -> Array:
        """Return the (lowest, highest) that each number can be, (d, 2), as ``SumStatistic``."""
        return self.function.limits(bounds)

    def bracket(
        self,
        errors: Array,
        sums: Array,
        centres: Array,
        drawn: float | None,
        covariance: Array,
        restore: Callable[[Array], Array] = np.asarray,
        *,
        bounds: Bounds | None = None,
    ) -> Array:
        """Return errors (d,) of which ±1.96 hold the number of the rows in 95% of releases.

        Those of numbers that jump with the sums, such as quantiles, are found from the noisy sums
        by tests at the jumps, each against the noise of its own gap, and hold the step of the grid,
        those of ratios by tests of each value; others stay.

        Args:
            errors: (d,) of all numbers.
            sums: (k,) noisy.
            centres: as for ``finish``.
            drawn: as there.
            covariance: (k, k) of their noise.
            restore: the sums of the terms from those that noise is added to; linear.
            bounds: as for ``finish``.
        """

        def gaps(some: Array) -> Array:
            return self.function.gaps(Totals(self._places, restore(some), centres, drawn))

        found = gaps(sums)
        if not found.size:
            return errors
        # the gaps are affine in the sums: J from unit vectors, variances diag(J Σ Jᵀ)
        jacobian = gaps(np.eye(len(sums))) - gaps(np.zeros(len(sums)))
        variances = np.einsum("kg,kl,lg->g", jacobian, covariance, jacobian, optimize=True)
        ends = self.function.ends(found, np.sqrt(np.maximum(variances, 0.0)))
        # the farther end from the number as it is published, as if it were 1.96 deviations away
        numbers = self.round_whole(self.finish(restore(sums), centres, drawn, bounds=bounds))
        reach = np.maximum(numbers - ends[:, 0], ends[:, 1] - numbers)
        return np.where(np.isnan(reach), errors, np.maximum(reach, 0.0) / NORMAL_95)

    def possible(self, sums: Array, centres: Array, drawn: float | None, scales: Array) -> Array:
        """Return sums (…, k) near those given which rows can have, as far as numbers tell.

        Args:
            sums: (…, k), noisy.
            centres: (p,) what was taken from the columns.
            drawn: as for ``finish``.
            scales: (k,) standard deviations of the noise.
        """
        return self.function.possible(Totals(self._places, sums, centres, drawn), scales)


def text_of(value: float) -> str:
    """Return a category or an edge as it stands in a name."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
