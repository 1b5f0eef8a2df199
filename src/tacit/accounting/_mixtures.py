"""Gaussian mechanisms whose squared distance is random: δ(ε) = E δ_G(ε; Y)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincc, erfcx, gammaln

from tacit._validation import Array
from tacit.accounting._quadrature import Index, integrate, rounded_up
from tacit.accounting.gaussian import gaussian_curve

LOG_NEGLIGIBLE = -95.0
SCAN_POINTS = 49
PANELS = 5
CROSSING_STEPS = 10
BISECTIONS = 14
SMALLEST = 1e-290
CLOSE = 1e-3
SQRT_2 = math.sqrt(2.0)
LOWEST, HIGHEST = -20.0, 26.0  # Φ is 1 below, and its tail is below 1e-290 above


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
        moment = share * betaincc(self.first + 1, self.second, above)
        return mass @ self.weights, moment @ (self.weights * self.scales)

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

        def log_density(points: Array) -> Array:
            left, right = -np.logaddexp(0.0, -points), -np.logaddexp(0.0, points)
            return np.asarray(self.first * left + self.second * right - norm)

        def integrand(rows: Index, points: Array) -> Array:
            share = np.exp(-np.logaddexp(0.0, -points))
            loss = gaussian_square(epsilon[rows][:, None], scale[rows][:, None] * share)
            return np.asarray(weights[rows][:, None] * np.exp(log_density(points)) * loss)

        grid = np.linspace(0.0, 1.0, SCAN_POINTS)
        points = low + (top - low)[:, None] * grid
        edges = _window(points, integrand(np.arange(epsilon.size), points), groups)
        return integrate(integrand, edges, groups)


def rank_one_curve(epsilon: Array, law: ScaledBeta) -> Array:
    """E δ_G(ε; Y) for ε >= 0, rounded up; shape of ``epsilon``, one-dimensional."""
    return rounded_up(law.below(epsilon, np.full(epsilon.shape, math.inf)))


def spectrum_curve(epsilon: Array, law: ScaledBeta) -> Array:
    """Bound E δ_G(ε; W) for every W below Y in convex order, such as Σ w_j Y_j with Σ w_j = 1.

    δ_G(ε; m) is convex for m <= m* = 2(√(1 + ε²) − 1) and concave beyond. A tangent at p >= m*
    lies above it from the point m₁ where they cross, so G = δ_G before m₁ and the tangent after
    is convex and at least δ_G: E δ_G(ε; W) <= E G(W) <= E G(Y). The best p is E[Y | Y > m₁(p)].
    """
    bend = 2 * epsilon**2 / (np.sqrt(1 + epsilon**2) + 1)
    largest = float(law.scales.max())
    curved = largest > bend
    crossing = np.full(epsilon.shape, math.inf)
    line = np.zeros(epsilon.shape)
    if curved.any():
        some = epsilon[curved]
        point = _touching(some, bend[curved], law)
        level, slope, offset = _crossing(some, point, bend[curved])
        mass, moment = law.tail(level)
        crossing[curved] = level
        line[curved] = np.maximum(offset * mass + slope * moment, 0.0)
    return rounded_up(law.below(epsilon, crossing) + line)


def _touching(epsilon: Array, bend: Array, law: ScaledBeta) -> Array:
    """Solve for p = E[Y | Y > m₁] whose tangent crosses δ_G at m₁, by bisection in m₁."""
    low, high = np.zeros(epsilon.shape), bend.copy()
    point = _mean_above(law, low)
    settled = _height(epsilon, point, low) >= 0
    for _ in range(BISECTIONS):
        middle = np.where(settled, 0.0, (low + high) / 2)
        point = _mean_above(law, middle)
        above = _height(epsilon, point, middle) >= 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.maximum(point, bend)


def _mean_above(law: ScaledBeta, level: Array) -> Array:
    """E[Y | Y > m], by the hazard rate of the largest scale where the tail underflows."""
    mass, moment = law.tail(level)
    largest = law.scales.max()
    share = np.clip(level / largest, 1e-12, 1.0)
    hazard = law.second - 1 - (law.first - 1) * (1 - share) / share
    beyond = largest * np.minimum(share + (1 - share) / np.maximum(hazard, 1.0), 1.0)
    return np.where(mass < SMALLEST, beyond, moment / np.maximum(mass, SMALLEST))


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
        value[near] = gaussian_curve(epsilon[near], distance[near])
    return value


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


def _window(points: Array, values: Array, groups: Index) -> Array:
    """Equal panels over the points of each row whose values are not negligible in their group."""
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
