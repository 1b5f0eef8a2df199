"""Where a causal language model keeps its decoder layers, final norm and output head."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

FAMILIES = {
    "gpt2": "GPT-2",
    "llama": "Llama",
    "mistral": "Mistral",
    "phi": "Phi",
    "phi3": "Phi-3",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
}


@dataclass(frozen=True)
class Anatomy:
    """The parts of a pre-norm decoder: ``logits = head(norm(layer_L(… layer_1(embeddings))))``.

    ``stages`` are the L decoder layers and the final norm, so the residual stream after layer l
    is the input of ``stages[l]`` for every l from 0, the embeddings, to L.
    """

    body: nn.Module
    stages: tuple[nn.Module, ...]
    head: nn.Module

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        return len(self.stages) - 1


def check_family(config: Any, name: str) -> None:
    """Raise unless the configuration belongs to a family whose layers are known here."""
    family = getattr(config, "model_type", None)
    if family not in FAMILIES:
        raise ValueError(
            f"name_or_path: expected a causal language model of the families "
            f"{', '.join(FAMILIES.values())}, got {name!r} of type {family!r}"
        )


def dissect(network: Any, name: str) -> Anatomy:
    """Find the decoder layers, the final norm and the head of a ``transformers`` causal model."""
    check_family(getattr(network, "config", None), name)
    body, head = network.base_model, network.get_output_embeddings()
    count = int(network.config.num_hidden_layers)
    stacks = [
        part for part in body.children() if isinstance(part, nn.ModuleList) and len(part) == count
    ]
    norms = [part for part in body.children() if "norm" in type(part).__name__.lower()]
    if body is network or head is None or len(stacks) != 1 or len(norms) != 1:
        raise ValueError(
            f"name_or_path: expected a causal language model with one stack of {count} decoder "
            f"layers, one final norm and an output head, got {type(network).__name__}"
        )
    return Anatomy(body, (*stacks[0], norms[0]), head)


class _ReachedError(Exception):
    """Ends a forward pass at the layer whose input is wanted."""

    def __init__(self, states: Tensor) -> None:
        super().__init__("the layer was reached")
        self.states = states


def states_before(anatomy: Anatomy, layer: int, tokens: Tensor) -> Tensor:
    """Run the embeddings and the first ``layer`` decoder layers; return their output (n, T, d)."""

    def stop(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        raise _ReachedError(arguments[0])

    handle = anatomy.stages[layer].register_forward_pre_hook(stop)
    try:
        anatomy.body(input_ids=tokens, use_cache=False)
    except _ReachedError as reached:
        return reached.states
    finally:
        handle.remove()
    raise AssertionError("the forward pass ended without passing its layers")


def last_states(
    anatomy: Anatomy, layers: Iterable[int], tokens: Tensor
) -> tuple[dict[int, Tensor], Tensor]:
    """Run the model once; return the last position's state after each layer, and its logits."""
    found: dict[int, Tensor] = {}

    def keeper(layer: int) -> Any:
        def keep(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            found[layer] = arguments[0][:, -1].clone()

        return keep

    handles = [anatomy.stages[layer].register_forward_pre_hook(keeper(layer)) for layer in layers]
    try:
        output = anatomy.body(input_ids=tokens, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return found, anatomy.head(output.last_hidden_state[:, -1])


def last_position_replaced(anatomy: Anatomy, layer: int, states: Tensor) -> Any:
    """Hook the model so that the last position's state after ``layer`` is ``states`` (n, d)."""

    def replace(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = arguments[0]
        changed = hidden.clone()
        changed[:, -1] = states
        return (changed, *arguments[1:])

    return anatomy.stages[layer].register_forward_pre_hook(replace)
