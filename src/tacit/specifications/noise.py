"""How much noise: one Gaussian mechanism for each objective's parts, calibrated exactly."""

from __future__ import annotations

from functools import lru_cache

from tacit._ground.checks import in_interval
from tacit.accounting import calibrate, gaussian

# Of the budget μ² of a scatter, for the class means.
SHARE_OF_MEANS = 0.3
# A mean in double precision is off by this share of its terms at most.
ROUNDING = 1e-9
MOST_EPSILON, LEAST_DELTA = 1e4, 1e-300


def multiplier_for(epsilon: float, delta: float) -> float:
    """Return the least σ/Δ at which one Gaussian mechanism is (ε, δ)-private, on the safe side.

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).

    Source: Balle and Wang (2018), Theorem 8.
    """
    target = in_interval("epsilon", epsilon, 0.0, MOST_EPSILON, open_low=True)
    failure = in_interval("delta", delta, LEAST_DELTA, 1.0, open_high=True)
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
