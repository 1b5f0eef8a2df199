"""Quantiles and medians of columns: read off noisy cumulative counts, or chosen among points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from tacit._ground.checks import Array, vector
from tacit.statistics.queries.chosen import ChosenQuantiles, points_of
from tacit.statistics.queries.counts import check_increasing, make_rising
from tacit.statistics.queries.statistic import (
    NORMAL_95,
    Bounds,
    Columns,
    Statistic,
    SumStatistic,
    text_of,
)
from tacit.statistics.queries.sums import Condition, Term, Totals, at_most, term

# Thresholds over declared bounds, where the table may not be looked at.
GRID_POINTS = 64
# So many values of the pool are all thresholds.
MOST_THRESHOLDS = 32
# Squares of what lies between two of them stay within double precision.
LARGEST_POINT = 1e100
# Share of a count that its rounding may hide: counts are whole, levels are not.
HAIR = 1e-9
# Share by which a product of a level and a number of rows may be rounded up.
LEVEL_HAIR = 1e-12
# Thresholds around a quantile of the pool, in units of 1/√N: the draw's own is among them.
STEPS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Quantiles(Statistic):
    """Column quantiles: the least value that at least qN of N rows do not exceed.

    As NumPy's ``quantile(..., method="inverted_cdf")``. From noisy sums it is read off cumulative
    counts on a grid: the first threshold whose share reaches q. The interval beside it holds the
    step of the grid. Of persons it is chosen among the thresholds, or 2²⁴ points over the bounds,
    by how far from q their share of the persons is, of whom each weighs one.

    Attributes:
        levels: in [0, 1].
        columns: names; all when None.
        grid: thresholds of every column by name; for a column that is not named, a few around
            the pool's own quantile where the pool may be looked at, else 64 over its bounds.
    """

    word: ClassVar[str] = "quantiles"

    levels: tuple[float, ...] = (0.25, 0.5, 0.75)
    columns: tuple[str, ...] | None = None
    grid: Mapping[str, tuple[float, ...]] | None = None

    def bind(self, columns: Columns) -> BoundQuantiles | ChosenQuantiles:
        """Return the quantiles of the table's columns.

        Raises:
            ValueError: no such column, a level outside [0, 1], or a grid that does not increase.
        """
        levels = vector("levels", list(self.levels))
        if levels.min() < 0.0 or levels.max() > 1.0:
            raise ValueError(f"query: expected quantile levels in [0, 1], got {list(self.levels)}")
        places = columns.positions(self.columns)
        if columns.people:
            return self._chosen(columns, places, levels)
        grids = tuple(self._grid(columns, place, levels) for place in places)
        for grid in grids:
            _check_span(grid)
        labels = tuple(columns.names[place] for place in places)
        steps = tuple(
            _steps(columns, place, grid) for place, grid in zip(places, grids, strict=True)
        )
        blind = columns.rows is None
        return BoundQuantiles(places, labels, tuple(levels.tolist()), grids, steps, blind=blind)

    def _chosen(self, columns: Columns, places: tuple[int, ...], levels: Array) -> ChosenQuantiles:
        """Return the quantiles of persons, each of whom weighs one: chosen, and no sums."""
        points = tuple(points_of(columns, place, self._given(columns, place)) for place in places)
        for one in points:
            _check_span((one.low, one.high))
        labels = tuple(columns.names[place] for place in places)
        return ChosenQuantiles(places, labels, tuple(levels.tolist()), points)

    def _given(self, columns: Columns, place: int) -> tuple[float, ...] | None:
        """Return the thresholds of a column that were asked for."""
        name = columns.names[place]
        if self.grid is None or name not in self.grid:
            return None
        return check_increasing(f"grid of {name}", self.grid[name])

    def _grid(self, columns: Columns, place: int, levels: Array) -> tuple[float, ...]:
        given = self._given(columns, place)
        if given is not None:
            return given
        low, high = columns.range(place)
        if columns.rows is None:
            return tuple(np.linspace(low, high, GRID_POINTS + 1)[1:].tolist())
        # the share of a draw of half the rows is off by about 1/√N: values at q + s/√N
        values = np.sort(columns.rows[:, place])
        steps = np.asarray(STEPS) / math.sqrt(values.size)
        shares = np.clip(np.add.outer(levels, steps), 0.0, 1.0)
        places = np.rint(shares * (values.size - 1)).astype(int)
        # few values, such as whole numbers, are all thresholds: the step is then none
        every = np.unique([v for row in places for v in np.unique(values[row[0] : row[-1] + 1])])
        chosen = np.unique(values[places])
        return tuple((every if every.size <= MOST_THRESHOLDS else chosen).tolist())


@dataclass(frozen=True)
class Median(Statistic):
    """Column medians, as NumPy's: of an even number of rows the mean of the two in the middle.

    From noisy sums it is read off counts as the quantile of ½ is; the interval beside it holds both
    rows in the middle, and so their mean.

    Attributes:
        columns: names; all when None.
        grid: thresholds, as for ``Quantiles``.

    Example:
        >>> Median().bind(Columns(("age",), bounds={0: (0.0, 99.0)})).names()
        ('median[age]',)
    """

    word: ClassVar[str] = "median"

    columns: tuple[str, ...] | None = None
    grid: Mapping[str, tuple[float, ...]] | None = None

    def bind(self, columns: Columns) -> BoundQuantiles | ChosenQuantiles:
        """Return the medians of the table's columns.

        Raises:
            ValueError: no such column, or a grid that does not increase.
        """
        return replace(Quantiles((0.5,), self.columns, self.grid).bind(columns), median=True)


@dataclass(frozen=True)
class BoundQuantiles(SumStatistic):
    """Quantiles of some columns, from noisy sums by counts on grids.

    Attributes:
        columns: positions.
        labels: names.
        levels: shares of the rows.
        grids: thresholds t_1 < … < t_m of each column.
        steps: for each column, the least value that a row beyond t_0 = −∞, t_1, …, t_m can have,
            and the largest of all.
        suffix: what stands behind every name.
        conditions: which rows count.
        median: whether it is the median, that of ½ being another where two rows are in the middle.
        blind: whether the steps end at declared bounds, and not at what rows hold.
    """

    columns: tuple[int, ...]
    labels: tuple[str, ...]
    levels: tuple[float, ...]
    grids: tuple[tuple[float, ...], ...]
    steps: tuple[tuple[float, ...], ...]
    suffix: str = ""
    conditions: tuple[Condition, ...] = ()
    median: bool = False
    blind: bool = False

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each quantile can be, (d, 2): the declared bounds."""
        if not self.blind:
            return super().limits(bounds)
        ends = [(steps[0], steps[-1]) for steps in self.steps]
        return np.repeat(np.array(ends), len(self.levels), axis=0)

    def terms(self) -> tuple[Term, ...]:
        """Return the count and the counts up to every threshold."""
        return (term(self.conditions), *(one for cells in self._cells for one in cells))

    @cached_property
    def _cells(self) -> tuple[tuple[Term, ...], ...]:
        """The counts up to every threshold, column by column."""
        return tuple(
            tuple(term((*self.conditions, at_most(column, point))) for point in grid)
            for column, grid in zip(self.columns, self.grids, strict=True)
        )

    def names(self) -> tuple[str, ...]:
        """Return ``q0.5[a]`` for each column and level, ``median[a]`` for a median."""
        words = ["median"] if self.median else [f"q{text_of(level)}" for level in self.levels]
        return tuple(f"{word}[{label}]{self.suffix}" for label in self.labels for word in words)

    def __call__(self, rows: Array) -> Array:
        """Return the quantiles of some rows themselves, (d,): their values, and not the grid's."""
        if self.conditions:
            return super().__call__(rows)
        if self.median:
            return np.asarray(np.median(rows[:, self.columns], axis=0))
        ordered = np.sort(rows[:, self.columns], axis=0)
        # ⌈qN⌉-th smallest; a product such as .3 · 10 is whole up to a hair
        places = np.ceil(np.multiply(self.levels, len(rows)) * (1.0 - LEVEL_HAIR)).astype(int) - 1
        quantiles: Array = ordered[np.maximum(places, 0)]
        return quantiles.T.ravel()

    def value(self, totals: Totals) -> Array:
        """Return the first thresholds at which the counts, made to rise, reach the levels."""
        count = totals.divisor(self.conditions)[..., None]
        found = []
        for cells, grid in zip(self._cells, self.grids, strict=True):
            counts = make_rising(totals.counts(cells))
            if not totals.smooth:
                # how many thresholds fall short of qN; a noisy last one may too, and is taken
                least = _least(np.asarray(self.levels), count)
                short = counts[..., None, :] < (least - HAIR * count)[..., None]
                places = np.minimum(short.sum(axis=-1), len(grid) - 1)
                found.append(np.asarray(grid)[places])
                continue
            shares = np.clip(counts / count, 0.0, 1.0)
            # a hair of slope, so that a level reached along a flat piece has one answer
            shares = shares + 1e-12 * np.arange(len(grid))
            points = [np.interp(self.levels, one, grid) for one in shares.reshape(-1, len(grid))]
            found.append(np.reshape(points, (*shares.shape[:-1], len(self.levels))))
        return np.concatenate(found, axis=-1)

    def gaps(self, totals: Totals) -> Array:
        """Return ``count(x ≤ t) − q count`` at every threshold of every level and column."""
        count = totals.count(self.conditions)[..., None]
        found = [
            totals.counts(cells) - _least(np.asarray(level), count)
            for cells in self._cells
            for level in self.levels
        ]
        return np.concatenate(found, axis=-1)

    def ends(self, gaps: Array, spreads: Array) -> Array:
        """Return the ends of an interval that holds the quantile in 95% of releases.

        From below: the first threshold at which "the share reaches q" is not refuted. From above:
        the one after the last at which "the share is at most q" is not. Of all tests only those at
        two thresholds of the rows themselves can fail it, each in 2.5%.
        """
        found, start = [], 0
        for grid, steps in zip(self.grids, self.steps, strict=True):
            for _ in self.levels:
                own = slice(start, start + len(grid))
                start = own.stop
                reach = NORMAL_95 * spreads[own] + HAIR * (1.0 + np.abs(gaps[own]))
                # first threshold whose gap may be >= 0; its value is the step before it
                maybe = np.flatnonzero(gaps[own] + reach >= 0.0)
                first = int(maybe[0]) if maybe.size else len(grid)
                # last threshold whose gap may be <= 0; the quantile is at the next one at most
                still = np.flatnonzero(gaps[own] - reach <= 0.0)
                after = int(still[-1]) + 1 if still.size else 0
                high = grid[after] if after < len(grid) else steps[-1]
                found.append((steps[first], max(high, steps[first])))
        return np.array(found)

    def within(self, condition: Condition, label: str) -> BoundQuantiles:
        conditions = tuple(sorted({*self.conditions, condition}))
        return replace(self, conditions=conditions, suffix=f"{self.suffix}{label}")


