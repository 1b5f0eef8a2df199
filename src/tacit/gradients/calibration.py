"""Where each parameter's per-example gradients are taken: tried on two examples first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.gradients.batches import (
    HALVES,
    cuda_devices,
    evaluating,
    map_tensors,
    part,
    without_masks,
)
from tacit.gradients.capture import reached
from tacit.gradients.draws import DrawError, Drawn, LawError, drawn_by
from tacit.gradients.pieces import ParameterGradients

COUPLED = (
    "model: expected outputs of an example that depend on that example alone, "
    "got some that another example of the batch moves"
)
# Examples that are tried together and alone, and another number that tells what grows with it.
TRIED, ANOTHER = 2, 3
# Between the gradient of an example among others and alone: of its parameter, and of the whole.
OF_PARAMETER, OF_WHOLE = 1e-2, 1e-5
# How often the move that one more rounding of every parameter makes of a gradient.
ROUNDINGS = 30.0
# Between the output of an example among others and alone.
SAME = 1e-3
# In half precision both are rounded a thousand times more coarsely.
HALF = 50.0


class SharedError(ValueError):
    """Gradients that are not of one example each where they were taken.

    Attributes:
        path: of the module.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"model: expected a row for each example at {path or 'the model itself'}, got {why}"
        )
        self.path = path


class Watcher(Protocol):
    """What watches a model's modules."""

    model: nn.Module
    parameters: dict[str, nn.Parameter]
    found: dict[str, ParameterGradients]
    count: int
    units: list[Any]
    seen: dict[int, list[int]] | None
    untried: list[Any]
    half: bool

    def paused(self) -> AbstractContextManager[None]:
        """Run modules unwatched."""

    def backward(self, losses: Tensor) -> Any:
        """Run losses back to the watched outputs."""

    def run_again_higher(self, names: Iterable[str]) -> str | None:
        """Take parameters' gradients one module further out; return one for which there is none."""


