"""Gaussian mechanisms whose squared distance is random: δ(ε) = E δ_G(ε; Y)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import betaincc, erfcx, expit

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.curve import Index
from tacit.accounting.numerics.quadrature import integrate, quadrature_up
from tacit.accounting.numerics.special import log_beta_density

# The density of ln(x/(1 − x)) is cut where it is e^−95 of its peak: 1e-35 is more than what is
# left.
LOG_NEGLIGIBLE, RANGE_BISECTIONS = -95.0, 20
# An integrand is looked at on so many points to find where its mass is, and what is 1e-24 of the
# largest value is left out: 1e-22 of the integral at most.
SCAN_POINTS, NEGLIGIBLE = 49, 1e-24
# Panels before the first halving.
PANELS = 5
# Newton's steps to where a tangent crosses, from the left: each doubles the digits, or takes a
# third off the distance where it crosses next to where it touches.
CROSSING_STEPS = 25
# Halvings of [0, m*] for the best tangent; any tangent gives a bound.
BISECTIONS = 24
# The best m₁/m* on a grid of ε, even in ln ε from 1e-5 of the largest; between its points the share
# read off may be off by so much before the tangent is sought anew.
GRID_POINTS, GRID_START, GRID_ERROR = 96, 1e-5, 2e-3
# Below any mass or slope that is divided by.
SMALLEST = 1e-290
# A share of the largest scale, below which nothing of a hazard rate is asked.
LEAST_SHARE = 1e-12
# Below this μ a difference of two values of erfcx has lost 3 digits; its series is off by μ⁴/2,000.
CLOSE = 1e-3
SQRT_2 = math.sqrt(2.0)
# Arguments of erfcx: Φ is 1 below the first, and its tail is below 1e-290 above the second.
LOWEST, HIGHEST = -20.0, 26.0


class SquaredDistanceLaw(Protocol):
    """Distribution of a squared distance Y."""

    @property
    def largest(self) -> float:
        """Return the largest value of Y, rounded up."""
        ...

    def tail(self, level: Array) -> tuple[Array, Array]:
        """Return P(Y > m) and E[Y; Y > m], to rounding, which `quadrature_up` pays for."""
        ...

    def mean_above(self, level: Array) -> Array:
        """Return E[Y | Y > m], good for a choice only: every point of a tangent gives a bound."""
        ...

    def below(self, epsilon: Array, level: Array) -> Array:
        """Return E[δ_G(ε; Y); Y < m] for each ε >= 0 and m, at most, but for `quadrature_up`."""
        ...


@dataclass(frozen=True)
class ScaledBeta:
    """Distribution of Y = s X, X ~ Beta(a, b).

    Args:
        first: a > 0.
        second: b > 0.
        scale: s > 0.
    """

    first: float
    second: float
    scale: float

    @property
    def largest(self) -> float:
        """Supremum of Y, exactly."""
        return self.scale

    def tail(self, level: Array) -> tuple[Array, Array]:
        """P(Y > m) and E[Y; Y > m] for each m of ``level``, shape (n,), to rounding."""
        above = np.minimum(level / self.scale, 1.0)
        mass = betaincc(self.first, self.second, above)
        with np.errstate(under="ignore"):
            # E[X; X > x] = a/(a + b) P(X' > x), X' ~ Beta(a + 1, b), whose tail is that of X plus
            # x^a (1 − x)^b/(a B(a, b)): no second incomplete beta function; nothing at both ends
            inner = np.clip(above, SMALLEST, 1 - EPS / 2)
            logits = np.log(inner) - np.log1p(-inner)
            rise = np.exp(log_beta_density(self.first, self.second, logits)) / self.first
            rise = np.where((above > 0) & (above < 1), rise, 0.0)
        share = self.first / (self.first + self.second)
        return mass, share * (mass + rise) * self.scale

    def mean_above(self, level: Array) -> Array:
        """E[Y | Y > m], to rounding; where the tail underflows, what is returned is at least it."""
        mass, moment = self.tail(level)
        # the density of X falls at the rate (b − 1)/(1 − x) − (a − 1)/x or faster: beyond m it is
        # below an exponential, whose mean is 1/rate
        share = np.clip(level / self.largest, LEAST_SHARE, 1.0)
        hazard = self.second - 1 - (self.first - 1) * (1 - share) / share
        beyond = self.largest * np.minimum(share + (1 - share) / np.maximum(hazard, 1.0), 1.0)
        return np.where(mass < SMALLEST, beyond, moment / np.maximum(mass, SMALLEST))

    def below(self, epsilon: Array, level: Array) -> Array:
        """E[δ_G(ε; Y); Y < m] for each ε >= 0 and m, shape (n,), at most, by u = ln(x/(1 − x))."""
        # in u both ends of the density fall exponentially, however small a and b are
        low, high = _logit_range(self.first, self.second)
        upper = np.minimum(level / self.scale, 1.0)
        with np.errstate(divide="ignore"):
            cut = np.log(upper) - np.log1p(-upper)
        top = np.clip(cut, low, high)

        def integrand(rows: Index, points: Array) -> Array:
            # x = 1/(1 + e^−u)
            loss = gaussian_square(epsilon[rows][:, None], self.scale * expit(points))
            # x^a (1 − x)^b/B du: the two powers are one higher than those of dx
            density = np.exp(log_beta_density(self.first, self.second, points))
            return np.asarray(density * loss)

        # panels where the integrand is, so that a narrow peak is not missed
        points = low + (top - low)[:, None] * np.linspace(0.0, 1.0, SCAN_POINTS)
        rows = np.arange(epsilon.size)
        return integrate(integrand, scan_panels(points, integrand(rows, points)))


def rank_one_curve(epsilon: Array, law: SquaredDistanceLaw) -> Array:
    """E δ_G(ε; Y) for ε >= 0, rounded up; shape of ``epsilon``, one-dimensional.

    Given the random distance, which is public, the release is a Gaussian mechanism: δ is the mean
    of its δ_G.
    """
    return quadrature_up(law.below(epsilon, np.full(epsilon.shape, math.inf)))


class SpectrumCurve:
    """Bound E δ_G(ε; W) for every W below Y in convex order, such as Σ w_j Y_j with Σ w_j = 1.

    δ_G(ε; m) is convex for m <= m* = 2(√(1 + ε²) − 1) and concave beyond. A tangent at p >= m*
    lies above it from the point m₁ where they cross, so G = δ_G before m₁ and the tangent after
    is convex and at least δ_G: E δ_G(ε; W) <= E G(W) <= E G(Y). The best p is E[Y | Y > m₁(p)];
    it is found on a grid of ε and read off between, since every p gives a bound.

    Args:
        law: The law of Y.
    """

    def __init__(self, law: SquaredDistanceLaw):
        self._law = law
        self._largest = law.largest

    def __call__(self, epsilon: Array) -> Array:
        """Return the bound for ε >= 0, rounded up; shape of ``epsilon``, one-dimensional."""
        # where no value of Y is beyond the bend δ_G is convex on all of them: no tangent is needed
        bend = _bend(epsilon)
        curved = self._largest > bend
        crossing = np.full(epsilon.shape, math.inf)
        line = np.zeros(epsilon.shape)
        if curved.any():
            some, limit = epsilon[curved], bend[curved]
            guess = limit * self._shares(some)
            level, slope, offset = self._tangent(some, limit, guess)
            # where the share read off the grid is off, the best tangent is sought by bisection
            astray = np.abs(level - guess) > GRID_ERROR * limit
            if astray.any():
                here, bound = some[astray], limit[astray]
                found = self._tangent(here, bound, _touching(here, bound, self._law))
                level[astray], slope[astray], offset[astray] = found
            # E[offset + slope Y; Y > m₁] of the tangent, and δ_G below it
            mass, moment = self._law.tail(level)
            crossing[curved] = level
            line[curved] = np.maximum(offset * mass + slope * moment, 0.0)
        return quadrature_up(self._law.below(epsilon, crossing) + line)

    def _tangent(self, epsilon: Array, bend: Array, level: Array) -> tuple[Array, Array, Array]:
        """Where the tangent at E[Y | Y > level] crosses δ_G, its slope and offset, to rounding."""
        # no tangent before the bend is above δ_G everywhere
        point = np.maximum(self._law.mean_above(level), bend)
        return _crossing(epsilon, point, bend)

    def _shares(self, epsilon: Array) -> Array:
        """The best m₁/m* by the points of a grid, good for a choice only."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.clip(self._grid(np.log(np.maximum(epsilon, self._lowest))), 0, 1))

    @property
    def _last(self) -> float:
        """The ε at which m* is the largest scale, to rounding: m*² + 4 m* = 4 ε²."""
        return math.sqrt(self._largest + self._largest**2 / 4)

    @property
    def _lowest(self) -> float:
        """The least ε of the grid, good for a choice only."""
        return GRID_START * self._last

    @cached_property
    def _grid(self) -> PchipInterpolator:
        """Shares m₁/m* by ln ε, good for a choice only."""
        epsilon = np.geomspace(self._lowest, self._last, GRID_POINTS)
        bend = _bend(epsilon)
        return PchipInterpolator(np.log(epsilon), _touching(epsilon, bend, self._law) / bend)


