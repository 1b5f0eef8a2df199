"""The quadratic part of a log likelihood, and a bound on the mean of its upper tail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.information.finite.likelihood import FiniteSecret

TILTS = np.concatenate([np.geomspace(0.02, 0.5, 8), np.linspace(0.6, 0.95, 6)])
CLIPS = np.geomspace(1.5, 400.0, 24)
MOST_ENTRIES = 20_000_000


@dataclass(frozen=True)
class QuadraticTail:
    """``q(y) = ½ Σ_k w_k/(1 + w_k) y_k²``, clipped: ``E (q − clip)₊ <= excess``, E q = ½ tr S."""

    clip: float
    excess: float


def quadratic_tail(secret: FiniteSecret, tolerance: float) -> QuadraticTail | None:
    """Return the smallest clip, of a few, whose excess is at most ``tolerance``; None if none is.

    For y = z_j + N(0, I) and a_k = w_k/(1 + w_k), Chernoff: ``(x)₊ <= e^{tx}/(t e)`` and
    ``E_j e^{tq} = Π_k (1 − t a_k)^-½ exp(½ t a_k z_jk²/(1 − t a_k))``; and ``(q − c)₊ <= q``.
    """
    shrink = secret.eigenvalues / (1.0 + secret.eigenvalues)
    if secret.points.size > MOST_ENTRIES or not shrink.any():
        return None
    tilts = TILTS / float(shrink.max())
    squares = secret.points**2
    rates = tilts[None, :] * shrink[:, None]
    exponents = 0.5 * squares @ (rates / (1.0 - rates)) - 0.5 * np.log1p(-rates).sum(axis=0)
    means = 0.5 * (squares + 1.0) @ shrink
    weights = np.exp(secret.log_weights)
    for clip in float(weights @ means) * CLIPS:
        logarithms = exponents - tilts * clip - np.log(tilts) - 1.0
        with np.errstate(over="ignore"):
            bounds = np.minimum(np.exp(logarithms.min(axis=1)), means)
        excess = float(weights @ bounds)
        if excess <= tolerance:
            return QuadraticTail(float(clip), math.nextafter(excess * (1.0 + 1e-9), math.inf))
    return None
