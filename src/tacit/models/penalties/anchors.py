"""What keeps a training near a reference: its predictions, its states, or their second moment."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit._ground.checks import choice
from tacit.models.language import LanguageModel
from tacit.models.penalties.step import Step, check_layers, check_weight, run

KINDS = ("prediction", "states", "moment")


@dataclass(frozen=True, eq=False)
class Anchor:
    """A distance from a frozen reference, weighted.

    - ``"prediction"``: mean of KL(p₀ ‖ p) over positions. It does not see h → Ah where the
      layers above undo A: the invariance that the regularisers of the paper ride along.
    - ``"states"``: mean ‖h − h₀‖²/(mean ‖h₀‖²).
    - ``"moment"``: ‖E[hhᵀ] − E₀[hhᵀ]‖²_F/‖E₀[hhᵀ]‖²_F, which fixes the gauge: of the maps A
      only those that keep the second moment are left.

    Args:
        kind: which.
        reference: the model it holds on to.
        weight: its factor.
        layer: where states and moments are read.

    Raises:
        ValueError: an unknown kind, or a layer outside the reference.

    Source: hidden-state, App. AA.1, AA.3 to AA.5.
    """

    kind: str
    reference: LanguageModel
    weight: float
    layer: int = 1

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS)
        check_weight(self.weight)
        self.reference.check_layer(check_layers(self.layer)[0])

    @property
    def layers(self) -> tuple[int, ...]:
        """The layer, where states are read."""
        return () if self.kind == "prediction" else (self.layer,)

    def describe(self) -> dict[str, Any]:
        """Return its name and arguments, the reference by a digest of its weights."""
        return {"name": f"anchor-{self.kind}", "weight": self.weight, "layers": list(self.layers),
                "reference": weights_digest(self.reference)}  # fmt: skip

    def measure(self, step: Step) -> Tensor:
        """Return the weighted distance on the step's windows."""
        own, held = step.anatomy, self.reference.anatomy
        if (own.vocabulary, own.width) != (held.vocabulary, held.width):
            raise ValueError(
                f"reference: expected a vocabulary of {own.vocabulary} and states of {own.width} "
                f"numbers, got {held.vocabulary} and {held.width}"
            )
        with torch.no_grad():
            states, logits = run(self.reference.anatomy, step.windows[:, :-1], self.layers)
        if self.kind == "prediction":
            before, after = (part.float().log_softmax(dim=-1) for part in (logits, step.logits))
            return self.weight * (before.exp() * (before - after)).sum(dim=-1).mean()
        before, after = states[self.layer].float(), step.states[self.layer].float()
        if self.kind == "states":
            return self.weight * (after - before).square().mean() / before.square().mean()
        old, new = (part.flatten(0, 1).T @ part.flatten(0, 1) for part in (before, after))
        return self.weight * (new - old).square().sum() / old.square().sum()


def weights_digest(model: LanguageModel) -> str:
    """Return the SHA-256 of a model's weights."""
    found = hashlib.sha256()
    for name, part in sorted(model.network.state_dict().items()):
        found.update(name.encode())
        found.update(part.detach().float().cpu().numpy().tobytes())
    return found.hexdigest()
