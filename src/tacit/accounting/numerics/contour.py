"""Exact privacy curves of centred Gaussians, by contour integrals through the saddle point."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

CHANGE = 1e-11
ROUGH_CHANGE = 1e-6  # of an integral that its own rounding keeps from settling
FIRST_NODES = 24
DOUBLINGS = 8
BISECTIONS, NEWTON_STEPS = 10, 5
LOWEST_SHARE, HIGHEST_SHARE = -60.0, 28.0  # of ln(cx/(1 − cx)), where 1 − cx keeps some digits
LOG_NEGLIGIBLE = -42.0
LOG_NOTHING = -760.0  # below the logarithm of the smallest float
REACH = np.linspace(0.5, 40.0, 80)
STEEPNESS = 0.05
MOST_ROWS = 4096
SERIES_BELOW = 0.01
SERIES_TERMS = 9


@dataclass(frozen=True)
class CentredLoss:
    """Law of the loss L of N(0, diag l) against N(0, I), l_i = 1 + x_i, n_i coordinates each.

    ln E_P e^{zL} = K(z) = −Σ (n_i/2) [ln(1 − z x_i) + z ln(1 + x_i)] where z x_i < 1, and

    δ(ε) = E_P max(1 − e^{ε−L}, 0) = (1/2πi) ∫ exp(K(z) − εz) / (z(z + 1)) dz

    upwards through any point c > 0 of the domain of K. The path is the parabola
    z = c + iy + κy² through the saddle point, which bends to the side where e^{−εz} decays and
    along which the integrand decreases.

    Args:
        excess: x_i > −1, none 0, distinct, shape (k,).
        counts: n_i > 0, shape (k,).
    """

    excess: Array
    counts: Array

    @property
    def largest(self) -> float:
        """Supremum of the loss, rounded up: inf unless every l_i < 1."""
        if (self.excess > 0).any():
            return math.inf
        return -float(self.counts @ np.log1p(self.excess)) / 2 * (1 + 8 * EPS)

    def positive(self, epsilon: Array) -> Array:
        """Return δ(ε) for finite ε >= 0, shape (n,), to a relative error of 1e-10."""
        with np.errstate(under="ignore"):
            return np.exp(self.log_positive(epsilon))

    def log_positive(self, epsilon: Array) -> Array:
        """Return ln δ(ε) for finite ε >= 0, shape (n,).

        It is Chernoff's bound where δ underflows, and where the integral does not settle.
        """
        value = np.full(epsilon.shape, -math.inf)
        if not self.excess.size:
            return value
        possible = epsilon < self.largest
        if possible.any():
            some = epsilon[possible]
            counts = np.repeat(self.counts[:, None], some.size, axis=1)
            value[possible] = log_integrals(self.excess, counts, some)
        return value


def log_integrals(excess: Array, counts: Array, epsilon: Array) -> Array:
    """Return ln δ of each row; ``counts`` has shape (k, n) and ``epsilon`` shape (n,)."""
    value = np.empty(epsilon.shape)
    for start in range(0, epsilon.size, MOST_ROWS):
        part = slice(start, start + MOST_ROWS)
        value[part] = Contours.through(excess, counts[:, part], epsilon[part]).log_integrals()
    return value


@dataclass(frozen=True)
class Contours:
    """Integrals of `CentredLoss` with one loss, one set of counts and one saddle point a row.

    Args:
        excess: x_i, shape (k,).
        counts: n_i >= 0, shape (k, n).
        epsilon: ε of each row, shape (n,).
        centre: Saddle point c of each row, shape (n,).
    """

    excess: Array
    counts: Array
    epsilon: Array
    centre: Array

    @classmethod
    def through(cls, excess: Array, counts: Array, epsilon: Array) -> Contours:
        """Find the saddle points."""
        paths = cls(excess, counts, epsilon, np.zeros(epsilon.shape))
        return replace(paths, centre=paths._saddle())

    def rows(self, index: npt.NDArray[np.intp]) -> Contours:
        """Return some of the rows."""
        return Contours(self.excess, self.counts[:, index], self.epsilon[index], self.centre[index])

    def log_bound(self) -> Array:
        """ln δ is at most this: 1 − e^{−t} <= c^c (1 + c)^{−1−c} e^{ct} for t > 0 and any c > 0."""
        c = self.centre
        bound = -self.epsilon * c - np.log1p(c) - c * np.log1p(1 / c)
        for cumulant, count in zip(self._cumulants(), self.counts, strict=True):
            bound = bound + count * cumulant
        return np.asarray(bound + 16 * EPS * self._magnitude() + 1e-9)

    def slopes(self) -> Array:
        """Derivative of `log_bound` in each count at a saddle that stays, shape (k, n)."""
        return np.stack(list(self._cumulants()))

    def log_integrals(self) -> Array:
        """Return ln δ of every row."""
        value = np.minimum(self.log_bound(), 0.0)
        some = np.flatnonzero(value > LOG_NOTHING)
        if some.size:
            value[some] = np.minimum(self.rows(some)._settled(), value[some])
        return value

    def _settled(self) -> Array:
        width, bend = self._path()
        peak = self._exponent(self.centre.astype(np.complex128)).real
        reach = self._reach(width, bend, peak)

        def halves(rows: npt.NDArray[np.intp], nodes: Array) -> Array:
            """Sum over u = U·nodes of the integrand, without the step."""
            u = reach[rows, None] * nodes
            rise = width[rows, None] * np.sinh(u)
            path = self.centre[rows, None] + rise * (1j + bend[rows, None] * rise)
            logs = self.rows(rows)._exponent(path) - peak[rows, None]
            tangent = (1j + 2 * bend[rows, None] * rise) * width[rows, None] * np.cosh(u)
            return np.asarray((np.exp(logs) * tangent).imag.sum(axis=1))

        rounding = 8 * EPS * self._magnitude()
        rows = np.arange(self.epsilon.size)
        count = FIRST_NODES
        total = halves(rows, np.arange(1, count + 1) / count) + width / 2
        value = total * reach / count
        result = np.full(self.epsilon.shape, math.inf)
        for _ in range(DOUBLINGS):
            if not rows.size:
                break
            total = total + halves(rows, (np.arange(count) + 0.5) / count)
            count *= 2
            finer = total * reach[rows] / count
            change = np.abs(finer - value)
            done = change <= (CHANGE + rounding[rows]) * finer
            result[rows[done]] = (finer + change)[done]
            # each halving squares the error of a smooth integrand: a small change tells of rounding
            rough = ~done & (change <= ROUGH_CHANGE * finer)
            result[rows[rough]] = np.minimum(result[rows[rough]], (finer + 4 * change)[rough])
            rows, total, value = rows[~done], total[~done], finer[~done]
        return np.asarray(np.log(result / math.pi) + peak + rounding)

    def _terms(self) -> Iterator[tuple[float, Array]]:
        return zip(self.excess.tolist(), self.counts, strict=True)

    def _cumulants(self) -> Iterator[Array]:
        """K(c) of one coordinate of each kind."""
        for x in self.excess.tolist():
            yield -(np.log1p(-x * self.centre) + math.log1p(x) * self.centre) / 2

    def _exponent(self, z: Any) -> Any:
        """K(z) − εz − ln z − ln(1 + z), z of shape (n,) or (n, points)."""
        shape = (-1, 1) if z.ndim == 2 else (-1,)
        value = -self.epsilon.reshape(shape) * z - np.log(z) - np.log1p(z)
        for x, count in self._terms():
            value -= count.reshape(shape) / 2 * (np.log1p(-x * z) + math.log1p(x) * z)
        return value

    def _magnitude(self) -> Array:
        c = self.centre
        total = np.abs(self.epsilon * c) + np.abs(np.log(c)) + np.log1p(c)
        for x, count in self._terms():
            total += count / 2 * (np.abs(np.log1p(-x * c)) + abs(math.log1p(x)) * c)
            # 1 − cx keeps fewer digits near the end of the domain
            total += count / 2 * np.abs(x * c) / (1 - x * c)
        return total

    def _saddle(self) -> Array:
        """Minimise the exponent over 0 < c < 1/max x: bisection of its derivative, then Newton."""
        top = float(self.excess.max())
        scale = top if top > 0 else -float(self.excess.min())
        # x/(1 − cx) − ln(1 + x) = x · cx/(1 − cx) + (x − ln(1 + x))
        constant = self.epsilon + log_excess(self.excess) @ self.counts / 2
        weights = list(zip(self.excess.tolist(), self.counts / 2, strict=True))

        def point(t: Array) -> tuple[Array, Array]:
            """C and its derivative in t, over c."""
            if top <= 0:
                return np.exp(t) / scale, np.ones(t.shape)
            fall = np.exp(-t)
            return 1 / (scale * (1 + fall)), fall / (1 + fall)

        def slope(c: Array) -> tuple[Array, Array]:
            """The derivative, and c times the second."""
            value, rise = -constant - 1 / c - 1 / (1 + c), 1 / c + c / (1 + c) ** 2
            for x, weight in weights:
                share = x / (1 - c * x)
                value += weight * (x * c * share)
                rise += weight * (share * c * share)
            return value, rise

        low = np.full(self.epsilon.shape, LOWEST_SHARE)
        high = np.full(self.epsilon.shape, -LOWEST_SHARE if top <= 0 else HIGHEST_SHARE)
        t = (low + high) / 2
        for step in range(BISECTIONS + NEWTON_STEPS):
            c, stretch = point(t)
            value, rise = slope(c)
            low, high = np.where(value > 0, low, t), np.where(value > 0, t, high)
            t = (low + high) / 2
            if step >= BISECTIONS:
                t = np.clip(np.where(value > 0, high, low) - value / (rise * stretch), low, high)
        return point(t)[0]

    def _path(self) -> tuple[Array, Array]:
        """Width of the saddle, and κ: that of steepest descent, kept to the side of decay."""
        c = self.centre
        # the second and third derivatives of the exponent, times c² and c³
        second = 1 + (c / (1 + c)) ** 2
        third = -2 - 2 * (c / (1 + c)) ** 3
        slope = self.epsilon.copy()
        for x, count in self._terms():
            share = c * x / (1 - c * x)
            second = second + count / 2 * share**2
            third = third + count * share**3
            slope += count / 2 * math.log1p(x)
        top, bottom = float(self.excess.max()), float(self.excess.min())
        right = top / (3 * (1 - c * top)) if top > 0 else np.full(c.shape, np.inf)
        left = -bottom / (3 * (1 - c * bottom)) if bottom < 0 else 1 / (3 * (c + 1))
        limit = np.where(slope >= 0, right, left)
        steepest = third / (6 * second * c) * np.where(slope >= 0, 1.0, -1.0)
        bend = np.clip(steepest, STEEPNESS * limit, limit) * np.where(slope >= 0, 1.0, -1.0)
        return c / np.sqrt(second), np.where(slope == 0, 0.0, bend)

    def _reach(self, width: Array, bend: Array, peak: Array) -> Array:
        """Value of u beyond which the integrand, which decreases along the path, is negligible."""
        low = np.full(width.shape, -1)
        high = np.full(width.shape, REACH.size - 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            rise = width * np.sinh(REACH[middle])
            path = self.centre + rise * (1j + bend * rise)
            logs = self._exponent(path).real - peak
            growth = np.log1p(2 * np.abs(bend) * rise) + REACH[middle]
            small = logs + growth < LOG_NEGLIGIBLE
            # rows that have met stay: their middle is low
            low = np.where(small | (high - low <= 1), low, middle)
            high = np.where(small & (high - low > 1), middle, high)
        return np.asarray(REACH[high])


def log_excess(t: Array) -> Array:
    """ln(1 + t) − t <= 0."""
    near = np.abs(t) < SERIES_BELOW
    small, series = np.where(near, t, 0.0), np.zeros(t.shape)
    for power in range(SERIES_TERMS, 1, -1):
        series = (-1.0) ** (power + 1) / power + small * series
    return np.where(near, small * small * series, np.log1p(t) - t)
