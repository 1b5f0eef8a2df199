"""The parameters of a model as one vector, and their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from tacit._ground.checks import Array
from tacit._ground.reprs import shown


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return every parameter with a gradient by its name, a shared one once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def flat_outcome(model: torch.nn.Module, name: str, outcome: Any) -> Array:
    """Return trainable parameters, a state dict or a vector, as one float64 vector.

    Raises:
        ValueError: a parameter is missing, has another shape or is not finite.
    """
    wanted = trainable(model)
    size = sum(p.numel() for p in wanted.values())
    if isinstance(outcome, Mapping):
        missing = [key for key in wanted if key not in outcome]
        if missing:
            raise ValueError(f"{name}: expected every trainable parameter, got none {missing[0]!r}")
        for key, parameter in wanted.items():
            if tuple(outcome[key].shape) != tuple(parameter.shape):
                raise ValueError(
                    f"{name}: expected shape {tuple(parameter.shape)} of {key!r}, got "
                    f"{tuple(outcome[key].shape)}"
                )
        vector = np.concatenate([_numpy(outcome[key]).ravel() for key in wanted])
    else:
        vector = _numpy(outcome)
    if vector.shape != (size,):
        raise ValueError(f"{name}: expected {size} parameters, got {shown(vector)}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name}: expected finite parameters, got NaN or infinite ones")
    return vector


def write_flat(model: torch.nn.Module, vector: Array) -> None:
    """Set the trainable parameters from one vector."""
    start = 0
    with torch.no_grad():
        for parameter in trainable(model).values():
            part = vector[start : start + parameter.numel()].reshape(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(part)))
            start += parameter.numel()


def write_gradient(model: torch.nn.Module, vector: Array) -> None:
    """Set the gradients of the trainable parameters from one vector."""
    start = 0
    for parameter in trainable(model).values():
        part = vector[start : start + parameter.numel()].reshape(tuple(parameter.shape))
        parameter.grad = torch.from_numpy(np.ascontiguousarray(part)).to(parameter)
        start += parameter.numel()


class Snapshot:
    """Parameters and buffers as they were, to be held against and put back.

    Args:
        model: whose state dict is copied.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._values = {name: value.detach().clone() for name, value in _tensors(model)}

    def check(self, *, trained: bool = False) -> None:
        """Put back what changed, and refuse it: no noise covers it.

        Args:
            trained: whether trainable parameters may change.

        Raises:
            ValueError: names the parameter or buffer.
        """
        free = set(trainable(self._model)) if trained else set()
        for name, value in _tensors(self._model):
            known = self._values.get(name)
            if name in free or (known is not None and _equal(known, value)):
                continue
            self.restore()
            raise ValueError(
                f"model: the forward pass changed {name!r}, which no noise covers; freeze it, or "
                "use a layer without running statistics"
            )

    def restore(self) -> None:
        """Put everything back."""
        with torch.no_grad():
            for name, value in _tensors(self._model):
                if name in self._values:
                    value.copy_(self._values[name])


def _tensors(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and bool(torch.equal(first, second.detach()))


def digest_of(model: torch.nn.Module) -> str:
    """Return the SHA-256 of the state dict: names, types, shapes and values."""
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        found.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        found.update(tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return f"sha256:{found.hexdigest()}"


def digest_of_names(names: Iterable[str]) -> str:
    """Return the SHA-256 of names in their order."""
    found = hashlib.sha256()
    for name in names:
        found.update(f"{len(name)}:{name}".encode())
    return f"sha256:{found.hexdigest()}"


def _numpy(values: Any) -> Array:
    if isinstance(values, torch.Tensor):
        return values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)
