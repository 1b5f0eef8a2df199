"""Clipping: the factor that keeps every record's part of a sum within C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from tacit._ground.values import Positive, value
from tacit.gradients.steps import Method

if TYPE_CHECKING:
    from torch import Tensor

Clipping: TypeAlias = Literal["joint", "layers", "automatic"]
# What automatic clipping adds to a norm, so that a small gradient stays smaller than others.
STABLE = 0.01
# A clipped norm is brought below C by this share, which is above what its factor, and a float32
# gradient that is multiplied by it, may be rounded by.
ROUNDING = 1e-5


@value
class ClippedMethod(Method):
    """A method that clips every record's gradient.

    Args:
        clip: Largest Frobenius norm C of a record's gradient, over all layers.
        clipping: joint cuts all layers by one factor min(1, C/‖G_i‖). layers cuts each of L layers
            by itself, to C/√L. automatic has one factor C/(‖G_i‖ + 0.01), so that no C has to be
            chosen well.
    """

    clip: Positive = 1.0
    clipping: Clipping = "joint"

    @property
    def noise_scale(self) -> float:
        """C."""
        return self.clip

    def factors(self, squared_norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what every record's gradient is multiplied with, (B,) for each layer.

        Args:
            squared_norms: (B,) ‖G_i‖²_F of each layer.

        Example:
            >>> import torch
            >>> from tacit.gradients import DPSGD
            >>> norms = {"first": torch.tensor([9.0, 0.0]), "second": torch.tensor([16.0, 0.25])}
            >>> DPSGD(clip=1.0).factors(norms)["first"].tolist()
            [0.2, 1.0]
            >>> DPSGD(clip=2.0, clipping="layers").factors(norms)["second"].round(decimals=4)
            tensor([0.3536, 1.0000], dtype=torch.float64)

        Source: lora-privacy, Algorithm 2; He et al. (2023) for layers, Bu et al. (2023) for
            automatic clipping.
        """
        import torch

        if self.clipping != "layers":
            # ‖G_i‖² = Σ_l ‖G_il‖²: one factor for all layers keeps a record's direction
            total = torch.stack(list(squared_norms.values())).sum(dim=0)
            if self.clipping == "automatic":
                # C ‖G‖/(‖G‖ + γ) < C; 0 where the gradient is not finite
                return dict.fromkeys(squared_norms, self.clip / (total.double().sqrt() + STABLE))
            return dict.fromkeys(squared_norms, shortening(total, self.clip))
        # Σ_l (C/√L)² = C²
        each = self.clip / len(squared_norms) ** 0.5
        return {name: shortening(squares, each) for name, squares in squared_norms.items()}

    def lowered(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return factors below those that bring norms to C, by more than rounding."""
        # (1 − 10⁻⁵) C at most: rounding of c_i and of c_i G_i carries no record above C
        # one factor of all layers is lowered once
        different = {id(held): held for held in factors.values()}
        lower = {place: held * (1 - ROUNDING) for place, held in different.items()}
        return {name: lower[id(held)] for name, held in factors.items()}


def shortening(squares: Tensor, clip: float) -> Tensor:
    """Return min(1, C/‖G_i‖) of squared norms: 1 where a gradient is 0, 0 where not finite."""
    import torch

    norms = squares.double().sqrt()
    return torch.where(norms > clip, clip / norms, torch.ones_like(norms))