def _bend(epsilon: Array) -> Array:
    """m* = 2(√(1 + ε²) − 1) = 2ε²/(√(1 + ε²) + 1), to rounding: δ_G(ε; m) is concave beyond it."""
    return np.asarray(2 * epsilon**2 / (np.sqrt(1 + epsilon**2) + 1))


def _touching(epsilon: Array, bend: Array, law: SquaredDistanceLaw) -> Array:
    """The m₁ at which the tangent at E[Y | Y > m₁] crosses δ_G, good for a choice only."""
    low, high = np.zeros(epsilon.shape), bend.copy()
    # a tangent that is above δ_G already at 0 stays above it everywhere
    settled = _height(epsilon, law.mean_above(low), low) >= 0
    for _ in range(BISECTIONS):
        middle = np.where(settled, 0.0, (low + high) / 2)
        above = _height(epsilon, law.mean_above(middle), middle) >= 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(settled, 0.0, (low + high) / 2)


def _height(epsilon: Array, point: Array, level: Array) -> Array:
    """The tangent at ``point`` minus δ_G, at ``level``, to rounding."""
    tangent = gaussian_square(epsilon, point) + _slope(epsilon, point) * (level - point)
    return np.asarray(tangent - gaussian_square(epsilon, level))


def _crossing(epsilon: Array, point: Array, bend: Array) -> tuple[Array, Array, Array]:
    """Where the tangent at ``point`` crosses δ_G, rounded down, and a line above δ_G beyond.

    Returns the crossing, 0 where the tangent starts above, and slope and offset of the line,
    rounded up.
    """
    slope = _slope(epsilon, point)
    offset = gaussian_square(epsilon, point) - slope * point
    # the tangent is 0 there, and δ_G is not: left of the crossing
    level = np.clip(-offset / np.maximum(slope, SMALLEST), 0.0, bend)
    for _ in range(CROSSING_STEPS):
        # Newton from the left on a convex decreasing difference stays on the left
        gap = gaussian_square(epsilon, level) - (offset + slope * level)
        fall = _slope(epsilon, level) - slope
        step = np.where((gap > 0) & (fall < 0), -gap / np.minimum(fall, -SMALLEST), 0.0)
        level = np.minimum(level + step, bend)
    # what Newton has left between the two, the line is lifted by: at the level it is on δ_G, and
    # steeper
    lacking = gaussian_square(epsilon, level) - (offset + slope * level)
    level = np.where(offset < 0, level, 0.0)
    return level, slope, offset + np.where(offset < 0, np.maximum(lacking, 0.0), 0.0)


