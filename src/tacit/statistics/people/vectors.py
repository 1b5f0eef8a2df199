"""What every person adds to the sums, as one vector of whole numbers, and its clip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.statistics.bounded.contributions import Contributions

# Coordinates are whole multiples of 2⁻¹⁶ of a row: of 2¹⁴ rows, the longest clip, squares are
# sums of 64-bit integers.
GRID_BITS = 16
# Rows that are worked on at a time: a few megabytes.
ROWS_TOGETHER = 2**16
# More than a product and a quotient round; the length has its own slack.
CLIP_SLACK = 1.0 - 2.0**-48
# Added to the number of coordinates: roundings of a root and of a product.
LENGTH_UNITS = 4
# Coordinates beyond it are cut, which is far above every radius and below what squares hold.
LARGEST_COORDINATE = 2.0**62

Whole: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = npt.NDArray[np.intp]


def person_sums(added: Contributions, rows: Array, persons: Places) -> Array:
    """Return what the rows of every person add together, (P, k), exactly, in units of the grid.

    Args:
        added: what a row can add.
        rows: (n, p) the table.
        persons: (n,) place of the person of every row, all of 0 … P − 1.
    """
    count = int(persons.max(initial=-1)) + 1
    sums = np.zeros((count, len(added.query.terms)))
    once = np.array([one.once for one in added.query.terms])
    # rows of a person side by side, so that a piece of the rows is summed person by person
    order = np.argsort(persons, kind="stable")
    for start in range(0, len(rows), ROWS_TOGETHER):
        some = order[start : start + ROWS_TOGETHER]
        integers = added.values(rows[some]).integers
        first = np.flatnonzero(np.diff(persons[some], prepend=-1))
        # |integers| < 2²⁶ and fewer than 2²⁶ rows: every sum is exact, in any order
        sums[persons[some][first]] += np.add.reduceat(integers, first, axis=0)
    # a person counts once, however many rows met the conditions
    sums[:, once] = np.minimum(sums[:, once], 1.0)
    return sums


@dataclass(frozen=True, eq=False)
class PersonMetric:
    """In which a person's vector is measured: coordinates of length 1 for the largest row.

    Attributes:
        weights: (k,) of what a person adds in each sum, whose inverse the noise is
            proportional to.
        exponents: (k,) of the grid of the sums.
        whole: whether the one coordinate is a count, and is not scaled at all.
    """

    weights: Array
    exponents: npt.NDArray[np.int64]
    whole: bool

    @property
    def step(self) -> float:
        """One unit of the coordinates, in rows."""
        return 1.0 if self.whole else 2.0**-GRID_BITS

    @cached_property
    def factors(self) -> Array:
        """What a sum in units of its grid is multiplied by, (k,)."""
        if self.whole:
            return np.ones(1)
        return np.asarray(np.ldexp(self.weights, self.exponents + GRID_BITS))

    def coordinates(self, sums: Array) -> Array:
        """Return the whole coordinates (P, k) of sums in units of their grid."""
        # a product and a rounding: of each person's own sums alone, the same on every machine
        scaled = np.clip(sums * self.factors, -LARGEST_COORDINATE, LARGEST_COORDINATE)
        return np.asarray(np.rint(scaled) + 0.0)

    def restore(self, coordinates: Array) -> Array:
        """Return sums (…, k), in their own units, of coordinates."""
        return np.asarray(coordinates / self.units)

    @property
    def units(self) -> Array:
        """How many units of a coordinate a sum of 1 is, (k,)."""
        return np.asarray(np.ldexp(self.factors, -self.exponents))

    def radius(self, clip: float) -> int:
        """Return a radius in rows as one in units of the coordinates, rounded down."""
        return int(np.floor(clip / self.step))


def lengths(coordinates: Array, norm: int) -> Array:
    """Return the lengths (P,) of vectors (P, k), rounded up: Euclidean, or sums of sizes."""
    # k products, k − 1 sums and a root round by a unit each
    slack = 1.0 + (coordinates.shape[1] + LENGTH_UNITS) * EPS
    if norm == 1:
        return np.asarray(np.abs(coordinates).sum(axis=1) * slack)
    return np.asarray(np.sqrt(np.square(coordinates).sum(axis=1)) * slack)


def clipped(coordinates: Array, radius: int, norm: int) -> Whole:
    """Return vectors (P, k) of whole numbers whose exact length is at most the radius.

    Longer ones are shortened to it and truncated towards 0; each by itself.

    Args:
        coordinates: (P, k) whole numbers.
        radius: at most 2³⁰.
        norm: 2 for Euclidean length, 1 for the sum of sizes.
    """
    long = lengths(coordinates, norm)
    # C (1 − 2⁻⁴⁸)/length, which covers the rounding of the quotient and of the product
    factors = np.where(long > radius, radius * CLIP_SLACK / np.maximum(long, 1.0), 1.0)
    factors = np.where(_fits(coordinates, radius, norm), 1.0, factors)
    whole: Whole = np.trunc(coordinates * factors[:, None]).astype(np.int64)
    # exactly, by integers: what the slack excludes would be left out
    whole[~_fits(whole, radius, norm)] = 0
    return whole


def _fits(vectors: Array | Whole, radius: int, norm: int) -> npt.NDArray[np.bool_]:
    """Return which vectors (P, k) of whole numbers are at most as long as the radius, exactly."""
    near = np.asarray((np.abs(vectors) <= radius).all(axis=1))
    # entries are at most 2³⁰: sums of sizes stay far below 2⁶³
    whole = np.abs(np.where(near[:, None], vectors, 0)).astype(np.int64)
    if norm == 1:
        return np.asarray(near & (whole.sum(axis=1) <= radius))
    # Σ (2¹⁵ a + b)² = 2³⁰ Σ a² + 2¹⁶ Σ ab + Σ b², with a carry: no sum of squares overflows
    upper, lower = whole >> 15, whole & (2**15 - 1)
    rest = ((upper * lower).sum(axis=1) << 16) + np.square(lower).sum(axis=1)
    high, low = np.square(upper).sum(axis=1) + (rest >> 30), rest & (2**30 - 1)
    most, least = radius**2 >> 30, radius**2 & (2**30 - 1)
    return np.asarray(near & ((high < most) | ((high == most) & (low <= least))))
