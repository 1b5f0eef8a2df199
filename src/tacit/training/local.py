"""Where K local steps end on the whole batch, and by how much elsewhere on what references keep."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
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
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.compute import available_workers, parallel_map
from tacit.gradients.batches import (
    Loss,
    LossModule,
    batch_size,
    losses_of,
    part,
    random_states,
    replay,
    same_states,
    set_random_states,
    trainable_parameters,
)
from tacit.training.parameters import tensors_of
from tacit.training.rounds import LocalSteps

Booleans: TypeAlias = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.intp]
States: TypeAlias = list[Tensor]
# They change every entry by its own gradients alone, so a stack of tensors is many optimizers.
ELEMENTWISE = (SGD, Adam, AdamW, NAdam, RAdam, Adamax, RMSprop, Adagrad, Adadelta, Rprop, ASGD)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# their activations are in memory at once
EXAMPLES_TOGETHER = 1024
# between the losses of a batch and of its halves, relative, in units of the precision
LOST = 2.0**14


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
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, membership: Any, method: LocalSteps
) -> LocalOutcome:
    """Run K local steps on a batch and on what every reference keeps of it.

    ``O(w, B) = (1/L) Σ_l O(w, G_l)`` over L sub-groups in the order of the batch, where O(w, G) is
    w after K steps of a fresh optimizer, each on the mean loss of G; ``O(w, ∅) = w``. Then
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
        method: K, the optimizer, whose settings alone decide what it does to a list of parameters,
            L, from 1 to B, and the way: ``"vmap"``, all references at once, which needs a model
            that draws nothing and mixes no examples and an optimizer that works entry by entry;
            ``"processes"``; ``"loop"``. They agree to rounding. ``"auto"`` is the first where it is
            possible, but not for convolutions on a CPU, which it slows; else the second, or the
            third off the CPU.

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
        ...     ~np.eye(4, dtype=bool),
        ...     LocalSteps(steps=3, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)),
        ... )
        >>> found.differences.shape, found.names
        ((4, 3), ('weight', 'bias'))

    Source: dsi, Algorithm 2, Eq. 16, 36 and 37.
    """
    # B, and which examples each reference keeps
    size = batch_size(inputs)
    rows = _check_membership(membership, size)
    if method.groups > size:
        raise ValueError(
            f"groups: expected at most one for each of {size} examples, got {method.groups}"
        )
    # G_1 … G_L, and the runs on them that differ from the whole
    parts = sub_groups(rows, method.groups)
    names = tuple(trainable_parameters(model))
    problem = RoundProblem.of(model, loss, inputs, targets, method)
    # O(w, G_l) of all sub-groups, one after the other
    begun, reals, ended = _real_runs(problem, parts, random_states(model))
    # O(w, U) = (1/L) Σ_l O(w, G_l)
    real = np.mean(reals, axis=0)
    problem.reset()
    if np.array_equal(real, problem.flat()):
        raise ValueError("optimizer: expected steps that change a parameter, got the same ones")
    # O(w, R_i ∩ G_l) for every different thing that is kept
    used, outcomes = _reference_runs(problem, parts, begun)
    # z_i = (1/L) Σ_l (O(w, R_i ∩ G_l) − O(w, G_l)), of which most terms are zero
    differences = np.zeros((len(rows), real.size))
    for group, whole, found in zip(parts, reals, outcomes, strict=True):
        for row, end in enumerate(found):
            differences[group.run == row] += (end - whole) / len(parts)
    # randomness goes on as if only the real batch had been run
    set_random_states(model, ended)
    differences.flags.writeable = False
    return LocalOutcome(
        parameters=torch.from_numpy(real),
        differences=differences,
        names=names,
        way=used,
        runs=sum(len(group.kept) for group in parts),
    )


@dataclass(frozen=True, kw_only=True)
class SubGroup:
    """A part of the batch, and the runs on it besides that on all of it.

    Attributes:
        examples: (n,) their indices in the batch.
        kept: (k, n) what is kept in each run, no two rows the same and none of them all.
        run: (m,) the row of ``kept`` for each reference, −1 where it keeps all.
    """

    examples: Indices
    kept: Booleans
    run: Indices


def sub_groups(membership: Booleans, groups: int) -> list[SubGroup]:
    """Split a batch into parts of nearly equal size, in its order, and list their runs.

    Args:
        membership: (m, B) which examples each reference keeps.
        groups: L, from 1 to B.

    Source: dsi, Eq. 36-37.
    """
    found = []
    for examples in np.array_split(np.arange(membership.shape[1]), groups):
        # (m, n) what each reference keeps of the sub-group
        kept = membership[:, examples]
        # who keeps all of it needs no run
        differs = ~kept.all(axis=1)
        run = np.full(len(membership), -1, dtype=np.intp)
        # references that keep the same of a sub-group share one run
        rows, places = np.unique(kept[differs], axis=0, return_inverse=True)
        run[differs] = places.reshape(-1)
        found.append(SubGroup(examples=examples, kept=rows, run=run))
    return found


def _check_membership(membership: Any, size: int) -> Booleans:
    """Return which examples each reference keeps, (m, B) truth values."""
    plain = membership.detach().cpu().numpy() if hasattr(membership, "detach") else membership
    rows = np.asarray(plain)
    if rows.ndim != 2 or rows.shape[1] != size or len(rows) == 0:
        raise ValueError(
            f"membership: expected shape (references, {size}), at least one, got {rows.shape}"
        )
    if rows.dtype != np.bool_:
        raise ValueError(f"membership: expected True or False, got entries of type {rows.dtype}")
    return rows


@dataclass(frozen=True, kw_only=True)
class RoundProblem:
    """What every run of a round shares.

    Attributes:
        model: a copy of the model that the runs may change.
        start: its parameters and buffers before every run.
        loss: ``loss(model, inputs, targets)`` → one loss per example.
        inputs: of the whole batch.
        targets: of the whole batch.
        method: K and the optimizer.
    """

    model: nn.Module
    start: dict[str, Tensor]
    loss: Loss
    inputs: Any
    targets: Any
    method: LocalSteps

    @staticmethod
    def of(
        model: nn.Module, loss: Loss, inputs: Any, targets: Any, method: LocalSteps
    ) -> RoundProblem:
        """Return the problem of a model, which is copied and left alone."""
        try:
            own = copy.deepcopy(model)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"model: expected one that can be copied, got {error}") from None
        own.zero_grad(set_to_none=True)
        start = {name: one.detach().clone() for name, one in tensors_of(own)}
        return RoundProblem(
            model=own, start=start, loss=loss, inputs=inputs, targets=targets, method=method
        )

    def reset(self) -> None:
        """Put parameters and buffers back to where every run begins."""
        with torch.no_grad():
            for name, one in tensors_of(self.model):
                one.copy_(self.start[name])
        self.model.zero_grad(set_to_none=True)

    def flat(self) -> Array:
        """Return the trainable parameters as they are now, one float64 vector."""
        values = trainable_parameters(self.model).values()
        parts = [one.detach().reshape(-1).to("cpu", torch.float64) for one in values]
        found: Array = torch.cat(parts).numpy()
        return found

    def batch(self, examples: Indices) -> tuple[Any, Any]:
        """Return inputs and targets of some examples."""
        rows, size = torch.from_numpy(examples), batch_size(self.inputs)
        return part(self.inputs, rows, size), part(self.targets, rows, size)

    def optimizer(self, parameters: Iterable[Any]) -> Any:
        """Return a fresh optimizer of parameters."""
        optimizer = self.method.optimizer(list(parameters))
        if not callable(getattr(optimizer, "step", None)):
            found = type(optimizer).__name__
            raise ValueError(f"optimizer: expected a function that makes optimizers, got {found}")
        return optimizer


def run(problem: RoundProblem, examples: Indices, states: States) -> tuple[Array, States]:
    """Return the parameters after K steps on some examples, and the generators' states then.

    Every step has the gradient of the mean loss of the examples. None of them: no step.

    Raises:
        ValueError: losses or parameters are not finite, or no loss depends on a parameter.
    """
    problem.reset()
    if examples.size == 0:
        return problem.flat(), states
    model, count = problem.model, int(examples.size)
    inputs, targets = problem.batch(examples)
    optimizer = problem.optimizer(trainable_parameters(model).values())

    def closure() -> Tensor:
        model.zero_grad(set_to_none=True)
        total = losses_of(problem.loss, model, inputs, targets, count).mean()
        if not total.requires_grad:
            raise ValueError(
                "loss: expected losses that depend on the model it is called with, got others"
            )
        total.backward()  # type: ignore[no-untyped-call]
        return total

    # the same masks as every other run from these states
    with replay(model, states), torch.enable_grad():
        for _ in range(problem.method.steps):
            optimizer.step(closure)
        after = random_states(model)
    found = problem.flat()
    # a difference of diverged parameters is no difference
    _check_finite(found)
    return found, after


def _check_finite(outcome: Array) -> None:
    """Refuse parameters that diverged."""
    if not np.isfinite(outcome).all():
        raise ValueError("optimizer: expected finite parameters after its steps, got other values")


def _real_runs(
    problem: RoundProblem, parts: list[SubGroup], states: States
) -> tuple[list[States], list[Array], States]:
    """Run every whole sub-group; return the generators' states before each, and at the end."""
    begun, outcomes = [], []
    for group in parts:
        begun.append(states)
        found, states = run(problem, group.examples, states)
        outcomes.append(found)
    return begun, outcomes, states


