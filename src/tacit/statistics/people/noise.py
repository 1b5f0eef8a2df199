"""Whole noise on the sums of clipped persons: discrete Gaussian, or discrete Laplace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from tacit._ground import outlet
from tacit._ground.checks import Array, RandomSource
from tacit._ground.numbers import readings
from tacit.design.grid import ROUNDING_VARIANCE, discrete_gaussian, discrete_laplace, random_bits
from tacit.statistics.people.vectors import PersonMetric, Whole

GAUSSIAN, LAPLACE = "gaussian", "laplace"
# The continuous Gaussian dominates up to factors exp(±7 exp(−2π² 16)), far below this.
DISCRETE_SLACK = 1 + Fraction(1, 2**40)
# The scale of Laplace noise is a multiple of one part of these.
PARTS = 10**6


@dataclass(frozen=True, eq=False)
class PeopleNoise:
    """Independent whole noise of one size on every coordinate.

    Attributes:
        metric: of the coordinates.
        law: "gaussian" or "laplace".
        variance: s² of the discrete Gaussian ``∝ exp(−k²/2s²)``; 0 for the other.
        scale: (numerator, denominator) of b of the discrete Laplace ``∝ exp(−|k|/b)``.
    """

    metric: PersonMetric
    law: str
    variance: int
    scale: tuple[int, int]

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the noise on a coordinate, rounded up."""
        if self.law == GAUSSIAN:
            return math.sqrt(self.variance)
        # Var = 2 e^{−1/b}/(1 − e^{−1/b})²
        rate = self.scale[1] / self.scale[0]
        return math.sqrt(2.0 * math.exp(-rate)) / -math.expm1(-rate)

    @cached_property
    def covariance(self) -> Array:
        """Σ of the sums in their own units, (k, k)."""
        return np.diag((self.deviation / self.metric.units) ** 2)

    def sample(self, count: int, source: np.random.Generator) -> Array:
        """Return noise on the sums for a simulation, (count, k), good for a choice only."""
        shape = (count, len(self.metric.units))
        if self.law == GAUSSIAN:
            drawn = source.normal(size=shape) * self.deviation
        else:
            rate = self.scale[1] / self.scale[0]
            drawn = source.geometric(-math.expm1(-rate), shape).astype(float)
            drawn -= source.geometric(-math.expm1(-rate), shape)
        return self.metric.restore(drawn)

    def release(self, totals: Whole, rng: RandomSource) -> Array:
        """Return noisy totals of the coordinates, whole numbers as doubles.

        The noise is sampled exactly, in integers, and so is the sum.
        """
        bits = random_bits(rng)
        if self.law == GAUSSIAN:
            noise = [discrete_gaussian(self.variance, bits) for _ in totals]
        else:
            noise = [discrete_laplace(self.scale[0], bits, self.scale[1]) for _ in totals]
        noisy = tuple(int(one) + drawn for one, drawn in zip(totals.tolist(), noise, strict=True))
        # the one place where integers of the table leave
        return np.array(outlet.let_out(noisy), dtype=np.float64)


def gaussian_noise(metric: PersonMetric, reach: int, mu: float) -> PeopleNoise:
    """Return noise under which totals that differ by a vector of length ``reach`` keep μ.

    The discrete Gaussian of variance s² tells no more of an integer shift than the Gaussian of
    variance s² − 16: ``reach/√(s² − 16) <= μ``, rounded up.

    Source: docs/explanation/released-floats.md.
    """
    # s² − 16 >= reach²/μ², in exact fractions of the doubles
    least = Fraction(reach) ** 2 / Fraction(mu) ** 2 * DISCRETE_SLACK
    variance = math.ceil(least) + int(ROUNDING_VARIANCE)
    return PeopleNoise(metric, GAUSSIAN, variance, (1, 1))


def laplace_noise(metric: PersonMetric, reach: int, epsilon: float) -> PeopleNoise:
    """Return noise under which totals that differ by sizes that sum to ``reach`` keep ε.

    ``reach/b <= ε`` for a decimal fraction b that is rounded up.
    """
    # a file says ε in decimals, which may be smaller than the double
    least, _ = readings(epsilon)
    # a decimal fraction, so that a proof writes the very b that is drawn: up to the next millionth
    scale = Fraction(math.ceil(Fraction(reach) / least * PARTS), PARTS)
    return PeopleNoise(metric, LAPLACE, 0, (scale.numerator, scale.denominator))
