"""What must hold before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tacit.training.parameters import trainable


def check_optimizer(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that the optimiser holds the trainable parameters of the model and nothing else.

    Raises:
        ValueError: one is frozen, foreign or left out, or the optimiser calls for the loss again.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("optimizer: expected one that reads gradients once, got LBFGS")
    names = {id(p): name for name, p in model.named_parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in held:
        name = names.get(id(parameter))
        if name is None:
            raise ValueError("optimizer: expected parameters of the model, got another's")
        if not parameter.requires_grad:
            raise ValueError(f"optimizer: expected parameters with a gradient, got frozen {name!r}")
    left = {id(p) for p in held}
    for name, parameter in trainable(model).items():
        if id(parameter) not in left:
            raise ValueError(f"optimizer: expected every trainable parameter, got none of {name!r}")
    if not held:
        raise ValueError("optimizer: expected a trainable parameter, got none")


def check_unchanged(model: torch.nn.Module, before: Mapping[str, torch.Tensor]) -> None:
    """Refuse a forward pass that wrote what no noise covers into a buffer.

    Raises:
        ValueError: names the buffer.
    """
    for name, buffer in model.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            raise ValueError(
                f"model: the forward pass changed the buffer {name!r}, which no noise covers; "
                "freeze it, or use a layer without running statistics"
            )