def _slope(epsilon: Array, square: Array) -> Array:
    """∂δ_G/∂m = φ(ε/μ − μ/2)/(2μ) with μ = √m, to rounding."""
    distance = np.sqrt(np.maximum(square, SMALLEST))
    argument = epsilon / distance - distance / 2
    return np.asarray(np.exp(-argument * argument / 2) / (2 * math.sqrt(2 * math.pi) * distance))


def gaussian_square(epsilon: Array, square: Array) -> Array:
    """δ_G(ε; m) for ε >= 0, to rounding: to a relative error of 1e-11."""
    epsilon, square = np.broadcast_arrays(epsilon, square)
    distance = np.sqrt(square)
    # Φ(−x) − e^ε Φ(−y), x = ε/μ − μ/2, y = ε/μ + μ/2, with φ(x) = e^ε φ(y): φ(x) is a common
    # factor, and what is left is a difference of two Mills' ratios, e^{x²/2} erfc(x/√2) each
    near = distance < CLOSE
    safe = np.where(near, 1.0, distance)
    low = np.clip((epsilon / safe - safe / 2) / SQRT_2, LOWEST, HIGHEST)
    high = (epsilon / safe + safe / 2) / SQRT_2
    value = np.asarray(np.exp(-low * low) * (erfcx(low) - erfcx(high)) / 2)
    if near.any():
        value[near] = _close(epsilon[near], distance[near])
    return value


