"""Batches as nested tensors: their size, their parts, and their losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from tacit.training.gradients.recorder import tensors_in

Loss: TypeAlias = Callable[[Any, Any, Any], Tensor]
# inputs and targets
Batch: TypeAlias = tuple[Any, Any]


def batch_size(inputs: Any) -> int:
    """Return the number of examples: the first dimension of the first tensor of the inputs."""
    first = next((one for one in tensors_in(inputs) if one.ndim > 0), None)
    if first is None:
        raise ValueError(f"inputs: expected tensors of examples, got {type(inputs).__name__}")
    if first.shape[0] == 0:
        raise ValueError(f"inputs: expected at least one example, got shape {tuple(first.shape)}")
    return int(first.shape[0])


def part(values: Any, start: int, stop: int, count: int) -> Any:
    """Return some of the examples: rows of every tensor that has ``count`` of them."""
    if isinstance(values, Tensor):
        return values[start:stop] if values.ndim and values.shape[0] == count else values
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(part(one, start, stop, count) for one in values))
    if isinstance(values, (list, tuple)):
        return type(values)(part(one, start, stop, count) for one in values)
    if isinstance(values, Mapping):
        return {name: part(one, start, stop, count) for name, one in values.items()}
    return values


def losses_of(loss: Loss, model: nn.Module, inputs: Any, targets: Any, count: int) -> Tensor:
    """Return one loss per example, checked."""
    losses = loss(model, inputs, targets)
    if not isinstance(losses, Tensor) or tuple(losses.shape) != (count,):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(f"loss: expected one loss per example, shape ({count},), got {got}")
    if not losses.is_floating_point():
        raise ValueError(f"loss: expected floating-point losses, got {losses.dtype}")
    values = losses.detach()
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        where = int(torch.argmin(finite.to(torch.uint8)))
        raise ValueError(f"loss: expected finite losses, got {float(values[where])} at {where}")
    return losses


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that require gradients, each under its first name."""
    found = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if not found:
        raise ValueError("model: expected a parameter that requires gradients, got none")
    return found


@contextmanager
def frozen_parameters(parameters: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Keep parameters out of the graph, and let them back in whatever happens."""
    for parameter in parameters.values():
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters.values():
            parameter.requires_grad_(True)


def random_states(model: nn.Module) -> list[Tensor]:
    """Return the states of the generators that the model's layers draw from."""
    devices = sorted({one.device.index or 0 for one in model.parameters() if one.is_cuda})
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(index) for index in devices)]


def same_states(first: list[Tensor], second: list[Tensor]) -> bool:
    """Whether nothing was drawn between two states."""
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@contextmanager
def replayed(model: nn.Module, states: list[Tensor] | None) -> Iterator[None]:
    """Draw again from earlier states, and go on afterwards as if nothing had been drawn."""
    if states is None:
        yield
        return
    devices = sorted({one.device.index or 0 for one in model.parameters() if one.is_cuda})
    with torch.random.fork_rng(devices=devices):
        torch.set_rng_state(states[0])
        for index, state in zip(devices, states[1:], strict=True):
            torch.cuda.set_rng_state(state, index)
        yield


def shapes_of(values: Any) -> Any:
    """Return the shapes of the tensors in any nesting, hashable."""
    if isinstance(values, Tensor):
        return tuple(values.shape)
    if isinstance(values, Mapping):
        return tuple((name, shapes_of(value)) for name, value in values.items())
    if isinstance(values, (tuple, list)):
        return tuple(shapes_of(value) for value in values)
    return None
