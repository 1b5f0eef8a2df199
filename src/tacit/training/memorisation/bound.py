"""How likely a secret comes out at most, from how likely it does where it was left out."""

from __future__ import annotations

import math

from scipy.special import ndtr, ndtri

from tacit._ground.checks import in_interval, non_negative

# More than Φ and Φ⁻¹ are off by, relatively.
ROUNDING = 1e-12


def exposure_bound(reference: float, mu: float) -> float:
    """Bound the probability of an event from its probability under a reference.

    ``P(E | U) <= Φ(Φ⁻¹(P0) + μ)``: no test of size P0 between two laws at Gaussian distance μ has
    more power. It is concave in P0, so it holds for means over canaries too.

    Args:
        reference: P0, the probability where the canary was left out, **with the noise of the run
            either way**; not that of a model without noise.
        mu: μ >= 0 of the canary.

    Returns:
        The bound, rounded up.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> round(exposure_bound(0.001, 1.0), 4)
        0.0183

    Source: the Neyman-Pearson lemma; dsi, Theorem 3.4.
    """
    chance = in_interval("reference", reference, 0.0, 1.0)
    shift = non_negative("mu", mu)
    if chance in (0.0, 1.0):
        return chance
    found = float(ndtr(ndtri(chance) + shift))
    return min(1.0, max(chance, math.nextafter(found * (1.0 + ROUNDING), math.inf)))
