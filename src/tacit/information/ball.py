"""The information that noise lets through about a vector that is clipped to a ball."""

from __future__ import annotations

import math

from tacit._ground.checks import integer, non_negative, positive
from tacit._ground.numbers import EPS
from tacit.guarantees import InformationBound

# its square is a float
SQUARED = 1e150


def clipped_information(
    dimension: int, *, radius: float, noise_std: float, secret: str = "the secret"
) -> InformationBound:
    """Bound what N(0, σ²I) lets through of a vector ‖q‖ <= R: ``(k/2) ln(1 + R²/(kσ²))`` nats.

    At a given second moment a Gaussian has the largest entropy, so
    ``I <= ½ logdet(I + E[qqᵀ]/σ²)``, and ``tr E[qqᵀ] <= R²`` makes that largest where all
    directions share it. Nothing about the law of q is estimated: clipping makes R hold.

    Args:
        dimension: k >= 1, numbers in q.
        radius: R >= 0; longer vectors are clipped before the noise.
        noise_std: σ > 0, in units of q.
        secret: What q is computed from.

    Returns:
        The guarantee, rounded up; it holds for every law of the secret.

    Raises:
        ValueError: A number out of range.

    Example:
        >>> bound = clipped_information(16, radius=4.0, noise_std=1.0, secret="the prompt")
        >>> round(bound.nats, 4)
        5.5452

    Source: Cover and Thomas (2006), Theorem 9.1.1 and Section 9.4; in place of the population
    covariance Λ of hidden-state, Thm 19, which no sample certifies.
    """
    size = integer("dimension", dimension, minimum=1, maximum=10**6)
    reach, noise = non_negative("radius", radius), positive("noise_std", noise_std)
    return InformationBound(
        nats=_shared_evenly(size, reach, noise),
        secret=secret,
        evidence="theorem",
        assumptions=(
            f"the vector is clipped to length {reach:g} before the noise, whatever the secret is",
            "the coins of the release are independent of all else",
            "one release about the secret; those of further ones add up",
        ),
        source="Cover and Thomas (2006), Theorem 9.1.1: (k/2) ln(1 + R²/(kσ²))",
    )


def _shared_evenly(size: int, radius: float, noise_std: float) -> float:
    """(k/2) ln(1 + R²/(kσ²)), above its rounding; beyond SQUARED the 1 is far below it."""
    if radius == 0.0:
        return 0.0
    ratio = math.nextafter(radius / noise_std, math.inf)
    if ratio < SQUARED:
        nats = size / 2.0 * math.log1p(ratio * ratio / size)
    else:
        nats = size * (math.log(radius) - math.log(noise_std) - 0.5 * math.log(size))
    return math.nextafter(nats * (1.0 + 16.0 * EPS), math.inf)
