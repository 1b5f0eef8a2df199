"""A measured number with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit._ground.checks import as_float, in_interval


@dataclass(frozen=True)
class Interval:
    """A measurement and the confidence interval it came with: evidence, never a guarantee.

    Args:
        value: What was measured.
        low: Lower end of the interval, at most ``value``.
        high: Upper end, at least ``value``.
        confidence: Coverage of the interval, in (0, 1); None where it is not said.

    Raises:
        ValueError: An end is on the wrong side, or a number is not finite.

    Example:
        >>> Interval(value=0.51, low=0.49, high=0.53, confidence=0.95).high
        0.53
    """

    value: float
    low: float
    high: float
    confidence: float | None = None

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            object.__setattr__(self, name, as_float(name, getattr(self, name)))
        # an interval that leaves its value out is of another measurement
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"value: expected low <= value <= high, got {self.low}, {self.value}, {self.high}"
            )
        if self.confidence is not None:
            level = in_interval(
                "confidence", self.confidence, 0.0, 1.0, open_low=True, open_high=True
            )
            object.__setattr__(self, "confidence", level)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description that ``from_dict`` reads back."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
        }
