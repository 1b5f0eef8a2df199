"""Gaussian mechanisms whose squared distance is random: δ(ε) = E δ_G(ε; Y)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import betaincc, erfcx, gammaln

from tacit._ground.checks import Array
from tacit.accounting.numerics.quadrature import Index, integrate, rounded_up

LOG_NEGLIGIBLE = -95.0
SCAN_POINTS = 49
PANELS = 5
CROSSING_STEPS = 10
BISECTIONS = 24
GRID_POINTS, GRID_START = 96, 1e-5
GRID_ERROR = 2e-3  # of m₁/m*
SMALLEST = 1e-290
CLOSE = 1e-3
SQRT_2 = math.sqrt(2.0)
LOWEST, HIGHEST = -20.0, 26.0  # Φ is 1 below, and its tail is below 1e-290 above


class Law(Protocol):
    """Law of the squared distance Y."""

    @property
    def largest(self) -> float:
        """Return the largest value of Y."""
        ...

    def tail(self, level: Array) -> tuple[Array, Array]:
        """Return P(Y > m) and E[Y; Y > m] for each m of ``level``, shape (n,), rounded up."""
        ...

    def mean_above(self, level: Array) -> Array:
        """Return E[Y | Y > m] for each m of ``level``, shape (n,), rounded up."""
        ...

    def below(self, epsilon: Array, level: Array) -> Array:
        """Return E[δ_G(ε; Y); Y < m] for each ε >= 0 and m, shape (n,), rounded up."""
        ...


@dataclass(frozen=True)
class ScaledBeta:
    """Law of Y = s_T X: X ~ Beta(first, second), s_T one of ``scales`` with ``weights``.

    Args:
        first: First parameter a > 0 of X.
        second: Second parameter b > 0; 0 makes X = 1.
        scales: Scales s_T > 0, shape (k,), independent of X.
        weights: Their probabilities, shape (k,).
    """

    first: float
    second: float
    scales: Array
    weights: Array

    @property
    def mean(self) -> float:
        """E Y."""
        share = self.first / (self.first + self.second)
        return share * float(self.scales @ self.weights)

    def tail(self, level: Array) -> tuple[Array, Array]:
        """P(Y > m) and E[Y; Y > m] for each m of ``level``, shape (n,)."""
        above = np.minimum(level[:, None] / self.scales, 1.0)
        if self.second == 0:
            inside = (level[:, None] < self.scales).astype(np.float64)
            return inside @ self.weights, inside @ (self.weights * self.scales)
        share = self.first / (self.first + self.second)
        mass = betaincc(self.first, self.second, above)
        with np.errstate(divide="ignore", under="ignore"):
            logs = self.first * np.log(above) + self.second * np.log1p(-above)
            # P(X > x) at a + 1 is P(X > x) at a plus x^a (1 − x)^b / (a B(a, b))
            rise = np.exp(logs - log_beta(self.first, self.second)) / self.first
        moment = share * (mass + rise)
        return mass @ self.weights, moment @ (self.weights * self.scales)

    @property
    def largest(self) -> float:
        """Supremum of Y."""
        return float(self.scales.max())

    def mean_above(self, level: Array) -> Array:
        """E[Y | Y > m], by the hazard rate of the largest scale where the tail underflows."""
        mass, moment = self.tail(level)
        share = np.clip(level / self.largest, 1e-12, 1.0)
        hazard = self.second - 1 - (self.first - 1) * (1 - share) / share
        beyond = self.largest * np.minimum(share + (1 - share) / np.maximum(hazard, 1.0), 1.0)
        return np.where(mass < SMALLEST, beyond, moment / np.maximum(mass, SMALLEST))

    def below(self, epsilon: Array, level: Array) -> Array:
        """E[δ_G(ε; Y); Y < m] for each ε >= 0 and m, shape (n,)."""
        rows = np.repeat(np.arange(epsilon.size), self.scales.size)
        scales = np.tile(self.scales, epsilon.size)
        uppers = level[rows] / scales
        if self.second == 0:
            values = np.where(uppers > 1, gaussian_square(epsilon[rows], scales), 0.0)
            return np.asarray(values.reshape(epsilon.size, -1) @ self.weights)
        return self._truncated(epsilon, rows, scales, np.minimum(uppers, 1.0))

    def _truncated(self, losses: Array, groups: Index, scale: Array, upper: Array) -> Array:
        """Sums over groups of weights times E[δ_G(ε; s X); X < upper], in u = ln(x/(1 − x))."""
        epsilon = losses[groups]
        weights = np.tile(self.weights, losses.size)
        low, high = _logit_range(self.first, self.second)
        with np.errstate(divide="ignore"):
            cut = np.log(upper) - np.log1p(-upper)
        top = np.clip(cut, low, high)
        norm = log_beta(self.first, self.second)

        def integrand(rows: Index, points: Array) -> Array:
            # −ln x and −ln(1 − x), of which one is small
            small = np.log1p(np.exp(-np.abs(points)))
            left, right = np.maximum(-points, 0.0) + small, np.maximum(points, 0.0) + small
            loss = gaussian_square(epsilon[rows][:, None], scale[rows][:, None] * np.exp(-left))
            density = np.exp(-self.first * left - self.second * right - norm)
            return np.asarray(weights[rows][:, None] * density * loss)

        grid = np.linspace(0.0, 1.0, SCAN_POINTS)
        points = low + (top - low)[:, None] * grid
        edges = scan_panels(points, integrand(np.arange(epsilon.size), points), groups)
        return integrate(integrand, edges, groups)


def rank_one_curve(epsilon: Array, law: Law) -> Array:
    """E δ_G(ε; Y) for ε >= 0, rounded up; shape of ``epsilon``, one-dimensional."""
    return rounded_up(law.below(epsilon, np.full(epsilon.shape, math.inf)))


class SpectrumCurve:
    """Bound E δ_G(ε; W) for every W below Y in convex order, such as Σ w_j Y_j with Σ w_j = 1.

    δ_G(ε; m) is convex for m <= m* = 2(√(1 + ε²) − 1) and concave beyond. A tangent at p >= m*
    lies above it from the point m₁ where they cross, so G = δ_G before m₁ and the tangent after
    is convex and at least δ_G: E δ_G(ε; W) <= E G(W) <= E G(Y). The best p is E[Y | Y > m₁(p)];
    it is found on a grid of ε and read off between, since every p gives a bound.

    Args:
        law: The law of Y.
    """

    def __init__(self, law: Law):
        self._law = law
        self._largest = law.largest

    def __call__(self, epsilon: Array) -> Array:
        """Return the bound for ε >= 0, rounded up; shape of ``epsilon``, one-dimensional."""
        bend = _bend(epsilon)
        curved = self._largest > bend
        crossing = np.full(epsilon.shape, math.inf)
        line = np.zeros(epsilon.shape)
        if curved.any():
            some, limit = epsilon[curved], bend[curved]
            guess = limit * self._shares(some)
            level, slope, offset = self._tangent(some, limit, guess)
            astray = np.abs(level - guess) > GRID_ERROR * limit
            if astray.any():
                here, bound = some[astray], limit[astray]
                found = self._tangent(here, bound, _touching(here, bound, self._law))
                level[astray], slope[astray], offset[astray] = found
            mass, moment = self._law.tail(level)
            crossing[curved] = level
            line[curved] = np.maximum(offset * mass + slope * moment, 0.0)
        return rounded_up(self._law.below(epsilon, crossing) + line)

    def _tangent(self, epsilon: Array, bend: Array, level: Array) -> tuple[Array, Array, Array]:
        """Where the tangent at E[Y | Y > level] crosses δ_G, its slope and offset."""
        point = np.maximum(self._law.mean_above(level), bend)
        return _crossing(epsilon, point, bend)

    def _shares(self, epsilon: Array) -> Array:
        """The best m₁/m*, between the points of the grid."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.clip(self._grid(np.log(np.maximum(epsilon, self._lowest))), 0, 1))

    @property
    def _last(self) -> float:
        """The ε at which m* is the largest scale."""
        return math.sqrt(self._largest + self._largest**2 / 4)

    @property
    def _lowest(self) -> float:
        return GRID_START * self._last

    @cached_property
    def _grid(self) -> PchipInterpolator:
        epsilon = np.geomspace(self._lowest, self._last, GRID_POINTS)
        bend = _bend(epsilon)
        return PchipInterpolator(np.log(epsilon), _touching(epsilon, bend, self._law) / bend)


