"""How many noisy steps make a specification, and what they promise together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tacit._ground.checks import in_interval, integer, positive
from tacit.accounting import PrivacyProfile, calibrate, gaussian_shift, subsampled_gaussian
from tacit.specifications.noise import multiplier_for


@dataclass(frozen=True)
class Schedule:
    """How many steps, on how much of the records, and how far each moves the network.

    Attributes:
        steps: T >= 1.
        sampling_rate: q in (0, 1], the chance of every record to be in a step, by a coin of its
            own.
        step_size: how far a step moves the described layers, as a share of their norm.
    """

    steps: int = 1
    sampling_rate: float = 1.0
    step_size: float = 0.05

    @classmethod
    def checked(cls, steps: int, sampling_rate: float, step_size: float) -> Schedule:
        """Return the schedule of checked numbers.

        Raises:
            ValueError: a number out of range.
        """
        return cls(
            steps=integer("steps", steps, minimum=1),
            sampling_rate=in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True),
            step_size=positive("step_size", step_size),
        )

    @property
    def single(self) -> bool:
        """Whether it is one step with every record in it."""
        return self.steps == 1 and self.sampling_rate == 1.0

    @property
    def sentence(self) -> str:
        """Say what was averaged."""
        share = (
            "every record in each" if self.sampling_rate == 1.0 else
            f"every record in each with chance {self.sampling_rate:g}"
        )  # fmt: skip
        return f"The mean of {self.steps} steps, {share}, that move the network."

    def profile(self, mu: float) -> PrivacyProfile:
        """Return what all steps promise together for replacing one record.

        Args:
            mu: 2C/σ of one step: how far one record moves its sum, in units of the noise.
        """
        if self.sampling_rate == 1.0:
            return gaussian_shift(self.distance(mu))
        return subsampled_gaussian(self.sampling_rate, 2.0 / mu, self.steps, "replace")

    def distance(self, mu: float) -> float:
        """Return √T μ, of all steps where every record is in each."""
        return mu if self.steps == 1 else mu * math.sqrt(self.steps) * (1.0 + 1e-15)

    def multiplier(self, epsilon: float, delta: float) -> float:
        """Return the least σ/(2C) of a step at which all are (ε, δ)-private together."""
        if self.sampling_rate == 1.0:
            return multiplier_for(epsilon, delta) * math.sqrt(self.steps) * (1.0 + 1e-15)
        return _calibrated(self, epsilon, delta)


@lru_cache(maxsize=16)
def _calibrated(schedule: Schedule, epsilon: float, delta: float) -> float:
    # every record in every step needs the most noise
    most = multiplier_for(epsilon, delta) * math.sqrt(schedule.steps)
    return calibrate(
        lambda multiplier: schedule.profile(1.0 / multiplier),
        epsilon=epsilon, delta=delta, bracket=(1e-2 * min(1.0, most), 2.0 * max(1.0, most)),
    )  # fmt: skip
