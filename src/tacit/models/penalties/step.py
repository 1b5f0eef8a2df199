"""One step of training as a penalty sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit._ground.checks import integer, non_negative
from tacit._ground.reprs import short_repr
from tacit.models.anatomy import Anatomy, watched


@short_repr
@dataclass(frozen=True, eq=False)
class Step:
    """What is known of a step when its penalties are measured.

    Attributes:
        anatomy: the network that is trained, taken apart.
        windows: tokens, (n, T + 1).
        logits: of the first T tokens of every window, (n, T, V), with their graph.
        states: by layer, what ``Penalty.layers`` asked for, (n, T, d), with their graph.
        source: randomness of this step, on the processor.
    """

    anatomy: Anatomy
    windows: Tensor
    logits: Tensor
    states: dict[int, Tensor]
    source: torch.Generator

    def rerun(self, tokens: Tensor, layers: Sequence[int]) -> tuple[dict[int, Tensor], Tensor]:
        """Run other tokens (n, T) through the network: the states of layers and the logits."""
        return run(self.anatomy, tokens, layers)


class Penalty(Protocol):
    """A number that a step adds to the mean cross-entropy, weight included."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers whose states the step keeps."""

    def describe(self) -> dict[str, Any]:
        """Return what determines it, for the recipe and for checkpoints."""

    def measure(self, step: Step) -> Tensor:
        """Return the weighted penalty in nats, a scalar with its graph."""


def run(
    anatomy: Anatomy, tokens: Tensor, layers: Sequence[int]
) -> tuple[dict[int, Tensor], Tensor]:
    """Run a network at all positions; return states by layer and logits, with their graphs."""
    states: dict[int, Tensor] = {}

    def keep(layer: int, hidden: Tensor) -> None:
        states[layer] = hidden

    with watched(anatomy, layers, keep):
        logits = anatomy.network(tokens, use_cache=False).logits
    return states, logits


def check_weight(weight: float) -> float:
    """Return a weight >= 0."""
    return non_negative("weight", weight)


def check_layers(layers: Sequence[int] | int) -> tuple[int, ...]:
    """Return layers 1 … L as a tuple."""
    given = (layers,) if isinstance(layers, int) else layers
    if not isinstance(given, Sequence) or not given:
        raise ValueError(f"layers: expected layers 1 … L, got {layers!r}")
    return tuple(integer("layers", layer, minimum=1) for layer in given)
