"""Numbers that no sum tells: quantiles of people, each chosen among declared points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.queries.statistic import (
    Bounds,
    Columns,
    SeveralSums,
    SumStatistic,
    text_of,
)
from tacit.statistics.queries.sums import Condition, Term, Totals

# Points over declared bounds among which a quantile is chosen, and ends of its interval: the
# fewer there are of these, the nearer they may be aimed at and still hold the quantile.
POINTS, END_POINTS = 2**24, 2**10


@dataclass(frozen=True)
class ChoicePoints:
    """Numbers among which one is chosen.

    Attributes:
        low: the lowest.
        high: the highest.
        listed: all of them, rising; empty for ``POINTS`` steps from the lowest to the highest.
    """

    low: float
    high: float
    listed: tuple[float, ...] = ()

    @property
    def last(self) -> int:
        """Place of the highest."""
        return len(self.listed) - 1 if self.listed else POINTS

    @property
    def step(self) -> float:
        """How far one point is from the next, where they are not listed; else 0."""
        return 0.0 if self.listed else (self.high / POINTS - self.low / POINTS)

    def places(self, values: Array) -> npt.NDArray[np.int64]:
        """Return for every number the place of the point that stands for it."""
        if self.listed:
            # the first that it does not exceed; beyond the highest the highest
            return np.minimum(np.searchsorted(self.listed, values), self.last).astype(np.int64)
        # clamped first; halves, so that a difference of bounds does not overflow
        inside = np.clip(values, self.low, self.high)
        share = (0.5 * inside - 0.5 * self.low) / (0.5 * self.high - 0.5 * self.low)
        return np.rint(np.clip(share, 0.0, 1.0) * POINTS).astype(np.int64)

    def value(self, place: int) -> float:
        """Return the point of a place."""
        if self.listed:
            return self.listed[place]
        share = place / POINTS
        return min(max(self.low * (1.0 - share) + self.high * share, self.low), self.high)

    @cached_property
    def edges(self) -> Array:
        """Ends of cells, few of them, between which the interval of a quantile lies."""
        if self.listed:
            return np.asarray(self.listed)
        share = np.linspace(0.0, 1.0, END_POINTS + 1)
        return np.asarray(self.low * (1.0 - share) + self.high * share)


@dataclass(frozen=True)
class ChosenQuantiles(SumStatistic):
    """Quantiles of some columns over persons, of whom each weighs one.

    No sum tells of them: as a function of sums they are 0, and what is chosen takes that place.

    Attributes:
        columns: positions.
        labels: names.
        levels: shares of the persons.
        points: among which is chosen, of each column.
        suffix: what stands behind every name.
        conditions: which rows count.
        median: whether it is called so.
    """

    columns: tuple[int, ...]
    labels: tuple[str, ...]
    levels: tuple[float, ...]
    points: tuple[ChoicePoints, ...]
    suffix: str = ""
    conditions: tuple[Condition, ...] = ()
    median: bool = False

    linear = additive = True

    def terms(self) -> tuple[Term, ...]:
        """Return no term."""
        return ()

    def names(self) -> tuple[str, ...]:
        """Return ``q0.5[a]`` for each column and level, ``median[a]`` for a median."""
        words = ["median"] if self.median else [f"q{text_of(level)}" for level in self.levels]
        return tuple(f"{word}[{label}]{self.suffix}" for label in self.labels for word in words)

    def value(self, totals: Totals) -> Array:
        """Return zeros (…, d) in the place of what is chosen."""
        return np.zeros((*totals.sums.shape[:-1], len(self.columns) * len(self.levels)))

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each quantile can be, (d, 2)."""
        ends = [(one.low, one.high) for one in self.points]
        return np.repeat(np.array(ends), len(self.levels), axis=0)

    def within(self, condition: Condition, label: str) -> ChosenQuantiles:
        conditions = tuple(sorted({*self.conditions, condition}))
        return replace(self, conditions=conditions, suffix=f"{self.suffix}{label}")


@dataclass(frozen=True)
class KnownNumber(SumStatistic):
    """A number that is public.

    Attributes:
        label: its name.
        number: what it is.
    """

    label: str
    number: float

    linear = additive = True

    def terms(self) -> tuple[Term, ...]:
        """Return no term."""
        return ()

    def names(self) -> tuple[str, ...]:
        """Return the name."""
        return (self.label,)

    def value(self, totals: Totals) -> Array:
        """Return the number, (…, 1)."""
        return np.full((*totals.sums.shape[:-1], 1), self.number)

    def within(self, condition: Condition, label: str) -> KnownNumber:
        return self


@dataclass(frozen=True)
class AskedQuantile:
    """One quantile that is chosen.

    Attributes:
        place: of its number among those of the query.
        column: position.
        level: share of the persons.
        points: among which is chosen.
        conditions: which rows count.
    """

    place: int
    column: int
    level: float
    points: ChoicePoints
    conditions: tuple[Condition, ...]


def chosen_of(statistic: SumStatistic, start: int = 0) -> Iterator[AskedQuantile]:
    """Yield the quantiles that are chosen among the numbers of a statistic."""
    if isinstance(statistic, SeveralSums):
        for part in statistic.parts:
            yield from chosen_of(part, start)
            start += len(part.names())
    elif isinstance(statistic, ChosenQuantiles):
        for column, points in zip(statistic.columns, statistic.points, strict=True):
            for level in statistic.levels:
                yield AskedQuantile(start, column, level, points, statistic.conditions)
                start += 1


def points_of(columns: Columns, place: int, grid: tuple[float, ...] | None) -> ChoicePoints:
    """Return among which points a quantile of a column is chosen: declared ones.

    Raises:
        ValueError: neither thresholds, nor bounds, nor categories of it were declared.
    """
    bounded = columns.bounds is not None and place in columns.bounds
    levels = (columns.levels or {}).get(place, ())
    if grid is None and levels and not bounded:
        grid = levels
    if grid is not None:
        return ChoicePoints(grid[0], grid[-1], grid)
    return ChoicePoints(*columns.range(place))