def _bend(epsilon: Array) -> Array:
    """m* = 2(√(1 + ε²) − 1)."""
    return np.asarray(2 * epsilon**2 / (np.sqrt(1 + epsilon**2) + 1))


def _touching(epsilon: Array, bend: Array, law: Law) -> Array:
    """The m₁ at which the tangent at p = E[Y | Y > m₁] crosses δ_G, by bisection."""
    low, high = np.zeros(epsilon.shape), bend.copy()
    settled = _height(epsilon, law.mean_above(low), low) >= 0
    for _ in range(BISECTIONS):
        middle = np.where(settled, 0.0, (low + high) / 2)
        above = _height(epsilon, law.mean_above(middle), middle) >= 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(settled, 0.0, (low + high) / 2)


def _height(epsilon: Array, point: Array, level: Array) -> Array:
    """The tangent at ``point`` minus δ_G, at ``level``."""
    tangent = gaussian_square(epsilon, point) + _slope(epsilon, point) * (level - point)
    return np.asarray(tangent - gaussian_square(epsilon, level))


def _crossing(epsilon: Array, point: Array, bend: Array) -> tuple[Array, Array, Array]:
    """Where the tangent at ``point`` crosses δ_G, 0 where it starts above; its slope and offset."""
    slope = _slope(epsilon, point)
    offset = gaussian_square(epsilon, point) - slope * point
    level = np.clip(-offset / np.maximum(slope, SMALLEST), 0.0, bend)
    for _ in range(CROSSING_STEPS):
        # Newton from the left on a convex decreasing difference stays on the left
        gap = gaussian_square(epsilon, level) - (offset + slope * level)
        fall = _slope(epsilon, level) - slope
        step = np.where((gap > 0) & (fall < 0), -gap / np.minimum(fall, -SMALLEST), 0.0)
        level = np.minimum(level + step, bend)
    return np.where(offset < 0, level, 0.0), slope, offset


