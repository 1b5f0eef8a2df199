"""How much noise: one Gaussian mechanism for each objective's parts, calibrated exactly."""

from __future__ import annotations

from functools import lru_cache

from tacit._ground.checks import in_interval, positive
from tacit.accounting import calibrate, gaussian

# Of the budget μ² of a scatter, for the class means.
SHARE_OF_MEANS = 0.3
# A mean in double precision is off by this share of its terms at most.
ROUNDING = 1e-9
# Texts are padded to the longest among them, so that one record's length changes the shape, and
# the rounding, of every other's pass: 6e-7 of a row's length was measured, a share of 1/n each.
PADDING = 4e-6


def rounding(modality: str, count: int) -> float:
    """Return by which share of Δ rounding may surpass it, of n records of a modality."""
    return ROUNDING + (PADDING * count if modality == "text" else 0.0)


def multiplier_for(epsilon: float, delta: float) -> float:
    """Return the least σ/Δ at which one Gaussian mechanism is (ε, δ)-private, on the safe side.

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).

    Source: Balle and Wang (2018), Theorem 8.
    """
    target = positive("epsilon", epsilon)
    failure = in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    return _calibrated(target, failure)


@lru_cache(maxsize=64)
def _calibrated(epsilon: float, delta: float) -> float:
    return calibrate(
        lambda std: gaussian(1.0, std), epsilon=epsilon, delta=delta, bracket=(1e-4, 1e9)
    )


def shares_of(multiplier: float) -> tuple[float, float]:
    """Return σ/Δ of class means and of factors that together are worth one of ``multiplier``.

    1/m₁² + 1/m₂² = 1/m²: distances of Gaussian mechanisms add in squares, the second one chosen
    after the first one's outcome too (Dong, Roth and Su, 2022, Corollary 3.3).
    """
    return multiplier / SHARE_OF_MEANS**0.5, multiplier / (1.0 - SHARE_OF_MEANS) ** 0.5
