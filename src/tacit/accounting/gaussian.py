"""The privacy profile of Gaussian noise, exact and rounded up, at any real ε."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf, erfcx, ndtr

from tacit._validation import Array, non_negative, positive
from tacit.accounting.profile import PrivacyProfile, profile_from_curves

EPS = float(np.finfo(np.float64).eps)
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
NORMAL_TAIL = 39.0  # the density of N(0, 1) is below the smallest float beyond this
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def gaussian(sensitivity: float, noise_std: float) -> PrivacyProfile:
    """Return the profile of a vector released with noise N(0, σ² I).

    δ(ε) = Φ(d/2 − ε/d) − e^ε Φ(−d/2 − ε/d) with d = Δ/σ; equal in both directions.

    Args:
        sensitivity: Δ >= 0, largest Euclidean distance of the vectors of two neighbours.
        noise_std: σ > 0, noise standard deviation of each coordinate.

    Returns:
        The exact profile, rounded up.

    Raises:
        ValueError: ``sensitivity`` is negative or infinite, or ``noise_std`` is not positive.

    Example:
        >>> round(gaussian(1.0, 2.0).epsilon(1e-5), 4)
        1.9931

    Source: Balle and Wang (2018), Theorem 8; dsi, Eq. 20.
    """
    difference = non_negative("sensitivity", sensitivity)
    std = positive("noise_std", noise_std)
    with np.errstate(over="ignore"):
        distance = float(np.divide(difference, std)) * (1 + 2 * EPS)
    return _profile(
        distance,
        f"Gaussian noise {std:g} on sensitivity {difference:g}",
        f"neighbours' vectors are at Euclidean distance at most {difference:g}",
    )


def gaussian_shift(mahalanobis: float) -> PrivacyProfile:
    """Return the profile of N(0, Σ) against N(z, Σ).

    It depends on z through the distance d = ‖z‖ in the Σ⁻¹ norm alone, (zᵀ Σ⁻¹ z)^½:
    δ(ε) = Φ(d/2 − ε/d) − e^ε Φ(−d/2 − ε/d).

    Args:
        mahalanobis: d >= 0; inf where z has a part that Σ does not cover.

    Returns:
        The exact profile, rounded up; at d = inf it is 1 everywhere.

    Raises:
        ValueError: ``mahalanobis`` is negative or NaN.

    Example:
        >>> round(gaussian_shift(1.0).advantage(), 6)
        0.382925

    Source: dsi, Lemma 3.1 and Eq. 20.
    """
    distance = non_negative("mahalanobis", mahalanobis, allow_inf=True)
    return _profile(
        distance,
        f"Gaussian shift by {distance:g}",
        f"neighbours' means are at distance at most {distance:g} in the Σ⁻¹ norm",
    )


def _profile(distance: float, name: str, assumption: str) -> PrivacyProfile:
    return profile_from_curves(
        lambda epsilon: gaussian_curve(epsilon, distance),
        name=name,
        infinite_mass=float(math.isinf(distance)),
        renyi=lambda orders: orders * (distance * distance / 2) * (1 + 4 * EPS),
        source="Balle and Wang (2018), Theorem 8",
        assumptions=(assumption,),
        evidence="theorem",
    )


def gaussian_curve(epsilon: Array, distance: float | Array) -> Array:
    """Return the hockey-stick divergence of N(0, 1) and N(d, 1) at any real ε, rounded up.

    Args:
        epsilon: ε in nats, any shape that broadcasts with ``distance``; infinities allowed.
        distance: d >= 0, may be inf.

    Returns:
        δ in [0, 1], of the common shape; relative error a few units in the last place.
    """
    points, distances = np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), distance)
    with np.errstate(all="ignore"):
        above = _positive(np.abs(points), distances)
        # δ(−ε) = 1 − e^{−ε}(1 − δ(ε))
        low = np.minimum(points, 0.0)
        below = (-np.expm1(low) + np.exp(low) * above) * (1 + 4 * EPS)
    return np.minimum(np.where(points < 0, below, above), 1.0)


def _positive(epsilon: Array, distance: Array) -> Array:
    ratio = epsilon / distance
    low = ratio - distance / 2
    low = low - 2 * EPS * (ratio + np.abs(low))  # the divergence falls as this argument grows
    high = (ratio + distance / 2) * (1 + 2 * EPS)
    bulk = _up(_bulk(epsilon, low, high), 32)
    tail = _up(_tail(low, high, distance), 64 + 16 * np.minimum(low * low, 1e6))
    cases = [distance == 0, np.isinf(distance), epsilon == np.inf, low <= 0, low < NORMAL_TAIL]
    value = np.select(cases, [0.0, 1.0, 0.0, bulk, tail], 4 * SMALLEST)
    return np.minimum(np.asarray(value, dtype=np.float64), 1.0)


def _bulk(epsilon: Array, low: Array, high: Array) -> Array:
    """Φ(−low) − e^ε Φ(−high) for low <= 0, without cancellation at small ε."""
    within = (erf(-low / math.sqrt(2.0)) + erf(high / math.sqrt(2.0))) / 2
    near = within - np.expm1(np.minimum(epsilon, 1.0)) * ndtr(-high)
    far = ndtr(-low) - _density(low) * _mills(high)  # e^ε φ(high) = φ(low)
    return np.asarray(np.where(epsilon < 1, near, far))


def _tail(low: Array, high: Array, distance: Array) -> Array:
    """φ(low) (m(low) − m(high)) for low > 0, with m Mills' ratio."""
    low = np.clip(low, 0.0, NORMAL_TAIL)
    value = np.asarray(_mills(low) - _mills(high))
    close = 4 * distance < 1 + low
    if close.any():
        # −m'(x) = 1 − x m(x) > 0, integrated over [low, low + d] where the difference cancels
        start, width = low[close][:, None], distance[close][:, None]
        points = start + width * (NODES + 1) / 2
        slopes = 1 - points * _mills(points)
        value[close] = distance[close] / 2 * np.sum(slopes * WEIGHTS, axis=-1)
    return np.asarray(_density(low) * value)


def _mills(x: Array) -> Array:
    """Φ(−x)/φ(x)."""
    ratio: Array = math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2.0))
    return ratio


def _density(x: Array) -> Array:
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def _up(value: Array, units: float | Array) -> Array:
    return np.asarray(value * (1 + units * EPS) + 4 * SMALLEST)
