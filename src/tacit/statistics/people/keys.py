"""Keys that nobody declared: those that enough persons have are found, in three noisy rounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit._ground.checks import RandomSource, generator, in_interval, integer, positive
from tacit.design.grid import ROUNDING_VARIANCE, discrete_gaussian, random_bits
from tacit.guarantees.adjacency import Adjacency
from tacit.statistics.people.noise import DISCRETE_SLACK

# Whole units of the weight that a person gives to all keys together, as a length.
UNIT = 2**20
# Shares of μ² and of δ of the rounds: what the first two find leaves the weight to the rest.
ROUNDS = (0.05, 0.15, 0.8)
# Keys of one person that are weighed in a round, at most.
MOST_KEYS = 100
# Shares that keys have of a release: of μ², and of δ.
KEYS_SHARE, DELTA_SHARE = 0.5, 0.5
# Of a threshold: what a quantile of the normal law is wrong by, relative.
QUANTILE_SLACK = 1.0 + 1e-9

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyRound:
    """One round of noisy weights.

    Attributes:
        variance: s² of the discrete Gaussian noise, in whole units.
        threshold: least noisy weight of a key that is published.
    """

    variance: int
    threshold: int

    def __post_init__(self) -> None:
        integer("variance", self.variance, minimum=1, maximum=None)
        integer("threshold", self.threshold, minimum=1, maximum=None)


@dataclass(frozen=True)
class KeySearch:
    """How keys are found.

    Attributes:
        most: keys of one person that are weighed in a round, at most.
        delta: chance that a key of one person alone is published, and what it costs: with two
            persons that may stand for each other P = (1 − δ)P' + δR and Q = (1 − δ)Q' + δR', where
            none of their own keys passes in P' and Q', which the noise alone tells apart; so
            ``P(A) − e^ε Q(A) <= δ + (1 − δ) δ_noise(ε)``, as it is where one of them is nobody.
        share: of μ² of the release that the rounds cost.
        rounds: noise and threshold of each.
    """

    most: int
    delta: float
    share: float
    rounds: tuple[KeyRound, ...]

    def __post_init__(self) -> None:
        integer("most", self.most, minimum=1)
        in_interval("delta", self.delta, 0.0, 1.0, open_low=True, open_high=True)
        in_interval("share", self.share, 0.0, 1.0, open_low=True)

    @staticmethod
    def of(
        mu: float,
        delta: float,
        share: float,
        *,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        most: int = MOST_KEYS,
    ) -> KeySearch:
        """Return the search that costs a share of μ², and a δ, rounded down.

        Args:
            mu: μ > 0 of the release.
            delta: chance, over all rounds, that what one person alone has is published.
            share: of μ², in (0, 1].
            adjacency: which tables are neighbours.
            most: keys of one person that are weighed in a round, at most.
        """
        positive("mu", mu)
        rounds = []
        for part in ROUNDS:
            # reach²/(s² − 16) <= share · part · μ², exactly
            allowed = Fraction(mu) ** 2 * Fraction(share) * Fraction(part)
            least = reach_squared(adjacency) / allowed * DISCRETE_SLACK
            variance = math.ceil(least) + int(ROUNDING_VARIANCE)
            rounds.append(KeyRound(variance, threshold_of(variance, delta * part, most)))
        return KeySearch(most, delta, share, tuple(rounds))

    def tells(self, mu: float, adjacency: Adjacency) -> bool:
        """Return whether the rounds tell no more than their shares of μ² and δ."""
        # a variance of 16 and less pays for its rounding alone
        if len(self.rounds) != len(ROUNDS) or any(
            one.variance <= ROUNDING_VARIANCE for one in self.rounds
        ):
            return False
        spent: Fraction = sum(
            (
                reach_squared(adjacency) * DISCRETE_SLACK / (one.variance - int(ROUNDING_VARIANCE))
                for one in self.rounds
            ),
            Fraction(0),
        )
        high = all(
            one.threshold >= threshold_of(one.variance, self.delta * part, self.most)
            for one, part in zip(self.rounds, ROUNDS, strict=True)
        )
        # the parts were rounded to nearest in double precision
        return high and spent <= Fraction(mu) ** 2 * Fraction(self.share) * (1 + Fraction(1, 2**40))


def reach_squared(adjacency: Adjacency) -> Fraction:
    """Return the largest square of how far one person moves the weights.

    In the place of another a person takes away and adds vectors of no negative entry: the squared
    length of their difference is at most the sum of both squares.
    """
    return Fraction((2 if adjacency is Adjacency.REPLACE else 1) * UNIT**2)


def weight_of(keys: int) -> int:
    """Return the weight of each of some keys of one person: ``⌊U/√k⌋``, so that k w² <= U²."""
    return math.isqrt(UNIT**2 // keys)


def threshold_of(variance: int, delta: float, most: int) -> int:
    """Return the least noisy weight at which a key of one person alone passes rarely, rounded up.

    Of k keys that nobody else has, each of weight w, one passes ``T`` with the chance
    ``k P(X >= T − w) <= k Φ(−(T − w − 1)/s) <= δ`` at most; the largest over all k counts.

    Source: Canonne, Kamath and Steinke (2020), Proposition 25, for the tail of whole noise.
    """
    keys = np.arange(1, most + 1)
    # isf in double precision, and a slack for it
    tails = -ndtri(delta / keys) * math.sqrt(variance) * QUANTILE_SLACK
    weights = np.array([weight_of(int(one)) for one in keys])
    return math.ceil(float((weights + 1 + np.maximum(tails, 0.0)).max() * QUANTILE_SLACK))


class KeyWeights(Protocol):
    """The weights that persons give to keys, wherever their rows are; secret."""

    def weigh(self, found: Collection[Any], most: int) -> tuple[Sequence[Any], Sequence[int]]:
        """Return the keys that were not found, rising, and the weight of each.

        Every person gives ``weight_of(k)`` to each of k <= ``most`` of the keys that they have;
        which ones depends on that person's keys and on those found alone.
        """


@dataclass(eq=False)
class PairsInMemory:
    """Pairs of persons and keys in memory.

    Attributes:
        pairs: (2, n) whole numbers, each pair once: whose it is, and its key.
        source: which keys of a person of many are weighed.
    """

    pairs: Whole = field(repr=False)
    source: np.random.Generator = field(repr=False)

    def weigh(self, found: Collection[int], most: int) -> tuple[list[int], list[int]]:
        """Return the keys that were not found, rising, and the weight of each."""
        pairs = self.pairs[:, ~np.isin(self.pairs[1], list(found))]
        whose, left = _at_most(pairs, most, self.source)
        sizes = np.bincount(whose, minlength=1)
        table = np.array([0, *(weight_of(k) for k in range(1, most + 1))])
        present, places = np.unique(left, return_inverse=True)
        totals = np.zeros(len(present), dtype=np.int64)
        np.add.at(totals, places.reshape(-1), table[sizes[whose]])
        return present.tolist(), totals.tolist()


def find_among(weights: KeyWeights, search: KeySearch, bits: Any) -> list[Any]:
    """Return the keys that were found, rising.

    In every round each person gives a weight of length 1 to the keys that were not found before,
    at most ``most`` of them; a key whose weight with whole Gaussian noise reaches the threshold is
    found. What one person gives depends on that person's keys and on those found alone, so that
    squares of μ add over the rounds.

    Args:
        weights: of the keys.
        search: how.
        bits: random bits of the noise.

    Source: Swanberg, Desfontaines and Haney (2023), DP-SIPS.
    """
    found: list[Any] = []
    for one in search.rounds:
        keys, totals = weights.weigh(tuple(found), search.most)
        found += [
            key
            for key, total in zip(keys, totals, strict=True)
            if total + discrete_gaussian(one.variance, bits) >= one.threshold
        ]
    return sorted(found)


def find_keys(persons: Any, keys: Any, search: KeySearch, rng: RandomSource) -> Whole:
    """Return the keys of pairs in memory that were found, rising.

    Args:
        persons: (n,) whole numbers, whose each pair is.
        keys: (n,) whole numbers >= 0, the key.
        search: how.
        rng: None for the operating system's randomness.
    """
    pairs = np.unique(np.stack([persons, keys]).astype(np.int64), axis=1)
    weights = PairsInMemory(pairs, generator(rng))
    return np.array(find_among(weights, search, random_bits(rng)), dtype=np.int64)


def _at_most(pairs: Whole, most: int, source: np.random.Generator) -> tuple[Whole, Whole]:
    """Return persons, as 0 … P − 1, and keys of at most so many pairs of each, chosen at random."""
    # in random order within every person: the first of each stay
    order = np.lexsort((source.random(pairs.shape[1]), pairs[0]))
    whose = pairs[0][order]
    first = np.flatnonzero(np.diff(whose, prepend=-1))
    sizes = np.diff(np.append(first, len(whose)))
    rank = np.arange(len(whose)) - np.repeat(first, sizes)
    number = np.repeat(np.arange(len(first)), sizes)
    return number[rank < most], pairs[1][order][rank < most]
