"""Whether the examples of a batch are separate and their gradients the losses' own."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.checks import integer
from tacit.training.gradients.batches import (
    Batch,
    Loss,
    batch_size,
    frozen_parameters,
    losses_of,
    part,
    random_states,
    replayed,
    same_states,
    shapes_of,
    trainable_parameters,
)
from tacit.training.gradients.exact import Exact, recorded_losses, run_back
from tacit.training.gradients.separation import refuse_mixing

# Share of the whole gradient beyond which float32 is not forgiven for rounding.
ROUGH = 0.02


class Verified:
    """Holds the 1st, 2nd, 4th, 8th … batch of every shape against plain backpropagation.

    Args:
        exact: whether gradients are captured, not the losses alone.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._seen: dict[Any, int] = {}

    def verify(self, model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> None:
        """Verify a batch if it is its turn."""
        modes = tuple(module.training for module in model.modules())
        key = (shapes_of((inputs, targets)), modes)
        count = self._seen.get(key, 0) + 1
        if count & (count - 1) == 0:
            verify_examples(model, loss, inputs, targets, exact=self._exact)
        self._seen[key] = count


def verify_examples(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    examples: Sequence[int] = (0, -1),
    exact: bool = True,
) -> None:
    """Refuse a model whose examples meet, or whose per-example gradients are not what they seem.

    For each i in ``examples``: ∂ℓ_i/∂(a layer's output) is exactly zero in every row but i; the
    losses of half of the batch alone are the same (evaluated, where masks are drawn); and the
    captured g_i is the gradient of ℓ_i by plain backpropagation. Structure can hide all three: a
    batch along another dimension, a statistic of the batch, a layer that computes apart from its
    function. Shapes decide what is read as what: verify the first batch of every shape.

    Args:
        model: the module.
        loss: one loss per example, as in ``per_example``.
        inputs: a batch.
        targets: its targets.
        examples: positions in the batch.
        exact: whether g_i is compared too, which only ``gram="exact"`` needs.

    Raises:
        ValueError: examples are not separate, or a parameter's captured gradient is another.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> def centred(model, inputs, targets):
        ...     outputs = model(inputs)[:, 0]
        ...     return (outputs - outputs.mean() - targets).square()
        >>> verify_examples(model, centred, torch.eye(2), torch.ones(2))
        Traceback (most recent call last):
        ValueError: model: the output of bias, weight for one example moves the loss of another
    """
    count = batch_size(inputs)
    refuse_mixing(model)
    parameters = trainable_parameters(model)
    chosen = sorted({integer("examples", i, minimum=-count, maximum=count - 1) % count
                     for i in examples})  # fmt: skip
    states, batch = random_states(model), (inputs, targets)
    for example in chosen:
        with replayed(model, states), frozen_parameters(parameters):
            losses, recorder = recorded_losses(model, loss, batch, count, parameters)
            recorder.only_rows = example
            run_back(losses[example], recorder.leaves)
        if recorder.mixed:
            raise ValueError(
                f"model: the output of {recorder.mixed[0] or 'a layer'} for one example moves the "
                "loss of another"
            )
    with _without_draws(model, loss, batch, count, states):
        _same_in_parts(model, loss, batch, count, states)
        if exact:
            off = _gradients_off(model, loss, batch, count, parameters, states, chosen)
            # rounding alone, as where normalisation cancels, is gone in double precision
            rounding = off is not None and off[1] <= ROUGH
            if off is not None and not (rounding and _same_in_double(model, loss, batch, chosen)):
                raise ValueError(
                    f"model: the per-example gradient of {off[0]} is not the loss's: it is off by "
                    f"{off[1]:.2g} of the whole gradient"
                )


@contextmanager
def _without_draws(
    model: nn.Module, loss: Loss, batch: Batch, count: int, states: list[Tensor]
) -> Iterator[None]:
    """Evaluate a model that draws masks: two passes through it would have two of them."""
    with torch.no_grad(), replayed(model, states):
        losses_of(loss, model, *batch, count)
        draws = not same_states(states, random_states(model))
    modes = [(module, module.training) for module in model.modules()]
    if draws:
        model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _same_in_parts(
    model: nn.Module, loss: Loss, batch: Batch, count: int, states: list[Tensor]
) -> None:
    """Refuse losses that depend on what else is in the batch."""
    if count < 2:
        return
    stop = (count + 1) // 2
    with torch.no_grad(), replayed(model, states):
        whole = losses_of(loss, model, *batch, count)
        if not same_states(states, random_states(model)):
            # another batch would draw other masks
            return
        inputs, targets = (part(one, 0, stop, count) for one in batch)
        half = losses_of(loss, model, inputs, targets, stop)
    if not torch.allclose(half, whole[:stop], rtol=_tolerance(whole), atol=_tolerance(whole)):
        raise ValueError("model: a loss changes with the examples that share its batch")


def _gradients_off(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    count: int,
    parameters: Mapping[str, nn.Parameter],
    states: list[Tensor],
    chosen: list[int],
) -> tuple[str, float] | None:
    """Return the parameter whose captured gradient is another than plain backpropagation's.

    Beside it stands by how much of the whole gradient it is off; None where there is none.
    """
    with replayed(model, states):
        captured = Exact(model, loss, [batch], [count], parameters)
    with replayed(model, states), torch.enable_grad():
        losses = losses_of(loss, model, *batch, count)
    values = list(parameters.values())
    for example in chosen:
        ours = captured.sums(torch.eye(count, dtype=torch.float64)[example])
        plain = torch.autograd.grad(losses[example], values, retain_graph=True, allow_unused=True)
        known = [one for one in plain if one is not None]
        length = (
            torch.stack([one.norm() for one in known]).norm() if known else losses.new_zeros(())
        )
        if not bool(torch.isfinite(length)):
            raise ValueError("loss: expected finite gradients, got one that is not")
        for name, one in zip(parameters, plain, strict=True):
            missed = (ours[name] if one is None else ours[name] - one).norm()
            if not bool(missed <= _tolerance(losses) * length):
                return name, float(missed / length)
    return None


def _same_in_double(model: nn.Module, loss: Loss, batch: Batch, chosen: list[int]) -> bool:
    """Return whether the gradients of a copy in double precision are the loss's own."""
    if all(one.dtype == torch.float64 for one in model.parameters()):
        return False
    try:
        twin = copy.deepcopy(model).double()
        inputs, targets = (
            one.double() if isinstance(one, Tensor) and one.is_floating_point() else one
            for one in batch
        )
        doubled: Batch = (inputs, targets)
        count, parameters = batch_size(inputs), trainable_parameters(twin)
        states = random_states(twin)
        return _gradients_off(twin, loss, doubled, count, parameters, states, chosen) is None
    except (RuntimeError, ValueError, TypeError):
        return False


def _tolerance(losses: Tensor) -> float:
    return math.sqrt(torch.finfo(losses.dtype).eps)
