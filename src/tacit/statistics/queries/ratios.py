"""Ratios of sums and counts, with the interval that is right where the divisor is noisy too."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.queries.counts import BoundCounts, Count, Histogram
from tacit.statistics.queries.moments import BoundMoments, Conditions
from tacit.statistics.queries.statistic import (
    ANYTHING,
    NORMAL_95,
    Bounds,
    Columns,
    Statistic,
    SumStatistic,
)
from tacit.statistics.queries.sums import Condition, Term, Totals

Part: TypeAlias = BoundCounts | BoundMoments

# An end that is open: where the divisor may be nothing, the ratio may be anything.
OPEN = 1e100


@dataclass(frozen=True)
class Ratio(Statistic):
    """Sums or counts, each divided by one sum or count.

    Attributes:
        numerator: a sum of columns, or counts.
        denominator: one sum, of a column whose bounds are not below 0, or one count.

    Example:
        >>> from tacit.statistics.queries import Sum
        >>> Ratio(Sum(("spent",)), Sum(("visits",))).bind(Columns(("spent", "visits"))).names()
        ('ratio[spent/visits]',)

    Source: Fieller (1954) for the interval.
    """

    word: ClassVar[str] = "ratio"

    numerator: Statistic
    denominator: Statistic

    def reads(self) -> tuple[str, ...] | None:
        """Return the columns of both."""
        above, below = self.numerator.reads(), self.denominator.reads()
        return None if above is None or below is None else tuple(dict.fromkeys((*above, *below)))

    def bind(self, columns: Columns) -> BoundRatio:
        """Return the ratios of the table's columns.

        Raises:
            ValueError: no such column, what is no sum or count, or a divisor that may be negative.
        """
        above, below = self.numerator.bind(columns), self.denominator.bind(columns)
        for one in (above, below):
            if not isinstance(one, (BoundCounts, BoundMoments)) or not one.additive:
                raise ValueError("query: expected a ratio of sums and counts, got another")
        assert isinstance(above, (BoundCounts, BoundMoments))
        assert isinstance(below, (BoundCounts, BoundMoments))
        divisor = below.names()
        if len(divisor) != 1:
            raise ValueError(f"query: expected a ratio to one number, got {len(divisor)}")
        lowest = 0.0
        if isinstance(below, BoundMoments) and columns.bounds is not None:
            lowest = columns.bounds.get(below.columns[0], (0.0, 0.0))[0]
        if lowest < 0.0:
            raise ValueError(
                f"query: expected a ratio to a sum of numbers whose declared bounds are not below "
                f"0, got {divisor[0]}, which may be nothing"
            )
        told = above.names()
        if isinstance(self.numerator, Histogram) and isinstance(self.denominator, Count):
            # count[city=Bern] of all is share[city=Bern]
            return BoundRatio(
                above, below, tuple(f"share{one.removeprefix('count')}" for one in told)
            )
        plain = [one.removeprefix("sum[").removesuffix("]") for one in (*told, *divisor)]
        return BoundRatio(above, below, tuple(f"ratio[{one}/{plain[-1]}]" for one in plain[:-1]))


def shares(column: str, edges: tuple[float, ...] | None = None) -> Ratio:
    """Return the share of the rows (of persons) that each category of a column has, or each bin.

    Example:
        >>> shares("age", (0, 18, 120)).bind(Columns(("age",))).names()
        ('share[0≤age<18]', 'share[18≤age≤120]')
    """
    return Ratio(Histogram(column, edges), Count())


@dataclass(frozen=True)
class BoundRatio(SumStatistic):
    """Ratios of sums of the columns of one table.

    Attributes:
        above: the numerators.
        below: the divisor.
        labels: a name for each ratio.
        suffix: what stands behind every name.
    """

    above: Part
    below: Part
    labels: tuple[str, ...]
    suffix: str = ""

    def terms(self) -> tuple[Term, ...]:
        return tuple(dict.fromkeys((*self.above.terms(), *self.below.terms())))

    def names(self) -> tuple[str, ...]:
        """Return one name for each ratio."""
        return tuple(label + self.suffix for label in self.labels)

    def within(self, condition: Condition, label: str) -> BoundRatio:
        return replace(
            self,
            above=self.above.within(condition, label),
            below=self.below.within(condition, label),
            suffix=f"{self.suffix}{label}",
        )

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each ratio can be, (d, 2)."""
        return np.array([self._ends(place, bounds) for place in range(len(self.labels))])

    def _ends(self, place: int, bounds: Bounds | None) -> tuple[float, float]:
        """Return what a ratio can be, where both are of the same rows, or fewer above."""
        fewer = set(_rows(self.below, 0)) <= set(_rows(self.above, place))
        a, b = _of_row(self.above, place, bounds), _of_row(self.below, 0, bounds)
        # a person who counts once below may have many rows above
        fewer &= _once(self.above) or not _once(self.below)
        if not fewer or not all(map(math.isfinite, (*a, *b))) or b[0] <= 0.0:
            # signs alone
            return (0.0 if a[0] >= 0.0 else -math.inf, 0.0 if a[1] <= 0.0 else math.inf)
        least = min(a[0] / b[0], a[0] / b[1])
        most = max(a[1] / b[0], a[1] / b[1])
        same = set(_rows(self.below, 0)) == set(_rows(self.above, place))
        same &= _once(self.above) == _once(self.below)
        # where rows of the divisor add nothing above, 0 is in between
        return (least, most) if same else (min(least, 0.0), max(most, 0.0))

    def value(self, totals: Totals) -> Array:
        """Return the ratios, within what they can be."""
        above, below = _straight(self.above, totals), _straight(self.below, totals)
        if totals.bounds is None and isinstance(self.below, BoundMoments):
            divisor = np.where(below == 0.0, 1.0, below)
        else:
            # one row, at its least, or where that is 0 at its most
            least, most = _of_row(self.below, 0, totals.bounds)
            divisor = np.maximum(below, least if least > 0.0 else most)
        ends = self.limits(totals.bounds)
        return np.asarray(np.clip(above / divisor, ends[:, 0], ends[:, 1]))

    def gaps(self, totals: Totals) -> Array:
        """Return numerators, divisor, and their sums, whose variances tell the covariances."""
        above, below = _straight(self.above, totals), _straight(self.below, totals)
        return np.concatenate([below, above, above + below], axis=-1)

    def ends(self, gaps: Array, spreads: Array) -> Array:
        """Return the ends of intervals that hold the ratios in 95% of releases.

        θ is kept where N − θD, which is linear in the noise and 0 but for it, is within 1.96
        deviations of 0: ``(N − θD)² <= z² (v_N − 2θ c + θ² v_D)``, a quadratic in θ. Where D itself
        is within 1.96 deviations of 0 that is no interval, and an end is open.
        """
        count = len(self.labels)
        below, variances = float(gaps[0]), np.square(spreads)
        own, both = variances[1 : 1 + count], variances[1 + count :]
        # Var(N + D) = v_N + v_D + 2c
        shared = (both - own - variances[0]) / 2.0
        # a θ² − 2 b θ + c <= 0
        square, above = NORMAL_95**2, gaps[1 : 1 + count]
        a = below**2 - square * variances[0]
        b, c = above * below - square * shared, above**2 - square * own
        if a <= 0.0:
            return np.tile((-OPEN, OPEN), (count, 1))
        roots = np.sqrt(np.maximum(b * b - a * c, 0.0))
        ends = np.stack([b - roots, b + roots], axis=1) / a
        return np.asarray(np.clip(ends, -OPEN, OPEN))


def _straight(part: Part, totals: Totals) -> Array:
    """Return sums, or counts as the noise has them, negative ones too, (…, d)."""
    # a count's own value is cut at 0
    found: Array = part.value(totals)
    return totals.counts(part.terms()) if isinstance(part, BoundCounts) else found


def _rows(part: Part, place: int) -> Conditions:
    """Return which rows a number is of."""
    return part.cells[place] if isinstance(part, BoundCounts) else part.conditions


def _once(part: Part) -> bool:
    """Return whether all rows of a person count once."""
    return isinstance(part, BoundCounts) and part.once


def _of_row(part: Part, place: int, bounds: Bounds | None) -> tuple[float, float]:
    """Return what one row can add to a number."""
    if isinstance(part, BoundCounts):
        return 1.0, 1.0
    if bounds is None:
        return ANYTHING
    column = part.columns[place]
    return float(bounds[0][column]), float(bounds[1][column])
