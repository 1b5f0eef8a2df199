"""The exponential mechanism on whole scores: integer weights, sampled exactly."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import accumulate

from scipy.special import log_ndtr, ndtr

from tacit.design.grid import Bits

# Scores are cut where a weight would be e^−200 of the largest: what is cut changes by 1 as scores.
DEEPEST = 200
# Weights are integers up to 2⁴⁰⁰, so that the smallest, above 2¹¹¹, is cut by less than 2⁻¹¹⁰.
WEIGHT_BITS, DIGITS = 400, 140
# From this μ on Φ(μ/2) is 1.
LARGE = 40.0
# Of a range of losses: what weights are cut by, twice, and the rounding of a logarithm.
SLACK = 1.0 - 2.0**-40


def choose(gaps: Sequence[int], sizes: Sequence[int], rate: Fraction, bits: Bits) -> int:
    """Draw a place with probability proportional to ``size · exp(−rate · gap)``.

    Where one record more or less changes every gap by 1 at most, the logarithms of any two
    chances move by 2 rate against each other at most: a bounded range, up to a relative 2⁻¹⁰⁰.

    Args:
        gaps: whole numbers >= 0, how far each place is from the best.
        sizes: whole numbers >= 0, how many equal outcomes each place stands for.
        rate: > 0.
        bits: source of random integers.

    Source: McSherry and Talwar (2007); Dong, Durfee and Rogers (2020) for the bounded range.
    """
    # no steeper than that: weights that vanish would tell places apart for certain, or all be 0
    rate = min(rate, Fraction(DEEPEST))
    deepest = math.floor(DEEPEST / rate)
    cut = [min(int(gap), deepest) for gap in gaps]
    weights = _weights(set(cut), rate)
    ends = list(accumulate(size * weights[gap] for size, gap in zip(sizes, cut, strict=True)))
    # uniform on 0 … Σ − 1, and the place whose stretch holds it
    return bisect_right(ends, bits.randrange(ends[-1]))


def _weights(gaps: set[int], rate: Fraction) -> dict[int, int]:
    """Return ``⌊2^400 e^{−rate gap}⌋`` of some gaps, to a relative 2⁻¹¹⁰, rounded down."""
    context = Context(prec=DIGITS, rounding=ROUND_FLOOR, Emin=-10_000, Emax=10_000)
    exponent = context.divide(Decimal(-rate.numerator), Decimal(rate.denominator))
    # e^{−rate gap} from the gap before: steps between gaps repeat, and a product is cheaper than an
    # exponential; of 10⁸ products at 140 digits the rounding stays below 10⁻¹³⁰
    steps: dict[int, Decimal] = {}
    weights: dict[int, int] = {}
    weight, before = Decimal(2**WEIGHT_BITS), 0
    for gap in sorted(gaps):
        step = gap - before
        if step not in steps:
            steps[step] = context.exp(context.multiply(exponent, Decimal(step)))
        weight, before = context.multiply(weight, steps[step]), gap
        weights[gap] = int(weight)
    return weights


def range_of(mu: float) -> float:
    """Return the bounded range ε of a choice that keeps μ-Gaussian privacy, rounded down.

    Two laws whose log-ratio lies in an interval of length ε are told apart no better than two
    coins with these log-ratios; their errors lie above those of N(0, 1) and N(μ, 1) for every such
    interval once they do for the symmetric one, ``±ε/2``: ``ε = 2 ln(Φ(μ/2)/Φ(−μ/2))``.

    Source: Dong, Durfee and Rogers (2020), Lemma 3.2; Dong, Roth and Su (2022), Definition 2.6.
    """
    # ln(Φ(x)/Φ(−x)): by erf, which keeps the digits of a small μ, and by a logarithm where Φ(−x) is
    # no float
    if mu < LARGE:
        odds = math.erf(mu / math.sqrt(8.0)) / float(ndtr(-0.5 * mu))
        return 2.0 * math.log1p(odds) * SLACK
    return -2.0 * float(log_ndtr(-0.5 * mu)) * SLACK