def calibrate(owner: Watcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Find for every parameter a module at which its gradients are those of single examples.

    Two examples of a batch pass together and each by itself, without dropout; gradients of a
    random weighting of the outputs are compared, parameter by parameter. Where they differ, what
    holds the module is run again for each example instead, out to the whole model.

    Args:
        owner: watches the model.
        args: of a forward pass.
        kwargs: likewise.

    Raises:
        ValueError: an example's outputs depend on the others, or no module gives the gradients of
            a parameter.
    """
    given, count = (args, kwargs), owner.count
    _refuse_in_parts(owner)
    devices = cuda_devices(owner.model)
    with torch.enable_grad(), torch.random.fork_rng(devices=devices), without_masks(owner.model):
        # as it trains: what joins examples in training alone is seen in no evaluation
        with InHalves() as halves:
            _refuse_coupled(owner, given, count)
        owner.half |= halves.seen
    with evaluating(owner.model), torch.enable_grad(), torch.random.fork_rng(devices=devices):
        _refuse_coupled(owner, given, count)
        while True:
            _see_rows(owner, given, count)
            with named_overwrites(owner.model):
                wrong = _wrong(owner, given, count)
            if not wrong:
                break
            name = owner.run_again_higher(wrong)
            if name is not None:
                raise ValueError(
                    f"model: expected per-example gradients of {name} that are those of single "
                    "examples, got others wherever they were taken; freeze it, or write what "
                    "reads it as a module of torch.nn"
                )
    owner.count = count


class InHalves(TorchDispatchMode):
    """Sees whether anything is computed in half precision, in layers that are not trained, too.

    Attributes:
        seen: whether something was.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if not self.seen:
            leaves = pytree.tree_leaves(found)
            self.seen = any(isinstance(one, Tensor) and one.dtype in HALVES for one in leaves)
        return found


@contextmanager
def named_overwrites(model: nn.Module) -> Iterator[None]:
    """Say of which model it is that a pass back does not find what it needs.

    Raises:
        ValueError: what it needs was written over in the forward pass.
    """
    try:
        yield
    except RuntimeError as error:
        if "inplace operation" not in str(error):
            raise
        raise ValueError(
            f"model: expected a {type(model).__name__} that can be run back in evaluation, as it "
            "is tried here, got one that writes over what its gradients need; model.eval() and a "
            "plain backward pass show where"
        ) from error


def in_parts(parameter: Tensor) -> bool:
    """Whether a parameter lies in parts on several processes, as ``fully_shard`` leaves it."""
    return hasattr(parameter, "placements")


def _refuse_in_parts(owner: Watcher) -> None:
    """Refuse to run a module again for each example whose parameters are not here."""
    for unit in owner.units:
        if unit.rule is None:
            for name in unit.names.values():
                if in_parts(owner.parameters[name]):
                    raise ValueError(
                        f"model: expected layers with a rule under fully_shard, got {name} of "
                        f"{type(unit.module).__name__}; freeze it, or use DistributedDataParallel"
                    )


def _rows(given: Any, count: int, size: int) -> Any:
    """Return arguments as those of ``size`` examples of a batch, real numbers made up.

    Whether a model is refused must not depend on what a record says: numbers are drawn from
    (0, 1), the same in every run; indices stay, for their range is not known.
    """
    source = torch.Generator().manual_seed(0)

    def made_up(one: Any) -> Any:
        if not (isinstance(one, Tensor) and one.is_floating_point() and one.ndim):
            return one
        # as many rows whatever is asked for, so that an example is the same among any others
        drawn = torch.rand(one.shape, generator=source, dtype=torch.float64)
        return drawn.to(one)

    # few examples stand in several times
    some = part(given, torch.arange(ANOTHER) % count, count)
    first: Any = part(map_tensors(some, made_up), slice(size), ANOTHER)
    return first


def outputs_of(result: Any, count: int) -> list[Tensor]:
    """Return the outputs that have a row for each example and a gradient."""
    return [
        one
        for one in pytree.tree_leaves(result)
        if isinstance(one, Tensor)
        and one.is_floating_point()
        and one.requires_grad
        and one.ndim > 0
        and one.shape[0] == count
    ]


def _run(owner: Watcher, given: Any, size: int) -> list[Tensor]:
    args, kwargs = given
    found = outputs_of(owner.model(*args, **kwargs), size)
    if not found:
        alone = "; one that passes alone loses its row to a squeeze() of no dimension, say"
        raise ValueError(
            "model: expected outputs that depend on what is trained and have a row for each "
            f"example, got none of {size}" + (alone if size == 1 else "")
        )
    return found


def _refuse_coupled(owner: Watcher, given: Any, count: int) -> None:
    """Refuse outputs of an example that another example moves, where none are drawn."""
    with owner.paused():
        every = _rows(given, count, ANOTHER)
        together, drawn = drawn_by(owner.model, lambda: _run(owner, every, ANOTHER))
        for index in range(ANOTHER):
            rows = part(_rows(given, count, ANOTHER), _one(index), ANOTHER)
            try:
                with drawn.again(ANOTHER, index):
                    alone = _run(owner, rows, 1)
            except LawError as error:
                raise ValueError(COUPLED) from error
            except DrawError:
                # an example alone draws others
                return
            for some, one in zip(together, alone, strict=False):
                if not _close(some[index : index + 1].detach(), one.detach()):
                    raise ValueError(COUPLED)


def _one(index: int) -> slice:
    return slice(index, index + 1)


def _close(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    allowed = SAME * _coarse(first)
    scale = float(second.double().abs().max()) if second.numel() else 0.0
    off = float((first.double() - second.double()).abs().max()) if second.numel() else 0.0
    # what is not finite is nobody's to compare
    return not off > allowed * scale + 1e-12


def _coarse(values: Tensor) -> float:
    """Return how much more coarsely than in single precision values are rounded."""
    return HALF if precision_of(values) in HALVES else 1.0


def _see_rows(owner: Watcher, given: Any, count: int) -> None:
    """Learn which tensors that a module is given grow with the number of examples."""
    seen: dict[int, list[tuple[bool, ...]]] = {}
    for size in (TRIED, ANOTHER):
        owner.seen = {}
        _run(owner, _rows(given, count, size), size)
        for key, sizes in owner.seen.items():
            seen.setdefault(key, []).append(tuple(one == size for one in sizes))
        owner.seen = None
    for unit in owner.units:
        known = seen.get(id(unit), [])
        if len(known) == 2 and len(known[0]) == len(known[1]):
            unit.rows = tuple(all(pair) for pair in zip(*known, strict=True))


def _wrong(owner: Watcher, given: Any, count: int) -> list[str]:
    """Return the parameters whose gradients are not those of single examples."""
    two = _rows(given, count, TRIED)
    wrong: set[str] = set()
    # in either order: a model that sorts its examples leaves them in one of the two as they are
    for order in (two, part(two, torch.arange(TRIED).flip(0), TRIED)):
        wrong |= _wrong_of(owner, order)
    return sorted(wrong)


def _wrong_of(owner: Watcher, two: Any) -> set[str]:
    # what these examples reach is tried, and nothing else
    owner.untried = []
    outputs, drawn = drawn_by(owner.model, lambda: _run(owner, two, TRIED))
    source = torch.Generator().manual_seed(0)
    weights = [
        torch.randn(one.shape, generator=source).to(device=one.device, dtype=one.dtype)
        for one in outputs
    ]
    total = torch.stack(
        [(one * held).double().sum() for one, held in zip(outputs, weights, strict=True)]
    )
    try:
        owner.backward(total)
    except SharedError as error:
        # all that is taken at that module is taken further out
        unit = next(one for one in owner.units if one.path == error.path)
        return set(unit.names.values())
    # a parameter that something reads without calling its module, however little it matters
    names = {id(one): name for name, one in owner.parameters.items() if not in_parts(one)}
    wrong = reached(total.grad_fn, names, None) - set(owner.found)
    for index in range(TRIED):
        wrong |= set(_differing(owner, two, weights, index, drawn))
    return wrong


def _differing(
    owner: Watcher, two: Any, weights: Sequence[Tensor], index: int, drawn: Drawn
) -> Iterator[str]:
    """Yield the parameters whose gradient of one example is not the one it has alone."""
    held = [one[_one(index)] for one in weights]
    alone = _plain(owner, two, (index, False), held, drawn)
    # ‖g‖ of the whole, beside which rounding is measured
    length = math.sqrt(sum(float(one.norm()) ** 2 for one in alone.values()))
    twin: dict[str, Tensor] = {}
    moved: dict[str, Tensor] = {}
    for name, true in alone.items():
        mine, coarse = _of_example(owner, name, index), _coarse(owner.parameters[name])
        # rounding is a share of the parameter's own gradient or of the whole one
        allowed = coarse * max(OF_PARAMETER * float(true.norm()), OF_WHOLE * length)
        if not float((mine - true).norm()) > allowed:
            continue
        if not twin:
            # beside itself an example is rounded as beside any other
            twin = _plain(owner, two, (index, True), held, drawn)
            with _rounded_once_more(owner):
                moved = _plain(owner, two, (index, False), held, drawn)
        # a layer that weighs gradients by how many there are moves them further than rounding does
        rounding = ROUNDINGS * float((moved[name] - true).norm())
        if float((mine - twin[name]).norm()) > allowed or (
            float((twin[name] - true).norm()) > rounding
        ):
            yield name


@contextmanager
def _rounded_once_more(owner: Watcher) -> Iterator[None]:
    """Multiply every parameter by 1 ± u, u a unit in the last place of the passes."""
    source = torch.Generator().manual_seed(0)
    whole = [one for one in owner.parameters.values() if not in_parts(one)]
    kept = [one.detach().clone() for one in whole]
    # casts of parameters that autocast keeps are those of their values before
    torch.clear_autocast_cache()
    try:
        for one in whole:
            sign = torch.randint(2, one.shape, generator=source) * 2 - 1
            # values return as they were: no pass that is under way need know
            one.data.mul_(1.0 + torch.finfo(precision_of(one)).eps * sign.to(one))
        yield
    finally:
        for one, before in zip(whole, kept, strict=True):
            one.data.copy_(before)
        torch.clear_autocast_cache()


def precision_of(values: Tensor) -> torch.dtype:
    """Return what passes round to."""
    kind = values.device.type
    # autocast leaves float64 as it is
    if (
        values.dtype != torch.float64
        and torch.amp.is_autocast_available(kind)
        and torch.is_autocast_enabled(kind)
    ):
        return torch.get_autocast_dtype(kind)
    return values.dtype


def _plain(
    owner: Watcher, two: Any, which: tuple[int, bool], held: Sequence[Tensor], drawn: Drawn
) -> dict[str, Tensor]:
    """Return the gradients of one example's weighted outputs, by plain backpropagation.

    Of what lies in parts on several processes they are not at hand: its layer has a rule.

    Args:
        owner: watches the model.
        two: what is tried.
        which: the example, and whether it passes beside itself.
        held: weights of its outputs.
        drawn: by the two together.
    """
    parameters = {name: one for name, one in owner.parameters.items() if not in_parts(one)}
    if not parameters:
        return {}
    index, beside = which
    place, size = (index, TRIED) if beside else (0, 1)
    rows = part(two, torch.tensor([index] * TRIED) if beside else _one(index), TRIED)
    with owner.paused():
        try:
            # what is drawn for the two is that of an example at its place
            with drawn.again(1, 0) if beside else drawn.again(TRIED, index):
                outputs = _run(owner, rows, size)
        except DrawError:
            # others, where that is not known
            outputs = _run(owner, rows, size)
        total = [
            (one[_one(place)] * weights).double().sum()
            for one, weights in zip(outputs, held, strict=True)
        ]
        values = list(parameters.values())
        found = torch.autograd.grad(torch.stack(total).sum(), values, allow_unused=True)
    return {
        name: (torch.zeros_like(parameter) if one is None else one).double()
        for (name, parameter), one in zip(parameters.items(), found, strict=True)
    }


def _of_example(owner: Watcher, name: str, index: int) -> Tensor:
    """Return G_i as it would be summed, in the parameter's shape."""
    parameter = owner.parameters[name]
    held = owner.found.get(name)
    if held is None:
        return torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device)
    picked = torch.zeros(TRIED, dtype=torch.float64, device=parameter.device)
    picked[index] = 1.0
    return held.sums(picked)
