"""What must hold before anything is spent."""

from __future__ import annotations

from typing import Any

import torch

from tacit._ground.checks import choice
from tacit.training.parameters import trainable
from tacit.training.references import References
from tacit.training.settings import GRAMS, NOISES, LocalSteps

# In halves of these the noise would be rounded away beside the parameter.
PRECISE = (torch.float32, torch.float64)


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


def check_way(
    model: Any, optimizer: Any, loss: Any, references: Any, *, local: Any, gram: Any, noise: Any
) -> None:
    """Check what a run is made of, and that its parts go together.

    Raises:
        ValueError: names the argument.
    """
    if not isinstance(references, References):
        found = type(references).__name__
        raise ValueError(f"references: expected tacit.training.References, got {found}")
    choice("gram", gram, GRAMS)
    choice("noise", noise, NOISES)
    if noise == "isotropic" and gram != "exact":
        raise ValueError(f"gram: expected 'exact' beside isotropic noise, got {gram!r}")
    check_model(model, loss)
    if optimizer is not None:
        if local is not None:
            raise ValueError("local: expected None beside optimizer, got both")
        check_optimizer(model, optimizer)
    if local is not None and not isinstance(local, LocalSteps):
        raise ValueError(f"local: expected LocalSteps, got {type(local).__name__}")


def check_optimizer(model: torch.nn.Module, optimizer: Any) -> None:
    """Check that the optimiser holds the trainable parameters of the model and nothing else.

    Raises:
        ValueError: one is frozen, foreign or left out, or the optimiser calls for the loss again.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        found = type(optimizer).__name__
        raise ValueError(f"optimizer: expected a torch.optim.Optimizer, got {found}")
    if not any(float(group.get("lr", 1.0)) for group in optimizer.param_groups):
        raise ValueError("optimizer: expected a learning rate above 0, got 0: nothing would change")
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


def check_moving(model: torch.nn.Module) -> None:
    """Refuse a step in which no gradient differs from zero.

    Raises:
        ValueError: all of them are zero.
    """
    found = (p.grad for p in trainable(model).values())
    if not any(grad is not None and bool(grad.any()) for grad in found):
        raise ValueError("loss: expected a gradient that is not zero, got zeros only")