def _slope(epsilon: Array, square: Array) -> Array:
    """∂δ_G/∂m = φ(ε/μ − μ/2)/(2μ) with μ = √m."""
    distance = np.sqrt(np.maximum(square, SMALLEST))
    argument = epsilon / distance - distance / 2
    return np.asarray(np.exp(-argument * argument / 2) / (2 * math.sqrt(2 * math.pi) * distance))


def gaussian_square(epsilon: Array, square: Array) -> Array:
    """δ_G(ε; m) for ε >= 0, to a relative error of 1e-11."""
    epsilon, square = np.broadcast_arrays(epsilon, square)
    distance = np.sqrt(square)
    near = distance < CLOSE
    safe = np.where(near, 1.0, distance)
    # φ(x) (Φ(−x)/φ(x) − Φ(−y)/φ(y)), x = ε/μ − μ/2, y = ε/μ + μ/2; φ(x) = e^ε φ(y)
    low = np.clip((epsilon / safe - safe / 2) / SQRT_2, LOWEST, HIGHEST)
    high = (epsilon / safe + safe / 2) / SQRT_2
    value = np.asarray(np.exp(-low * low) * (erfcx(low) - erfcx(high)) / 2)
    if near.any():
        value[near] = _close(epsilon[near], distance[near])
    return value


def _close(epsilon: Array, distance: Array) -> Array:
    """δ_G where μ is small: −h w'(x) − h³ w‴(x)/24 for w(x − h/2) − w(x + h/2), w = erfcx."""
    width = distance / SQRT_2
    middle = np.minimum(epsilon / np.maximum(distance, SMALLEST) / SQRT_2, HIGHEST)
    value = erfcx(middle)
    first = 2 * middle * value - 2 / math.sqrt(math.pi)
    third = 4 * first + 2 * middle * (2 * value + 2 * middle * first)
    low = middle - width / 2
    return np.asarray(-np.exp(-low * low) * width * (first + width * width * third / 24) / 2)


def log_beta(first: float, second: float) -> float:
    """Return ln B(a, b) without the cancellation of large terms."""
    small, large = min(first, second), max(first, second)
    if large < 100:
        return float(gammaln(small) + gammaln(large) - gammaln(small + large))
    total = small + large
    # Stirling: lnΓ(x) = (x − ½) ln x − x + ½ ln 2π + c(x)
    ratio = (large - 0.5) * math.log1p(small / large) + small * math.log(total) - small
    return float(gammaln(small)) - ratio - stirling(total) + stirling(large)


def stirling(x: float) -> float:
    """Return lnΓ(x) − (x − ½) ln x + x − ½ ln 2π for x >= 10, to float precision at x >= 50."""
    return 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5) - 1 / (1680 * x**7)


def _logit_range(first: float, second: float) -> tuple[float, float]:
    """Values of ln(x/(1 − x)) outside which the density of Beta(a, b) is e^-95 below its peak."""
    peak = math.log(first / second)

    def drop(u: float) -> float:
        def log_density(v: float) -> float:
            return -first * float(np.logaddexp(0, -v)) - second * float(np.logaddexp(0, v))

        return log_density(u) - log_density(peak)

    ends = []
    for sign in (-1.0, 1.0):
        near, far = 0.0, 1.0
        while drop(peak + sign * far) > LOG_NEGLIGIBLE:
            near, far = far, 2 * far
        for _ in range(20):
            middle = (near + far) / 2
            inside = drop(peak + sign * middle) > LOG_NEGLIGIBLE
            near, far = (middle, far) if inside else (near, middle)
        ends.append(peak + sign * far)
    return ends[0], ends[1]


def scan_panels(points: Array, values: Array, groups: Index) -> Array:
    """Return equal panels over each row's points with values not negligible in their group."""
    largest = np.zeros(int(groups.max()) + 1)
    np.maximum.at(largest, groups, values.max(axis=1))
    seen = values > 1e-24 * largest[groups][:, None]
    seen[:, 0] |= ~seen.any(axis=1)
    last = points.shape[1] - 1
    first_seen = np.maximum(np.argmax(seen, axis=1) - 1, 0)
    last_seen = np.minimum(last - np.argmax(seen[:, ::-1], axis=1) + 1, last)
    rows = np.arange(points.shape[0])
    start, stop = points[rows, first_seen], points[rows, last_seen]
    return np.asarray(start[:, None] + (stop - start)[:, None] * np.linspace(0, 1, PANELS + 1))
