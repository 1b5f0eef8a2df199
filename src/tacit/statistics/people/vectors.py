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
from tacit.statistics.people.blocks import Block, Places, blocks_of, keys_of

# Coordinates are whole multiples of 2⁻¹⁶ of a row: of 2¹⁴ rows, the longest clip, squares are
# sums of 64-bit integers.
GRID_BITS = 16
# Rows that are worked on at a time: a few megabytes.
ROWS_TOGETHER = 2**16
# More than a product and a quotient round; the length has its own slack.
CLIP_SLACK = 1.0 - 2.0**-48
# A length is rounded to nearest four times at most.
LENGTH_SLACK = 1.0 + 4.0 * EPS
# Coordinates beyond it are cut: that of 2²⁷ rows at the bounds, and of as many times each radius
# that squares of 2¹⁸ of them are summed in halves of 64 bits.
LARGEST_COORDINATE = 2.0**43
MOST_SUMS = 2**18
# Bits of the halves of a coordinate, and of the lower part of a length.
HALF, SPLIT = 22, 44
LOW = 2**SPLIT - 1

Whole: TypeAlias = npt.NDArray[np.int64]


def person_sums(added: Contributions, rows: Array, persons: Places) -> Array:
    """Return what the rows of every person add together, (P, k), exactly, in units of the grid.

    Args:
        added: what a row can add.
        rows: (n, p) the table.
        persons: (n,) place of the person of every row, all of 0 … P − 1.
    """
    terms = added.query.terms
    sums = np.zeros((int(persons.max(initial=-1)) + 1, len(terms)))
    # rows of a person side by side, so that a piece of the rows is summed person by person
    order = np.argsort(persons, kind="stable")
    blocks = blocks_of(terms, keys_of(terms))
    for start in range(0, len(rows), ROWS_TOGETHER):
        some = order[start : start + ROWS_TOGETHER]
        for block in blocks:
            _add_block(sums, added, block, rows[some], persons[some])
    once = np.array([one.once for one in terms], dtype=bool)
    # a person counts once, however many rows met the conditions
    sums[:, once] = np.minimum(sums[:, once], 1.0)
    return sums


def _add_block(
    sums: Array, added: Contributions, block: Block, rows: Array, persons: Places
) -> None:
    """Add what some rows add to the sums of one grouping: each row is in one cell, or in none."""
    cells = block.cells_of(rows)
    inside = np.flatnonzero(cells >= 0)
    # rows of one person and cell side by side
    keys = persons[inside] * len(block.cells) + cells[inside]
    turn = np.argsort(keys, kind="stable")
    inside, keys = inside[turn], keys[turn]
    if not len(keys):
        return
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    places = np.array(block.places)
    # all cells of a measure share its grid: that of any of its places
    own = places[np.argmax(places >= 0, axis=0), np.arange(places.shape[1])]
    integers = added.values_of(rows[inside], block.measures, own).integers
    # |integers| < 2²⁶ and fewer than 2²⁶ rows: every sum is exact, in any order
    totals = np.add.reduceat(integers, first, axis=0)
    who, targets = keys[first] // len(block.cells), places[keys[first] % len(block.cells)]
    for measure in range(places.shape[1]):
        asked = targets[:, measure] >= 0
        # each person and cell stands there once
        sums[who[asked], targets[asked, measure]] += totals[asked, measure]


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


@dataclass(frozen=True)
class Lengths:
    """Exact lengths of vectors, as whole numbers: Σ c², or Σ |c|, as ``upper · 2⁴⁴ + lower``.

    Attributes:
        upper: (P,).
        lower: (P,) below 2⁴⁴.
        norm: 2 where squares are summed, 1 where sizes are.
    """

    upper: Whole
    lower: Whole
    norm: int

    @staticmethod
    def of(coordinates: Array, norm: int) -> Lengths:
        """Return those of vectors (P, k) of whole numbers up to ``LARGEST_COORDINATE``."""
        sizes = np.abs(coordinates).astype(np.int64)
        if norm == 1:
            # |c| <= 2⁴³, and at most 2¹⁸ of them: below 2⁶¹
            total = sizes.sum(axis=1)
            return Lengths(total >> SPLIT, total & LOW, norm)
        # c = 2²² a + b: Σ c² = 2⁴⁴ Σ a² + 2²³ Σ ab + Σ b², each sum below 2⁶²
        upper, lower = sizes >> HALF, sizes & (2**HALF - 1)
        mixed = (upper * lower).sum(axis=1)
        # 2²³ m = 2⁴⁴ (m >> 21) + 2²³ (m mod 2²¹): what is carried stays below 2⁶³
        rest = ((mixed & (2 ** (HALF - 1) - 1)) << (HALF + 1)) + np.square(lower).sum(axis=1)
        high = np.square(upper).sum(axis=1) + (mixed >> (HALF - 1)) + (rest >> SPLIT)
        return Lengths(high, rest & LOW, norm)

    def beyond(self, radius: int) -> npt.NDArray[np.bool_]:
        """Return which vectors are longer than a radius, exactly, (P,)."""
        most, least = divmod(radius**self.norm, 2**SPLIT)
        return np.asarray((self.upper > most) | ((self.upper == most) & (self.lower > least)))

    def rounded_up(self) -> Array:
        """Return the lengths as doubles, none too short, (P,)."""
        # two whole numbers to the nearest double, an exact product, a sum and a root:
        # less than 4 units in all, whatever the number of coordinates
        total = self.upper.astype(np.float64) * 2.0**SPLIT + self.lower.astype(np.float64)
        return np.asarray((np.sqrt(total) if self.norm == 2 else total) * LENGTH_SLACK)


def clipped(coordinates: Array, radius: int, norm: int) -> Whole:
    """Return vectors (P, k) of whole numbers whose exact length is at most the radius.

    Longer ones are shortened to it and truncated towards 0; each by itself. One square root, one
    quotient and a product for each number, all rounded to nearest: the same on every machine, and
    in every engine of a database.

    Args:
        coordinates: (P, k) whole numbers.
        radius: at most 2³⁰.
        norm: 2 for Euclidean length, 1 for the sum of sizes.
    """
    lengths = Lengths.of(coordinates, norm)
    # C (1 − 2⁻⁴⁸)/length, which covers the rounding of the quotient and of the product
    shares = radius * CLIP_SLACK / np.maximum(lengths.rounded_up(), 1.0)
    factors = np.where(lengths.beyond(radius), shares, 1.0)
    return np.asarray(np.trunc(coordinates * factors[:, None])).astype(np.int64)