def _reference_runs(
    problem: RoundProblem, parts: list[SubGroup], begun: list[States]
) -> tuple[str, list[list[Array]]]:
    """Return the way taken and, for every sub-group, where each of its runs ended."""
    asked = problem.method.way
    if asked == "vmap" or (asked == "auto" and not _is_slow(problem.model)):
        # all references at once, where nothing speaks against it
        reason = obstacle(problem)
        if reason is None:
            try:
                return "vmap", [list(chain(*stack_runs(problem, group))) for group in parts]
            except (RuntimeError, NotImplementedError) as error:
                reason = f"torch.func.vmap says {str(error).strip().splitlines()[0]}"
        if asked == "vmap":
            raise ValueError(f"way: expected a model that 'vmap' can run, but {reason}")
    # processes share no accelerator
    on_a_device = any(one.device.type != "cpu" for one in problem.model.parameters())
    alone = asked == "loop" or (asked == "auto" and on_a_device)
    # every run that has to be made, in order
    items = [(at, row) for at, group in enumerate(parts) for row in range(len(group.kept))]
    found = parallel_map(
        partial(_one, problem, parts, begun),
        items,
        workers=1 if alone or available_workers() == 1 else None,
        engine="local",
        threads=torch.get_num_threads() if alone else 1,
    )
    # put back by sub-group
    ends = iter(found)
    outcomes = [list(islice(ends, len(group.kept))) for group in parts]
    return "loop" if alone else "processes", outcomes


