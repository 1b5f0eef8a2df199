"""How likely anything is at most, from how likely it is beside a reference."""

from __future__ import annotations

import math

from scipy.special import ndtr, ndtri

from tacit._ground.checks import in_interval, non_negative

# More than Φ and Φ⁻¹ are off by, relatively.
ROUNDING = 1e-12


def bounded_probability(reference: float, mu: float) -> float:
    """Bound the probability of an event from its probability under a reference.

    ``P(E | U) <= Φ(Φ⁻¹(P0) + μ)``: no test of size P0 between two laws at Gaussian distance μ has
    more power. It is concave in P0, so it holds for means too: over canaries, images or noise.

    Args:
        reference: P0, the probability beside it **with the noise of the run either way**;
            not that of a model without noise.
        mu: μ >= 0 beside that reference.

    Returns:
        The bound, rounded up.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> round(bounded_probability(0.001, 1.0), 4)
        0.0183

    Source: Dong, Roth and Su (2022), Theorem 2.7: no test has more power; dsi, Theorem 3.4.
    """
    chance = in_interval("reference", reference, 0.0, 1.0)
    shift = non_negative("mu", mu)
    # Φ⁻¹ is infinite there, and the bound exact
    if chance in (0.0, 1.0):
        return chance
    # the power of the Neyman-Pearson test of size P0 at distance μ
    found = float(ndtr(ndtri(chance) + shift))
    # rounded up by more than Φ and Φ⁻¹ are off, and never below P0 itself
    return min(1.0, max(chance, math.nextafter(found * (1.0 + ROUNDING), math.inf)))
