"""Exact privacy curves of centred Gaussians, by contour integrals through the saddle point."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
            value[possible] = self._integrals(epsilon[possible])
        return value

    def _integrals(self, epsilon: Array) -> Array:
        centre = self._saddle(epsilon)
        width, bend = self._path(epsilon, centre)
        peak = self._exponent(epsilon, centre.astype(np.complex128)).real
        reach = self._reach(epsilon, centre, width, bend, peak)

        def halves(rows: npt.NDArray[np.intp], nodes: Array) -> Array:
            """Sum over u = U·nodes of the integrand, without the step."""
            u = reach[rows, None] * nodes
            rise = width[rows, None] * np.sinh(u)
            path = centre[rows, None] + rise * (1j + bend[rows, None] * rise)
            logs = self._exponent(epsilon[rows, None], path) - peak[rows, None]
            tangent = (1j + 2 * bend[rows, None] * rise) * width[rows, None] * np.cosh(u)
            return np.asarray((np.exp(logs) * tangent).imag.sum(axis=1))

        rounding = 8 * EPS * self._magnitude(epsilon, centre)
        rows = np.arange(epsilon.size)
        count = FIRST_NODES
        total = halves(rows, np.arange(1, count + 1) / count) + width / 2
        value = total * reach / count
        result = np.full(epsilon.shape, math.inf)
        for _ in range(DOUBLINGS):
            total = total + halves(rows, (np.arange(count) + 0.5) / count)
            count *= 2
            finer = total * reach[rows] / count
            change = np.abs(finer - value)
            done = change <= (CHANGE + rounding[rows]) * finer
            result[rows[done]] = (finer + change)[done]
            rows, total, value = rows[~done], total[~done], finer[~done]
            if not rows.size:
                break
        with np.errstate(under="ignore", over="ignore"):
            value = result / math.pi * np.exp(peak) * (1 + rounding)
        return np.asarray(np.minimum(value, 1.0))

    def _exponent(self, epsilon: Array, z: Any) -> Any:
        """K(z) − εz − ln z − ln(1 + z)."""
        value = -epsilon * z - np.log(z) - np.log1p(z)
        for x, count in zip(self.excess, self.counts, strict=True):
            value -= count / 2 * (np.log1p(-x * z) + math.log1p(x) * z)
        return value

    def _magnitude(self, epsilon: Array, centre: Array) -> Array:
        terms = np.abs(epsilon * centre) + np.abs(np.log(centre)) + np.log1p(centre)
        for x, count in zip(self.excess, self.counts, strict=True):
            terms += count / 2 * (np.abs(np.log1p(-x * centre)) + abs(math.log1p(x)) * centre)
        return terms

    def _saddle(self, epsilon: Array) -> Array:
        """Minimise the exponent over 0 < c < 1/max x, by bisection on its increasing derivative."""
        top = float(self.excess.max())

        def point(t: Array) -> Array:
            return np.asarray(np.exp(t) if top <= 0 else 1 / (top * (1 + np.exp(-t))))

        low, high = np.full(epsilon.shape, -60.0), np.full(epsilon.shape, 60.0)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            rising = self._slope(epsilon, point(middle)) > 0
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        return point((low + high) / 2)

    def _slope(self, epsilon: Array, c: Array) -> Array:
        total = -epsilon - 1 / c - 1 / (1 + c)
        for x, count in zip(self.excess, self.counts, strict=True):
            # x/(1 − cx) − ln(1 + x) = cx²/(1 − cx) + (x − ln(1 + x))
            total = total + count / 2 * (c * x * x / (1 - c * x) + (x - math.log1p(x)))
        return np.asarray(total)

    def _path(self, epsilon: Array, c: Array) -> tuple[Array, Array]:
        """Width of the saddle, and κ: that of steepest descent, kept to the side of decay."""
        second = 1 / c**2 + 1 / (1 + c) ** 2
        third = -2 / c**3 - 2 / (1 + c) ** 3
        slope = epsilon.copy()
        for x, count in zip(self.excess, self.counts, strict=True):
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

    def _reach(
        self, epsilon: Array, centre: Array, width: Array, bend: Array, peak: Array
    ) -> Array:
        """Value of u beyond which the integrand is negligible."""
        rise = width[:, None] * np.sinh(REACH)
        path = centre[:, None] + rise * (1j + bend[:, None] * rise)
        logs = self._exponent(epsilon[:, None], path).real - peak[:, None]
        growth = np.log1p(2 * np.abs(bend)[:, None] * rise) + REACH
        small = logs + growth < LOG_NEGLIGIBLE
        first = np.where(small.any(axis=1), np.argmax(small, axis=1), REACH.size - 1)
        return np.asarray(REACH[first])
