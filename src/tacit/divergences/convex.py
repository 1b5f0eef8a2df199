"""E f(exp(dX − d²/2)), X ~ N(0, 1), for any convex f with f(1) = 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

LOG_LIMIT = 700.0  # e^±700 are floats
FAR = 1e4  # at larger distances both laws lie outside |ln t| <= 700 up to a mass below 1e-300
NEAR = 1e-150
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
WINDOW = 60.0  # beyond |x| = 60 the integrand is below φ(x) e^709 < e^-1000
NEGLIGIBLE = 1e-22  # of the largest integrand
RELATIVE_SLACK, ABSOLUTE_SLACK = 1e-9, 1e-15
PANEL_LIMIT = 4000
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
        if distance > FAR:
            return _rounded_up(self.lower.limit + self.upper.limit, 0.0, self.slope)
        distance = max(distance, NEAR)
        beyond = _beyond(self, self.lower, -1, distance) + _beyond(self, self.upper, 1, distance)
        if math.isinf(beyond):
            return math.inf
        inside, error = self._inside(distance)
        return _rounded_up(inside + beyond, error, self.slope)

    def integrand(self, x: float, distance: float) -> float:
        """φ(x) f(exp(dx − d²/2)), f without its tangent."""
        level = distance * x - distance * distance / 2
        value = _tilted(self.function, self.slope, level)
        if value == 0 or math.isinf(value):
            return value
        return math.copysign(math.exp(_log_density(x) + math.log(abs(value))), value)

    def _inside(self, distance: float) -> tuple[float, float]:
        start, stop = self._window(distance)
        if start >= stop:
            return 0.0, 0.0
        centre = min(max(distance / 2, start), stop)  # t = 1, where many f have their kink
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
        """Halve each panel until its integral stops changing; return the sum and the changes."""
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
            if change <= 1e-12 * scale + 1e-16 * (1 + abs(self.slope)):
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
        half = (stop - start) / 2
        points = start + half * (NODES + 1)
        values = [self.integrand(float(x), distance) for x in points]
        return half * float(np.dot(WEIGHTS, values))

    def _window(self, distance: float) -> tuple[float, float]:
        """The x between the two ends where the integrand is not negligible."""
        shift = distance * distance / 2
        start = max((shift - self.lower.level) / distance, -WINDOW)
        stop = min((shift + self.upper.level) / distance, WINDOW)
        if start >= stop:
            return 0.0, 0.0
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


def _rounded_up(value: float, error: float, slope: float) -> float:
    rounding = 16 * EPS * abs(slope)
    return value * (1 + RELATIVE_SLACK) + error + rounding + ABSOLUTE_SLACK


def _log_density(x: float) -> float:
    return -x * x / 2 - math.log(2 * math.pi) / 2


def _edges(start: float, stop: float) -> Array:
    return np.linspace(start, stop, max(2, math.ceil(stop - start) + 1))


def _call(function: Callable[[float], float], t: float) -> float:
    """Evaluate f(t), inf where it overflows or is not a number far from 1."""
    try:
        with np.errstate(all="ignore"):
            value = float(function(t))
    except (OverflowError, ZeroDivisionError):
        return math.inf
    if math.isnan(value):
        if 1e-20 < t < 1e20:
            raise ValueError(f"f: expected a number at t = {t!r}, got NaN")
        return math.inf
    return value


def _at_zero(function: Callable[[float], float]) -> float:
    try:
        return _call(function, 0.0)
    except ValueError:
        return math.inf


def _tilted(function: Callable[[float], float], slope: float, level: float) -> float:
    """The value f(t) − slope (t − 1) at t = e^level; inf where it is no finite float."""
    if abs(level) > LOG_LIMIT:
        return math.inf
    value = _call(function, math.exp(level)) - slope * math.expm1(level)
    return value if math.isfinite(value) else math.inf


def _tangent(function: Callable[[float], float]) -> float:
    step = 1e-5
    above, below, at = (_call(function, 1 + s) for s in (step, -step, 0.0))
    if not (math.isfinite(above) and math.isfinite(below) and math.isfinite(at)):
        raise ValueError(f"f: expected finite values near t = 1, got {below!r}, {at!r}, {above!r}")
    if abs(at) > 1e-12 * max(abs(_call(function, 2.0)), abs(_call(function, 0.5))):
        raise ValueError(f"f: expected f(1) = 0, got {at!r}")
    return (above - below) / (2 * step)


def _check_convex(function: Callable[[float], float]) -> None:
    points = np.exp(np.linspace(-4.0, 4.0, 33))
    values = np.array([_call(function, float(t)) for t in points])
    chords = np.diff(values) / np.diff(points)
    scale = np.abs(values[:-1]) + np.abs(values[1:])
    rounding = 64 * EPS * scale / np.diff(points)
    with np.errstate(invalid="ignore"):
        falls = np.diff(chords) < -(rounding[1:] + rounding[:-1])
    if falls.any():
        where = float(points[int(np.flatnonzero(falls)[0]) + 1])
        raise ValueError(f"f: expected a convex function, got a concave bend near t = {where:.3g}")


def _last_level(evaluate: Callable[[float], float]) -> float:
    """Largest |ln t| <= 700 up to which f is a finite float."""
    if math.isfinite(evaluate(LOG_LIMIT)):
        return LOG_LIMIT
    low, high = 0.0, LOG_LIMIT
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.isfinite(evaluate(middle)) else (low, middle)
    return low * (1 - 1e-9)


def _growth(evaluate: Callable[[float], float], level: float) -> float:
    """Exponent of f as a power of t beyond ``level``; inf where the exponent itself still grows."""
    quarter, half, last = (
        math.log(max(evaluate(level * share), 1e-300)) for share in (0.25, 0.5, 1.0)
    )
    late, early = (last - half) / (level / 2), (half - quarter) / (level / 4)
    if late > 1.01 * early + 0.01:
        return math.inf
    return max(early, late, 0.0) * 1.01 + 0.01


def _limit(last: float, half: float) -> float:
    """Bound on the limit of a sequence of which the values at 700 and 350 nats are given."""
    change = abs(last - half)
    if not math.isfinite(change) or change > 1e-12 * max(abs(last), abs(half)):
        return math.inf
    return max(last, 0.0) * (1 + 1e-12) + 2 * change


def _lower_end(function: Callable[[float], float], slope: float) -> _End:
    def evaluate(level: float) -> float:
        return _tilted(function, slope, -level)

    level = _last_level(evaluate)
    limit = math.inf
    if level == LOG_LIMIT:
        limit = _limit(evaluate(level), evaluate(level / 2))
        at_zero = _at_zero(function) + slope
        if evaluate(level) <= at_zero:
            limit = min(limit, at_zero)
    return _End(level, limit, _growth(evaluate, level))


def _upper_end(function: Callable[[float], float], slope: float) -> _End:
    def evaluate(level: float) -> float:
        return _tilted(function, slope, level)

    level = _last_level(evaluate)
    limit = math.inf
    if level == LOG_LIMIT:
        last, half = (evaluate(x) * math.exp(-x) for x in (level, level / 2))
        limit = _limit(last, half)
    return _End(level, limit, _growth(evaluate, level))


def _beyond(function: ConvexFunction, end: _End, side: int, distance: float) -> float:
    """Bound on the integral where ``side`` · ln t > level."""
    shift = distance * distance / 2
    edge = (end.level + side * shift) / distance
    if math.isfinite(end.limit):
        # f <= limit · 1 under Q on the lower side, f <= limit · t (so under P) on the upper
        mass = float(ndtr(-edge if side < 0 else -(edge - distance)))
        return end.limit * mass
    rate = edge - distance * end.growth
    if not rate > 1:
        return math.inf
    value = abs(_tilted(function.function, function.slope, side * end.level))
    return math.exp(_log_density(edge) + math.log(max(value, SMALLEST))) / rate
