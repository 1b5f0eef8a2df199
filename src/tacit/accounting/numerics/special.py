"""Logarithms of special functions without the cancellation of their large terms.

All are to rounding: an absolute error of a few 1e-16 times the result or 1e-14, whichever is more.
Whoever uses them adds a slack that is far above it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from tacit._ground.checks import Array

# From this shape on Stirling's series is exact to float precision, below it gammaln keeps its
# digits: its terms are then no larger than 200.
SERIES_FROM, PEAK_SERIES_FROM = 100.0, 50.0
# e to more of it is no float soon after.
LARGEST_AWAY = 700.0


def stirling(x: float) -> float:
    """Return lnΓ(x) − (x − ½) ln x + x − ½ ln 2π, to rounding at x >= 50, to 1e-9 at x >= 10."""
    # the first four terms of B₂ₖ/(2k (2k − 1) x^{2k − 1}); the fifth is below 1e-18 at x = 50
    return 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5) - 1 / (1680 * x**7)


def log_beta(first: float, second: float) -> float:
    """Return ln B(a, b), to rounding."""
    small, large = min(first, second), max(first, second)
    if large < SERIES_FROM:
        return float(gammaln(small) + gammaln(large) - gammaln(small + large))
    total = small + large
    # lnΓ(l) − lnΓ(s + l) by Stirling, its terms of size l ln l joined in one logarithm near 1
    ratio = (large - 0.5) * math.log1p(small / large) + small * math.log(total) - small
    return float(gammaln(small)) - ratio - stirling(total) + stirling(large)


def log_beta_density(first: float, second: float, logit: Array) -> Array:
    """Return ln of x^a (1 − x)^b/B(a, b), the density of ln(x/(1 − x)) of Beta(a, b), to rounding.

    About the peak, at x = a/(a + b): each by itself the terms are as large as a and b, and what
    they round would be all that the density is off by.
    """
    total = first + second
    # the smaller of a and b in front: then no term is larger than what the density loses
    small, large, sign = (first, second, 1.0) if first <= second else (second, first, -1.0)
    if small < PEAK_SERIES_FROM:
        top = small * math.log(small / total) + large * math.log1p(-small / total)
        top -= log_beta(first, second)
    else:
        # a ln(a/(a + b)) + b ln(b/(a + b)) cancels against ln B but for this
        top = math.log(first * second / (2 * math.pi * total)) / 2
        top += stirling(total) - stirling(first) - stirling(second)
    # at a distance t in the logit: a t − (a + b) ln(1 + a/(a + b) (e^t − 1)), with −t where b is
    # the smaller
    away = sign * (logit - math.log(first / second))
    # far out, where e^t is no float: t more, as the 1 is nothing beside it
    near = np.minimum(away, LARGEST_AWAY)
    rise = np.log1p(small / total * np.expm1(near)) + (away - near)
    return np.asarray(top + small * away - total * rise)


def log_gamma_peak(shape: float) -> float:
    """Return ln(s^s e^−s/Γ(s)), to rounding: the density of ln X at its peak, X ~ Gamma(s)."""
    if shape < PEAK_SERIES_FROM:
        return shape * math.log(shape) - shape - float(gammaln(shape))
    # s ln s − s cancels against lnΓ(s) but for ½ ln(s/2π) and the series
    return math.log(shape / (2 * math.pi)) / 2 - stirling(shape)


def chi_square_nodes(degrees: int, step: float, depth: float) -> tuple[Array, Array]:
    """Return ln T and the logarithms of masses of T ~ χ²_n there, to rounding.

    The trapezoidal rule in v = ln(T/n), in which the density is e^{n/2 (v − e^v + 1)} at its peak.
    It converges geometrically in 1/step, as the density is analytic in v and falls at both ends.

    Args:
        degrees: n >= 1.
        step: Distance of the nodes.
        depth: > 0; nodes whose mass is below e^−depth are left out.
    """
    half = degrees / 2
    # n/2 (e^v − 1 − v) is at least the depth beyond both ends. To the left, with u = −v:
    # u − 1 + e^{−u} >= u²/(2 + u), which at u = x + x²/2 is at least x²/2 = depth/half. To the
    # right, with w = e^v − 1: w − ln(1 + w) >= w²/(2 + 2w), at w = y + y²/2 at least y²/4
    low = -(math.sqrt(2 * depth / half) + depth / half)
    high = math.log1p(math.sqrt(4 * depth / half) + 2 * depth / half)
    nodes = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
    # expm1: v − e^v + 1 cancels at the peak
    logs = half * (nodes - np.expm1(nodes)) + log_gamma_peak(half) + math.log(step)
    kept = logs > -depth
    return nodes[kept] + math.log(degrees), logs[kept]