def _close(epsilon: Array, distance: Array) -> Array:
    """−h w'(x) − h³ w‴(x)/24 for w(x − h/2) − w(x + h/2), w = erfcx: δ_G at small μ, to rounding.

    The difference of two nearly equal numbers by its Taylor series about their middle.
    """
    width = distance / SQRT_2
    middle = np.minimum(epsilon / np.maximum(distance, SMALLEST) / SQRT_2, HIGHEST)
    value = erfcx(middle)
    # w' = 2xw − 2/√π, w″ = 2w + 2xw', w‴ = 4w' + 2xw″
    first = 2 * middle * value - 2 / math.sqrt(math.pi)
    third = 4 * first + 2 * middle * (2 * value + 2 * middle * first)
    low = middle - width / 2
    return np.asarray(-np.exp(-low * low) * width * (first + width * width * third / 24) / 2)


def _logit_range(first: float, second: float) -> tuple[float, float]:
    """Range of ln(x/(1 − x)), rounded outwards: beyond, Beta(a, b) is below e^-95 of its peak."""
    # the density of u is x^a (1 − x)^b: largest at x = a/(a + b)
    peak = math.log(first / second)

    def drop(u: float) -> float:
        def log_density(v: float) -> float:
            return -first * float(np.logaddexp(0, -v)) - second * float(np.logaddexp(0, v))

        return log_density(u) - log_density(peak)

    ends = []
    for sign in (-1.0, 1.0):
        # doubled until beyond, then halved; the outer end is kept
        near, far = 0.0, 1.0
        while drop(peak + sign * far) > LOG_NEGLIGIBLE:
            near, far = far, 2 * far
        for _ in range(RANGE_BISECTIONS):
            middle = (near + far) / 2
            inside = drop(peak + sign * middle) > LOG_NEGLIGIBLE
            near, far = (middle, far) if inside else (near, middle)
        ends.append(peak + sign * far)
    return ends[0], ends[1]


def scan_panels(points: Array, values: Array) -> Array:
    """Return equal panels over each row's points but where values are negligible: a choice only."""
    seen = values > NEGLIGIBLE * values.max(axis=1, keepdims=True)
    seen[:, 0] |= ~seen.any(axis=1)
    last = points.shape[1] - 1
    # from the point before the first that counts to the one after the last
    first_seen = np.maximum(np.argmax(seen, axis=1) - 1, 0)
    last_seen = np.minimum(last - np.argmax(seen[:, ::-1], axis=1) + 1, last)
    rows = np.arange(points.shape[0])
    start, stop = points[rows, first_seen], points[rows, last_seen]
    return np.asarray(start[:, None] + (stop - start)[:, None] * np.linspace(0, 1, PANELS + 1))
