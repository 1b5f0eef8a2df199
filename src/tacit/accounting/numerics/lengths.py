"""The law of a projected length, ‖Mu‖² = X T²/r², tabulated in its logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import BSpline, make_interp_spline
from scipy.special import gammaln, logsumexp

from tacit._ground.checks import Array
from tacit.accounting.numerics.mixtures import gaussian_square, log_beta, scan_panels, stirling
from tacit.accounting.numerics.quadrature import NODES, WEIGHTS, Index, integrate

LOG_UNSEEN = -56.0  # of the density of ln Y at the ends of the table
LOG_NODES = -75.0
LOG_CHI_NODES = -120.0  # the ends of Y come from T far out and X near 1
SCAN_POINTS = 49
STEPS_PER_WIDTH = 2.5
WIDEST_STEP = 0.2
SMOOTH_END = 200.0  # (1 − x)^b is smooth enough there for the trapezoidal rule
FIRST_KNOTS, MOST_KNOTS = 256, 4096
TABLE_ERROR = 1e-10


@dataclass(frozen=True)
class TabulatedLaw:
    """Law of Y > 0 by a spline of the logarithm of the density of ln Y.

    Args:
        spline: ln of the density of ln Y, between its outer knots.
        knots: Values of ln Y, increasing, evenly spaced.
        error: Relative error of the density, at most.
    """

    spline: BSpline
    knots: Array
    error: float

    @property
    def largest(self) -> float:
        """Beyond it Y has a probability below e^-50."""
        return math.exp(float(self.knots[-1]))

    def below(self, epsilon: Array, level: Array) -> Array:
        """E[δ_G(ε; Y); Y < m] for each ε >= 0 and m, shape (n,), rounded up."""
        low, high = float(self.knots[0]), float(self.knots[-1])
        with np.errstate(divide="ignore"):
            top = np.clip(np.log(level), low, high)

        def integrand(rows: Index, points: Array) -> Array:
            loss = gaussian_square(epsilon[rows][:, None], np.exp(points))
            return np.asarray(np.exp(self.spline(points)) * loss)

        rows = np.arange(epsilon.size)
        points = low + (top - low)[:, None] * np.linspace(0.0, 1.0, SCAN_POINTS)
        edges = scan_panels(points, integrand(rows, points), rows)
        return np.asarray(integrate(integrand, edges) * (1 + 2 * self.error))

    def tail(self, level: Array) -> tuple[Array, Array]:
        """P(Y > m) and E[Y; Y > m] for each m of ``level``, shape (n,), rounded up."""
        with np.errstate(divide="ignore"):
            start = np.clip(np.log(level), self.knots[0], self.knots[-1])
        after = np.clip(np.searchsorted(self.knots, start), 1, self.knots.size - 1)
        part = self._integrals(start, self.knots[after])
        sums = part + self._sums[:, after]
        return sums[0], sums[1]

    def mean_above(self, level: Array) -> Array:
        """E[Y | Y > m], the end of the table where that is beyond it."""
        mass, moment = self.tail(level)
        return np.where(mass > 0, moment / np.where(mass > 0, mass, 1.0), self.largest)

    @cached_property
    def _sums(self) -> Array:
        """Mass and moment above each knot, shape (2, knots)."""
        pieces = self._integrals(self.knots[:-1], self.knots[1:])
        sums = np.cumsum(pieces[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([sums, np.zeros((2, 1))], axis=1)

    def _integrals(self, start: Array, stop: Array) -> Array:
        half = ((stop - start) / 2)[:, None]
        points = start[:, None] + half * (NODES + 1)
        mass = np.exp(self.spline(points)) * half * (1 + 2 * self.error)
        return np.stack([mass @ WEIGHTS, (mass * np.exp(points)) @ WEIGHTS])


def projected_length(dim: int, rank: int, scale: float) -> TabulatedLaw:
    """Return the law of Y = scale · X T²/r², X ~ Beta(r/2, (d−1)/2), T ~ χ²_{d+r−1}.

    The density of ln Y is an integral over the wider of the two variables, by the trapezoidal
    rule; it is tabulated until the spline meets a finer rule between its knots.
    """
    density = _LogDensity(rank / 2, (dim - 1) / 2, dim + rank - 1, math.log(scale / rank**2))
    low, high = density.ends()
    count = FIRST_KNOTS
    while True:
        knots = np.linspace(low, high, count + 1)
        spline = make_interp_spline(knots, density(knots, 1.0), k=5)
        between = (knots[:-1] + knots[1:]) / 2
        error = float(np.abs(np.expm1(density(between, 1.4) - spline(between))).max())
        if error <= TABLE_ERROR or count >= MOST_KNOTS:
            return TabulatedLaw(spline, knots, error)
        count *= 2


@dataclass(frozen=True)
class _LogDensity:
    """ln of the density of ln Y = shift + ln X + 2 ln T."""

    first: float
    second: float
    degrees: int
    shift: float

    def __call__(self, points: Array, fineness: float) -> Array:
        half = self.degrees / 2
        if self.second >= max(SMOOTH_END, 4 * self.first):
            logs, nodes = self._chi_nodes(fineness)
            share = points[:, None] - self.shift - 2 * nodes
            inside = np.minimum(share, -1e-300)
            with np.errstate(divide="ignore"):
                terms = self.first * inside + (self.second - 1) * np.log(-np.expm1(inside))
            terms = np.where(share < 0, terms - log_beta(self.first, self.second), -np.inf)
        else:
            logs, nodes = self._beta_nodes(fineness)
            length = (points[:, None] - self.shift - nodes) / 2 - math.log(self.degrees)
            terms = half * (length - np.expm1(np.minimum(length, 700.0))) + _chi_norm(half)
            terms -= math.log(2)
        return np.asarray(logsumexp(terms + logs, axis=1))

    def ends(self) -> tuple[float, float]:
        """Where the density is negligible beyond."""
        nodes = self._chi_nodes(1.0)[1]
        slow = -LOG_NODES / self.first + 10
        points = self.shift + np.linspace(2 * nodes[0] - slow, 2 * nodes[-1], 4001)
        for _ in range(2):
            values = self(points[::8], 1.0)
            seen = np.flatnonzero(values > LOG_UNSEEN)
            low = points[8 * max(int(seen[0]) - 1, 0)]
            high = points[min(8 * (int(seen[-1]) + 1), points.size - 1)]
            points = np.linspace(low, high, 4001)
        return float(low), float(high)

    def _chi_nodes(self, fineness: float) -> tuple[Array, Array]:
        """ln of the weights, and ln T, T ~ χ²_n."""
        half = self.degrees / 2
        # width of the product of both densities at one Y
        narrow = 1 / math.sqrt(half + 4 / (1 / self.first + 1 / self.second))
        step = min(narrow / STEPS_PER_WIDTH, WIDEST_STEP) / fineness
        low = -(math.sqrt(-2 * LOG_CHI_NODES / half) - LOG_CHI_NODES / half)
        high = math.log1p(math.sqrt(-4 * LOG_CHI_NODES / half) - 2 * LOG_CHI_NODES / half)
        nodes = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
        logs = half * (nodes - np.expm1(nodes)) + _chi_norm(half) + math.log(step)
        kept = logs > LOG_CHI_NODES
        return logs[kept], nodes[kept] + math.log(self.degrees)

    def _beta_nodes(self, fineness: float) -> tuple[Array, Array]:
        """ln of the weights, and ln X, on even steps of ln(x/(1 − x))."""
        wide = math.sqrt(1 / self.first + 1 / self.second)
        # d ln x = (1 − x) d ln(x/(1 − x)), and 1 − x is at most this in the range
        farthest = (self.second + math.sqrt(-2 * LOG_NODES * self.second) + 80) / self.first
        narrow = 1 / math.sqrt(1 / wide**2 + self.degrees / 2 * min(farthest, 1.0) ** 2)
        step = min(narrow / STEPS_PER_WIDTH, WIDEST_STEP) / fineness
        reach = 2 * -LOG_NODES / min(self.first, self.second, 1.0)
        middle = math.log(self.first / self.second)
        span = min(reach, 14 * wide - 2 * LOG_NODES / min(self.first, self.second))
        nodes = np.arange(math.floor((middle - span) / step), math.ceil((middle + span) / step))
        at = nodes * step
        small = np.log1p(np.exp(-np.abs(at)))
        left, right = np.maximum(-at, 0.0) + small, np.maximum(at, 0.0) + small
        logs = -self.first * left - self.second * right - log_beta(self.first, self.second)
        kept = logs > LOG_NODES
        return logs[kept] + math.log(step), -left[kept]


def _chi_norm(half: float) -> float:
    """ln(half^half e^−half / Γ(half))."""
    if half < 50:
        return half * math.log(half) - half - float(gammaln(half))
    return math.log(half / (2 * math.pi)) / 2 - stirling(half)
