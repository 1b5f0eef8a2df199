"""E f(exp(dX − d²/2)), X ~ N(0, 1), for any convex f with f(1) = 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS, SMALLEST

# Both e^700 and e^−700 are floats: t = e^level is evaluated within these.
LOG_LIMIT = 700.0
# At larger distances both laws lie outside |ln t| <= 700 up to a mass below 1e-300; smaller ones
# are raised to the second, whose square is a float.
FAR, NEAR = 1e4, 1e-150
# Beyond |x| = 60 the integrand is below φ(x) e^709 < e^−1000.
WINDOW = 60.0
# Of the largest integrand: less than this, twice over a window of 120, is below the slack.
NEGLIGIBLE = 1e-22
# What a result is raised by: a thousand times the change at which a panel is accepted, for the
# rounding of f, which only its author knows; and what is left out of a divergence of 0.
RELATIVE_SLACK, ABSOLUTE_SLACK = 1e-9, 1e-15
# A panel is accepted where halving it changes less: of the whole integral, and of 1 + |slope|.
RELATIVE_CHANGE, ABSOLUTE_CHANGE = 1e-12, 1e-16
# Panels that are halved at most before the quadrature counts as one that does not converge.
PANEL_LIMIT = 4000
# Units in the last place: of the tangent, in a result; of a chord over a step, in a test of
# convexity.
SLOPE_UNITS, CHORD_UNITS = 16, 64
# Where f must be a number; farther out one that is none counts as inf.
ORDINARY = (1e-20, 1e20)
# The slope at 1 is a difference over this step: any slope will do, a good one leaves few digits
# lost.
TANGENT_STEP = 1e-5
# f(1) = 0 to this, relative to f(½) and f(2); and a limit is one where f changes by no more of it.
AGREEMENT = 1e-12
# Halvings of the last level, which leave less than 1e-15 of it, and the step back from it.
HALVINGS, STEP_BACK = 60, 1e-9
# An exponent may be off by a hundredth of it and one hundredth: what is beyond is taken to grow
# more.
GROWTH_MARGIN = 0.01
# In place of an f that is 0, whose logarithm is none.
TINY = 1e-300
# Gauss-Legendre nodes of a panel: exact for polynomials of degree 29.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(15)


@dataclass(frozen=True)
class _End:
    """How f behaves where ln t passes ``level``, the last one evaluated on this side of 0."""

    level: float  # |ln t|
    limit: float  # sup f on the lower side, sup f/t on the upper; inf where there is none
    growth: float  # d ln f / d |ln t| assumed beyond the level; inf if faster than a power


@dataclass(frozen=True)
class ConvexFunction:
    """A convex f, its tangent at 1 subtracted (which changes no divergence), and its two ends."""

    function: Callable[[float], float]
    slope: float
    lower: _End
    upper: _End

    @classmethod
    def prepare(cls, function: Callable[[float], float]) -> ConvexFunction:
        """Check f and measure its growth; raises ``ValueError`` if f(1) ≠ 0 or f is not convex."""
        slope = _tangent(function)
        _check_convex(function)
        return cls(function, slope, _lower_end(function, slope), _upper_end(function, slope))

    def divergence(self, distance: float) -> float:
        """Upper bound on E f(exp(dX − d²/2)) at ``distance`` d; inf where f is too heavy for it."""
        if distance == 0:
            return 0.0
        # almost all of P has ln t above 700 and almost all of Q below −700: f there by its two
        # limits
        if distance > FAR:
            return _round_up(self.lower.limit + self.upper.limit, 0.0, self.slope)
        distance = max(distance, NEAR)
        # ∫ φ(x) f(e^{dx − d²/2}) dx: beyond the last evaluated t by how f grows, within by
        # quadrature
        beyond = _beyond(self, self.lower, -1, distance) + _beyond(self, self.upper, 1, distance)
        if math.isinf(beyond):
            return math.inf
        inside, error = self._inside(distance)
        return _round_up(inside + beyond, error, self.slope)

    def integrand(self, x: float, distance: float) -> float:
        """φ(x) f(exp(dx − d²/2)), f without its tangent, to rounding."""
        level = distance * x - distance * distance / 2
        value = _tilt(self.function, self.slope, level)
        if value == 0 or math.isinf(value):
            return value
        # φ underflows where f overflows: their logarithms are added
        return math.copysign(math.exp(_log_density(x) + math.log(abs(value))), value)

    def _inside(self, distance: float) -> tuple[float, float]:
        """The integral over the window, to rounding, and what quadrature may have it off by."""
        start, stop = self._window(distance)
        if start >= stop:
            return 0.0, 0.0
        # t = 1, where many f have their kink, is an edge; panels are about one deviation wide
        centre = min(max(distance / 2, start), stop)
        edges = np.concatenate([_edges(start, centre), _edges(centre, stop)[1:]])
        panels = [
            (float(a), float(b), self._panel(float(a), float(b), distance))
            for a, b in pairwise(edges)
            if b > a
        ]
        return self._refine(panels, distance)

    def _refine(
        self, panels: list[tuple[float, float, float]], distance: float
    ) -> tuple[float, float]:
        """Halve panels until their integrals stop changing: the sum, to rounding, and changes.

        Of a smooth f the error is of order 30 in the width, so the change is far above that of the
        halves; at a kink panels shrink until the change is small itself.
        """
        scale = sum(abs(value) for _, _, value in panels)
        accepted: list[float] = []
        changes: list[float] = []
        visited = 0
        while panels:
            start, stop, value = panels.pop()
            middle = (start + stop) / 2
            left = self._panel(start, middle, distance)
            right = self._panel(middle, stop, distance)
            change = abs(left + right - value)
            visited += 1
            if change <= RELATIVE_CHANGE * scale + ABSOLUTE_CHANGE * (1 + abs(self.slope)):
                accepted.append(left + right)
                changes.append(change)
            elif visited > PANEL_LIMIT or not math.isfinite(change):
                raise ValueError(
                    "f: expected a function whose quadrature converges, got changes of "
                    f"{change:.3g} after {visited} panels at distance {distance!r}"
                )
            else:
                panels += [(start, middle, left), (middle, stop, right)]
        return math.fsum(accepted), math.fsum(changes)

    def _panel(self, start: float, stop: float, distance: float) -> float:
        """The integral over one panel by 15 nodes, to rounding for a smooth f."""
        half = (stop - start) / 2
        points = start + half * (NODES + 1)
        values = [self.integrand(float(x), distance) for x in points]
        return half * float(np.dot(WEIGHTS, values))

    def _window(self, distance: float) -> tuple[float, float]:
        """The x where the integrand is not negligible, within the two ends, outwards by a point."""
        # |ln t| <= level means (d²/2 − lower)/d <= x <= (d²/2 + upper)/d
        shift = distance * distance / 2
        start = max((shift - self.lower.level) / distance, -WINDOW)
        stop = min((shift + self.upper.level) / distance, WINDOW)
        if start >= stop:
            return 0.0, 0.0
        # four points for each deviation: a convex f has no needle between them
        points = np.linspace(start, stop, max(16, math.ceil(4 * (stop - start))))
        values = np.abs([self.integrand(float(x), distance) for x in points])
        if not np.isfinite(values).all():
            raise ValueError(
                f"f: expected finite values between those already evaluated, got none at distance "
                f"{distance!r}"
            )
        kept = np.flatnonzero(values > max(NEGLIGIBLE * values.max(), NEGLIGIBLE**2))
        if kept.size == 0:
            return 0.0, 0.0
        last = points.size - 1
        return float(points[max(kept[0] - 1, 0)]), float(points[min(kept[-1] + 1, last)])


def _round_up(value: float, error: float, slope: float) -> float:
    """Raise an integral by its slack, by its error and by what the tangent cancelled."""
    rounding = SLOPE_UNITS * EPS * abs(slope)
    return value * (1 + RELATIVE_SLACK) + error + rounding + ABSOLUTE_SLACK


def _log_density(x: float) -> float:
    """ln φ(x), to rounding."""
    return -x * x / 2 - math.log(2 * math.pi) / 2


def _edges(start: float, stop: float) -> Array:
    """Panels of about one deviation, their edges to rounding."""
    return np.linspace(start, stop, max(2, math.ceil(stop - start) + 1))


def _call(function: Callable[[float], float], t: float) -> float:
    """Evaluate f(t) exactly as it computes; inf where it overflows or is no number far from 1."""
    try:
        with np.errstate(all="ignore"):
            value = float(function(t))
    except (OverflowError, ZeroDivisionError):
        return math.inf
    if math.isnan(value):
        if ORDINARY[0] < t < ORDINARY[1]:
            raise ValueError(f"f: expected a number at t = {t!r}, got NaN")
        return math.inf
    return value


def _at_zero(function: Callable[[float], float]) -> float:
    """The limit f(0), exactly as f computes it; inf where it does not."""
    try:
        return _call(function, 0.0)
    except ValueError:
        return math.inf


def _tilt(function: Callable[[float], float], slope: float, level: float) -> float:
    """The value f(t) − slope (t − 1) at t = e^level, to rounding; inf where it is none."""
    if abs(level) > LOG_LIMIT:
        return math.inf
    # a tangent at 1 changes no divergence, for E t = 1; without it f >= 0 and nothing cancels near
    # 1
    value = _call(function, math.exp(level)) - slope * math.expm1(level)
    return value if math.isfinite(value) else math.inf


def _tangent(function: Callable[[float], float]) -> float:
    """The slope of f at 1 by a central difference: good for a choice only, any slope is allowed."""
    steps = (TANGENT_STEP, -TANGENT_STEP, 0.0)
    above, below, at = (_call(function, 1 + step) for step in steps)
    if not (math.isfinite(above) and math.isfinite(below) and math.isfinite(at)):
        raise ValueError(f"f: expected finite values near t = 1, got {below!r}, {at!r}, {above!r}")
    if abs(at) > AGREEMENT * max(abs(_call(function, 2.0)), abs(_call(function, 0.5))):
        raise ValueError(f"f: expected f(1) = 0, got {at!r}")
    return (above - below) / (2 * TANGENT_STEP)


def _check_convex(function: Callable[[float], float]) -> None:
    """Refuse an f whose chords fall by more than rounding between e^−4 and e^4."""
    points = np.exp(np.linspace(-4.0, 4.0, 33))
    values = np.array([_call(function, float(t)) for t in points])
    # slopes of chords rise for a convex f; each is off by the rounding of two values over its step
    chords = np.diff(values) / np.diff(points)
    scale = np.abs(values[:-1]) + np.abs(values[1:])
    rounding = CHORD_UNITS * EPS * scale / np.diff(points)
    with np.errstate(invalid="ignore"):
        falls = np.diff(chords) < -(rounding[1:] + rounding[:-1])
    if falls.any():
        where = float(points[int(np.flatnonzero(falls)[0]) + 1])
        raise ValueError(f"f: expected a convex function, got a concave bend near t = {where:.3g}")


def _last_level(evaluate: Callable[[float], float]) -> float:
    """Largest |ln t| <= 700, rounded down, up to which f is a finite float."""
    if math.isfinite(evaluate(LOG_LIMIT)):
        return LOG_LIMIT
    low, high = 0.0, LOG_LIMIT
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if math.isfinite(evaluate(middle)) else (low, middle)
    return low * (1 - STEP_BACK)


def _growth(evaluate: Callable[[float], float], level: float) -> float:
    """Upper bound on the power of t that f grows as beyond ``level``; inf where it still rises."""
    # d ln f/d ln t from ¼ to ½ and from ½ to all of the level: the later one of a power law is no
    # larger
    quarter, half, last = (
        math.log(max(evaluate(level * share), TINY)) for share in (0.25, 0.5, 1.0)
    )
    late, early = (last - half) / (level / 2), (half - quarter) / (level / 4)
    if late > (1 + GROWTH_MARGIN) * early + GROWTH_MARGIN:
        return math.inf
    return max(early, late, 0.0) * (1 + GROWTH_MARGIN) + GROWTH_MARGIN


def _limit(last: float, half: float) -> float:
    """Upper bound on the limit of a sequence whose values at 700 and 350 nats are given."""
    # a sequence that has stopped changing has its limit within twice its last change
    change = abs(last - half)
    if not math.isfinite(change) or change > AGREEMENT * max(abs(last), abs(half)):
        return math.inf
    return max(last, 0.0) * (1 + AGREEMENT) + 2 * change


def _lower_end(function: Callable[[float], float], slope: float) -> _End:
    """What f is assumed to do below e^−level: its limit is f(0), its tangent subtracted."""

    def evaluate(level: float) -> float:
        return _tilt(function, slope, -level)

    level = _last_level(evaluate)
    limit = math.inf
    if level == LOG_LIMIT:
        limit = _limit(evaluate(level), evaluate(level / 2))
        # f is convex: where it has no more than f(0) it stays below that all the way
        at_zero = _at_zero(function) + slope
        if evaluate(level) <= at_zero:
            limit = min(limit, at_zero)
    return _End(level, limit, _growth(evaluate, level))


def _upper_end(function: Callable[[float], float], slope: float) -> _End:
    """What f is assumed to do above e^level: f/t has a limit, or f grows as a power of t."""

    def evaluate(level: float) -> float:
        return _tilt(function, slope, level)

    level = _last_level(evaluate)
    limit = math.inf
    if level == LOG_LIMIT:
        last, half = (evaluate(x) * math.exp(-x) for x in (level, level / 2))
        limit = _limit(last, half)
    return _End(level, limit, _growth(evaluate, level))


def _beyond(function: ConvexFunction, end: _End, side: int, distance: float) -> float:
    """Upper bound on the integral where ``side`` · ln t > level."""
    shift = distance * distance / 2
    # the x at which ln t = ±level
    edge = (end.level + side * shift) / distance
    if math.isfinite(end.limit):
        # f <= limit · 1 under Q on the lower side, f <= limit · t (so under P) on the upper
        mass = float(ndtr(-edge if side < 0 else -(edge - distance)))
        return end.limit * mass
    # f(e^l) <= f(e^level) e^{growth (l − level)}: φ(x) times that falls at a rate of edge − d ·
    # growth and more beyond the edge, so the tail is at most its value there over the rate
    rate = edge - distance * end.growth
    if not rate > 1:
        return math.inf
    value = abs(_tilt(function.function, function.slope, side * end.level))
    return math.exp(_log_density(edge) + math.log(max(value, SMALLEST))) / rate
