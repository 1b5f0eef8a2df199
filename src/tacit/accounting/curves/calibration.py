"""The smallest parameter whose profile keeps a promise, found in few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from tacit._ground.checks import in_interval, positive
from tacit._ground.reprs import shown
from tacit.accounting.curves.profile import PrivacyProfile

# The search ends where ln ε is so little below the target, or ln s so near to one that fails.
TOLERANCE, NARROW = 1e-5, 1e-6
# Where ε is far above its target it falls about so fast in s: by its square at least.
STEEP = 2.5
# Profiles that are built at most: halving alone would need 22 of them for a factor of 16.
MOST_EVALUATIONS = 80
# A first step away from a guess, squared at each further one up to the largest.
FIRST_FACTOR, LARGEST_FACTOR = 1.25, 16.0
# Parameters that are tried, as factors of the first guess and its inverse.
WIDEST = 1e12
# An ε that is below its target by more has no logarithm beside it.
NO_LOSS = 1e-300
# Near an end of the bracket, by this share of what is left, it is the end itself that is tried.
NEAR_END = 1 / 64


def calibrate(
    build: Callable[[float], PrivacyProfile],
    *,
    epsilon: float,
    delta: float,
    bracket: tuple[float, float],
) -> float:
    """Return the least parameter whose profile is (ε, δ)-private, rounded up.

    min {s in bracket : build(s).epsilon(δ) <= ε}, for a family that grows more private with s,
    by inverse interpolation of ln ε in ln s. The value returned was itself built and found to
    satisfy the inequality; its ε is within 1e-5 of the target, or it is within 1e-6 of one that
    fails.
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
    # the whole bracket leaks: ended at its upper end
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


def least_noise(
    build: Callable[[float], PrivacyProfile], *, epsilon: float, delta: float, start: float = 1.0
) -> float:
    """Return what `calibrate` returns, with a bracket found from a first guess.

    Args:
        build: From a parameter s > 0 to a profile that grows more private with s.
        epsilon: Target ε > 0 in nats.
        delta: Target δ in [0, 1).
        start: First guess, > 0; steps away from it grow from a quarter.

    Returns:
        The smallest s that is (ε, δ)-private, on the safe side.

    Raises:
        ValueError: A number is out of range, or no s between start/10¹² and 10¹² start works.

    Example:
        >>> from tacit.accounting import gaussian
        >>> round(least_noise(lambda s: gaussian(1.0, s), epsilon=1.0, delta=1e-5), 4)
        3.7306

    Source: as `calibrate`.
    """
    target = positive("epsilon", epsilon)
    failure = in_interval("delta", delta, 0.0, 1.0, open_high=True)
    guess = positive("start", start)
    built = cache(build)

    def private(parameter: float) -> bool:
        return built(parameter).epsilon(failure) <= target

    # steps by 1.25, 1.25², 1.25⁴ …: a good guess costs two profiles, a bad one a few more
    low = high = guess
    factor = FIRST_FACTOR
    if private(guess):
        while private(low):
            _refuse_from(low, guess / WIDEST, "more than enough")
            high, low = low, max(low / factor, guess / WIDEST)
            factor = min(factor * factor, LARGEST_FACTOR)
    else:
        while not private(high):
            _refuse_from(high, guess * WIDEST, "not enough")
            low, high = high, min(high * factor, guess * WIDEST)
            factor = min(factor * factor, LARGEST_FACTOR)
    return calibrate(built, epsilon=target, delta=failure, bracket=(low, high))


def _refuse_from(parameter: float, farthest: float, reason: str) -> None:
    """Refuse the parameter farthest from the first guess: the target is out of reach."""
    if parameter == farthest:
        raise ValueError(
            f"epsilon, delta: expected a pair that some parameter reaches, and {parameter:.3g} is "
            f"{reason}"
        )


