"""Prompts read once but for their last token, and continued from any state there."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit._ground.reprs import short_repr
from tacit.models.anatomy import Anatomy, replaced
from tacit.models.continuation import prefilled, resumed
from tacit.models.padding import followed, last_of, trimmed


@short_repr
@dataclass(frozen=True, eq=False)
class Prefilled:
    """n prompts whose earlier positions stand in a cache.

    The kept keys and values take 2 L (T − 1) numbers per prompt and key-value head width.

    Attributes:
        inputs: of all positions, (n, T).
        earlier: a layer of the model's cache each, none for prompts of one token.
    """

    anatomy: Anatomy
    inputs: dict[str, Tensor]
    earlier: tuple[Any, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, anatomy: Anatomy, tokens: Tensor) -> Prefilled:
        """Run all positions but the last."""
        inputs = anatomy.inputs(trimmed(tokens))
        return cls(anatomy, inputs, tuple(prefilled(anatomy, inputs)))

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    @torch.no_grad()
    def generate(self, layer: int, states: Tensor | None, steps: int) -> Tensor:
        """Continue every prompt greedily, its last state after a layer replaced, (n, steps).

        Args:
            layer: 1 … L, or 0 for the embeddings.
            states: (n, d), or None for the model's own.
            steps: tokens generated, at least 1.
        """
        anatomy, inputs = self.anatomy, last_of(self.inputs)
        cache = resumed(anatomy, self.earlier)
        with nullcontext() if states is None else replaced(anatomy, layer, states):
            chosen = [anatomy.forward(inputs, cache).argmax(dim=-1)]
        while len(chosen) < steps:
            inputs = followed(inputs, chosen[-1][:, None])
            chosen.append(anatomy.forward(inputs, cache).argmax(dim=-1))
        return torch.stack(chosen, dim=1)
