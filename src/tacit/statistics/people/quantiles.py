"""Quantiles of people: points that are chosen privately, and intervals that hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit._ground import outlet
from tacit._ground.checks import Array, RandomSource
from tacit.design.choosing import choose, range_of
from tacit.design.grid import Bits, random_bits
from tacit.guarantees.adjacency import Adjacency
from tacit.statistics.people.blocks import Places
from tacit.statistics.people.vectors import Whole
from tacit.statistics.queries.chosen import AskedQuantile
from tacit.statistics.queries.statistic import NORMAL_95

# A person weighs 2¹², in whole parts for the rows; a level is a whole number of 2⁻²⁰. Sums of
# 2²⁶ persons stay below 2⁵⁸.
PERSON, LEVELS = 2**12, 2**20
# What of a quantile's budget its value costs, and each end of its interval.
VALUE_PART, END_PART = 0.8, 0.1
# Each end fails in 2.5% at most.
END_FAILS = 0.025
# A product, a square root and a quotient round by less.
SLACK = 1.0 - 2.0**-48


@dataclass(frozen=True)
class ChoiceRanges:
    """Bounded ranges of the losses of the choices that are made for one quantile.

    Attributes:
        value: of the choice of the value.
        end: of the choice of either end of its interval.
    """

    value: float
    end: float

    @staticmethod
    def of(level: float, share: float, count: int, *, pure: bool) -> ChoiceRanges:
        """Return the ranges of so many quantiles under a share of μ², or of ε, rounded down.

        Squares of μ add, as do ε: every quantile costs ``share/count``, and of that its parts.
        """
        parts = [part * share / count * SLACK for part in (VALUE_PART, END_PART)]
        if pure:
            # a range of ε is ε-differentially private
            value, end = (level * part for part in parts)
        else:
            value, end = (range_of(level * math.sqrt(part) * SLACK) for part in parts)
        return ChoiceRanges(value, end)


def step_of(level: int, adjacency: Adjacency) -> int:
    """Return by how much one person changes a distance in ranks, in whole units.

    A person adds a weight w in [0, 1] below a point and q to the rank aimed at: ``w − q`` lies in
    [−q, 1 − q]; in the place of another the rank stays, and the weight below changes by 1.
    """
    return PERSON * (LEVELS if adjacency is Adjacency.REPLACE else max(level, LEVELS - level))


class Weighed(Protocol):
    """Numbers of persons, each of whom weighs ``PERSON``; secret."""

    def weights(self, asked: AskedQuantile) -> tuple[Places, Whole]:
        """Return places of points, and what persons weigh there; a place may come again."""


@dataclass(frozen=True, eq=False)
class QuantileChooser:
    """The quantiles of a query, and the table that they are of.

    Attributes:
        asked: quantiles.
        ranges: what the choices of each tell.
        adjacency: which tables are neighbours.
        weighed: what the persons weigh, wherever their rows are; secret.
    """

    asked: tuple[AskedQuantile, ...]
    ranges: ChoiceRanges
    adjacency: Adjacency
    weighed: Weighed = field(repr=False)

    def read(self) -> None:
        """Ask for all that the draw needs, so that it cannot fail for want of it.

        Raises:
            ValueError: the engine that has the rows refuses.
        """
        for one in self.asked:
            self.weighed.weights(one)

    @property
    def places(self) -> list[int]:
        """Where the numbers stand among those of the query."""
        return [one.place for one in self.asked]

    def expected(self, persons: int) -> Array:
        """Return errors (m,) where so many persons are spread evenly over the points."""
        spans = [one.points.high - one.points.low for one in self.asked]
        away = [self._margin(one) / (PERSON * LEVELS) / persons for one in self.asked]
        cells = [1.0 / (len(one.points.edges) - 1 or 1) for one in self.asked]
        reach = np.minimum(np.add(away, cells), 1.0)
        return np.asarray(np.multiply(spans, reach) / NORMAL_95)

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Return what is chosen and its errors, (m,) each."""
        bits = random_bits(rng)
        drawn = np.array([self._one(one, bits) for one in self.asked])
        # the one place where what was chosen from the table leaves
        values, lows, highs = np.array(outlet.let_out(drawn)).T
        # the interval ± 1.96 errors holds both ends
        return values, np.maximum(np.maximum(values - lows, highs - values), 0.0) / NORMAL_95

    def _one(self, asked: AskedQuantile, bits: Bits) -> tuple[float, float, float]:
        """Return a value and both ends."""
        places, weights = self.weighed.weights(asked)
        fine = Ranks.of(places, weights, asked.points.last)
        level = round(asked.level * LEVELS)
        target, step = level * fine.whole, step_of(level, self.adjacency)
        rate = Fraction(self.ranges.value) / (2 * step)
        value = asked.points.value(fine.choose(target, rate, bits))
        # cells (e_(k−1), e_k] of the few edges, 0 for what is not above the first
        edges = asked.points.edges
        last = len(edges) - 1
        coarse = Ranks.of(-(-places // (asked.points.last // max(last, 1) or 1)), weights, last)
        margin, rate = self._margin(asked), Fraction(self.ranges.end) / (2 * step)
        low = coarse.choose(target - margin, rate, bits, beyond=True)
        high = coarse.choose(target + margin, rate, bits, beyond=True)
        # a number lies half a step from the point that stands for it, at most
        half = asked.points.step / 2.0
        below, above = edges[min(max(low - 1, 0), last)], edges[min(max(high, 0), last)]
        return value, float(below) - half, float(above) + half

    def _margin(self, asked: AskedQuantile) -> int:
        """Return how far from the quantile's rank an end is aimed at, so that it holds it.

        A cell on the far side of the quantile has a chance of e^{−rate margin} of the best's at
        most: all c of them together ``c e^{−rate margin} = 2.5%``, whatever the table holds.
        """
        cells, level = len(asked.points.edges) + 2, round(asked.level * LEVELS)
        rate = self.ranges.end / (2.0 * step_of(level, self.adjacency))
        return math.ceil(math.log(cells / END_FAILS) / rate)


@dataclass(frozen=True, eq=False)
class WeighedRows:
    """Persons whose rows are in memory.

    Attributes:
        rows: (n, p) the table; secret.
        persons: (n,) place of the person of every row.
    """

    rows: Array = field(repr=False)
    persons: Places = field(repr=False)

    def weights(self, asked: AskedQuantile) -> tuple[Places, Whole]:
        """Return the place of the point of every row that is asked about, and its weight."""
        held = np.ones(len(self.rows), dtype=bool)
        for condition in asked.conditions:
            held &= condition.holds(self.rows)
        values = self.rows[held, asked.column]
        return asked.points.places(values), person_weights(values, self.persons[held])


def person_weights(values: Array, persons: Places) -> npt.NDArray[np.int64]:
    """Return the weight (n,) of every row: those of one person sum to ``PERSON``.

    The j-th smallest of a person's m numbers has ``⌊jW/m⌋ − ⌊(j − 1)W/m⌋``: up to it the person
    weighs a whole number of at most W.
    """
    order = np.lexsort((values, persons))
    names = persons[order]
    first = np.flatnonzero(np.diff(names, prepend=-1))
    sizes = np.diff(np.append(first, len(names)))
    rank = np.arange(len(names)) - np.repeat(first, sizes)
    size = np.repeat(sizes, sizes)
    weights = np.zeros(len(names), dtype=np.int64)
    weights[order] = (rank + 1) * PERSON // size - rank * PERSON // size
    return weights


@dataclass(frozen=True, eq=False)
class Ranks:
    """What weighs below each of the places 0 … last, stretch by stretch.

    Attributes:
        places: of numbers, rising.
        summed: weight up to each of them.
        last: the last place that there is.
    """

    places: npt.NDArray[np.int64]
    summed: npt.NDArray[np.int64]
    last: int

    @staticmethod
    def of(places: Any, weights: npt.NDArray[np.int64], last: int) -> Ranks:
        """Return the ranks of numbers of some weights, equal ones together."""
        unique, inverse = np.unique(places, return_inverse=True)
        total = np.zeros(len(unique), dtype=np.int64)
        np.add.at(total, inverse.reshape(-1), weights)
        return Ranks(unique.astype(np.int64), np.cumsum(total), last)

    @property
    def whole(self) -> int:
        """Weight of all."""
        return int(self.summed[-1]) if len(self.summed) else 0

    def choose(self, target: int, rate: Fraction, bits: Bits, *, beyond: bool = False) -> int:
        """Choose a place near a rank, in units of ``PERSON · LEVELS``.

        A place between whose weight below and up to it the rank lies is 0 away from it, another
        as much as it falls short or beyond: ``max(0, below − r, r − upto)``.

        Args:
            target: r.
            rate: of the exponential mechanism, for a unit.
            bits: source of random integers.
            beyond: whether −1 and last + 1 are places too, below and above everything.
        """
        starts, sizes, below, upto = self._stretches()
        gaps = [
            max(0, low * LEVELS - target, target - high * LEVELS)
            for low, high in zip(below, upto, strict=True)
        ]
        if beyond:
            starts, sizes = [-1, *starts, self.last + 1], [1, *sizes, 1]
            gaps = [max(0, target), *gaps, max(0, self.whole * LEVELS - target)]
        place = choose(gaps, sizes, rate, bits)
        return starts[place] + bits.randrange(sizes[place])

    def _stretches(self) -> tuple[list[int], list[int], Sequence[int], Sequence[int]]:
        """Return starts and sizes of stretches of equal places, weights below and up to them."""
        # a number's own place, and the empty ones before the next
        before = np.concatenate([[-1], self.places])
        after = np.concatenate([self.places, [self.last + 1]])
        sums = np.concatenate([[0], self.summed])
        empty = after - before - 1
        starts = np.concatenate([before + 1, self.places])
        sizes = np.concatenate([empty, np.ones(len(self.places), dtype=np.int64)])
        below = np.concatenate([sums, sums[:-1]])
        upto = np.concatenate([sums, self.summed])
        kept = sizes > 0
        some = (starts[kept], sizes[kept], below[kept], upto[kept])
        first, size, low, high = (one.astype(np.int64).tolist() for one in some)
        return first, size, low, high
