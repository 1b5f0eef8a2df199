"""The exact privacy curve of a Wishart projection of a unit vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaincc, gammaln, stdtr

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.curve import LARGEST_LOG, TINY, Index
from tacit.accounting.numerics.quadrature import integrate, quadrature_up
from tacit.accounting.numerics.special import log_gamma_peak

Mask: TypeAlias = npt.NDArray[np.bool_]

# Rounding of a difference of two incomplete gamma functions, relative to the larger. Each is off by
# 1.3e-13 at most within six deviations of its middle, 2.7e-13 within nine, where e^-40 is left
# (against 40 digits, for shapes from 1 to 50,000).
TAIL_ROUNDING = 3e-13
# Of Student's distribution function: 9.3e-14 at most against 40 digits, for 1 to 1,000 degrees.
STUDENT_SLACK = 1e-12
# θ where cos^{r−1} θ is below e^−85 is left out: less than the 1e-35 of `quadrature_up`.
LOG_NEGLIGIBLE = 85.0
# A tail below e^−640 is soon no float; it is computed in logarithms where e^ε times it may count.
LOG_DIRECT, LOG_COUNTS = -640.0, 580.0
# Below this angle the two tails are equal but for rounding, which is √r times theirs.
SMALL_ANGLE = 1e-4
# Panels before the first halving.
PANELS = 12
# Of a continued fraction and of a series; far out, where they are used, each term is much smaller
# than the one before.
TERMS = 400
# From this shape on s^s e^−s/Γ(s) is a difference of large terms, which `log_gamma_peak` has not.
PEAKED_FROM = 20


@dataclass(frozen=True)
class WishartLoss:
    """Law of the loss of Mv against Mv', M = ZᵀZ, Z an r × d Gaussian matrix, vᵀv' = cos φ.

    With tan θ = w/‖Zv‖ the loss is c ln a + (B/2)(1/a − 1): a = cos(θ − φ)/cos θ, B ~ χ²_n
    independent of θ, n = d + r − 1, c = (d − r + 1)/2, and θ has density
    f(θ) = Γ((r + 1)/2)/(√π Γ(r/2)) cos^{r−1} θ.

    Args:
        dim: d >= 2.
        rank: r >= 1.
        angle: φ in (0, π].
    """

    dim: int
    rank: int
    angle: float

    @property
    def infinite(self) -> float:
        """P(a <= 0) = P(tan θ < −cot φ), tan θ·√r ~ t_r; rounded up."""
        level = -math.sqrt(self.rank) * math.cos(self.angle) / math.sin(self.angle)
        return min(float(stdtr(self.rank, level)) * (1 + STUDENT_SLACK), 1.0)

    def positive(self, epsilon: Array) -> Array:
        """Return δ(ε) for ε >= 0, rounded up; shape (n,)."""
        # differences of nearly equal tails are all rounding at such angles
        noise = TAIL_ROUNDING * math.sqrt(self.rank) if self.angle < SMALL_ANGLE else 0.0

        def integrand(rows: Index, theta: Array) -> Array:
            return self._conditional(epsilon[rows][:, None], theta)

        return quadrature_up(
            self.infinite + integrate(integrand, self._edges(epsilon), noise=noise)
        )

    def _edges(self, epsilon: Array) -> Array:
        """Panels over the support of θ, split where G changes its form: good for a choice only."""
        # beyond cos^{r−1} θ = e^−85 nothing is left
        reach = math.pi / 2
        if self.rank > 1:
            reach = math.acos(math.exp(-LOG_NEGLIGIBLE / (self.rank - 1)))
        low, high = max(self.angle - math.pi / 2, -reach), reach
        edges = np.tile(np.linspace(low, max(low, high), PANELS + 1), (epsilon.size, 1))
        shape = (self.dim - self.rank + 1) / 2
        # G changes from an upper to a lower tail at a = 1, tan θ = tan(φ/2)
        splits = [np.full(epsilon.shape, self.angle / 2)]
        if shape != 0:
            # b is 0 where ε = c ln a: a = e^{ε/c}, at which tan θ = (a − cos φ)/sin φ
            ratio = np.exp(np.clip(epsilon / shape, -LARGEST_LOG, LARGEST_LOG))
            bend = np.arctan((ratio - math.cos(self.angle)) / math.sin(self.angle))
            splits.append(bend)
        inner = np.clip(np.stack(splits, axis=1), low, max(low, high))
        return np.sort(np.concatenate([edges, inner], axis=1), axis=1)

    def _conditional(self, epsilon: Array, theta: Array) -> Array:
        """f(θ) [G(b) − e^ε a^{r−1} G(b/a)], the hockey stick of the loss given θ, rounded up.

        The loss c ln a + (B/2)(1/a − 1) exceeds ε where B is on one side of b: G(b) = P(B > b) for
        a < 1, P(B < b) for a > 1. Under Mv' the same event has a^{r−1} G(b/a).
        """
        cosine = np.cos(theta)
        # a − 1 = tan θ sin φ − 2 sin²(φ/2): a itself would lose a small angle
        excess = np.tan(theta) * math.sin(self.angle) - 2 * math.sin(self.angle / 2) ** 2
        # ln a, finite where a rounds to 0: at the edge of the support, where no mass is
        log_ratio = np.log1p(np.maximum(excess, EPS / 2 - 1))
        ratio = np.maximum(1 + excess, TINY)
        shape = (self.dim - self.rank + 1) / 2
        # b = 2a (ε − c ln a)/(1 − a); at a = 1 the loss is 0, and nothing exceeds ε
        apart = np.where(excess == 0, 1.0, -excess)
        bound = np.where(excess == 0, -math.inf, 2 * (epsilon - shape * log_ratio) * ratio / apart)
        above = excess < 0
        # χ²_n has the tails of a gamma variable of shape n/2 at half of the point
        half = (self.dim + self.rank - 1) / 2
        # half of b, and half of b/a
        here = np.maximum(bound / 2, 0.0)
        there = np.maximum((epsilon - shape * log_ratio) / apart, 0.0)
        mass = np.where(above, gammaincc(half, here), gammainc(half, here))
        # e^ε a^{r−1} G(b/a) by its logarithm: a large factor beside a tail that is no float
        weight = epsilon + (self.rank - 1) * log_ratio
        other = np.exp(np.minimum(weight + _log_tail(half, there, above, weight), LARGEST_LOG))
        log_density = (
            float(gammaln((self.rank + 1) / 2) - gammaln(self.rank / 2))
            - math.log(math.pi) / 2
            + (self.rank - 1) * np.log(np.maximum(cosine, TINY))
        )
        # the difference of the two, and what they round
        value = np.maximum(mass - other, 0.0) + TAIL_ROUNDING * np.minimum(mass, 1.0)
        return np.asarray(np.exp(log_density) * np.where(bound == -math.inf, 0.0, value))


def _log_tail(half: float, points: Array, above: Mask, weight: Array) -> Array:
    """Return ln of the upper (where ``above``) or lower incomplete gamma function, to rounding."""
    direct = np.where(above, gammaincc(half, points), gammainc(half, points))
    with np.errstate(divide="ignore"):
        value = np.log(direct)
    deep = (value < LOG_DIRECT) & (weight > LOG_COUNTS) & (points > 0)
    if deep.any():
        value[deep] = _log_deep_tail(half, points[deep], above[deep])
    return np.asarray(value)


def _log_deep_tail(half: float, points: Array, above: Mask) -> Array:
    """Return the same far out, to rounding: y^s e^{−y}/Γ(s) times a fraction or a series."""
    # ln of y^s e^{−y}/Γ(s); about y = s for a large s, where its terms cancel
    if half < PEAKED_FROM:
        power = half * np.log(points) - points - float(gammaln(half))
    else:
        gap = points / half - 1
        power = half * (np.log1p(gap) - gap) + log_gamma_peak(half)
    value = np.empty(points.shape)
    for upper, tail in ((True, _upper_fraction), (False, _lower_series)):
        some = above == upper
        value[some] = power[some] + np.log(tail(half, points[some]))
    return value


def _upper_fraction(half: float, points: Array) -> Array:
    """Γ(s, y) e^y y^{−s}, for y > s, by its continued fraction from the far end, to rounding."""
    base = points + 1 - half
    fraction = np.zeros(points.shape)
    for k in range(TERMS, 0, -1):
        fraction = k * (half - k) / (base + 2 * k + fraction)
    return np.asarray(1 / (base + fraction))


def _lower_series(half: float, points: Array) -> Array:
    """γ(s, y) e^y y^{−s} = Σ y^k/(s (s + 1) … (s + k)), for y < s, to rounding."""
    series, term = np.full(points.shape, 1 / half), np.full(points.shape, 1 / half)
    for k in range(1, TERMS):
        term = term * points / (half + k)
        series = series + term
    return series
