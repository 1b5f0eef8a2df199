"""By how much K local steps on what each reference keeps end elsewhere than on the whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit._ground.checks import Array, choice, integer
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.compute import available_workers, parallel_map
from tacit.training.gradients.batches import (
    Loss,
    batch_size,
    random_states,
    trainable_parameters,
)
from tacit.training.local.plan import (
    SubGroup,
    checked_groups,
    checked_membership,
    sub_groups,
)
from tacit.training.local.runs import Factory, Problem, States, run
from tacit.training.local.stacked import is_slow, obstacle, stacked
from tacit.training.settings import WAYS


@short_repr
@read_only
@dataclass(frozen=True, kw_only=True)
class LocalOutcome:
    """Where local steps end on the real batch, and by how much elsewhere for every reference.

    Attributes:
        parameters: (d,) O(w, U), float64: the trainable parameters in the model's order, a shared
            one once.
        differences: (m, d) O(w, R_i) − O(w, U), float64.
        names: of the parameters, as in the state dict.
        way: how the references were run: ``"vmap"``, ``"processes"`` or ``"loop"``.
        runs: how many runs of K steps the references took.
    """

    parameters: Tensor
    differences: Array
    names: tuple[str, ...]
    way: str
    runs: int


def local_differences(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    membership: Any,
    *,
    steps: int,
    optimizer: Factory,
    groups: int = 1,
    way: str = "auto",
) -> LocalOutcome:
    """Run K local steps on a batch and on what every reference keeps of it.

    ``O(w, B) = (1/L) Σ_l O(w, G_l)`` over L sub-groups in the order of the batch, where O(w, G) is
    w after K steps of a fresh optimiser, each on the mean loss of G; ``O(w, ∅) = w``. Then
    ``z_i = O(w, R_i ∩ B) − O(w, B)``, and only sub-groups that R_i does not keep whole are run.

    Every run begins with the same parameters, buffers and states of PyTorch's generators, so that
    a difference is due to the examples alone: with dropout a subset draws its own masks from the
    same seed. Afterwards the generators stand where the run on the whole batch left them.

    The model is left alone, its buffers too: what a run writes into running statistics is thrown
    away, since no noise on parameters would cover it. Batch normalisation may be trained so, but
    has the statistics it began with when it is evaluated.

    Args:
        model: in the mode it is to be trained in. Frozen parameters stay as they are.
        loss: ``loss(model, inputs, targets)`` → losses, shape (B,), one for each example.
        inputs: B examples: a tensor, or tuples, lists and mappings of tensors.
        targets: the same, as the loss takes them.
        membership: (m, B) True for what reference i keeps.
        steps: K >= 1.
        optimizer: makes an optimiser of a list of parameters; its settings alone decide what it
            does to them.
        groups: L, from 1 to B.
        way: ``"vmap"``, all references at once, which needs a model that draws nothing and mixes
            no examples and an optimiser that works entry by entry; ``"processes"``; ``"loop"``.
            They agree to rounding. ``"auto"`` is the first where it is possible, but not for
            convolutions on a CPU, which it slows; else the second, or the third off the CPU.

    Returns:
        The outcome and the differences.

    Raises:
        ValueError: a bad argument, losses or parameters that are not finite, steps that change
            nothing, or a model that ``"vmap"`` cannot run, with the reason.

    Example:
        >>> model = torch.nn.Linear(2, 1).double()
        >>> inputs, targets = torch.randn(4, 2).double(), torch.randn(4).double()
        >>> found = local_differences(
        ...     model, lambda m, x, y: (m(x)[:, 0] - y).square(), inputs, targets,
        ...     ~np.eye(4, dtype=bool), steps=3, optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
        ... )
        >>> found.differences.shape, found.names
        ((4, 3), ('weight', 'bias'))

    Source: dsi, Algorithm 2, Eq. 16, 36 and 37.
    """
    size = batch_size(inputs)
    rows = checked_membership(membership, size)
    parts = sub_groups(rows, checked_groups(groups, size))
    asked = choice("way", way, WAYS)
    names = tuple(trainable_parameters(model))
    problem = Problem.of(
        model,
        loss=loss,
        inputs=inputs,
        targets=targets,
        size=size,
        steps=integer("steps", steps, minimum=1),
        optimizer=optimizer,
    )
    begun, reals, ended = _real_runs(problem, parts, random_states(model))
    real = np.mean(reals, axis=0)
    problem.reset()
    if np.array_equal(real, problem.flat()):
        raise ValueError("optimizer: expected steps that change a parameter, got the same ones")
    used, outcomes = _reference_runs(problem, parts, begun, asked)
    differences = np.zeros((len(rows), real.size))
    for part, whole, found in zip(parts, reals, outcomes, strict=True):
        for row, end in enumerate(found):
            differences[part.run == row] += (end - whole) / len(parts)
    _leave(model, ended)
    differences.flags.writeable = False
    return LocalOutcome(
        parameters=torch.from_numpy(real),
        differences=differences,
        names=names,
        way=used,
        runs=sum(len(part.kept) for part in parts),
    )


def _real_runs(
    problem: Problem, parts: list[SubGroup], states: States
) -> tuple[list[States], list[Array], States]:
    """Run every whole sub-group; return the generators' states before each, and at the end."""
    begun, outcomes = [], []
    for part in parts:
        begun.append(states)
        found, states = run(problem, part.examples, states)
        outcomes.append(found)
    return begun, outcomes, states


def _reference_runs(
    problem: Problem, parts: list[SubGroup], begun: list[States], asked: str
) -> tuple[str, list[list[Array]]]:
    """Return the way taken and, for every sub-group, where each of its runs ended."""
    if asked == "vmap" or (asked == "auto" and not is_slow(problem.model)):
        reason = obstacle(problem)
        if reason is None:
            try:
                return "vmap", [list(chain(*stacked(problem, part))) for part in parts]
            except (RuntimeError, NotImplementedError) as error:
                reason = f"torch.func.vmap says {str(error).strip().splitlines()[0]}"
        if asked == "vmap":
            raise ValueError(f"way: expected a model that 'vmap' can run, but {reason}")
    alone = asked == "loop" or (asked == "auto" and _on_a_device(problem.model))
    items = [(at, row) for at, part in enumerate(parts) for row in range(len(part.kept))]
    found = parallel_map(
        partial(_one, problem, parts, begun),
        items,
        workers=1 if alone or available_workers() == 1 else None,
        engine="local",
        threads=torch.get_num_threads() if alone else 1,
        progress=False,
    )
    ends = iter(found)
    outcomes = [list(islice(ends, len(part.kept))) for part in parts]
    return "loop" if alone else "processes", outcomes


def _one(
    problem: Problem, parts: list[SubGroup], begun: list[States], item: tuple[int, int]
) -> Array:
    at, row = item
    part = parts[at]
    return run(problem, part.examples[part.kept[row]], begun[at])[0]


def _on_a_device(model: nn.Module) -> bool:
    return any(one.device.type != "cpu" for one in model.parameters())


def _leave(model: nn.Module, states: States) -> None:
    """Let PyTorch's generators go on from where the real runs left them."""
    torch.set_rng_state(states[0])
    devices = sorted({one.device.index or 0 for one in model.parameters() if one.is_cuda})
    for index, state in zip(devices, states[1:], strict=True):
        torch.cuda.set_rng_state(state, index)