@dataclass
class _Search:
    """Inverse interpolation of the points (ln s, ln ε − ln target), kept within their bracket."""

    low: float
    high: float
    points: list[tuple[float, float]] = field(default_factory=list)
    private: tuple[float, float] | None = None
    leaking: tuple[float, float] | None = None
    parameter: float = math.nan
    stalled: bool = False

    def proposal(self) -> float:
        """Where to look next: the middle, then where the points aim; good for a choice only."""
        if not self.points and self.private is None and self.leaking is None:
            return (self.low + self.high) / 2
        left = self.low if self.leaking is None else self.leaking[0]
        right = self.high if self.private is None else self.private[0]
        aim = self._aim()
        # one end is not bracketed yet: towards it, at most to it
        if self.leaking is None or self.private is None:
            end = left if self.leaking is None else right
            start = right if self.leaking is None else left
            if aim is None or (aim - start) * (end - start) <= 0:
                # an aim that points away is halved instead
                aim = (start + end) / 2
            aim = min(max(aim, left), right)
            return end if abs(end - aim) < abs(end - start) * NEAR_END else aim
        # what interpolation does not narrow is halved
        if aim is None or not left < aim < right or self.stalled:
            return (left + right) / 2
        return aim

    def _aim(self) -> float | None:
        """ln s half a tolerance below the target by a parabola in ln ε: for a choice only."""
        if not self.points:
            return None
        # below the target by half of what counts as on it: the point is private
        target = -TOLERANCE / 2
        near = sorted(self.points, key=lambda point: abs(point[1]))[:3]
        if len(near) == 1:
            place, excess = near[0]
            # large losses fall with the square of the noise or faster
            return place + min(excess - target, 1 + (excess - 1) / STEEP)
        (a, u), (b, v) = near[:2]
        # ln ε rises with s: rounding of the profiles, no direction to follow
        if (a - b) * (u - v) >= 0:
            return None
        # inverse interpolation: s as a function of ln ε, a line through two points, a parabola of
        # three
        slope = (b - a) / (v - u)
        aim = a + (target - u) * slope
        if len(near) == 3 and near[2][1] not in (u, v):
            c, w = near[2]
            bend = ((c - b) / (w - v) - slope) / (w - u)
            curved = aim + bend * (target - u) * (target - v)
            # a parabola is for three points close together
            return curved if abs(curved - aim) < abs(aim - a) / 2 else aim
        return aim

    def add(self, place: float, parameter: float, excess: float) -> bool:
        """Take in a point; return whether the search is over."""
        width, best = self._width(), min((abs(y) for _, y in self.points), default=math.inf)
        # an ε of 0 or inf brackets the target and says nothing of its slope
        if math.isfinite(excess):
            self.points.append((place, excess))
        if excess > 0:
            self.leaking = (place, excess)
            over = place >= self.high
        else:
            self.private, self.parameter = (place, excess), parameter
            over = place <= self.low or excess >= -TOLERANCE
        # neither end moved much
        self.stalled = self._width() > width / 2 and abs(excess) > best / 2
        return over or self._width() <= NARROW

    def _width(self) -> float:
        """The width of the bracket in ln s, to rounding; inf before it has both ends."""
        if self.private is None or self.leaking is None:
            return math.inf
        return self.private[0] - self.leaking[0]


def _excess(profile: PrivacyProfile, target: float, failure: float) -> float:
    """ln ε(δ) − ln target, > 0 exactly where the profile is not private enough."""
    if not isinstance(profile, PrivacyProfile):
        raise ValueError(f"build: expected a PrivacyProfile from it, got {type(profile).__name__}")
    reached = profile.epsilon(failure)
    # compared as numbers: the logarithm could round to the other side
    if reached <= target:
        return math.log(reached / target) if reached > NO_LOSS * target else -math.inf
    return math.log(reached / target) if math.isfinite(reached) else math.inf


def _bracket(bracket: tuple[float, float]) -> tuple[float, float]:
    """Return the two scales exactly as given, or refuse them."""
    if np.ndim(bracket) != 1 or len(bracket) != 2:
        raise ValueError(f"bracket: expected two numbers (low, high), got {shown(bracket)}")
    low, high = positive("bracket[0]", bracket[0]), positive("bracket[1]", bracket[1])
    if low >= high:
        raise ValueError(f"bracket: expected low < high, got {low!r} and {high!r}")
    return low, high
