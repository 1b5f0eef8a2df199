"""How far one person may move the sums, found from the table for a share of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tacit._ground import outlet
from tacit._ground.checks import Array, RandomSource
from tacit.design.choosing import choose, range_of
from tacit.design.grid import random_bits
from tacit.statistics.people.contributors import Contributors
from tacit.statistics.people.vectors import PersonMetric, Whole

# Aimed at is the length that so many persons exceed, times √sums/μ: then the bias of the clip
# and the noise are of one size.
RANK = 8.0
# Share of μ² (or of ε) that the choice costs, and the most where few sums need a surer one.
SHARE, LARGEST_SHARE = 0.05, 0.25
# Rank times range: a length that nobody has is chosen with probability e^−12 for each there is.
SUREST = 24.0
# Lengths are tried from 1 row, by an eighth of a power of two.
PER_OCTAVE, OCTAVES = 8, 14


class TooFewSumsError(ValueError):
    """Sums that are too few to find a radius by."""


@dataclass(frozen=True)
class RadiusSearch:
    """A private choice among lengths.

    Attributes:
        share: of the budget, μ² or ε, that it costs.
        epsilon: the bounded range of the choice.
        rank: how many persons shall be longer.
    """

    share: float
    epsilon: float
    rank: int

    def count(self, metric: PersonMetric, persons: Contributors, norm: int) -> Whole:
        """Return of how many persons each radius is exceeded; one changes each by 1 at most."""
        return persons.beyond(metric, [int(one) for one in radii(metric).tolist()], norm)

    def find(
        self, metric: PersonMetric, persons: Contributors, norm: int, rng: RandomSource
    ) -> int:
        """Choose a radius in units of the coordinates, from what persons add."""
        tried, beyond = radii(metric), self.count(metric, persons, norm)
        gaps = np.abs(beyond - self.rank).tolist()
        # the choice costs a range of ε, each weight half of it
        rate = Fraction(self.epsilon) / 2
        place = choose(gaps, [1] * len(gaps), rate, random_bits(rng))
        # the one place where what was found of the table leaves
        return int(outlet.let_out(int(tried[place])))


def radii(metric: PersonMetric) -> Array:
    """Return the radii that are tried, in units of the coordinates, the same for every table."""
    rows = np.exp2(np.arange(PER_OCTAVE * OCTAVES + 1) / PER_OCTAVE)
    return np.unique(np.floor(rows / metric.step))


def radius_search(sums: int, budget: float, *, pure: bool) -> RadiusSearch:
    """Return the search that fits so many sums under μ, or ε where ``pure``.

    Raises:
        TooFewSumsError: no share of the budget that is worth it makes the choice sure.
    """
    root = math.sqrt(sums)
    # rank · range = 8√G/μ · ε(μ √share), which grows with √share; for ε with share itself
    whole = RANK * root * (1.0 if pure else range_of(budget) / budget)
    needed = SUREST / whole if pure else (SUREST / whole) ** 2
    share = max(SHARE, needed)
    if share > LARGEST_SHARE:
        raise TooFewSumsError(
            f"clip: expected a number of rows, such as 10, got auto, which for {sums} "
            f"{'sum' if sums == 1 else 'sums'} would choose by chance even with "
            f"{LARGEST_SHARE:.0%} of the budget"
        )
    epsilon = budget * share if pure else range_of(budget * math.sqrt(share))
    return RadiusSearch(share, epsilon, math.ceil(RANK * root / budget))


def left_of(budget: float, share: float, *, pure: bool) -> float:
    """Return what of μ, or ε, a share leaves for the noise, rounded down."""
    if share == 0.0:
        return budget
    # squares of μ add, as do ε; a root and a product round by less than the slack
    return budget * (1.0 - share if pure else math.sqrt(1.0 - share)) * (1.0 - 2.0**-50)
