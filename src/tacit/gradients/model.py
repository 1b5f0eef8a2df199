"""Per-example gradients of a whole model in somebody else's training loop, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from tacit.gradients.again import AgainNode, Call, refuse_ordinary
from tacit.gradients.batches import HALVES, in_halves, without_autocast
from tacit.gradients.calibration import SharedError, calibrate, precision_of
from tacit.gradients.draws import Began, marks
from tacit.gradients.layers import keeps_turned
from tacit.gradients.pieces import ParameterGradients, Room
from tacit.gradients.together import norms_together, sums_together
from tacit.gradients.units import Unit, places_of, taken_higher, units_of

# What models of transformers keep states in unless they are called with use_cache=False.
CACHE = ("transformers.cache_utils", "Cache")


class ModelGradients:
    """Watches a model's layers, so that a backward pass gives the gradients of every example.

    The parameters keep their ``.grad``: a backward pass of ours ends at the watched outputs. A
    module without a rule is run again for each example, by ``torch.func`` or one by one.

    Args:
        model: in which no example's outputs depend on another's.
        parameters: what is trained, by name.
        room: bytes of products of layers that a backward pass may keep.

    Attributes:
        found: gradients of the last backward pass by name, for what it reached.
        untried: what a forward pass reached that was never tried.
        half: whether the model, what its first pass computed, a later pass under autocast or a
            gradient that came back is in half precision.
    """

    def __init__(
        self, model: nn.Module, parameters: Mapping[str, nn.Parameter], *, room: float = math.inf
    ) -> None:
        self.model, self.parameters = model, dict(parameters)
        self.found: dict[str, ParameterGradients] = {}
        self._room = Room(room)
        self.count = 0
        self.units = list(units_of(model, parameters))
        self.untried: list[Unit] = []
        self.half = in_halves(model)
        self._anchor = torch.zeros((), requires_grad=True)
        self._capturing = self._paused = self._running = False
        # whether the first forward pass was tried, whether it is now, and what went astray since
        self._tried = self._trying = False
        self._astray: list[Unit] = []
        self.seen: dict[int, list[int]] | None = None
        # what a pass frees as soon as all uses of a parameter came back
        self._take: Callable[[str, ParameterGradients], None] | None = None
        self._calls: dict[str, int] = {}
        # of the passes before the one that runs, where a batch passes several times
        self._earlier: dict[str, int] = {}
        self._back: dict[str, int] = {}
        self._handles: list[RemovableHandle] = []
        self._turned: set[str | None] = set()
        # of the model itself, where it is run again
        self._whole: _ModuleWatch | None = None
        self._modules = dict(model.named_modules())

    def attach(self) -> None:
        """Begin to watch."""
        self.detach()
        self._whole = None
        self._turned = {one.names.get("weight") for one in self.units if keeps_turned(one.module)}
        root = self.model.register_forward_pre_hook(
            hidden(self._begin), with_kwargs=True, prepend=True
        )
        self._handles.append(root)
        end = self.model.register_forward_hook(
            hidden(self._end), with_kwargs=True, always_call=True
        )
        self._handles.append(end)
        for unit in self.units:
            watch = _ModuleWatch(self, unit)
            if unit.rule is None and unit.module is self.model:
                # the passes that are tried first would begin it anew
                self._whole = watch
            elif unit.rule is None:
                before = unit.module.register_forward_pre_hook(hidden(watch.begin), prepend=True)
                self._handles.append(before)
            hook = hidden(watch.__call__)
            handle = unit.module.register_forward_hook(hook, prepend=True, with_kwargs=True)
            self._handles.append(handle)

    def detach(self) -> None:
        """Leave the modules as they were."""
        while self._handles:
            self._handles.pop().remove()

    @property
    def again(self) -> tuple[str, ...]:
        """Paths of the modules that are run again for each example."""
        return tuple(one.path for one in self.units if one.rule is None)

    def backward(self, losses: Tensor, *, keep: bool = False) -> None:
        """Run the sum of losses back to the watched outputs.

        Args:
            losses: (B,), or outputs with weights summed.
            keep: whether the graph is used again.
        """
        self.found, self._capturing, self._room.left = {}, True, self._room.most
        try:
            # to the anchor alone: no gradient of a parameter is formed
            torch.autograd.grad(losses.sum(), [self._anchor], allow_unused=True, retain_graph=keep)
        finally:
            self._capturing = False

    def kept(self) -> int:
        """Return the bytes that the gradients of the last backward pass hold."""
        return sum(one.kept() for one in self.found.values())

    def sums_twice(
        self,
        losses: Tensor,
        factors_of: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
        owners: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return Σ_i c_i G_i by name in two backward passes, of which none keeps gradients.

        The first leaves norms alone, the second adds up every layer as it comes back.

        Args:
            losses: (B,).
            factors_of: gives c of the squared norms of all layers.
            owners: (B,) whose each record is; None where each is one.
        """

        def unit(held: ParameterGradients) -> ParameterGradients:
            return held if owners is None else held.joined(owners)

        totals: dict[str, Tensor] = {}
        norms = self.norms_alone(losses, owners)
        if not norms:
            raise ValueError(
                "losses: expected losses that depend on what is trained, got other values"
            )
        factors = factors_of(norms)

        def add(name: str, held: ParameterGradients) -> None:
            mine, known = unit(held), norms[name]
            # what comes back a second time may be rounded otherwise, and is no longer for that
            found = mine.squared_norms()
            shorter = torch.where(found > known, (known / found).sqrt(), 1.0)
            totals[name] = mine.sums(factors[name] * shorter)

        self._pass(losses, add, keep=False)
        return totals

    def norms_alone(self, losses: Tensor, owners: Tensor | None = None) -> dict[str, Tensor]:
        """Return (B,) ‖G_i‖² by name in a backward pass that keeps no gradients, only its graph."""
        norms: dict[str, Tensor] = {}

        def take(name: str, held: ParameterGradients) -> None:
            norms[name] = (held if owners is None else held.joined(owners)).squared_norms()

        self._pass(losses, take)
        return _finite(norms) if norms else {}

    def _pass(
        self,
        losses: Tensor,
        take: Callable[[str, ParameterGradients], None],
        *,
        keep: bool = True,
    ) -> None:
        """Run losses back and take every parameter's gradients when all of its uses are there."""
        self._take, self._back = take, {}
        try:
            self.backward(losses, keep=keep)
            # a use that the losses do not depend on never comes back
            for name in list(self.found):
                self._taken(name)
        finally:
            self._take = None

    def called(self, names: Sequence[str]) -> None:
        """Count a use of parameters in a forward pass, which is no checkpoint's second one."""
        if not self._capturing:
            for name in names:
                self._calls[name] = self._calls.get(name, 0) + 1

    def came_back(self, names: Sequence[str]) -> None:
        """Count a use whose gradients were added, and take those that are complete."""
        if self._take is None:
            return
        for name in names:
            self._back[name] = self._back.get(name, 0) + 1
            if self._back[name] == self._calls.get(name) and name in self.found:
                self._taken(name)

    def _taken(self, name: str) -> None:
        assert self._take is not None
        if self._back.get(name, 0) < 0:
            # a part of a gradient would have a norm that is too small
            raise RuntimeError(f"gradients of {name} came back after they were complete")
        held = self.found.pop(name)
        self._take(name, held)
        self._room.left = min(self._room.left + held.kept(), self._room.most)
        self._back[name] = -(2**62)

    def forget(self) -> None:
        """Leave the gradients of a batch, and begin to count uses for the next."""
        self.found, self._calls, self.untried = {}, {}, []

    def rely(self) -> None:
        """Take what the last pass reached as tried."""
        for one in self.untried:
            one.tried = True
        self.untried = []

    def join(self, owners: Tensor) -> None:
        """Add up the gradients of the records of each unit, which are then those of examples.

        Args:
            owners: (B,) whose each record is, from 0 on and in order.
        """
        self.found = {name: one.joined(owners) for name, one in self.found.items()}

    def squared_norms(self) -> dict[str, Tensor]:
        """Return (B,) ‖G_i‖² by name, no less than those of what ``sums`` adds.

        A record whose gradient is not finite anywhere has inf everywhere.
        """
        return _finite(norms_together(self.found))

    def sums(self, coefficients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return Σ_i c_i G_i by name in float64."""
        return sums_together(self.found, coefficients)

    def into(self, name: str) -> ParameterGradients:
        """Return where the gradients of a parameter go."""
        if name not in self.found:
            shape = self.parameters[name].shape
            turned = name in self._turned
            self.found[name] = ParameterGradients(shape, transposed=turned, room=self._room)
        return self.found[name]

    def run_again_higher(self, names: Iterable[str]) -> str | None:
        """Take parameters' gradients one module further out; return one for which there is none."""
        places = {name: places_of(self.units, name) for name in names}
        for name, place in places.items():
            # what stands in a list with another has gone along
            if places_of(self.units, name) == place:
                found = taken_higher(self.units, self._modules, self.parameters, name)
                if found is None:
                    return name
                self.units = found
        self.attach()
        return None

    def strayed(self, unit: Unit, output: Any) -> None:
        """Note a unit whose outputs have no row for each example, which the trial did not show."""
        if self._trying or self._capturing:
            return
        leaves = [one for one in pytree.tree_leaves(output) if isinstance(one, Tensor)]
        if not any(one.ndim > 0 and one.shape[0] == self.count for one in leaves):
            self._astray.append(unit)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run modules unwatched."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @property
    def watching(self) -> bool:
        """Whether outputs are watched now."""
        return torch.is_grad_enabled() and not self._paused

    @property
    def capturing(self) -> bool:
        """Whether the backward pass that runs is ours."""
        return self._capturing

    @property
    def anchor(self) -> Tensor:
        """What every watched output leads back to."""
        return self._anchor

    def _begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # B of this forward pass, for what is shared by all examples
        if self._paused:
            return
        self.count, self._running = _first_size((args, kwargs)), True
        if self.watching and self.count == 0:
            kinds = ", ".join(type(one).__name__ for one in (*args, *kwargs.values()))
            raise ValueError(
                "model: expected tensors with a row for each example, in lists, tuples and dicts, "
                f"got {kinds or 'no inputs'}"
            )
        if self.watching and not self.half:
            self.half = precision_of(next(iter(self.parameters.values()))) in HALVES
        if self.watching and not self._trying:
            self._earlier = dict(self._calls)
        if self.watching and not self._tried:
            self._try(args, kwargs)
        if self._whole is not None:
            self._whole.begin(self.model, args)

    def _try(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find where gradients are taken: the first forward pass shows how the model is called."""
        self._tried = self._trying = True
        try:
            calibrate(self, args, kwargs)
        except BaseException:
            self._tried = False
            raise
        finally:
            self._trying = False
        # the passes that were tried have ended, this one goes on
        self._running, self._calls = True, dict(self._earlier)
        self.rely()

    def _end(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        """Return the outputs again where a unit went astray: taken further out, and tried anew."""
        if self._paused:
            return None
        self._running, astray = False, self._astray
        self._astray = []
        # an error leaves no outputs
        if not astray or output is None:
            return None
        last = self.run_again_higher([name for one in astray for name in one.names.values()])
        if last is not None:
            raise SharedError(astray[0].path, f"others of {self.count}")
        # uses of outputs that are left never come back
        self._tried, self._calls = False, self._earlier
        return model(*args, **kwargs)

    def refuse_inside(self, path: str) -> None:
        """Refuse a module that runs by itself: how many examples there are is not known then.

        Raises:
            ValueError: the model itself is not running, nor a checkpoint of it again.
        """
        if not (self._running or self._capturing):
            raise ValueError(
                "model: expected a forward pass through the model itself, got one through "
                f"{path} alone"
            )


def _finite(norms: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return norms that are inf everywhere for a record of which one is not finite."""
    # a layer that the batch did not use has no gradients
    finite = torch.stack(list(norms.values())).isfinite().all(dim=0)
    if finite.device.type == "cpu" and bool(finite.all()):
        return norms
    return {name: torch.where(finite, held, torch.inf) for name, held in norms.items()}


def hidden(hook: Any) -> Callable[..., Any]:
    """Return a hook that a compiler leaves to Python."""
    call: Callable[..., Any] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return call


class _ModuleWatch:
    """A forward hook that puts a node behind the outputs of a module."""

    def __init__(self, owner: ModelGradients, unit: Unit) -> None:
        self.owner, self.unit = owner, unit
        self._began: Began | None = None

    def begin(self, module: nn.Module, _: Any) -> None:
        """Keep how a module begins that may draw random numbers."""
        self._began = Began.now(module) if self.owner.watching else None

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        """Return the outputs with a node behind them; None, as they are, where none is needed."""
        owner, unit = self.owner, self.unit
        if not owner.watching:
            return None
        owner.refuse_inside(unit.path)
        owner.called(list(unit.names.values()))
        if not unit.tried:
            owner.untried.append(unit)
        if unit.rule is not None:
            given = args[0] if args else next(iter(kwargs.values()))
            # what is looked up once for all examples has a gradient for each of them
            if keeps_one(given) and owner.count > 1 and isinstance(module, nn.Embedding):
                output = output.expand(owner.count, *output.shape[1:])
            owner.strayed(unit, output)
            caught: Tensor = _RuleNode.apply(output, given.detach(), owner.anchor, self)  # type: ignore[no-untyped-call]
            return caught
        began, self._began = self._began or Began.now(module), None
        drew = began.drew(module)
        owner.strayed(unit, output)
        leaves, form = pytree.tree_flatten(output)
        real = [
            place
            for place, one in enumerate(leaves)
            if isinstance(one, Tensor) and one.is_floating_point()
        ]
        # an output that is made of nothing that is trained has no gradient
        kept = [place for place, one in enumerate(real) if leaves[one].requires_grad]
        places = [real[place] for place in kept]
        # what a module wrote into as it ran is no argument of another run
        args = tuple(None if is_cache(one) else one for one in args)
        kwargs = {name: None if is_cache(one) else one for name, one in kwargs.items()}
        inputs, shape = pytree.tree_flatten((args, kwargs))
        tensors = [one.detach() for one in inputs if isinstance(one, Tensor)]
        others = [None if isinstance(one, Tensor) else one for one in inputs]
        slots = [isinstance(one, Tensor) for one in inputs]
        if owner.seen is not None:
            owner.seen[id(unit)] = [one.shape[0] if one.ndim else -1 for one in tensors]
        outputs = [leaves[place] for place in places]
        call = Call(
            owner, unit, others, slots, shape, kept, began, drew, began.drew_elsewhere(),
            marks(outputs, owner.count) if drew else [],
        )  # fmt: skip
        found = AgainNode.apply(call, len(places), owner.anchor, *outputs, *tensors)  # type: ignore[no-untyped-call]
        for place, one in zip(places, found, strict=True):
            leaves[place] = one
        return pytree.tree_unflatten(leaves, form)

    def receive(self, inputs: Tensor, gradients: Tensor) -> None:
        """Take the gradient of an output by the rule of the layer."""
        owner, unit = self.owner, self.unit
        refuse_ordinary(owner)
        assert unit.rule is not None
        if gradients.ndim == 0 or gradients.shape[0] != owner.count:
            raise SharedError(unit.path, f"{tuple(gradients.shape)} of {owner.count}")
        into = {local: owner.into(name) for local, name in unit.names.items()}
        owner.half |= gradients.dtype in HALVES
        with owner.paused(), without_autocast(gradients.device):
            try:
                unit.rule(unit.module, inputs, gradients, into)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, IndexError) as error:
                raise SharedError(unit.path, type(error).__name__) from error
        owner.came_back(list(unit.names.values()))


def keeps_one(given: Any) -> bool:
    """Whether an input is one row for all examples."""
    return isinstance(given, Tensor) and given.ndim > 1 and given.shape[0] == 1


def is_cache(given: Any) -> bool:
    """Whether an argument keeps the keys and values of attention, or the state of a scan."""
    bases = type(given).__mro__
    return any((one.__module__, one.__name__) == CACHE for one in bases)


class _RuleNode(torch.autograd.Function):
    """The identity, which shows its gradient to a layer's rule beside the layer's input."""

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, inputs: Tensor, _anchor: Tensor, watch: _ModuleWatch
    ) -> Tensor:
        # saved, so that checkpoints drop it and compute it again
        ctx.save_for_backward(inputs)
        ctx.watch = watch
        return output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (inputs,) = ctx.saved_tensors
        ctx.watch.receive(inputs, gradients)
        return (gradients if ctx.needs_input_grad[0] else None), None, None, None


def _first_size(values: Any) -> int:
    for one in pytree.tree_leaves(values):
        if isinstance(one, Tensor) and one.ndim > 0:
            return int(one.shape[0])
    return 0
