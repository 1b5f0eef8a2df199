"""How much the logits depend on the memory of a split state, by Hutchinson's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit._ground.checks import integer
from tacit.models.penalties.step import Step, check_layers, check_weight


@dataclass(frozen=True)
class JacobianPenalty:
    """λ E_ε ‖∂(ε·logits)/∂v_l‖², the mean over probe layers and positions.

    For ε of independent signs ``E (εᵀJ)(εᵀJ)ᵀ = tr JJᵀ = ‖J‖_F²`` (Hutchinson). Its gradient
    needs a second derivative of attention, which the fused kernels lack: some rows of the batch
    run once more with the plain one, 4 of 32 at 1.3 to 1.4 times the time of a step.

    Args:
        layers: l, probe layers.
        weight: λ.
        first: the coordinate of the state at which v begins; 0 for the whole state.
        rows: windows of the batch it is measured on.

    Raises:
        ValueError: an argument outside its range.

    Example:
        >>> JacobianPenalty((2,), 1e-3, first=64).layers
        (2,)

    Source: hidden-state, Sec. 8, App. Y.
    """

    layers: tuple[int, ...]
    weight: float
    first: int
    rows: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", check_layers(self.layers))
        check_weight(self.weight)
        integer("first", self.first, minimum=0)
        integer("rows", self.rows, minimum=1)

    def describe(self) -> dict[str, Any]:
        """Return its name and arguments."""
        return {"name": "jacobian", "layers": list(self.layers), "weight": self.weight,
                "first": self.first, "rows": self.rows}  # fmt: skip

    def measure(self, step: Step) -> Tensor:
        """Return λ times the estimate on the first rows of the step."""
        tokens = step.windows[: self.rows, :-1]
        if self.first >= step.anatomy.width:
            raise ValueError(
                f"first: expected a coordinate below {step.anatomy.width}, got {self.first}"
            )
        device = tokens.device.type
        with sdpa_kernel(SDPBackend.MATH), torch.autocast(device, enabled=False):
            states, logits = step.rerun(tokens, self.layers)
            signs = torch.randint(0, 2, logits.shape, generator=step.source).to(logits) * 2 - 1
            norms = squared_norms(logits, [states[layer] for layer in self.layers], signs)
            return (
                self.weight
                * torch.stack([part[..., self.first :].sum() for part in norms]).sum()
                / (len(self.layers) * tokens.numel())
            )


def squared_norms(logits: Tensor, states: Sequence[Tensor], signs: Tensor) -> list[Tensor]:
    """Return the squared entries of ∂(ε·logits)/∂h for each of the states, with their graph."""
    slopes = torch.autograd.grad((signs * logits).sum(), states, create_graph=True)
    return [slope.square() for slope in slopes]