def _one(
    problem: RoundProblem, parts: list[SubGroup], begun: list[States], item: tuple[int, int]
) -> Array:
    at, row = item
    group = parts[at]
    return run(problem, group.examples[group.kept[row]], begun[at])[0]


def obstacle(problem: RoundProblem) -> str | None:
    """Say what keeps runs from being stacked; None where nothing does.

    A stacked run weighs the losses of all examples, 0 for what is not kept, which is the run on
    the kept ones only where no example changes another's loss and nothing is drawn.
    """
    problem.reset()
    parameters = list(trainable_parameters(problem.model).values())
    optimizer = problem.optimizer(parameters)
    # stacked parameters are one tensor: a norm over it would mix references
    if type(optimizer) not in ELEMENTWISE:
        return f"{type(optimizer).__name__} is no optimizer of torch that works entry by entry"
    stacks = [one.detach()[None].requires_grad_() for one in parameters]
    # such as a decay for matrices and none for vectors
    if _settings(optimizer, parameters) != _settings(problem.optimizer(stacks), stacks):
        return "the optimizer's settings depend on the parameters' shapes"
    before, size = random_states(problem.model), batch_size(problem.inputs)
    with torch.no_grad():
        # the losses of all, and whether anything was drawn for them
        whole = _losses(problem, np.arange(size))
        if not same_states(before, random_states(problem.model)):
            return "the model draws random numbers"
        # any two halves would do: what depends on the company of an example differs in one
        for half in np.array_split(np.random.default_rng(0).permutation(size), 2):
            if half.size and not _close(_losses(problem, half), whole[torch.from_numpy(half)]):
                return "the model mixes examples"
    changed = any(not torch.equal(b, problem.start[n]) for n, b in problem.model.named_buffers())
    return "the model changes its buffers" if changed else None


