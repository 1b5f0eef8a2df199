"""Many runs at once: parameters stacked over references, gradients by ``torch.func.vmap``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)

from tacit._ground.checks import Array
from tacit.training.gradients.batches import (
    losses_of,
    random_states,
    same_states,
    trainable_parameters,
)
from tacit.training.local.plan import Booleans, Indices, SubGroup
from tacit.training.local.runs import Problem, check_finite, made, taken

# They change every entry by its own gradients alone, so a stack of tensors is many optimisers.
ELEMENTWISE = (SGD, Adam, AdamW, NAdam, RAdam, Adamax, RMSprop, Adagrad, Adadelta, Rprop, ASGD)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# their activations are in memory at once
EXAMPLES_TOGETHER = 1024
# between the losses of a batch and of its halves, relative, in units of the precision
LOST = 2.0**14


class Losses(nn.Module):
    """A loss as a module, so that its model's parameters can be given from outside."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.model, self.loss = problem.model, problem.loss

    def forward(self, inputs: Any, targets: Any) -> Tensor:
        """Return one loss per example."""
        losses: Tensor = self.loss(self.model, inputs, targets)
        return losses


def obstacle(problem: Problem) -> str | None:
    """Say what keeps runs from being stacked; None where nothing does.

    A stacked run weighs the losses of all examples, 0 for what is not kept, which is the run on
    the kept ones only where no example changes another's loss and nothing is drawn.
    """
    problem.reset()
    parameters = list(trainable_parameters(problem.model).values())
    optimizer = made(problem.optimizer, parameters)
    if type(optimizer) not in ELEMENTWISE:
        return f"{type(optimizer).__name__} is no optimiser of torch that works entry by entry"
    stacks = [one.detach()[None].requires_grad_() for one in parameters]
    if _settings(optimizer, parameters) != _settings(made(problem.optimizer, stacks), stacks):
        return "the optimiser's settings depend on the parameters' shapes"
    before = random_states(problem.model)
    with torch.no_grad():
        whole = _losses(problem, np.arange(problem.size))
        if not same_states(before, random_states(problem.model)):
            return "the model draws random numbers"
        for half in np.array_split(np.random.default_rng(0).permutation(problem.size), 2):
            if half.size and not _close(_losses(problem, half), whole[torch.from_numpy(half)]):
                return "the model mixes examples"
    changed = any(not torch.equal(b, problem.start[n]) for n, b in problem.model.named_buffers())
    return "the model changes its buffers" if changed else None


def is_slow(model: nn.Module) -> bool:
    """Whether stacking costs more than it saves: convolutions with many weights on a CPU."""
    folded = any(isinstance(one, CONVOLUTIONS) for one in model.modules())
    return folded and all(one.device.type == "cpu" for one in model.parameters())


def stacked(problem: Problem, group: SubGroup) -> Iterator[Array]:
    """Return the parameters after the runs of a sub-group, some rows at a time, in order."""
    problem.reset()
    inputs = taken(problem.inputs, group.examples, problem.size)
    targets = taken(problem.targets, group.examples, problem.size)
    rows = max(1, EXAMPLES_TOGETHER // group.examples.size)
    for start in range(0, len(group.kept), rows):
        yield _together(problem, inputs, targets, group.kept[start : start + rows])


def _together(problem: Problem, inputs: Any, targets: Any, kept: Booleans) -> Array:
    losses = Losses(problem)
    # shared parameters have one name here, and functional_call ties the others to it
    own = trainable_parameters(problem.model)
    stacks = {
        f"model.{name}": one.detach().expand(len(kept), *one.shape).clone().requires_grad_()
        for name, one in own.items()
    }
    optimizer = made(problem.optimizer, list(stacks.values()))
    counts = kept.sum(axis=1, keepdims=True)
    first = next(iter(own.values()))
    weights = torch.from_numpy(kept / np.maximum(counts, 1)).to(first.device, first.dtype)

    def objective(parameters: dict[str, Tensor], weight: Tensor) -> Tensor:
        found: Tensor = functional_call(losses, parameters, (inputs, targets))
        return (found * weight.to(found.dtype)).sum()

    gradients = vmap(grad(objective))
    for _ in range(problem.steps):
        with sdpa_kernel(SDPBackend.MATH):
            found = gradients({name: one.detach() for name, one in stacks.items()}, weights)
        for name, one in stacks.items():
            one.grad = found[name]
        optimizer.step()
    rows = [one.detach().reshape(len(kept), -1).to("cpu", torch.float64) for one in stacks.values()]
    outcomes: Array = torch.cat(rows, dim=1).numpy()
    outcomes[counts[:, 0] == 0] = problem.flat()  # nothing kept, no step
    check_finite(outcomes)
    return outcomes


def _losses(problem: Problem, examples: Indices) -> Tensor:
    inputs = taken(problem.inputs, examples, problem.size)
    targets = taken(problem.targets, examples, problem.size)
    return losses_of(problem.loss, problem.model, inputs, targets, int(examples.size))


def _close(found: Tensor, expected: Tensor) -> bool:
    lost = LOST * torch.finfo(found.dtype).eps
    largest = float(expected.abs().max())
    return bool(((found - expected).abs() <= lost * largest).all())


def _settings(optimizer: Any, parameters: list[Any]) -> list[str]:
    """Return the options of every group of parameters, these by their place."""
    places = {id(one): place for place, one in enumerate(parameters)}
    return [
        repr({**group, "params": [places.get(id(one)) for one in group["params"]]})
        for group in optimizer.param_groups
    ]
