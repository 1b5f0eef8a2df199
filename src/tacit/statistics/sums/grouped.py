"""Any statistic of sums, of each group of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.sums.counts import bins
from tacit.statistics.sums.statistic import Bounds, BoundStatistic, Columns, Statistic
from tacit.statistics.sums.terms import Condition, Term
from tacit.statistics.sums.totals import Totals


@dataclass(frozen=True)
class GroupBy(Statistic):
    """A statistic of the rows of each category of a column, or of each of its bins.

    Attributes:
        statistic: what is computed in each group.
        column: name of the column.
        edges: edges of bins, as for ``Histogram``; None for one group for each category.
    """

    statistic: Statistic
    column: str
    edges: Sequence[float] | None = None

    def reads(self) -> tuple[str, ...] | None:
        """Return the columns of the statistic and that of the groups."""
        inner = self.statistic.reads()
        return None if inner is None else tuple(dict.fromkeys((*inner, self.column)))

    def bound(self, columns: Columns) -> Several:
        """Return the statistic of every group, one after the other.

        Raises:
            ValueError: no such column, or edges that do not increase.
        """
        place = columns.position(self.column)
        inner = self.statistic.bound(replace(columns, grouped=(*columns.grouped, place)))
        cells = bins(columns, self.column, self.edges)
        return Several(tuple(inner.within(cell, f"|{label}") for cell, label in cells))


@dataclass(frozen=True)
class Several(BoundStatistic):
    """Statistics one after the other."""

    parts: tuple[BoundStatistic, ...]

    @property
    def linear(self) -> bool:  # type: ignore[override]
        """Whether all are."""
        return all(part.linear for part in self.parts)

    def terms(self) -> tuple[Term, ...]:
        """Return the terms of all, each once."""
        return tuple(dict.fromkeys(one for part in self.parts for one in part.terms()))

    def names(self) -> tuple[str, ...]:
        """Return the names of all."""
        return tuple(name for part in self.parts for name in part.names())

    def value(self, totals: Totals) -> Array:
        """Return the numbers of all."""
        return np.concatenate([part.value(totals) for part in self.parts], axis=-1)

    @property
    def rounded(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers are rounded to whole ones when they are told, (d,)."""
        return np.concatenate([part.rounded for part in self.parts])

    def limits(self, bounds: Bounds | None) -> Array:
        """Return the (lowest, highest) that each number can be, (d, 2)."""
        return np.concatenate([part.limits(bounds) for part in self.parts])

    @property
    def linear_numbers(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers are linear in the sums, (d,)."""
        return np.concatenate([part.linear_numbers for part in self.parts])

    @property
    def additive_numbers(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers add up over tables, (d,)."""
        return np.concatenate([part.additive_numbers for part in self.parts])

    def possible(self, totals: Totals, scales: Array) -> Array:
        """Return sums near those given that are possible for all."""
        for part in self.parts:
            totals = replace(totals, sums=part.possible(totals, scales))
        return totals.sums

    def gaps(self, totals: Totals) -> Array:
        """Return those of all."""
        return np.concatenate([part.gaps(totals) for part in self.parts], axis=-1)

    def ends(self, gaps: Array, spreads: Array) -> Array:
        """Return those of all."""
        empty = Totals({one: place for place, one in enumerate(self.terms())},
                       np.zeros(len(self.terms())), np.zeros(0), 0.0)  # fmt: skip
        counts = [part.gaps(empty).shape[-1] for part in self.parts]
        cuts = np.cumsum(counts)[:-1]
        return np.concatenate([
            part.ends(own, wide)
            for part, own, wide in zip(
                self.parts, np.split(gaps, cuts), np.split(spreads, cuts), strict=True
            )
        ])  # fmt: skip

    def within(self, condition: Condition, label: str) -> Several:
        """Return all of the rows that meet a condition."""
        return Several(tuple(part.within(condition, label) for part in self.parts))
