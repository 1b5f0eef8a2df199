"""Exact privacy curves of centred Gaussians, by contour integrals through the saddle point."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._validation import Array

EPS = float(np.finfo(np.float64).eps)
CHANGE = 1e-11
FIRST_NODES = 24
DOUBLINGS = 8
BISECTIONS = 70
LOG_NEGLIGIBLE = -42.0
REACH = np.linspace(0.5, 40.0, 80)
STEEPNESS = 0.05
MOST_ROWS = 4096


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
        """Supremum of the loss: inf unless every l_i < 1."""
        if (self.excess > 0).any():
            return math.inf
        return -float(self.counts @ np.log1p(self.excess)) / 2

    def positive(self, epsilon: Array) -> Array:
        """Return δ(ε) for finite ε >= 0, shape (n,), to a relative error of 1e-10.

        It is 1 where the rounding of a large exponent keeps the integral from settling.
        """
        value = np.zeros(epsilon.shape)
        if not self.excess.size:
            return value
        possible = epsilon < self.largest
        if possible.any():
            some = epsilon[possible]
            counts = np.repeat(self.counts[:, None], some.size, axis=1)
            value[possible] = Contours.through(self.excess, counts, some).integrals()
        return value


def worst_split(high: float, low: float, total: int, dim: int, epsilon: Array) -> Array:
    """Return the largest δ(ε) over m of the d eigenvalues at 1 + high and the rest at 1 + low.

    Args:
        high: x > 0.
        low: x in (−1, 0).
        total: Coordinates of each eigenvalue.
        dim: d >= 1.
        epsilon: Finite ε >= 0, shape (n,).

    Returns:
        The maximum over m = 0 … d, shape (n,), as `CentredLoss.positive` computes each.
    """
    ends = [CentredLoss(np.array([x]), np.array([float(total * dim)])) for x in (high, low)]
    worst = np.maximum(*(loss.positive(epsilon) for loss in ends))
    excess = np.array([high, low])
    uppers = np.arange(1, dim, dtype=np.float64)
    for rows in _blocks(epsilon.size * uppers.size):
        at, upper = rows // uppers.size, uppers[rows % uppers.size]
        paths = Contours.through(excess, total * np.stack([upper, dim - upper]), epsilon[at])
        rivals = np.flatnonzero(paths.log_bound() > np.log(np.maximum(worst[at], 1e-300)))
        np.maximum.at(worst, at[rivals], paths.rows(rivals).integrals())
    return worst


def _blocks(count: int) -> Iterator[npt.NDArray[np.intp]]:
    for start in range(0, count, MOST_ROWS):
        yield np.arange(start, min(start + MOST_ROWS, count))


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
        exponent = self._exponent(c.astype(np.complex128)).real
        # the exponent has −ln c − ln(1 + c) already
        bound = exponent + (1 + c) * np.log(c) - c * np.log1p(c)
        return np.asarray(bound + 16 * EPS * self._magnitude() + 1e-9)

    def integrals(self) -> Array:
        """Return δ of every row."""
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
            rows, total, value = rows[~done], total[~done], finer[~done]
        with np.errstate(under="ignore", over="ignore"):
            value = result / math.pi * np.exp(peak) * (1 + rounding)
        return np.asarray(np.minimum(value, 1.0))

    def _terms(self) -> Iterator[tuple[float, Array]]:
        return zip(self.excess.tolist(), self.counts, strict=True)

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
        return total

    def _saddle(self) -> Array:
        """Minimise the exponent over 0 < c < 1/max x, by bisection on its increasing derivative."""
        top = float(self.excess.max())

        def point(t: Array) -> Array:
            return np.asarray(np.exp(t) if top <= 0 else 1 / (top * (1 + np.exp(-t))))

        low, high = np.full(self.epsilon.shape, -60.0), np.full(self.epsilon.shape, 60.0)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            rising = self._slope(point(middle)) > 0
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        return point((low + high) / 2)

    def _slope(self, c: Array) -> Array:
        total = -self.epsilon - 1 / c - 1 / (1 + c)
        for x, count in self._terms():
            # x/(1 − cx) − ln(1 + x) = cx²/(1 − cx) + (x − ln(1 + x))
            total = total + count / 2 * (c * x * x / (1 - c * x) + (x - math.log1p(x)))
        return np.asarray(total)

    def _path(self) -> tuple[Array, Array]:
        """Width of the saddle, and κ: that of steepest descent, kept to the side of decay."""
        c = self.centre
        second = 1 / c**2 + 1 / (1 + c) ** 2
        third = -2 / c**3 - 2 / (1 + c) ** 3
        slope = self.epsilon.copy()
        for x, count in self._terms():
            share = x / (1 - c * x)
            second = second + count / 2 * share**2
            third = third + count * share**3
            slope += count / 2 * math.log1p(x)
        top, bottom = float(self.excess.max()), float(self.excess.min())
        right = top / (3 * (1 - c * top)) if top > 0 else np.full(c.shape, np.inf)
        left = -bottom / (3 * (1 - c * bottom)) if bottom < 0 else 1 / (3 * (c + 1))
        limit = np.where(slope >= 0, right, left)
        steepest = third / (6 * second) * np.where(slope >= 0, 1.0, -1.0)
        bend = np.clip(steepest, STEEPNESS * limit, limit) * np.where(slope >= 0, 1.0, -1.0)
        return 1 / np.sqrt(second), np.where(slope == 0, 0.0, bend)

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
