"""What a paper claims: numbers to compare with, which no budget accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit._ground.checks import Array, in_interval, non_negative, positive


@dataclass(frozen=True)
class Claim:
    """An (ε, δ) that a paper's bound gives, as printed; not a guarantee.

    Args:
        epsilon: ε in nats.
        delta: δ, above 1 where the formula gives that.
        source: The paper and its theorem.
    """

    epsilon: float
    delta: float
    source: str


def open_unit(name: str, value: float) -> float:
    """Return ``value`` as a float in (0, 1)."""
    return in_interval(name, value, 0.0, 1.0, open_low=True, open_high=True)


def classical_gaussian_std(sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise of the classical Gaussian mechanism: σ = Δ √(2 ln(1.25/δ)) / ε.

    Args:
        sensitivity: Δ > 0, Euclidean.
        epsilon: ε in (0, 1], in nats.
        delta: δ in (0, 1).

    Returns:
        σ, the standard deviation of each coordinate.

    Raises:
        ValueError: An argument is outside its range, or ε > 1, where the formula is unsound.

    Example:
        >>> round(classical_gaussian_std(1.0, 1.0, 1e-5), 4)
        4.8448

    Source: lora-privacy, Lemma 1; Dwork and Roth (2014), Theorem A.1.
    """
    reach = positive("sensitivity", sensitivity)
    loss = positive("epsilon", epsilon)
    failure = open_unit("delta", delta)
    # σ = Δ √(2 ln(1.25/δ))/ε as printed, where it is sound
    refuse_large_classical("epsilon", loss)
    return reach * math.sqrt(2 * math.log(1.25 / failure)) / loss


def refuse_large_classical(name: str, epsilon: float) -> None:
    """Refuse ε > 1: the classical calibration has no proof there and fails further up."""
    if epsilon > 1:
        raise ValueError(
            f"{name}: expected at most 1, where the classical Gaussian calibration holds, got "
            f"{epsilon!r}; at epsilon = 10, delta = 1e-5 the true delta is 2.27e-05"
        )


def lower_envelope(orders: Array, values: Array, delta: float) -> float:
    """Return min over α of D_α + ln(1/δ)/(α − 1), the conversion that the papers use."""
    # each order gives a valid ε; the least of the grid is what the papers print
    candidates = values + math.log(1 / delta) / (orders - 1)
    return non_negative("epsilon", float(candidates.min()), allow_inf=True)
