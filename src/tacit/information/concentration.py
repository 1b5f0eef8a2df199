"""One-sided confidence bounds for a mean that hold at finite samples."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from tacit._ground.checks import Array, as_float, in_interval, vector
from tacit._ground.numbers import EPS

# Relative to the bet that is best when the pilot's moments are right; e-values may be averaged.
BET_FACTORS = (1.0, 0.25, 0.05)
# A bet is at most this share of 1/mean: it must leave wealth where a value is as low as can be.
MOST_BET = 0.5
# Halvings of the end, and how near it is known in the end and before them, relative to it.
BISECTIONS, CLOSE, BRACKET = 200, 1e-7, 1e-8
# A bet against a mean m may stake λ m of the wealth at most: 1 + λ(X − m) is ¼ at least.
MOST_STAKE = 0.75
# Rounding of Σ ln(1 + y) for such bets, in units in the last place of n + |Σ|: y is off by one unit
# and ln(1 + y) thereby by three, a logarithm and a sum of 1e8 of them by 21 of Σ |ln| together,
# which is |Σ| + 2 n ln 4 at most.
SUM_UNITS = 64.0
# A pilot has a variance from two values on.
SMALLEST_SAMPLE = 2
# Of the values drawn this share chooses the bet and is not used again.
PILOT_SHARE = 0.1
# Values, or draws, that are asked for at most.
MOST_VALUES = 100_000_000


def mean_lower_bound(
    pilot: ArrayLike, sample: ArrayLike, confidence: float, *, floor: float = 0.0
) -> float:
    """Bound the mean of independent values from below, by betting against smaller means.

    For values X >= ``floor`` with mean μ and a bet λ fixed beforehand, ``Π (1 + λ(X_i − m))`` has
    expectation <= 1 for every m >= μ with λ(m − floor) <= 1; by Markov's inequality it exceeds
    ``1/(1 − confidence)`` with probability ``1 − confidence`` at most. The smallest m that it does
    not reject is the bound. No upper bound on the values is needed.

    Args:
        pilot: (k,), k >= 2, values independent of ``sample``; they only choose the bet.
        sample: (n,), n >= 1, independent values (their laws may differ: μ is the mean of their
            means), each >= ``floor``.
        confidence: in (0, 1).
        floor: lowest possible value.

    Returns:
        A number that is at most the mean with probability ``confidence`` at least.

    Raises:
        ValueError: a value is below ``floor`` or not finite, or the pilot is too short.

    Example:
        >>> draws = np.random.default_rng(0).exponential(size=11_000)
        >>> 0.95 < mean_lower_bound(draws[:1000], draws[1000:], 0.99) < 1.0
        True

    Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting"
    (2024), Sec. 4, with a bet fixed before the sample is seen.
    """
    first, values = vector("pilot", pilot), vector("sample", sample)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    low = as_float("floor", floor)
    if first.size < SMALLEST_SAMPLE or values.size < 1:
        raise ValueError(
            f"pilot, sample: expected at least {SMALLEST_SAMPLE} and 1 values, "
            f"got {first.size} and {values.size}"
        )
    smallest = float(min(first.min(), values.min()))
    # a value below the floor would make wealth negative, and Markov's inequality false
    if smallest < low:
        raise ValueError(f"sample: expected values of at least {low}, got {smallest:.6g}")
    # ln(1/δ), δ = 1 − confidence, by log1p: no digits are lost where δ is small
    log_level = -math.log1p(-level)
    # in units where the lowest value is 0
    bets = _bets(first - low, values.size, log_level)
    return low + _least_unrejected(values - low, bets, log_level)


def mean_upper_bound(
    pilot: ArrayLike, sample: ArrayLike, confidence: float, *, ceiling: float
) -> float:
    """Bound the mean of independent values that are at most ``ceiling`` from above.

    The mirror image of ``mean_lower_bound``; ``ceiling − X`` takes the place of X.

    Args:
        pilot: (k,), k >= 2, values independent of ``sample``; they only choose the bet.
        sample: (n,), independent values, each <= ``ceiling``.
        confidence: in (0, 1).
        ceiling: highest possible value.

    Returns:
        A number that is at least the mean with probability ``confidence`` at least.

    Raises:
        ValueError: as ``mean_lower_bound``.

    Example:
        >>> draws = np.random.default_rng(0).random(11_000)
        >>> 0.5 < mean_upper_bound(draws[:1000], draws[1000:], 0.99, ceiling=1.0) < 0.52
        True
    """
    high = as_float("ceiling", ceiling)
    first, values = vector("pilot", pilot), vector("sample", sample)
    largest = float(max(first.max(initial=-math.inf), values.max(initial=-math.inf)))
    if largest > high:
        raise ValueError(f"sample: expected values of at most {high}, got {largest:.6g}")
    # ceiling − X >= 0: a lower bound on its mean is an upper one on that of X
    return high - mean_lower_bound(high - first, high - values, confidence)


def confidence_share(confidence: float, share: float) -> float:
    """Return the confidence of one of several statements that hold together, rounded up.

    By the union bound: a statement that takes ``share`` of the failure probability 1 − confidence
    holds with ``1 − share (1 − confidence)``, rounded up, so that no rounding is spent twice.

    Args:
        confidence: of all statements together, in (0, 1).
        share: in (0, 1]; the shares of all statements sum to 1 at most.

    Returns:
        A confidence in (0, 1).

    Raises:
        ValueError: ``confidence`` is so near 1 that double precision has nothing left to share.

    Example:
        >>> round(confidence_share(0.99, 0.5), 9)
        0.995
    """
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    part = in_interval("share", share, 0.0, 1.0, open_low=True)
    if part == 1.0:
        return level
    # a float above 1 − share · δ: what several statements may fail by together stays below δ
    shared = math.nextafter(1.0 - (1.0 - level) * part, 1.0)
    if shared >= 1.0:
        raise ValueError(
            "confidence: expected one whose distance from 1 double precision can divide, "
            f"got 1 − {1.0 - level:.3g}"
        )
    return shared


def pilot_size(count: int, least: int = SMALLEST_SAMPLE) -> int:
    """Return how many of ``count`` values choose the bet, exactly, and are not used again."""
    return max(least, int(PILOT_SHARE * count))


def promised_width(pilot: Array, count: int, confidence: float, *, floor: float) -> float:
    """Return how far a lower bound will lie below its mean: good for a choice only.

    A bet λ on n values of variance V costs ``ln(1/δ)/(n λ) + λ V/2``.
    """
    log_level = -math.log1p(-confidence)
    bet = float(_bets(pilot - floor, count, log_level)[0])
    return math.inf if bet == 0.0 else log_level / (count * bet) + 0.5 * bet * float(pilot.var())


def _bets(pilot: Array, count: int, log_level: float) -> Array:
    """Return bets, good for a choice only: √(2 ln(1/δ)/(n V)) and smaller, at most ½/mean."""
    # the variance of the pilot and that of its mean: a pilot too short must not bet too high
    mean = float(pilot.mean())
    variance = float(pilot.var(ddof=1)) + mean**2 / pilot.size
    # every value of the pilot is the floor: nothing to bet on
    if mean <= 0.0:
        return np.zeros(1)
    # ln(1 + x) >= x − x²/2 about: λ(μ − m) n = ln(1/δ) + ½ λ² n V is solved by this λ with least μ
    # − m
    best = math.inf if variance <= 0.0 else math.sqrt(2.0 * log_level / (count * variance))
    return min(best, MOST_BET / mean) * np.asarray(BET_FACTORS)


def _least_unrejected(values: Array, bets: Array, log_level: float) -> float:
    """Return the smallest m >= 0 whose averaged wealth is at most 1/δ, rounded down."""
    # wealth falls as m rises: what was computed once rejects all below it, or nothing above it
    most_rejected, least_kept = -math.inf, math.inf

    @cache
    def excess(mean: float) -> float:
        nonlocal most_rejected, least_kept
        # ln Π (1 + λ(X_i − m)) for each bet; one that stakes too much counts as lost
        beyond = values - mean
        wealth = [
            float(np.log1p(bet * beyond).sum()) if bet * mean <= MOST_STAKE else -math.inf
            for bet in bets
        ]
        # wealth may be spread evenly over the bets: their mean is an e-value too, here as a
        # logarithm, which cannot overflow
        total = float(np.logaddexp.reduce(np.asarray(wealth)))
        if total == -math.inf:
            least_kept = min(least_kept, mean)
            return total
        # rounding counts against the rejection
        slack = SUM_UNITS * EPS * (values.size + abs(total))
        found = total - math.log(len(bets)) - slack - log_level
        if found > 0.0:
            most_rejected = max(most_rejected, mean)
        else:
            least_kept = min(least_kept, mean)
        return found

    def rejected(mean: float) -> bool:
        return mean <= most_rejected or (mean < least_kept and excess(mean) > 0.0)

    # the bound lies in [0, mean of the sample]: a bet never rejects the sample's own mean
    low, high = 0.0, float(values.mean())
    if not rejected(low):
        return 0.0
    if -math.inf < excess(high) < 0.0:
        # a few steps to the end, which spare most of the halvings a pass over the values
        end = brentq(excess, low, high, xtol=BRACKET * high, rtol=BRACKET)
        for beside in (1.0 - 2.0 * BRACKET, 1.0 + 2.0 * BRACKET):
            rejected(beside * end)
    # bisection between a rejected m and one that is kept: the rejected end is returned, so the
    # bound errs downwards by CLOSE at most
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low <= CLOSE * high:
            break
        if rejected(middle):
            low = middle
        else:
            high = middle
    return low
