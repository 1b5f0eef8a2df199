"""Bounds that nobody declared: found on a log scale, from noisy weights of its parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtri

from tacit._ground.checks import Array, RandomSource, in_interval, integer
from tacit.design.grid import ROUNDING_VARIANCE
from tacit.guarantees.adjacency import Adjacency
from tacit.statistics.people.keys import UNIT, Whole, weight_of
from tacit.statistics.people.noise import (
    DISCRETE_SLACK,
    PeopleNoise,
    gaussian_noise,
    laplace_noise,
)
from tacit.statistics.people.radius import left_of
from tacit.statistics.people.vectors import PersonMetric

# Sizes below the first power of two are one part around 0, those beyond the last are of the last.
LOWEST, HIGHEST = -20, 63
EDGES = np.exp2(np.arange(LOWEST, HIGHEST))
PARTS = 2 * len(EDGES) + 1
# Share of μ² (or of ε) that all bounds of a query cost, and the chance that some part of a column
# that nobody is in passes.
SHARE, MISTAKE = 0.1, 1e-3
# Noise is drawn on whole weights, which have no other units.
UNITS = PersonMetric(np.ones(1), np.zeros(1, dtype=np.int64), whole=True)


@dataclass(frozen=True)
class RangeSearch:
    """How bounds are found.

    Attributes:
        columns: names of those whose bounds nobody declared.
        share: of μ² (or of ε) that it costs.
        variance: s² of the discrete Gaussian noise on a weight; 0 for the discrete Laplace.
        scale: (numerator, denominator) of b of the discrete Laplace.
        threshold: least noisy weight of a part that is within the bounds.
    """

    columns: tuple[str, ...]
    share: float
    variance: int
    scale: tuple[int, int]
    threshold: int

    def __post_init__(self) -> None:
        in_interval("share", self.share, 0.0, 1.0, open_low=True)
        integer("variance", self.variance, minimum=0, maximum=None)
        integer("threshold", self.threshold, minimum=1, maximum=None)
        for part in self.scale:
            integer("scale", part, minimum=1, maximum=None)

    @staticmethod
    def of(
        columns: Sequence[str], level: float, *, pure: bool, adjacency: Adjacency
    ) -> RangeSearch:
        """Return the search that costs its share of μ, or of ε where ``pure``.

        Args:
            columns: whose bounds are found.
            level: μ, or ε, of the release.
            pure: whether it is ε of discrete Laplace noise.
            adjacency: which tables are neighbours.
        """
        reach, spent = reach_of(len(columns), pure, adjacency), level * SHARE
        if pure:
            noise = laplace_noise(UNITS, reach, spent)
            # P(X >= T) <= e^{−(T − 1)/b}/2 of each part
            least = noise.scale[0] / noise.scale[1] * math.log(PARTS / (2.0 * MISTAKE)) + 1.0
        else:
            noise = gaussian_noise(UNITS, reach, level * math.sqrt(SHARE) * (1.0 - 2.0**-50))
            # P(X >= T) <= Φ(−(T − 1)/s)
            least = -float(ndtri(MISTAKE / PARTS)) * math.sqrt(noise.variance) + 1.0
        return RangeSearch(tuple(columns), SHARE, noise.variance, noise.scale, math.ceil(least))

    @property
    def noise(self) -> PeopleNoise:
        """The noise on every weight."""
        return PeopleNoise(
            UNITS, "gaussian" if self.variance else "laplace", self.variance, self.scale
        )

    def reach(self, adjacency: Adjacency) -> int:
        """Return how far one person moves all weights: a length or a sum of sizes, rounded up."""
        return reach_of(len(self.columns), self.variance == 0, adjacency)

    def left(self, level: float, *, pure: bool) -> float:
        """Return what of μ, or ε, it leaves, rounded down."""
        return left_of(level, self.share, pure=pure)

    def tells(self, level: float, adjacency: Adjacency, *, pure: bool) -> bool:
        """Return whether the weights tell no more than their share, in fractions."""
        reach, share = self.reach(adjacency), Fraction(self.share)
        if pure:
            # reach/b <= share ε
            above, below = self.scale
            allowed = Fraction(level) * share * (1 + Fraction(1, 2**40))
            return self.variance == 0 and reach * below <= allowed * above
        # reach² (1 + slack) <= share μ² (s² − 16)
        spare = self.variance - int(ROUNDING_VARIANCE)
        allowed = Fraction(level) ** 2 * share * (1 + Fraction(1, 2**40))
        return reach**2 * DISCRETE_SLACK <= allowed * spare

    def find(
        self, totals: Sequence[Whole], unit: str, rng: RandomSource
    ) -> list[tuple[float, float]]:
        """Return (lowest, highest) of each column, of the parts whose noisy weight passes.

        Args:
            totals: (``PARTS``,) weights of the parts of each column; secret.
            unit: the word for a person.
            rng: None for the operating system's randomness.

        Raises:
            ValueError: no part of a column passes: too few persons hold something in it.
        """
        noisy = self.noise.release(np.concatenate(totals), rng).reshape(len(totals), PARTS)
        found = []
        for name, row in zip(self.columns, noisy, strict=True):
            passed = np.flatnonzero(row >= self.threshold) - len(EDGES)
            if not len(passed):
                raise ValueError(
                    f"bounds: expected about {self.threshold / UNIT:,.0f} {unit}s or more in one "
                    f"part of the log scale of {name}, as {self.share:.0%} of the budget finds no "
                    "fewer, and none has them: declare its bounds, or allow more; the price of "
                    "the whole answer is spent"
                )
            found.append((ends_of(int(passed[0]))[0], ends_of(int(passed[-1]))[1]))
        return found


def reach_of(columns: int, pure: bool, adjacency: Adjacency) -> int:
    """Return how far one person moves the weights of some columns, whole and rounded up.

    Every column is a vector of length U (or of sizes that sum to U) of no negative entry: squares
    of those of one person and of another in their place add up.
    """
    persons = 2 if adjacency is Adjacency.REPLACE else 1
    if pure:
        return persons * columns * UNIT
    return math.isqrt(persons * columns * UNIT**2 - 1) + 1


def weights_of(pure: bool) -> list[int]:
    """Return the weight of each of 1, 2, … parts of one person: ⌊U/√k⌋, or ⌊U/k⌋ for sizes."""
    return [UNIT // k if pure else weight_of(k) for k in range(1, PARTS + 1)]


def part_of(values: Array) -> Whole:
    """Return the part of each number: 0 around 0, ±k between the (k − 1)th and kth power of two."""
    sizes = np.searchsorted(EDGES, np.abs(values), side="right")
    return np.where(values < 0.0, -sizes, sizes).astype(np.int64)


def ends_of(part: int) -> tuple[float, float]:
    """Return the lowest and the highest number of a part; beyond the last there are larger ones."""
    if part == 0:
        return -float(EDGES[0]), float(EDGES[0])
    low = float(EDGES[abs(part) - 1])
    return (low, 2.0 * low) if part > 0 else (-2.0 * low, -low)


def weigh_parts(values: Array, persons: Any, *, pure: bool) -> Whole:
    """Return the weights (``PARTS``,) of the parts: each person spreads U over theirs.

    Args:
        values: (n,) numbers.
        persons: (n,) places of whose they are.
        pure: whether sizes add up to U, in the place of squares to U².
    """
    pairs = np.unique(np.stack([persons, part_of(values)]).astype(np.int64), axis=1)
    whose = np.unique(pairs[0], return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(whose, minlength=1)
    totals = np.zeros(PARTS, dtype=np.int64)
    np.add.at(totals, pairs[1] + len(EDGES), np.array([0, *weights_of(pure)])[sizes[whose]])
    return totals