def _check_span(grid: Sequence[float]) -> None:
    """Refuse thresholds of which squares of differences leave double precision."""
    width = grid[-1] - grid[0]
    if not max(map(abs, grid)) <= LARGEST_POINT or 0.0 < width < 1.0 / LARGEST_POINT:
        raise ValueError(
            f"query: expected quantiles of numbers within ±{LARGEST_POINT:g} that lie "
            f"{1.0 / LARGEST_POINT:g} apart, got others: choose other units"
        )


def _least(levels: Array, count: Array) -> Array:
    """Return how many of N rows a quantile is not exceeded by: qN, or any at all for q = 0."""
    return np.where(levels > 0.0, levels * count, 0.5)


def _steps(columns: Columns, place: int, grid: tuple[float, ...]) -> tuple[float, ...]:
    """Return the least value beyond each of −∞ and the thresholds, and the largest of all.

    Where the pool may be looked at it is one of its values; else the threshold itself.
    """
    low, high = columns.range(place)
    if columns.rows is None:
        return (min(low, grid[0]), *grid, max(high, grid[-1]))
    values = np.sort(columns.rows[:, place])
    beyond = np.searchsorted(values, grid, side="right")
    least = [float(values[at]) if at < values.size else high for at in beyond]
    return (float(values[0]), *least, high)
