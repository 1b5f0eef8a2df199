"""The law of a projected length, ‖Mu‖² = X T²/r², tabulated in its logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import BSpline, make_interp_spline
from scipy.special import logsumexp

from tacit._ground.checks import Array
from tacit.accounting.curves.curve import LARGEST_LOG, Index
from tacit.accounting.numerics.mixtures import SCAN_POINTS, gaussian_square, scan_panels
from tacit.accounting.numerics.quadrature import NODES, WEIGHTS, integrate
from tacit.accounting.numerics.special import chi_square_nodes, log_beta_density, log_gamma_peak

# Logarithms: of the density of ln Y at the ends of its table, beyond which less than 1e-22 is left
# that `projected_noise` adds; of the mass of the nodes of X left out; and of those of T, of which
# the ends of Y are made, T far out and X near 1.
LOG_UNSEEN, LOG_NODES, LOG_CHI_NODES = -56.0, -75.0, -120.0
# Steps to the width of the narrower density, and the widest step: the trapezoidal rule over an
# analytic peak is off by e^{−2π² (width/step)²}, 1e-50 for a normal peak.
STEPS_PER_WIDTH, WIDEST_STEP = 2.5, 0.2
# From this b on (1 − x)^b is smooth enough at x = 1 for the trapezoidal rule over T, and so wide a
# law of T beside that of X that T is the one to sum over.
SMOOTH_END, WIDER = 200.0, 4
# Points among which the ends of the table are sought, coarse ones a few to one, in two rounds.
END_POINTS, END_STRIDE, END_ROUNDS = 4001, 8, 2
# Knots of the spline, doubled until it meets a finer rule between them.
FIRST_KNOTS, MOST_KNOTS, TABLE_ERROR = 256, 4096, 1e-10
# The finer rule: a step that shares no node with the first.
FINER = 1.4
# Of ln X: nearer to 1 no node comes, and (1 − x)^b is nothing there.
NEAREST = -1e-200


@dataclass(frozen=True)
class TabulatedLaw:
    """Distribution of Y > 0 by a spline of the logarithm of the density of ln Y.

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
        """Where Y has a probability below e^-50 of being, at least."""
        return math.exp(float(self.knots[-1]))

    def below(self, epsilon: Array, level: Array) -> Array:
        """E[δ_G(ε; Y); Y < m] for each ε >= 0 and m, shape (n,), rounded up."""
        low, high = float(self.knots[0]), float(self.knots[-1])
        # in ln Y: the density there is a smooth peak
        with np.errstate(divide="ignore"):
            top = np.clip(np.log(level), low, high)

        def integrand(rows: Index, points: Array) -> Array:
            loss = gaussian_square(epsilon[rows][:, None], np.exp(points))
            return np.asarray(np.exp(self.spline(points)) * loss)

        rows = np.arange(epsilon.size)
        points = low + (top - low)[:, None] * np.linspace(0.0, 1.0, SCAN_POINTS)
        edges = scan_panels(points, integrand(rows, points))
        # raised by what the table is off, once for its error and once for that of comparing it
        return np.asarray(integrate(integrand, edges) * (1 + 2 * self.error))

    def tail(self, level: Array) -> tuple[Array, Array]:
        """P(Y > m) and E[Y; Y > m] for each m of ``level``, shape (n,), rounded up."""
        # from m to the next knot by a rule of its own, beyond it by sums that are kept
        with np.errstate(divide="ignore"):
            start = np.clip(np.log(level), self.knots[0], self.knots[-1])
        after = np.clip(np.searchsorted(self.knots, start), 1, self.knots.size - 1)
        part = self._integrals(start, self.knots[after])
        sums = part + self._sums[:, after]
        return sums[0], sums[1]

    def mean_above(self, level: Array) -> Array:
        """E[Y | Y > m], to rounding, the end of the table where that is beyond it."""
        mass, moment = self.tail(level)
        return np.where(mass > 0, moment / np.where(mass > 0, mass, 1.0), self.largest)

    @cached_property
    def _sums(self) -> Array:
        """Mass and moment above each knot, shape (2, knots), rounded up."""
        # from the top down: each tail keeps its own digits
        pieces = self._integrals(self.knots[:-1], self.knots[1:])
        sums = np.cumsum(pieces[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([sums, np.zeros((2, 1))], axis=1)

    def _integrals(self, start: Array, stop: Array) -> Array:
        """∫ e^s d ln y and ∫ y e^s d ln y from start to stop, in one piece of s, rounded up."""
        half = ((stop - start) / 2)[:, None]
        # exp of a polynomial of degree 5 over one piece: Gauss's 10 points have nothing left to
        # miss
        points = start[:, None] + half * (NODES + 1)
        mass = np.exp(self.spline(points)) * half * (1 + 2 * self.error)
        return np.stack([mass @ WEIGHTS, (mass * np.exp(points)) @ WEIGHTS])


def projected_length(dim: int, rank: int, scale: float) -> TabulatedLaw:
    """Return the distribution of Y = scale · X T²/r², X ~ Beta(r/2, (d−1)/2), T ~ χ²_{d+r−1}.

    The density of ln Y is an integral over the wider of the two variables, by the trapezoidal
    rule; it is tabulated until the spline meets a finer rule between its knots.
    """
    density = _LogDensity(rank / 2, (dim - 1) / 2, dim + rank - 1, math.log(scale / rank**2))
    low, high = density.ends()
    count = FIRST_KNOTS
    # pieces of degree 5: halving their length divides what they miss by 64
    while True:
        knots = np.linspace(low, high, count + 1)
        spline = make_interp_spline(knots, density(knots, 1.0), k=5)
        between = (knots[:-1] + knots[1:]) / 2
        # in the middle a spline is off most; the finer rule is off by less, and both count twice
        error = float(np.abs(np.expm1(density(between, FINER) - spline(between))).max())
        if error <= TABLE_ERROR or count >= MOST_KNOTS:
            return TabulatedLaw(spline, knots, error)
        count *= 2


@dataclass(frozen=True)
class _LogDensity:
    """ln of the density of ln Y = shift + ln X + 2 ln T, to rounding.

    Args:
        first: a of X ~ Beta(a, b).
        second: b.
        degrees: n of T ~ χ²_n.
        shift: added to ln Y.
    """

    first: float
    second: float
    degrees: int
    shift: float

    def __call__(self, points: Array, fineness: float) -> Array:
        """Return it at points, shape (n,), to rounding; a larger fineness is a shorter step."""
        half = self.degrees / 2
        # p(ln y) = Σ over nodes of T of its mass times the density of ln X at ln y − shift − 2 ln T
        if self.second >= max(SMOOTH_END, WIDER * self.first):
            logs, nodes = self._chi_nodes(fineness)
            share = points[:, None] - self.shift - 2 * nodes
            inside = np.minimum(share, NEAREST)
            with np.errstate(divide="ignore"):
                # x^a (1 − x)^{b−1}/B, with 1 − x = −expm1(ln x); nothing beyond x = 1
                rest = np.log(-np.expm1(inside))
                terms = log_beta_density(self.first, self.second, inside - rest) - rest
            terms = np.where(share < 0, terms, -np.inf)
        else:
            # or over nodes of X, with the density of 2 ln T, half that of ln T, at what is left: of
            # its peak e^{n/2 (v − e^v + 1)} at T = n e^v, by expm1 as v − e^v + 1 cancels
            logs, nodes = self._beta_nodes(fineness)
            length = (points[:, None] - self.shift - nodes) / 2 - math.log(self.degrees)
            terms = half * (length - np.expm1(np.minimum(length, LARGEST_LOG))) + log_gamma_peak(
                half
            )
            terms -= math.log(2)
        return np.asarray(logsumexp(terms + logs, axis=1))

    def ends(self) -> tuple[float, float]:
        """Where the density is negligible beyond, rounded outwards."""
        nodes = self._chi_nodes(1.0)[1]
        # to the left ln X falls as slowly as e^{a ln x}: e^−75 at 75/a, and 10 for its constant
        slow = -LOG_NODES / self.first + 10
        points = self.shift + np.linspace(2 * nodes[0] - slow, 2 * nodes[-1], END_POINTS)
        # every eighth point first, then among those between
        for _ in range(END_ROUNDS):
            values = self(points[::END_STRIDE], 1.0)
            # from the point before the first that counts to the one after the last
            seen = np.flatnonzero(values > LOG_UNSEEN)
            low = points[END_STRIDE * max(int(seen[0]) - 1, 0)]
            high = points[min(END_STRIDE * (int(seen[-1]) + 1), points.size - 1)]
            points = np.linspace(low, high, END_POINTS)
        return float(low), float(high)

    def _chi_nodes(self, fineness: float) -> tuple[Array, Array]:
        """ln of the masses, and ln T, T ~ χ²_n, to rounding."""
        half = self.degrees / 2
        # width in ln T of the product of both densities at one Y: ln T has precision n/2 about, and
        # ln X = ln Y − 2 ln T about that of its logit, 1/(1/a + 1/b), four times as much in ln T
        narrow = 1 / math.sqrt(half + 4 / (1 / self.first + 1 / self.second))
        step = min(narrow / STEPS_PER_WIDTH, WIDEST_STEP) / fineness
        nodes, logs = chi_square_nodes(self.degrees, step, -LOG_CHI_NODES)
        return logs, nodes

    def _beta_nodes(self, fineness: float) -> tuple[Array, Array]:
        """ln of the masses, and ln X, to rounding, on even steps of ln(x/(1 − x))."""
        # the standard deviation of ln(x/(1 − x)), about
        wide = math.sqrt(1 / self.first + 1 / self.second)
        # d ln x = (1 − x) d ln(x/(1 − x)); 1 − x is about at most a gamma variable of shape b over
        # a, which is below b + √(150 b) + 80 but for e^−75
        farthest = (self.second + math.sqrt(-2 * LOG_NODES * self.second) + 80) / self.first
        narrow = 1 / math.sqrt(1 / wide**2 + self.degrees / 2 * min(farthest, 1.0) ** 2)
        step = min(narrow / STEPS_PER_WIDTH, WIDEST_STEP) / fineness
        # at either end the density falls at the rate a or b; near the middle it is about normal, of
        # which 14 deviations leave e^−98
        reach = 2 * -LOG_NODES / min(self.first, self.second, 1.0)
        middle = math.log(self.first / self.second)
        span = min(reach, 14 * wide - 2 * LOG_NODES / min(self.first, self.second))
        nodes = np.arange(math.floor((middle - span) / step), math.ceil((middle + span) / step))
        at = np.asarray(nodes * step, dtype=np.float64)
        logs = log_beta_density(self.first, self.second, at)
        kept = logs > LOG_NODES
        return logs[kept] + math.log(step), -np.logaddexp(0.0, -at[kept])
