"""The declared secret: one of K candidate subsets in which every row of the pool is as likely."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.numbers import rounded_up

# Denominators of a rate that are tried first.
FIRST_CYCLE = 10
# Memberships that are looked at together.
ENTRIES_PER_CHUNK = 4_000_000
# How far the rate of the candidates may be from the one asked for, relative.
RATE_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class CandidateFamily:
    """K subsets of N rows, each row in exactly the share ``rate`` of them.

    Attributes:
        pool_rows: N.
        rate: M/L, the exact prior probability that a given row is in.
        packed: (K, ⌈N/8⌉) bits, row i of candidate k in or out.
    """

    pool_rows: int
    rate: Fraction
    packed: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Return K."""
        return len(self.packed)

    @property
    def subset_sizes(self) -> tuple[int, int]:
        """Smallest and largest size of a candidate: equal, or one apart."""
        return _sizes(self.pool_rows, self.rate)

    def members(self, candidate: int) -> npt.NDArray[np.intp]:
        """Return the ascending rows of one candidate."""
        return np.flatnonzero(self.memberships(candidate, candidate + 1)[0])

    def memberships(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return the memberships of candidates ``start`` … ``stop`` − 1, (stop − start, N)."""
        bits = np.unpackbits(self.packed[start:stop], axis=1, count=self.pool_rows)
        return bits.astype(bool)

    def columns(self, rows: Any) -> npt.NDArray[np.bool_]:
        """Return the memberships of some rows in every candidate, (K, len(rows))."""
        index = np.asarray(rows, dtype=np.intp)
        # bit 7 − i mod 8 of byte ⌊i/8⌋: as packbits wrote it
        bits = self.packed[:, index // 8] >> (7 - index % 8).astype(np.uint8)
        return (bits & 1).astype(bool)

    def largest_success(self, groups: npt.NDArray[np.intp]) -> float:
        """Return how often the most exposed row is guessed right by whoever sees the group drawn.

        ``max_i (1/K) Σ_g max(candidates of g with row i, candidates of g without it)``: integers,
        divided once and rounded up.

        Args:
            groups: (K,) what is seen of each candidate, 0 … m − 1.
        """
        # candidates by what is seen of them: counts of the row in each group by one pass of sums
        order = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        best = 0
        rows = max(1, ENTRIES_PER_CHUNK // len(self))
        for start in range(0, self.pool_rows, rows):
            index = np.arange(start, min(start + rows, self.pool_rows))
            inside = np.add.reduceat(self.columns(index)[order].astype(np.int64), starts, axis=0)
            # whoever sees group g names the larger of those with the row and those without
            right = np.maximum(inside, sizes[:, None] - inside).sum(axis=0)
            best = max(best, int(right.max()))
        return rounded_up(Fraction(best, len(self)))


def subset_rate(pool_rows: int, asked: float, candidates: int) -> Fraction:
    """Return the share M/L of candidates each row is in: the rate asked for as a short fraction.

    The shortest of a few that is within 0.1% of the rate; L is at most ``candidates``.

    Raises:
        ValueError: some candidate would be empty, or all of the pool.
    """
    limit = min(FIRST_CYCLE, candidates)
    # the shortest fraction within the tolerance, by longer and longer denominators
    rate = Fraction(asked).limit_denominator(limit)
    smaller = min(asked, 1.0 - asked)
    while abs(float(rate) - asked) > RATE_TOLERANCE * smaller and limit < candidates:
        limit = min(2 * limit, candidates)
        rate = Fraction(asked).limit_denominator(limit)
    if (
        not 0 < rate < 1
        or _sizes(pool_rows, rate)[0] < 1
        or _sizes(pool_rows, rate)[1] >= pool_rows
    ):
        raise ValueError(
            f"rate: expected a rate that leaves rows in and rows out, got {asked} "
            f"of {pool_rows} rows in {candidates} candidates"
        )
    return rate


def draw_family(
    pool_rows: int, rate: Fraction, candidates: int, source: np.random.Generator
) -> CandidateFamily:
    """Declare at least ``candidates`` subsets, balanced exactly.

    A random permutation is read cyclically M times and cut into L = denominator pieces at
    ``⌊j N M / L⌋``: each row falls into exactly M of the L pieces. With rate ½ that is a half of
    the pool and the other half.
    """
    share, cycle = rate.numerator, rate.denominator
    # whole cycles alone: in each every row is in exactly M of L pieces
    permutations = -(-candidates // cycle)
    packed = np.empty((permutations * cycle, (pool_rows + 7) // 8), dtype=np.uint8)
    # ⌊j N M / L⌋: pieces of equal length, or one apart, of M permutations read in a circle
    cuts = [index * pool_rows * share // cycle for index in range(cycle + 1)]
    for number in range(permutations):
        order = source.permutation(pool_rows)
        for piece in range(cycle):
            inside = np.zeros(pool_rows, dtype=bool)
            inside[order[np.arange(cuts[piece], cuts[piece + 1]) % pool_rows]] = True
            packed[number * cycle + piece] = np.packbits(inside)
    return CandidateFamily(pool_rows, rate, packed)


def _sizes(pool_rows: int, rate: Fraction) -> tuple[int, int]:
    smallest = pool_rows * rate.numerator // rate.denominator
    return smallest, -(-pool_rows * rate.numerator // rate.denominator)
