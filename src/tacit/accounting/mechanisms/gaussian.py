"""The privacy profile of Gaussian noise, exact and rounded up, at any real ε."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from tacit._ground.checks import Array, non_negative, positive
from tacit._ground.numbers import EPS
from tacit._ground.proof import Node, node
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.divergences.shift import gaussian_curve

# Units in the last place: of one quotient; of a square, or of δ at a negative ε.
UNITS, SQUARE_UNITS = 2, 4
# Where a quotient stands for a distance it is no larger: δ is 1 long before.
LARGEST_DISTANCE = 1e300


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
        # Δ/σ; numbers of floats so far apart that their quotient is none are infinitely far
        distance = float(np.divide(difference, std)) * (1 + UNITS * EPS)
    return _profile(
        distance,
        f"Gaussian noise {std:g} on sensitivity {difference:g}",
        f"neighbours' vectors are at Euclidean distance at most {difference:g}",
        node("gaussian", sensitivity=difference, noise=std),
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
        None if math.isinf(distance) else node("gaussian", sensitivity=distance, noise=1),
    )


def _profile(distance: float, name: str, assumption: str, mechanism: Node | None) -> PrivacyProfile:
    """Return the profile of two Gaussians at a distance, exact and rounded up."""
    exact = profile_from_curves(
        partial(gaussian_curve, distance=distance),
        name=name,
        infinite_mass=float(math.isinf(distance)),
        renyi=partial(gaussian_renyi, distance),
        source="Balle and Wang (2018), Theorem 8",
        assumptions=(assumption,),
    )
    return replace(exact, evidence="theorem", mechanism=mechanism)


def gaussian_renyi(distance: float, orders: Array) -> Array:
    """Return α d²/2, the Rényi divergence of two Gaussians at a distance d, rounded up."""
    return orders * (distance * distance / 2) * (1 + SQUARE_UNITS * EPS)
