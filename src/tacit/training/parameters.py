"""The parameters of a model as one vector, as they were, and what must hold before a round."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit._ground.reprs import shown

# In halves of these the noise would be rounded away beside the parameter.
PRECISE = (torch.float32, torch.float64)


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return every parameter with a gradient by its name, a shared one once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def flat_outcome(model: torch.nn.Module, name: str, outcome: Any) -> Array:
    """Return trainable parameters, a state dict or a vector, as one float64 vector.

    Raises:
        ValueError: a parameter is missing, has another shape or is not finite.
    """
    wanted = trainable(model)
    # p, by names or as one vector
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
    # noise would hide no NaN
    if not np.isfinite(vector).all():
        raise ValueError(f"{name}: expected finite parameters, got NaN or infinite ones")
    return vector


def write_flat(model: torch.nn.Module, vector: Array) -> None:
    """Set the trainable parameters from one vector."""
    with torch.no_grad():
        for parameter, own in _parts(model, vector):
            parameter.copy_(own)


def write_gradient(model: torch.nn.Module, vector: Array) -> None:
    """Set the gradients of the trainable parameters from one vector."""
    for parameter, own in _parts(model, vector):
        parameter.grad = own.to(parameter)


def _parts(model: torch.nn.Module, vector: Array) -> Iterator[tuple[torch.nn.Parameter, Tensor]]:
    """Yield every trainable parameter and its part of a vector, in its shape."""
    # in the order of named_parameters, in which all vectors here are
    start = 0
    for parameter in trainable(model).values():
        own = np.ascontiguousarray(vector[start : start + parameter.numel()])
        yield parameter, torch.from_numpy(own).reshape(parameter.shape)
        start += parameter.numel()


class Snapshot:
    """Parameters and buffers as they were, to be held against and put back.

    Args:
        model: whose state dict is copied.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._values = {name: value.detach().clone() for name, value in tensors_of(model)}

    def check(self, *, trained: bool = False) -> None:
        """Put back what changed, and refuse it: no noise covers it.

        Args:
            trained: whether trainable parameters may change.

        Raises:
            ValueError: names the parameter or buffer.
        """
        # what is trained may change, what is frozen may not
        free = set(trainable(self._model)) if trained else set()
        for name, value in tensors_of(self._model):
            known = self._values.get(name)
            same = known is not None and known.shape == value.shape
            if name in free or (same and bool(torch.equal(known, value.detach()))):  # type: ignore[arg-type]
                continue
            self.restore()
            raise ValueError(
                f"model: the forward pass changed {name!r}, which no noise covers; freeze it, or "
                "use a layer without running statistics"
            )

    def restore(self) -> None:
        """Put everything back."""
        with torch.no_grad():
            for name, value in tensors_of(self._model):
                if name in self._values:
                    value.copy_(self._values[name])


def tensors_of(model: torch.nn.Module) -> list[tuple[str, Tensor]]:
    """Return parameters and buffers by name, a shared one once."""
    return [*model.named_parameters(), *model.named_buffers()]


def digest_of_names(names: Iterable[str]) -> str:
    """Return the SHA-256 of names in their order."""
    found = hashlib.sha256()
    for name in names:
        # the length before each, so that no two lists have one text
        found.update(f"{len(name)}:{name}".encode())
    return f"sha256:{found.hexdigest()}"


def _numpy(values: Any) -> Array:
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def check_model(model: Any, loss: Any) -> None:
    """Check that the model has trainable parameters that noise can be added to, and the loss.

    Raises:
        ValueError: names the parameter and its type, or the argument.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not callable(loss):
        raise ValueError(f"loss: expected a function, got {type(loss).__name__}")
    for name, parameter in trainable(model).items():
        if parameter.dtype not in PRECISE:
            raise ValueError(
                f"model: expected float32 or float64 where noise is added, got {parameter.dtype} "
                f"in {name!r}; train in float32 and convert afterwards"
            )
    if not trainable(model):
        raise ValueError("model: expected a trainable parameter, got none")


def check_optimizer(model: torch.nn.Module, optimizer: Any) -> None:
    """Check that the optimizer holds the trainable parameters of the model and nothing else.

    Raises:
        ValueError: one is frozen, foreign or left out, or the optimizer calls for the loss again.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        found = type(optimizer).__name__
        raise ValueError(f"optimizer: expected a torch.optim.Optimizer, got {found}")
    # a rate of 0 would spend a budget on nothing
    if not any(float(group.get("lr", 1.0)) for group in optimizer.param_groups):
        raise ValueError("optimizer: expected a learning rate above 0, got 0: nothing would change")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("optimizer: expected one that reads gradients once, got LBFGS")
    # by identity: equal tensors are not the same parameter
    names = {id(p): name for name, p in model.named_parameters()}
    stepped = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in stepped:
        name = names.get(id(parameter))
        if name is None:
            raise ValueError("optimizer: expected parameters of the model, got another's")
        if not parameter.requires_grad:
            raise ValueError(f"optimizer: expected parameters with a gradient, got frozen {name!r}")
    # a parameter without an optimizer would keep its gradient and never move
    held = {id(p) for p in stepped}
    for name, parameter in trainable(model).items():
        if id(parameter) not in held:
            raise ValueError(f"optimizer: expected every trainable parameter, got none of {name!r}")
    if not held:
        raise ValueError("optimizer: expected a trainable parameter, got none")


def check_moving(model: torch.nn.Module) -> None:
    """Refuse a step in which no gradient differs from zero.

    Raises:
        ValueError: all of them are zero.
    """
    found = (p.grad for p in trainable(model).values())
    if not any(grad is not None and bool(grad.any()) for grad in found):
        raise ValueError("loss: expected a gradient that is not zero, got zeros only")
