"""A node behind a layer's output, which sees the layer's input and its output's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

# Takes an output's gradient, the input of the layer, and the entry that the forward ran in.
Catch: TypeAlias = Callable[[Tensor, Tensor, int], None]


class Watch:
    """A forward hook that puts a node behind a layer's output."""

    def __init__(self, catch: Catch, module: nn.Module, name: str, entry: int) -> None:
        self.catch, self.module, self.name, self.entry = catch, module, name, entry
        # the node is there even where nothing before the layer has a gradient
        self.anchor = torch.zeros((), requires_grad=True)

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        """Return the output with the node behind it; None, as it is, where none is recorded."""
        if not torch.is_grad_enabled():
            return None
        if module is not self.module:
            raise ValueError(
                f"modules: expected {self.name} to run by itself, got a replica of it "
                "(DataParallel)"
            )
        inputs = args[0] if args else next(iter(kwargs.values()))
        caught: Tensor = _Node.apply(  # type: ignore[no-untyped-call]
            output, inputs.detach(), self.anchor, self
        )
        return caught


class _Node(torch.autograd.Function):
    """The identity, which shows its gradient to a watch beside the layer's input.

    The input is a saved tensor: a checkpoint drops it and computes it again, once per backward
    pass whatever the number of forward passes, and a change of it in place is refused.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, output: Tensor, inputs: Tensor, _anchor: Tensor, watch: Watch
    ) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.watch = watch  # type: ignore[attr-defined]
        # neither a copy nor a view, so that what follows may change it in place
        return output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (inputs,) = ctx.saved_tensors
        with torch.no_grad(), torch.autocast(gradients.device.type, enabled=False):
            ctx.watch.catch(gradients, inputs, ctx.watch.entry)
        return (gradients if ctx.needs_input_grad[0] else None), None, None, None
