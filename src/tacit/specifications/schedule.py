"""How many noisy steps make a specification, how much noise they need and what they promise."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated

from tacit._ground.values import Positive, Within, value
from tacit.accounting import (
    PrivacyProfile,
    calibrate,
    gaussian,
    gaussian_shift,
    subsampled_gaussian,
)

# δ where nobody says another.
DELTA = 1e-5
# Beyond it ε says nothing, and the multiplier that keeps it is no longer found.
MOST_EPSILON = 1e4
# Of the budget μ² of a scatter, for the class means.
SHARE_OF_MEANS = 0.3
# A mean in double precision is off by this share of its terms at most.
ROUNDING = 1e-9
# What √T and the product with it may be rounded down by, and more.
ROOT = 1e-15
# The least and largest σ/Δ that are tried.
BRACKET = (1e-4, 1e9)


@value
class StepSchedule:
    """How many steps, on how much of the records, and how far each moves the network.

    Args:
        steps: T >= 1.
        sampling_rate: q in (0, 1], the chance of every record to be in a step, by a coin of its
            own.
        step_size: how far a step moves the described layers, as a share of their norm.

    Example:
        >>> StepSchedule(steps=4).sentence
        'The mean of 4 steps, every record in each, that move the network.'
    """

    steps: Annotated[int, Within(1, 1 << 31, "[)")] = 1
    sampling_rate: Annotated[float, Within(0, 1, "(]")] = 1.0
    step_size: Positive = 0.05

    @property
    def single(self) -> bool:
        """Whether it is one step with every record in it."""
        return self.steps == 1 and self.sampling_rate == 1.0

    @property
    def full(self) -> bool:
        """Whether every record is in every step."""
        return self.sampling_rate == 1.0

    @property
    def sentence(self) -> str:
        """Say what was averaged."""
        chance = "" if self.full else f" with chance {self.sampling_rate:g}"
        return (
            f"The mean of {self.steps} steps, every record in each{chance}, that move the network."
        )

    def profile(self, mu: float) -> PrivacyProfile:
        """Return what all steps promise together for replacing one record, rounded up.

        Args:
            mu: 2C/σ of one step: how far one record moves its sum, in units of the noise.
        """
        # T Gaussian mechanisms compose to one: N(0, 1) against N(√T μ, 1)
        if self.full:
            return gaussian_shift(self.distance(mu))
        # a record adds C at most to a step it is in, and σ/C = 2/μ
        return subsampled_gaussian(self.sampling_rate, 2.0 / mu, self.steps, "replace")

    def distance(self, mu: float) -> float:
        """Return √T μ, of all steps where every record is in each, rounded up."""
        return mu if self.steps == 1 else mu * math.sqrt(self.steps) * (1.0 + ROOT)

    def multiplier(self, epsilon: float, delta: float) -> float:
        """Return the least σ/(2C) of a step that keeps (ε, δ) of all together, rounded up.

        Args:
            epsilon: ε in (0, 10⁴].
            delta: δ in (0, 1).
        """
        # √T times that of one step: distances add in squares
        full = multiplier_for(epsilon, delta) * math.sqrt(self.steps) * (1.0 + ROOT)
        return full if self.full else _calibrated_sampled(self, epsilon, delta, full)


@lru_cache(maxsize=64)
def multiplier_for(epsilon: float, delta: float) -> float:
    """Return the least σ/Δ at which one Gaussian mechanism is (ε, δ)-private, rounded up.

    Args:
        epsilon: ε in (0, 10⁴].
        delta: δ in (0, 1).

    Source: Balle and Wang (2018), Theorem 8.
    """
    return calibrate(lambda std: gaussian(1.0, std), epsilon=epsilon, delta=delta, bracket=BRACKET)


def shares_of(multiplier: float) -> tuple[float, float]:
    """Return σ/Δ of class means and of factors that together are worth one of ``multiplier``.

    1/m₁² + 1/m₂² = 1/m²: distances of Gaussian mechanisms add in squares, the second one chosen
    after the first one's outcome too (Dong, Roth and Su, 2022, Corollary 3.3).
    """
    return multiplier / SHARE_OF_MEANS**0.5, multiplier / (1.0 - SHARE_OF_MEANS) ** 0.5


@lru_cache(maxsize=16)
def _calibrated_sampled(schedule: StepSchedule, epsilon: float, delta: float, most: float) -> float:
    """Return the same of steps on samples, for which every record in every step needs the most."""
    return calibrate(
        lambda multiplier: schedule.profile(1.0 / multiplier),
        epsilon=epsilon,
        delta=delta,
        bracket=(1e-2 * min(1.0, most), 2.0 * max(1.0, most)),
    )
