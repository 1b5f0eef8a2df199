"""Per-example gradients of parameters that no rule covers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.training.gradients.batches import Batch, Loss, replayed
from tacit.training.gradients.contributions import Dense
from tacit.training.gradients.recorder import tensors_in

Rebuild: TypeAlias = Callable[[Sequence[Tensor]], Any]


class _Loss(nn.Module):
    """The loss of one example as a module, so that its model's parameters can be replaced."""

    def __init__(self, model: nn.Module, loss: Loss, rebuild: Rebuild) -> None:
        super().__init__()
        self.model, self._loss, self._rebuild = model, loss, rebuild

    def forward(self, *rows: Tensor) -> Tensor:
        inputs, targets = self._rebuild(rows)
        return self._loss(self.model, inputs, targets)[0]


def free_gradients(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    parameters: Mapping[str, nn.Parameter],
    count: int,
    drawn_from: list[Tensor] | None,
) -> dict[str, list[Dense]]:
    """Return J of some parameters, every use of them included.

    By ``torch.func`` where it can follow the model; else, and where layers draw random numbers
    that have to be the same ones, by one backward pass per example through one graph.

    Args:
        model: whose layers read the parameters.
        loss: one loss per example.
        batch: inputs and targets.
        parameters: by name; all others are constants.
        count: B.
        drawn_from: the generators' states before the forward pass, None where nothing was drawn.
    """
    if drawn_from is None:
        try:
            # the fused kernels of attention have no rule of vmap
            with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                return _vectorised(model, loss, batch, parameters, count)
        except RuntimeError:
            # no rule of vmap covers some function of the model
            pass
    return _one_by_one(model, loss, batch, parameters, drawn_from)


def _vectorised(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    parameters: Mapping[str, nn.Parameter],
    count: int,
) -> dict[str, list[Dense]]:
    rows = [one for one in tensors_in(batch) if one.ndim and one.shape[0] == count]
    whole = _Loss(model, loss, lambda parts: _replaced(batch, iter(parts), count))
    values = {f"model.{name}": one.detach() for name, one in parameters.items()}

    def single(given: dict[str, Tensor], *parts: Tensor) -> Tensor:
        found: Tensor = functional_call(whole, given, parts)
        return found

    over = (None, *(0 for _ in rows))
    found = vmap(grad(single), in_dims=over)(values, *(one.unsqueeze(1) for one in rows))
    return {name: [_dense(found[f"model.{name}"].detach())] for name in parameters}


def _dense(values: Tensor) -> Dense:
    """Return J of one parameter from its rows, (B, …)."""
    return Dense(values.reshape(values.shape[0], -1), tuple(values.shape[1:]))


def _replaced(values: Any, parts: Any, count: int) -> Any:
    """Return nested values with the tensors of examples taken from ``parts``, in order."""
    if isinstance(values, Tensor):
        return next(parts) if values.ndim and values.shape[0] == count else values
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(_replaced(one, parts, count) for one in values))
    if isinstance(values, (list, tuple)):
        return type(values)(_replaced(one, parts, count) for one in values)
    if isinstance(values, Mapping):
        return {name: _replaced(one, parts, count) for name, one in values.items()}
    return values


def _one_by_one(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    parameters: Mapping[str, nn.Parameter],
    drawn_from: list[Tensor] | None,
) -> dict[str, list[Dense]]:
    values = list(parameters.values())
    try:
        for one in values:
            one.requires_grad_(True)
        with replayed(model, drawn_from):
            losses = loss(model, *batch)
        rows: list[list[Tensor]] = [[] for _ in values]
        for single in losses:
            found = torch.autograd.grad(single, values, retain_graph=True, allow_unused=True)
            for kept, one, part in zip(rows, values, found, strict=True):
                kept.append(torch.zeros_like(one) if part is None else part)
    finally:
        for one in values:
            one.requires_grad_(False)
    return {name: [_dense(torch.stack(kept))] for name, kept in zip(parameters, rows, strict=True)}
