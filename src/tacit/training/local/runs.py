"""One run: K steps of a fresh optimiser from the same parameters, buffers and randomness."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit._ground.checks import Array
from tacit.training.gradients.batches import (
    Loss,
    losses_of,
    random_states,
    replayed,
    trainable_parameters,
)
from tacit.training.local.plan import Indices

Factory = Callable[[Iterable[Any]], Any]
States = list[Tensor]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What every run of a round shares.

    Attributes:
        model: a copy of the model that the runs may change.
        start: its parameters and buffers before every run.
        loss: ``loss(model, inputs, targets)`` → one loss per example.
        inputs: of the whole batch.
        targets: of the whole batch.
        size: B.
        steps: K.
        optimizer: makes a fresh optimiser of the trainable parameters.
    """

    model: nn.Module
    start: dict[str, Tensor]
    loss: Loss
    inputs: Any
    targets: Any
    size: int
    steps: int
    optimizer: Factory

    @staticmethod
    def of(model: nn.Module, **shared: Any) -> Problem:
        """Return the problem of a model, which is copied and left alone."""
        try:
            own = copy.deepcopy(model)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"model: expected one that can be copied, got {error}") from None
        own.zero_grad(set_to_none=True)
        start = {name: one.detach().clone() for name, one in tensors_of(own)}
        return Problem(model=own, start=start, **shared)

    def reset(self) -> None:
        """Put parameters and buffers back to where every run begins."""
        with torch.no_grad():
            for name, one in tensors_of(self.model):
                one.copy_(self.start[name])
        self.model.zero_grad(set_to_none=True)

    def flat(self) -> Array:
        """Return the trainable parameters as they are now, one float64 vector."""
        return flat_vector(trainable_parameters(self.model).values())


def run(problem: Problem, examples: Indices, states: States) -> tuple[Array, States]:
    """Return the parameters after K steps on some examples, and the generators' states then.

    Every step has the gradient of the mean loss of the examples. None of them: no step.

    Raises:
        ValueError: losses or parameters are not finite, or no loss depends on a parameter.
    """
    problem.reset()
    if examples.size == 0:
        return problem.flat(), states
    model, count = problem.model, int(examples.size)
    inputs = taken(problem.inputs, examples, problem.size)
    targets = taken(problem.targets, examples, problem.size)
    optimizer = made(problem.optimizer, list(trainable_parameters(model).values()))

    def closure() -> Tensor:
        model.zero_grad(set_to_none=True)
        total = losses_of(problem.loss, model, inputs, targets, count).mean()
        if not total.requires_grad:
            raise ValueError("loss: expected losses of the model it is called with, got none")
        total.backward()  # type: ignore[no-untyped-call]
        return total

    with replayed(model, states), torch.enable_grad():
        for _ in range(problem.steps):
            optimizer.step(closure)
        after = random_states(model)
    found = problem.flat()
    check_finite(found)
    return found, after


def made(factory: Factory, parameters: list[Any]) -> Any:
    """Return the optimiser that a factory makes."""
    optimizer = factory(parameters)
    if not callable(getattr(optimizer, "step", None)):
        found = type(optimizer).__name__
        raise ValueError(f"optimizer: expected a function that makes optimisers, got {found}")
    return optimizer


def check_finite(outcome: Array) -> None:
    """Refuse parameters that diverged."""
    if not np.isfinite(outcome).all():
        raise ValueError("optimizer: expected finite parameters after its steps, got others")


def flat_vector(parameters: Iterable[Tensor]) -> Array:
    """Return parameters as one float64 vector."""
    parts = [one.detach().reshape(-1).to("cpu", torch.float64) for one in parameters]
    found: Array = torch.cat(parts).numpy()
    return found


def tensors_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return parameters and buffers by name, a shared one once."""
    return [*model.named_parameters(), *model.named_buffers()]


def taken(values: Any, examples: Indices, size: int) -> Any:
    """Return some of the examples: these rows of every tensor that has ``size`` of them."""
    if isinstance(values, Tensor):
        if values.ndim == 0 or values.shape[0] != size:
            return values
        return values[torch.from_numpy(examples).to(values.device)]
    if isinstance(values, np.ndarray):
        return values[examples] if values.ndim and len(values) == size else values
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(taken(one, examples, size) for one in values))
    if isinstance(values, (list, tuple)):
        return type(values)(taken(one, examples, size) for one in values)
    if isinstance(values, Mapping):
        return {name: taken(one, examples, size) for name, one in values.items()}
    return values