def _is_slow(model: nn.Module) -> bool:
    """Whether stacking costs more than it saves: convolutions with many weights on a CPU."""
    folded = any(isinstance(one, CONVOLUTIONS) for one in model.modules())
    return folded and all(one.device.type == "cpu" for one in model.parameters())


def stack_runs(problem: RoundProblem, group: SubGroup) -> Iterator[Array]:
    """Yield the parameters after the runs of a sub-group, some rows at a time, in order."""
    problem.reset()
    batch = problem.batch(group.examples)
    # as many references at a time as memory has room for
    rows = max(1, EXAMPLES_TOGETHER // group.examples.size)
    for start in range(0, len(group.kept), rows):
        yield _together(problem, batch, group.kept[start : start + rows])


def _together(problem: RoundProblem, batch: tuple[Any, Any], kept: Booleans) -> Array:
    losses = LossModule(problem.model, problem.loss)
    # shared parameters have one name here, and functional_call ties the others to it
    own = trainable_parameters(problem.model)
    stacks = {
        f"model.{name}": one.detach().expand(len(kept), *one.shape).clone().requires_grad_()
        for name, one in own.items()
    }
    optimizer = problem.optimizer(stacks.values())
    # examples that each reference keeps
    counts = kept.sum(axis=1, keepdims=True)
    first = next(iter(own.values()))
    # 1/n for what is kept, 0 for the others: the mean loss of the kept ones
    weights = torch.from_numpy(kept / np.maximum(counts, 1)).to(first.device, first.dtype)

    def objective(parameters: dict[str, Tensor], weight: Tensor) -> Tensor:
        found: Tensor = functional_call(losses, parameters, batch)
        return (found * weight.to(found.dtype)).sum()

    # ∂/∂θ_r of reference r's own loss, for all r
    gradients = vmap(grad(objective))
    for _ in range(problem.method.steps):
        # the fused kernels of attention have no rule of vmap
        with sdpa_kernel(SDPBackend.MATH):
            found = gradients({name: one.detach() for name, one in stacks.items()}, weights)
        for name, one in stacks.items():
            one.grad = found[name]
        optimizer.step()
    # (k, p) in float64, as every difference is
    rows = [one.detach().reshape(len(kept), -1).to("cpu", torch.float64) for one in stacks.values()]
    outcomes: Array = torch.cat(rows, dim=1).numpy()
    outcomes[counts[:, 0] == 0] = problem.flat()  # nothing kept, no step
    _check_finite(outcomes)
    return outcomes


def _losses(problem: RoundProblem, examples: Indices) -> Tensor:
    count = int(examples.size)
    return losses_of(problem.loss, problem.model, *problem.batch(examples), count)


def _close(found: Tensor, expected: Tensor) -> bool:
    # 2¹⁴ units in the last place of the largest loss: what sums of many terms may lose
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
