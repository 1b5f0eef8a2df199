"""Which modules are linear layers, and what may hold or use them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
LINEAR = "expected torch.nn.Linear or transformers' Conv1D with the forward pass of its class"


def widths(name: str, module: nn.Module) -> tuple[int, int]:
    """Return (out, in) of a linear layer.

    Args:
        name: what the layer is called in messages.
        module: ``nn.Linear``, or ``Conv1D`` of transformers, whose weight is (in, out).

    Raises:
        ValueError: anything else, which may compute something else.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"modules: {LINEAR} at {name}, got {type(module).__name__}")
    weight = module._parameters.get("weight")
    if "forward" in vars(module):
        raise ValueError(f"modules: {LINEAR} at {name}, got one whose forward was replaced")
    if weight is None or weight.ndim != 2:
        raise ValueError(f"modules: {LINEAR} at {name}, got {type(module).__name__}")
    if type(module).forward is nn.Linear.forward:
        return int(weight.shape[0]), int(weight.shape[1])
    # a model that has a Conv1D has imported it
    written: Any = sys.modules.get("transformers.pytorch_utils")
    if written is not None and type(module).forward is written.Conv1D.forward:
        return int(weight.shape[1]), int(weight.shape[0])
    raise ValueError(f"modules: {LINEAR} at {name}, got {type(module).__name__}")


def turned(module: nn.Module, values: Tensor) -> Tensor:
    """Return (…, out, in) of a linear layer's weight as it keeps it, (in, out) in ``Conv1D``."""
    return values if type(module).forward is nn.Linear.forward else values.mT


def refuse_tied(modules: Mapping[str, nn.Module]) -> None:
    """Refuse two names of one module or of one parameter.

    Raises:
        ValueError: naming both.
    """
    owners: dict[int, str] = {}
    for name, module in modules.items():
        for parameter in module.parameters(recurse=False):
            other = owners.setdefault(id(parameter), name)
            if other != name:
                raise ValueError(
                    f"modules: expected layers that share no parameter, got {other} and {name} "
                    "tied to each other"
                )


def refuse_around(modules: Mapping[str, nn.Module], model: nn.Module) -> None:
    """Refuse a model in which the layers' gradients are not all there is, or not per example.

    Args:
        modules: the layers.
        model: what they are part of.

    Raises:
        ValueError: a layer is not in the model, another module has its parameter, the model runs
            as replicas, or it has a batch normalisation that is training.
    """
    ours = {id(one): name for name, module in modules.items() for one in module.parameters()}
    layers = {id(module): name for name, module in modules.items()}
    found = set()
    for path, module in model.named_modules():
        if isinstance(module, PARALLEL):
            raise ValueError(
                f"model: expected one that runs by itself, got {type(module).__name__} around it"
            )
        if isinstance(module, _BatchNorm) and module.training:
            raise ValueError(
                "model: expected examples that do not depend on each other, got "
                f"{type(module).__name__} in training mode at {path}"
            )
        if id(module) in layers:
            found.add(id(module))
            continue
        for parameter in module.parameters(recurse=False):
            if id(parameter) in ours:
                raise ValueError(
                    f"modules: expected a weight of its own at {ours[id(parameter)]}, got one that "
                    f"is tied to {path or 'the model itself'}"
                )
    for key, name in layers.items():
        if key not in found:
            raise ValueError(f"modules: expected layers of the model, got {name}, which is not one")
