"""Batches as nested tensors: their size, their parts, their losses, and whether examples meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

# Number types in which a pass is rounded by what else is in its batch.
HALVES = (torch.float16, torch.bfloat16)

Loss: TypeAlias = Callable[[Any, Any, Any], Tensor]
# inputs and targets
Batch: TypeAlias = tuple[Any, Any]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested values, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one)


def map_tensors(values: Any, function: Callable[[Any], Any]) -> Any:
    """Return nested values with a function of every tensor or array in its place, in order."""
    if isinstance(values, (Tensor, np.ndarray)):
        return function(values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(map_tensors(one, function) for one in values))
    if isinstance(values, (list, tuple)):
        return type(values)(map_tensors(one, function) for one in values)
    if isinstance(values, Mapping):
        return {name: map_tensors(one, function) for name, one in values.items()}
    return values


def batch_size(inputs: Any) -> int:
    """Return the number of examples: the first dimension of the first tensor of the inputs."""
    # the first tensor with a dimension says what B is
    first = next((one for one in tensors_in(inputs) if one.ndim > 0), None)
    if first is None:
        raise ValueError(f"inputs: expected tensors of examples, got {type(inputs).__name__}")
    if first.shape[0] == 0:
        raise ValueError(f"inputs: expected at least one example, got shape {tuple(first.shape)}")
    return int(first.shape[0])


def part(values: Any, rows: slice | Tensor, count: int) -> Any:
    """Return some of the examples: rows of every tensor that has ``count`` of them."""

    def of(one: Any) -> Any:
        # what has no row for each example, such as a mask of positions, is shared
        if one.ndim == 0 or one.shape[0] != count:
            return one
        if isinstance(rows, slice):
            return one[rows]
        return one[rows.to(one.device)] if isinstance(one, Tensor) else one[rows.numpy()]

    return map_tensors(values, of)


def check_losses(name: str, losses: Any, count: int | None = None) -> Tensor:
    """Return losses, one number for each example; refuse anything else, such as their mean.

    Args:
        name: what a ValueError calls them.
        losses: (B,).
        count: B, where it is known.

    Raises:
        ValueError: they are no tensor, or of another shape.
    """
    if not isinstance(losses, Tensor):
        found = type(losses).__name__
    elif losses.ndim != 1 or losses.shape[0] == 0 or count not in (None, losses.shape[0]):
        found = f"shape {tuple(losses.shape)}"
    elif losses.is_complex():
        found = str(losses.dtype)
    else:
        return losses
    size = "B" if count is None else count
    raise ValueError(f"{name}: expected one loss per example, shape ({size},), got {found}")


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Compute in the precision of the tensors, on any device."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(device.type, enabled=False)
    # there is none to leave, or the device has none
    return nullcontext()


def refuse_without_numbers(model: nn.Module) -> None:
    """Refuse a model whose parameters were declared and never given values.

    Raises:
        ValueError: one is on the device "meta", or waits for a first pass; it is named.
    """
    for name, one in model.named_parameters():
        if is_lazy(one):
            raise ValueError(
                f"model: expected parameters that have values, got {name} without a shape; pass a "
                "batch through the model before its optimizer is made"
            )
        if one.is_meta:
            raise ValueError(
                f'model: expected parameters that have values, got {name} on the device "meta"; '
                'load the weights, or model.to_empty(device="cpu") and initialise them'
            )


def in_halves(model: nn.Module) -> bool:
    """Whether a model keeps a parameter in half precision, and computes in it there."""
    return any(one.dtype in HALVES for one in model.parameters())


class LossModule(nn.Module):
    """A loss as a module, so that its model's parameters can be given from outside."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, inputs: Any, targets: Any) -> Tensor:
        """Return one loss per example."""
        losses: Tensor = self.loss(self.model, inputs, targets)
        return losses


def losses_of(loss: Loss, model: nn.Module, inputs: Any, targets: Any, count: int) -> Tensor:
    """Return one finite loss per example, checked."""
    losses = check_losses("loss", loss(model, inputs, targets), count)
    # whole numbers have no gradient
    if not losses.is_floating_point():
        raise ValueError(f"loss: expected floating-point losses, got {losses.dtype}")
    values = losses.detach()
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        # the first that is not finite, told by its place
        where = int(torch.argmin(finite.to(torch.uint8)))
        raise ValueError(f"loss: expected finite losses, got {float(values[where])} at {where}")
    return losses


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that require gradients, each under its first name, a shared one once.

    Raises:
        ValueError: there are none.
    """
    # a tied parameter stands under its first name alone
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


def cuda_devices(model: nn.Module) -> list[int]:
    """Return the indices of the CUDA devices that a model is on."""
    return sorted({one.device.index or 0 for one in model.parameters() if one.is_cuda})


def random_states(model: nn.Module) -> list[Tensor]:
    """Return the states of the generators that the model's layers draw from."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, cuda_devices(model))]


def set_random_states(model: nn.Module, states: list[Tensor]) -> None:
    """Let the generators that the model's layers draw from go on from earlier states."""
    torch.set_rng_state(states[0])
    for index, state in zip(cuda_devices(model), states[1:], strict=True):
        torch.cuda.set_rng_state(state, index)


def same_states(first: list[Tensor], second: list[Tensor]) -> bool:
    """Whether nothing was drawn between two states."""
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@contextmanager
def replay(model: nn.Module, states: list[Tensor] | None) -> Iterator[None]:
    """Draw again from earlier states, and go on afterwards as if nothing had been drawn."""
    if states is None:
        yield
        return
    with torch.random.fork_rng(devices=cuda_devices(model)):
        set_random_states(model, states)
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Hold a model in evaluation mode, and give every module its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def without_masks(model: nn.Module) -> Iterator[None]:
    """Hold every dropout of a model in evaluation mode, and all else as it is."""
    held = [one for one in model.modules() if isinstance(one, _DropoutNd) and one.training]
    for one in held:
        one.training = False
    try:
        yield
    finally:
        for one in held:
            one.training = True


def refuse_mixing(model: nn.Module) -> None:
    """Raise for a module that is known to make one example's loss depend on another.

    Raises:
        ValueError: a batch norm that uses the statistics of the batch.
    """
    refuse_mixing_among(model.named_modules())


def refuse_mixing_among(modules: Iterable[tuple[str, nn.Module]]) -> None:
    """Raise as ``refuse_mixing`` does, for modules with their paths."""
    for name, module in modules:
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            raise ValueError(
                f"model: {name or 'the model'}: {type(module).__name__} mixes examples, so that "
                "leaving one out changes the others; use GroupNorm, or eval() and fixed statistics"
            )


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Refuse a forward pass that writes what it saw into a buffer, which nothing protects.

    Raises:
        ValueError: a buffer was written to or replaced.
    """
    # identity and version: replaced or written to
    before = {name: (buffer, buffer._version) for name, buffer in model.named_buffers()}
    # the forward pass
    yield
    after: Mapping[str, Tensor] = dict(model.named_buffers())
    for name, (buffer, version) in before.items():
        if after.get(name) is not buffer or buffer._version != version:
            raise ValueError(
                f"model: the buffer {name} changes in the forward pass, and what it learns of the "
                "examples would be published without noise"
            )
