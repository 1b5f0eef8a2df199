"""Clips that follow the gradients: noised counts of how many each left whole move them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from tacit._ground.values import Positive, Within, value
from tacit.gradients.clipping import Clipping, shortening
from tacit.gradients.methods import DPSGD
from tacit.gradients.steps import min_over

if TYPE_CHECKING:
    from torch import Tensor

# A deviation is brought above the exact one by this share: a root, a quotient and a product round.
UP = 1.0 + 2.0**-50
# A clip stays within this factor of the first one, so that noise in its units stays a double.
FARTHEST = 1e9


@value
class AdaptiveDPSGD(DPSGD):
    """DP-SGD whose clips follow a quantile of the gradients' norms, out of the same budget.

    ``C ← C exp(−η (b − γ))`` after every step, b the noised share of records with ‖G_i‖ <= C. Two
    sums leave a step: ``Σ c_i G_i`` with noise of deviation ``s C/√(1 − a)``, and the count
    ``Σ (1[‖G_i‖ <= C] − ½)`` with ``s/(2 √a)``. In units of their noise a record moves the first
    by at most √(1 − a)/s and the second by √a/s, together by 1/s: the account is that of s.

    Of L layers with a clip C_l each, all deviations are √L times those: every layer has the share
    1/L of the budget, whatever its gradients' size.

    Args:
        clip: Largest Frobenius norm C of a record's gradient, over all layers, in the first step.
        clipping: joint cuts all layers by one factor min(1, C/‖G_i‖). layers cuts each of L layers
            by itself, to C/√L in the first step, and each clip then follows its own layer.
        quantile: γ, the share of records whose gradient should be left whole.
        rate: η, how fast a clip moves: by the factor e^{η γ} at most up, e^{η (1 − γ)} down.
        share: a, the share of μ² that pays for the counts.

    Example:
        >>> clips = AdaptiveDPSGD(clip=1.0).clips(["first", "second"])
        >>> round(clips.deviation("first", 1.0), 4), round(clips.count_deviation(1.0), 4)
        (1.0102, 3.5355)
        >>> clips.moved([100.0], expected=200.0).whole_norm < 1.0
        True

    Source: Andrew, Thakkar, McMahan and Ramaswamy (2021), Algorithm 1 and Theorem 1; He et al.
        (2023) for a clip of each layer.
    """

    word: ClassVar[str] = "adaptive-dp-sgd"
    name: ClassVar[str] = "DP-SGD with an adaptive clip"

    clipping: Clipping = "joint"
    quantile: Annotated[float, Within(0, 1)] = 0.5
    rate: Positive = 0.2
    share: Annotated[float, Within(0, 1)] = 0.02

    def _together(self) -> None:
        if self.clipping == "automatic":
            raise ValueError(
                "clipping: expected joint or layers, for norms that a clip follows, got automatic"
            )

    def clips(self, layers: Sequence[str]) -> Clips:
        """Return the clips of the first step: one of all layers, or C/√L of each."""
        if self.clipping == "joint":
            return Clips(self, dict.fromkeys(layers, 0), (self.clip,))
        # Σ_l (C/√L)² = C²
        each = self.clip / len(layers) ** 0.5
        return Clips(
            self, {name: place for place, name in enumerate(layers)}, (each,) * len(layers)
        )


@dataclass(frozen=True, eq=False)
class Clips:
    """The clips of a step: of all layers together, or of each by itself.

    Attributes:
        method: what moves them.
        groups: which clip a layer has part in.
        norms: C of every group, the largest norm of a record's gradient over its layers.
    """

    method: AdaptiveDPSGD
    groups: Mapping[str, int]
    norms: tuple[float, ...]

    @property
    def whole_norm(self) -> float:
        """√(Σ C²), what a record adds at most over all layers."""
        return math.hypot(*self.norms)

    def factors(self, squared_norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what every record's gradient is multiplied with, (B,) for each layer there is."""
        import torch

        found: dict[str, Tensor] = {}
        for place, clip in enumerate(self.norms):
            own = [name for name in squared_norms if self.groups[name] == place]
            if own:
                total = torch.stack([squared_norms[name] for name in own]).sum(dim=0)
                found |= dict.fromkeys(own, shortening(total, clip))
        return found

    def whole(self, factors: Mapping[str, Tensor]) -> Tensor:
        """Return ``Σ_i (1[c_i = 1] − ½)`` of every group, exact in float64.

        A half is taken off each, for a count of all would move by 1 with one record more. A layer
        that the batch does not reach has gradients of 0, which are whole.
        """
        import torch

        some = next(iter(factors.values()))
        counts = []
        for place in range(len(self.norms)):
            own = [one for name, one in factors.items() if self.groups[name] == place]
            least = min_over(own) if own else torch.ones_like(some)
            counts.append((least >= 1.0).double().sub(0.5).sum())
        return torch.stack(counts)

    def deviation(self, layer: str, noise_multiplier: float) -> float:
        """Return ``s C √L/√(1 − a)`` of the noise of one layer, rounded up."""
        # L groups share the budget alike: Σ_g (C_g/(C_g √L))² = 1
        spread = math.sqrt(len(self.norms)) / math.sqrt(1.0 - self.method.share)
        return noise_multiplier * self.norms[self.groups[layer]] * spread * UP

    def count_deviation(self, noise_multiplier: float) -> float:
        """Return ``s √L/(2 √a)``, rounded up: a record moves each of L counts by a half."""
        return noise_multiplier * math.sqrt(len(self.norms) / self.method.share) / 2.0 * UP

    def moved(self, counts: Sequence[float], expected: float) -> Clips:
        """Return the clips of the next step: post-processing of the noised counts.

        Args:
            counts: of every group, with their noise.
            expected: q n, records expected in a step, a public number.
        """
        method, first = self.method, self.method.clip / math.sqrt(len(self.norms))
        norms = []
        for clip, count in zip(self.norms, counts, strict=True):
            # the half that was taken off, for as many records as are expected; noise may leave
            # [0, 1]
            left = min(max(0.5 + count / expected, 0.0), 1.0)
            moved = clip * math.exp(-method.rate * (left - method.quantile))
            norms.append(min(max(moved, first / FARTHEST), first * FARTHEST))
        return replace(self, norms=tuple(norms))
