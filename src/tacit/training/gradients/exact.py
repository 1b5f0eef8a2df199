"""Per-example gradients from a backward pass that stops at the outputs of layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from tacit._ground.checks import Array
from tacit.training.gradients.base import PerExample
from tacit.training.gradients.batches import (
    Batch,
    Loss,
    frozen_parameters,
    losses_of,
    random_states,
    same_states,
)
from tacit.training.gradients.contributions import Contributions, at_least_single
from tacit.training.gradients.free import free_gradients
from tacit.training.gradients.gramian import gram_matrix
from tacit.training.gradients.recorder import Recorder
from tacit.training.gradients.rules import RULES
from tacit.training.gradients.separation import unchanged_buffers


class Exact(PerExample):
    """Per-example gradients kept layer by layer."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: list[Batch],
        sizes: list[int],
        parameters: Mapping[str, nn.Parameter],
    ) -> None:
        self._parameters, self._sizes = parameters, sizes
        found = [
            _one_pass(model, loss, batch, size, parameters)
            for batch, size in zip(batches, sizes, strict=True)
        ]
        self.losses = np.concatenate([losses for losses, _ in found])
        self._found = [uses for _, uses in found]
        known = {name for uses in self._found for name in uses}
        self.unused = tuple(name for name in parameters if name not in known)
        self.gram = gram_matrix(self._found, sizes)

    def sums(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ_i c_i g_i by parameter, from what every layer kept."""
        parts = torch.split(coefficients, self._sizes)
        sums: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            total = torch.zeros_like(parameter.detach(), dtype=at_least_single(parameter).dtype)
            for own, uses in zip(parts, self._found, strict=True):
                for use in uses.get(name, ()):
                    total += use.weighted(own.to(total.device))
            sums[name] = total
        return sums

    def _first_bad(self) -> str:
        for name, parameter in self._parameters.items():
            for size, uses in zip(self._sizes, self._found, strict=True):
                for use in uses.get(name, ()):
                    ones = torch.ones(size, dtype=torch.float64, device=parameter.device)
                    if not bool(torch.isfinite(use.weighted(ones)).all()):
                        return f"a bad one of {name}"
        return "inner products that overflow"


def _one_pass(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    count: int,
    parameters: Mapping[str, nn.Parameter],
) -> tuple[Array, dict[str, Contributions]]:
    """Return losses and per-example gradients of one micro-batch."""
    states = random_states(model)
    with frozen_parameters(parameters):
        losses, recorder = recorded_losses(model, loss, batch, count, parameters)
        drew = not same_states(states, random_states(model))
        run_back(losses.sum(), recorder.leaves)
        found: dict[str, Contributions] = dict(recorder.contributions())
        free = {name: one for name, one in parameters.items() if name in recorder.free}
        if free:
            found |= free_gradients(model, loss, batch, free, count, states if drew else None)
    values: Array = losses.detach().double().cpu().numpy()
    return values, found


def recorded_losses(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    count: int,
    parameters: Mapping[str, nn.Parameter],
) -> tuple[Tensor, Recorder]:
    """Return the losses of frozen parameters and what watched the forward pass."""
    names = {id(one): name for name, one in parameters.items()}
    recorder = Recorder(names, parameters, RULES, count)
    recorder.start_from(batch)
    with unchanged_buffers(model), torch.enable_grad(), recorder:
        losses = losses_of(loss, model, *batch, count)
    return losses, recorder


def run_back(total: Tensor, leaves: list[Tensor]) -> None:
    """Run the backward pass to the outputs that are watched."""
    if not leaves or not total.requires_grad:
        return
    try:
        torch.autograd.grad(total, leaves, allow_unused=True)
    except CheckpointError:
        raise ValueError(
            "model: expected layers that run once, got torch.utils.checkpoint, which runs them "
            "again; give micro_batch instead, which saves the same memory"
        ) from None
