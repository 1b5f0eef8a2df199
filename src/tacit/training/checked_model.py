"""How every layer of a model gives the gradient of each example, and whether it is the true one."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.gradients.batches import (
    batch_size,
    check_losses,
    evaluating,
    map_tensors,
    part,
    random_states,
    refuse_mixing,
    refuse_without_numbers,
    replay,
)
from tacit.gradients.calibration import named_overwrites
from tacit.gradients.draws import DrawError, Drawn, drawn_by
from tacit.gradients.model import ModelGradients
from tacit.gradients.verification import ROUGH

# A float32 gradient is right to this share of its size, summed over however many positions.
RIGHT = 1e-4
# Passes whose fastest is told.
PASSES = 3
RULE, AGAIN = "by a rule", "run again for each example"


@dataclass(frozen=True)
class CheckedLayer:
    """One module that is trained.

    Attributes:
        path: of the module, ``(model)`` for the model itself.
        kind: its class.
        parameters: how many numbers of it are trained.
        way: how the gradients of its examples are found.
        error: largest ``‖G_i − g_i‖/‖g_i‖`` of the first and the last example, g_i by a pass of
            that example alone; a layer's ‖g_i‖ counts as 2% of the whole model's at least. Of all
            layers in double precision where single precision leaves one of them in doubt.
    """

    path: str
    kind: str
    parameters: int
    way: str
    error: float


@dataclass(frozen=True)
class CheckedModel:
    """What a private step of a model does, layer by layer.

    Attributes:
        layers: that are trained.
        frozen: numbers of the model that are not.
        seconds: a pass back for each example, and one of a plain mean, the fastest of three each.
        double: whether errors are those in double precision.
    """

    layers: tuple[CheckedLayer, ...]
    frozen: int
    seconds: tuple[float, float]
    double: bool = False

    @property
    def right(self) -> bool:
        """Whether every layer's gradients are those of single examples."""
        return all(one.error <= RIGHT for one in self.layers)

    def __str__(self) -> str:
        """Return a line for every layer, and what a step takes."""
        width = max(len(one.path) for one in self.layers)
        lines = [
            f"{one.path:{width}}  {one.kind}, {one.parameters:,} numbers, {one.way}, "
            + (f"right to {one.error:.0e}" if one.error <= RIGHT else f"WRONG by {one.error:.1e}")
            for one in self.layers
        ]
        private, plain = self.seconds
        total = sum(one.parameters for one in self.layers)
        if self.double:
            lines.append("errors are those in double precision: single precision rounds more")
        lines.append(
            f"{total:,} numbers are trained, {self.frozen:,} are not; gradients of every example "
            f"take {private / plain:.1f} times a plain pass"
        )
        return "\n".join(lines)


