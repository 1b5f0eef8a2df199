"""Rules of functions that take a parameter and other values entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.training.gradients.contributions import Dense
from tacit.training.gradients.recorder import Recorder, Rule
from tacit.training.gradients.uses import Kept, named


def elementwise(function: Callable[..., Tensor]) -> Rule:
    """Return the rule of an elementwise function of two values, one of them a parameter."""

    def rule(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 2:
            return NotImplemented
        first, second = recorder.key(args[0]), recorder.key(args[1])
        if (first is None) == (second is None):
            return NotImplemented
        key, place = (first, 0) if first is not None else (second, 1)
        assert key is not None
        parameter, other = args[place], args[1 - place]
        if not recorder.has_rows(other):
            return NotImplemented
        lead = other.ndim - parameter.ndim
        if lead < 0 or (lead == 0 and parameter.shape[0] != 1):
            return NotImplemented
        output = function(*args)
        if output.shape[0] != recorder.batch:
            return NotImplemented
        kept, what = Kept(other), named(recorder, key)

        def receive(gradient: Tensor) -> None:
            partial = _partial(function, place, kept.get(what), parameter)
            local = gradient if partial is None else gradient * partial
            over = [*range(1, lead)]
            over += [
                lead + i for i, length in enumerate(parameter.shape) if length == 1 and lead + i > 0
            ]
            sums = local.sum(dim=over, keepdim=True) if over else local
            recorder.add(key, Dense(sums.reshape(recorder.batch, -1), tuple(parameter.shape)))

        return recorder.watch(output, receive, what)

    return rule


def _partial(
    function: Callable[..., Tensor], place: int, other: Tensor, parameter: Tensor
) -> Tensor | None:
    """Return ∂ function / ∂ parameter, None for 1."""
    if function is torch.add or (function is torch.sub and place == 0):
        return None
    if function is torch.mul:
        return other
    if function is torch.sub:
        return torch.full((), -1.0, dtype=parameter.dtype, device=parameter.device)
    return 1 / other if place == 0 else -other / parameter**2
