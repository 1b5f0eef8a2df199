"""The smallest parameter whose profile keeps a promise, found in few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable

from tacit._validation import in_interval, positive
from tacit.accounting.profile import PrivacyProfile

RELATIVE_TOLERANCE = 1e-7
MOST_EVALUATIONS = 60


def calibrate(
    build: Callable[[float], PrivacyProfile],
    *,
    epsilon: float,
    delta: float,
    bracket: tuple[float, float],
) -> float:
    """Return the smallest parameter whose profile is (ε, δ)-private, on the safe side.

    min {s in bracket : build(s).epsilon(δ) <= ε}, for a family that grows more private with s,
    by false position in logarithms. The value returned was itself built and found to satisfy the
    inequality; it exceeds the smallest one by at most 1e-7 of itself.

    Args:
        build: From a parameter s > 0, such as a noise multiplier, to a profile.
        epsilon: Target ε > 0 in nats.
        delta: Target δ in [0, 1).
        bracket: (low, high) with 0 < low < high; high must be private enough and low not.

    Returns:
        The parameter s.

    Raises:
        ValueError: A number is out of range, or the bracket does not contain the answer.

    Example:
        >>> from tacit.accounting import gaussian
        >>> std = calibrate(lambda s: gaussian(1.0, s), epsilon=1.0, delta=1e-5, bracket=(0.1, 100))
        >>> round(std, 4), gaussian(1.0, std).epsilon(1e-5) <= 1.0
        (3.7306, True)
    """
    target = positive("epsilon", epsilon)
    failure = in_interval("delta", delta, 0.0, 1.0, open_high=True)
    low, high = _bracket(bracket)
    low_excess = _excess(build(low), target, failure)
    if low_excess <= 0:
        raise ValueError(
            f"bracket: expected a lower end that is not yet private enough, got {low!r} "
            f"(it is ({target:g}, {failure:g})-private)"
        )
    high_excess = _excess(build(high), target, failure)
    if high_excess > 0:
        reached = target * math.exp(high_excess) if high_excess < 700 else math.inf
        raise ValueError(
            f"bracket: expected an upper end that is private enough, got {high!r} "
            f"(its epsilon at delta = {failure:g} is {reached:.6g}, the target {target:g})"
        )
    return _root(build, target, failure, (low, low_excess), (high, high_excess))


def _root(
    build: Callable[[float], PrivacyProfile],
    target: float,
    failure: float,
    below: tuple[float, float],
    above: tuple[float, float],
) -> float:
    """Illinois' false position on ln ε − ln target against ln s, bisection where it stalls."""
    (low, low_excess), (high, high_excess) = below, above
    for evaluation in range(MOST_EVALUATIONS):
        width = math.log(high / low)
        if width <= RELATIVE_TOLERANCE:
            break
        finite = math.isfinite(low_excess) and math.isfinite(high_excess)
        share = low_excess / (low_excess - high_excess) if finite else 0.5
        if evaluation % 4 == 3 and width > 1e-3:
            share = 0.5
        # a step beyond the root on the safe side closes the bracket from above
        share = min(max(share + 0.3 * RELATIVE_TOLERANCE / width, 1e-3), 1 - 1e-12)
        middle = low * math.exp(share * width)
        if not low < middle < high:
            break
        excess = _excess(build(middle), target, failure)
        if excess > 0:
            low, low_excess = middle, excess
            high_excess *= 0.5
        else:
            high, high_excess = middle, excess
            low_excess *= 0.5 if evaluation > 0 else 1.0
    return high


def _excess(profile: PrivacyProfile, target: float, failure: float) -> float:
    """ln ε(δ) − ln target, > 0 exactly where the profile is not private enough."""
    reached = profile.epsilon(failure)
    if reached <= target:
        return math.log(reached / target) if reached > 1e-300 * target else -math.inf
    return math.log(reached / target) if math.isfinite(reached) else math.inf


def _bracket(bracket: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(bracket, (tuple, list)) or len(bracket) != 2:
        raise ValueError(f"bracket: expected two numbers (low, high), got {bracket!r}")
    low, high = positive("bracket[0]", bracket[0]), positive("bracket[1]", bracket[1])
    if low >= high:
        raise ValueError(f"bracket: expected low < high, got {low!r} and {high!r}")
    return low, high
