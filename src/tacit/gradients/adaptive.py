"""A clip that follows the gradients: a noised count of how many it left whole moves it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from tacit._ground.values import Positive, Within, value
from tacit.gradients.methods import DPSGD, Clipping, min_over

if TYPE_CHECKING:
    from torch import Tensor

# A deviation is brought above the exact one by this share: a root, a quotient and a product round.
UP = 1.0 + 2.0**-50
# The clip stays within this factor of the first one, so that noise in its units stays a double.
FARTHEST = 1e9


@value
class AdaptiveDPSGD(DPSGD):
    """DP-SGD whose clip follows a quantile of the gradients' norms, out of the same budget.

    ``C ← C exp(−η (b − γ))`` after every step, b the noised share of records with ‖G_i‖ <= C. Two
    sums leave a step: ``Σ c_i G_i`` with noise of deviation ``s C/√(1 − a)``, and the count
    ``Σ (1[‖G_i‖ <= C] − ½)`` with ``s/(2 √a)``. In units of their noise a record moves the first
    by at most √(1 − a)/s and the second by √a/s, together by 1/s: the account is that of s.

    Args:
        clip: Largest Frobenius norm C of a record's gradient, over all layers, in the first step.
        clipping: joint: one factor min(1, C/‖G_i‖) for all layers.
        quantile: γ, the share of records whose gradient should be left whole.
        rate: η, how fast the clip moves: by the factor e^{η γ} at most up, e^{η (1 − γ)} down.
        share: a, the share of μ² that pays for the count.

    Example:
        >>> method = AdaptiveDPSGD(clip=1.0)
        >>> round(method.noise_scale, 4), round(method.count_deviation(1.0), 4)
        (1.0102, 3.5355)
        >>> method.moved(count=100.0, expected=200.0).clip < 1.0
        True

    Source: Andrew, Thakkar, McMahan and Ramaswamy (2021), Algorithm 1 and Theorem 1.
    """

    word: ClassVar[str] = "adaptive-dp-sgd"
    name: ClassVar[str] = "DP-SGD with an adaptive clip"

    clipping: Clipping = "joint"
    quantile: Annotated[float, Within(0, 1)] = 0.5
    rate: Positive = 0.2
    share: Annotated[float, Within(0, 1)] = 0.02

    def _together(self) -> None:
        if self.clipping != "joint":
            raise ValueError(
                f"clipping: expected joint, for one norm that the clip follows, got {self.clipping}"
            )

    @property
    def noise_scale(self) -> float:
        """``C/√(1 − a)``, rounded up: the sum has the rest of μ²."""
        return self.clip / math.sqrt(1.0 - self.share) * UP

    def count_deviation(self, noise_multiplier: float) -> float:
        """Return ``s/(2 √a)``, rounded up: a record moves the count by a half."""
        return noise_multiplier / (2.0 * math.sqrt(self.share)) * UP

    def whole(self, factors: Mapping[str, Tensor]) -> Tensor:
        """Return ``Σ (1[c_i = 1] − ½)`` of some records, exact in float64: (1,).

        A half is taken off each, for a count of all would move by 1 with one record more.
        """
        least = min_over(factors.values())
        return (least >= 1.0).double().sub(0.5).sum().reshape(1)

    def moved(self, count: float, expected: float) -> AdaptiveDPSGD:
        """Return the method with the clip of the next step: post-processing of the noised count.

        Args:
            count: with its noise.
            expected: q n, records expected in a step, a public number.
        """
        # the half that was taken off, for as many records as are expected; noise may leave [0, 1]
        left = min(max(0.5 + count / expected, 0.0), 1.0)
        return replace(self, clip=self.clip * math.exp(-self.rate * (left - self.quantile)))

    def within(self, first: float) -> AdaptiveDPSGD:
        """Return the method with its clip held near the first one."""
        held = min(max(self.clip, first / FARTHEST), first * FARTHEST)
        return self if held == self.clip else replace(self, clip=held)
