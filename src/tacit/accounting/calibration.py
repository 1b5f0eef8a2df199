"""The smallest parameter whose profile keeps a promise, found in few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tacit._validation import in_interval, positive
from tacit.accounting.profile import PrivacyProfile

TOLERANCE = 1e-6  # of ln ε below the target, or of ln s
MOST_EVALUATIONS = 80


def calibrate(
    build: Callable[[float], PrivacyProfile],
    *,
    epsilon: float,
    delta: float,
    bracket: tuple[float, float],
) -> float:
    """Return the smallest parameter whose profile is (ε, δ)-private, on the safe side.

    min {s in bracket : build(s).epsilon(δ) <= ε}, for a family that grows more private with s,
    by the secant of ln ε against ln s. The value returned was itself built and found to satisfy
    the inequality; its ε is within 1e-6 of the target, or it is within 1e-6 of one that fails.
    The ends of the bracket are built only where the search is driven to them.

    Args:
        build: From a parameter s > 0, such as a noise multiplier, to a profile.
        epsilon: Target ε > 0 in nats.
        delta: Target δ in [0, 1).
        bracket: (low, high) with 0 < low < high; high must be private enough and low not.

    Returns:
        The parameter s.

    Raises:
        ValueError: ``build`` is not callable, a number is out of range, or the bracket does not
            contain the answer.

    Example:
        >>> from tacit.accounting import gaussian
        >>> std = calibrate(lambda s: gaussian(1.0, s), epsilon=1.0, delta=1e-5, bracket=(0.1, 100))
        >>> round(std, 4), gaussian(1.0, std).epsilon(1e-5) <= 1.0
        (3.7306, True)
    """
    if not callable(build):
        raise ValueError(f"build: expected a function of one number, got {type(build).__name__}")
    target = positive("epsilon", epsilon)
    failure = in_interval("delta", delta, 0.0, 1.0, open_high=True)
    low, high = _bracket(bracket)
    search = _Search(math.log(low), math.log(high))
    for _ in range(MOST_EVALUATIONS):
        place = search.proposal()
        # the ends are the caller's numbers, not their logarithms' exponentials
        ends = {search.low: low, search.high: high}
        parameter = ends.get(place, math.exp(place))
        if search.add(place, parameter, _excess(build(parameter), target, failure)):
            break
    if search.private is None:
        raise ValueError(
            f"bracket: expected an upper end that is private enough, got {high!r} "
            f"(its epsilon at delta = {failure:g} is above the target {target:g})"
        )
    if search.leaking is None and search.private[0] <= search.low:
        raise ValueError(
            f"bracket: expected a lower end that is not yet private enough, got {low!r} "
            f"(it is ({target:g}, {failure:g})-private)"
        )
    return search.parameter


@dataclass
class _Search:
    """A bracketing secant on the points (ln s, ln ε − ln target)."""

    low: float
    high: float
    private: tuple[float, float] | None = None
    leaking: tuple[float, float] | None = None
    last: tuple[float, float] | None = None
    slope: float = -1.0
    parameter: float = math.nan
    evaluations: int = 0

    def proposal(self) -> float:
        """Where to look next: at the middle, along the slope, then between the bracket's ends."""
        if self.last is None:
            return (self.low + self.high) / 2
        place, excess = self.last
        aim = place - (excess + TOLERANCE / 2) / self.slope if math.isfinite(excess) else math.nan
        if self.leaking is None:
            # past the root, so that it is bracketed
            return max(self.low, min(aim - 0.05, place - 0.1)) if aim == aim else self._half(-1)
        if self.private is None:
            return min(self.high, max(aim + 0.05, place + 0.1)) if aim == aim else self._half(1)
        left, right = self.leaking[0], self.private[0]
        if not left < aim < right or self.evaluations % 6 == 5:
            return (left + right) / 2
        return aim

    def add(self, place: float, parameter: float, excess: float) -> bool:
        """Take in a point; return whether the search is over."""
        self.evaluations += 1
        if self.last is not None and math.isfinite(excess) and math.isfinite(self.last[1]):
            slope = (excess - self.last[1]) / (place - self.last[0])
            self.slope = slope if slope < -1e-3 else self.slope
        self.last = (place, excess)
        if excess > 0:
            self.leaking = self.last
            return place >= self.high or self._closed()
        self.private, self.parameter = self.last, parameter
        return place <= self.low or excess >= -TOLERANCE or self._closed()

    def _closed(self) -> bool:
        if self.private is None or self.leaking is None:
            return False
        return self.private[0] - self.leaking[0] <= TOLERANCE

    def _half(self, sign: int) -> float:
        """Halve the way to the end of the bracket, and take the end when it is near."""
        assert self.last is not None
        end = self.high if sign > 0 else self.low
        middle = (self.last[0] + end) / 2
        return end if abs(end - middle) < 0.05 else middle


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