def check_model(
    model: nn.Module, inputs: Any, losses: Callable[[nn.Module, Any], Tensor]
) -> CheckedModel:
    """Hold the gradients of examples, as `make_private` finds them, against single examples' own.

    Args:
        model: whose parameters that require gradients are trained; left as it was.
        inputs: two or more examples, a tensor or a nest of tensors with a row for each.
        losses: of the model and of inputs: (B,), one for each example.

    Raises:
        ValueError: a model that mixes examples or trains nothing, or a mean in place of losses.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GRU(4, 2))
        >>> found = check_model(
        ...     model[:2], torch.randn(5, 3), lambda m, rows: m(rows).square().sum(1)
        ... )
        >>> found.right, [one.way for one in found.layers]
        (True, ['by a rule', 'by a rule'])
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    refuse_without_numbers(model)
    refuse_mixing(model)
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if not trained:
        raise ValueError("model: expected parameters that require gradients, got none")
    count = batch_size(inputs)
    if count < 2:
        raise ValueError(f"inputs: expected at least two examples, got {count}")
    # masks that are drawn would differ between a batch and a single example
    with evaluating(model), named_overwrites(model):
        plain_seconds = _fastest(lambda: _backward(losses(model, inputs), count, trained))
        gradients, errors, seconds = _held(model, inputs, losses, trained)
        # what rounding alone moves is told from what is wrong by rounding less
        exact = None if max(errors.values()) <= RIGHT else _in_double(model, inputs, losses)
    errors = exact or errors
    layers = tuple(
        CheckedLayer(
            path=unit.path or "(model)",
            kind=type(unit.module).__name__,
            parameters=sum(trained[name].numel() for name in unit.names.values()),
            way=AGAIN if unit.rule is None else RULE,
            error=max(errors[name] for name in unit.names.values()),
        )
        for unit in gradients.units
    )
    others = sum(one.numel() for name, one in model.named_parameters() if name not in trained)
    return CheckedModel(layers, others, (seconds, plain_seconds), exact is not None)


def _held(
    model: nn.Module,
    inputs: Any,
    losses: Callable[[nn.Module, Any], Tensor],
    trained: dict[str, nn.Parameter],
) -> tuple[ModelGradients, dict[str, float], float]:
    """Return where gradients are taken, their errors beside single passes, and the seconds."""
    places, states = (0, batch_size(inputs) - 1), random_states(model)
    # what a model or its losses draw in evaluation too, an example alone has of the batch
    _, drawn = drawn_by(model, lambda: losses(model, inputs))
    plain = {place: _single(model, inputs, losses, trained, place, drawn) for place in places}
    if not all(one.isfinite().all() for held in plain.values() for one in held.values()):
        raise ValueError("inputs: expected examples of finite gradients, got other values")
    gradients = ModelGradients(model, trained)
    gradients.attach()
    try:
        errors, seconds = _compared(gradients, model, inputs, losses, plain, states)
    finally:
        gradients.detach()
    return gradients, errors, seconds


def _in_double(
    model: nn.Module, inputs: Any, losses: Callable[[nn.Module, Any], Tensor]
) -> dict[str, float] | None:
    """Return the errors of a copy in double precision; None of a model that has none."""
    try:
        exact = copy.deepcopy(model).double()
        trained = {name: one for name, one in exact.named_parameters() if one.requires_grad}
        rows = map_tensors(inputs, lambda one: one.double() if _is_real(one) else one)
        return _held(exact, rows, losses, trained)[1]
    except (RuntimeError, TypeError, ValueError):
        return None


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _single(
    model: nn.Module,
    inputs: Any,
    losses: Callable[[nn.Module, Any], Tensor],
    trained: dict[str, nn.Parameter],
    place: int,
    drawn: Drawn,
) -> dict[str, Tensor]:
    """Return the gradient of one example by plain backpropagation of it alone, in float64."""
    count = batch_size(inputs)
    alone = part(inputs, slice(place, place + 1), count)
    try:
        with drawn.again(count, place):
            held = losses(model, alone)
    except DrawError:
        raise ValueError(
            "losses: expected numbers that are drawn for each example, got some that an example "
            "alone draws otherwise; turn them off in evaluation"
        ) from None
    found = _backward(held, 1, trained)
    return {
        name: torch.zeros_like(one).double() if grad is None else grad.double()
        for (name, one), grad in zip(trained.items(), found, strict=True)
    }


def _backward(
    losses: Tensor, count: int, trained: dict[str, nn.Parameter]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a sum of losses by plain backpropagation."""
    total = check_losses("losses", losses, count).sum()
    return torch.autograd.grad(total, list(trained.values()), allow_unused=True)


def _compared(
    gradients: ModelGradients,
    model: nn.Module,
    inputs: Any,
    losses: Callable[[nn.Module, Any], Tensor],
    plain: dict[int, dict[str, Tensor]],
    states: list[Tensor],
) -> tuple[dict[str, float], float]:
    """Return the largest error of every parameter's gradients, and the seconds of a pass."""
    count = batch_size(inputs)

    def back() -> None:
        gradients.backward(check_losses("losses", losses(model, inputs), count))

    # the first pass tries how the model is called
    with replay(model, states):
        back()
    seconds = _fastest(back)
    with replay(model, states):
        back()
    errors = dict.fromkeys(gradients.parameters, 0.0)
    for place, truth in plain.items():
        whole = float(torch.stack([one.norm() for one in truth.values()]).norm())
        for name, true in truth.items():
            if name in gradients.found:
                # G_i: the sum with the coefficient 1 at i and 0 elsewhere
                single = torch.zeros(count, dtype=torch.float64, device=true.device)
                single[place] = 1.0
                found = gradients.found[name].sums(single).reshape(true.shape)
            else:
                found = torch.zeros_like(true)
            # a layer whose gradient is rounding alone is held against that of the model
            size = max(float(true.norm()), ROUGH * whole)
            # NaN is no error that a maximum sees
            apart = float((found - true).norm().nan_to_num(nan=math.inf))
            errors[name] = max(errors[name], apart / size if size > 0.0 else apart)
    return errors, seconds


def _fastest(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some passes."""
    found = []
    for _ in range(PASSES):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return max(min(found), 1e-9)
