"""A module without a rule, run again for each example to find the gradients of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from tacit.gradients.batches import HALVES, random_states, replay, same_states
from tacit.gradients.calibration import HALF, SAME, SharedError
from tacit.gradients.draws import Began, DrawError, Drawn, marks
from tacit.gradients.pieces import ParameterGradients
from tacit.gradients.units import Unit

ORDINARY = (
    "losses: expected private.backward(losses), got an ordinary backward pass through a model that "
    "trains privately; evaluate under torch.no_grad()"
)


class Owner(Protocol):
    """What watches a model's modules."""

    parameters: dict[str, nn.Parameter]
    count: int
    half: bool

    @property
    def capturing(self) -> bool:
        """Whether the backward pass that runs is ours."""

    def paused(self) -> AbstractContextManager[None]:
        """Run modules unwatched."""

    def into(self, name: str) -> ParameterGradients:
        """Return where the gradients of a parameter go."""

    def came_back(self, names: Sequence[str]) -> None:
        """Count a use whose gradients were added."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module, as it can be made again.

    Attributes:
        owner: watches the model.
        unit: the module.
        others: what was given, None in place of tensors.
        slots: where tensors were.
        shape: how it was nested.
        kept: which of its outputs of real numbers have gradients.
        began: how it began.
        drew: whether it drew random numbers.
        elsewhere: whether some were Python's or NumPy's.
        marks: of the outputs of a module that drew, which those of each example alone have.
    """

    owner: Owner
    unit: Unit
    others: list[Any]
    slots: list[bool]
    shape: Any
    kept: list[int]
    began: Began
    drew: bool
    elsewhere: bool
    marks: list[Tensor]

    def given(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and named arguments with these tensors."""
        rest = iter(tensors)
        leaves = [
            next(rest) if slot else other
            for other, slot in zip(self.others, self.slots, strict=True)
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.shape)
        return args, kwargs

    def refuse_drawn(self, what: str) -> NoReturn:
        """Refuse what cannot be drawn for each example as it was for all."""
        name = next(iter(self.unit.names.values()))
        raise ValueError(
            f"model: expected no {what} in {self.unit.path or 'the model itself'}, which is run "
            f"again for each example to find the gradients of {name}; turn it off there, or freeze "
            "that parameter"
        )


def refuse_ordinary(owner: Owner) -> None:
    """Refuse a backward pass that is not ours."""
    if not owner.capturing:
        raise RuntimeError(ORDINARY)


class AgainNode(torch.autograd.Function):
    """The identity of several outputs, whose gradients are run through the module again."""

    @staticmethod
    def forward(
        ctx: Any, call: Call, outputs: int, _anchor: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Keep the inputs, which follow the outputs."""
        # an output that nothing came of has None, whatever its shape
        ctx.set_materialize_grads(False)
        ctx.call = call
        ctx.outputs = outputs
        ctx.save_for_backward(*tensors[outputs:])
        return tuple(one.detach() for one in tensors[:outputs])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """Add the gradients of the parameters, and pass on those of the outputs."""
        inputs = ctx.saved_tensors
        _run_again(ctx.call, inputs, gradients)
        passed = (
            one if needed else None
            for one, needed in zip(gradients, ctx.needs_input_grad[3:], strict=False)
        )
        return (None, None, None, *passed, *[None] * len(inputs))


def _run_again(call: Call, inputs: Sequence[Tensor], gradients: Sequence[Any]) -> None:
    """Add the gradients of a module's parameters, the module run again for each example."""
    owner, unit = call.owner, call.unit
    refuse_ordinary(owner)
    if call.elsewhere:
        call.refuse_drawn("draws of NumPy or Python")
    count = owner.count
    rows = unit.rows
    if rows is None or len(rows) != len(inputs):
        rows = tuple(one.ndim > 0 and one.shape[0] == count for one in inputs)
    # outputs without a row for each example have gradients of all of them at once
    used = [place for place, one in enumerate(gradients) if one is not None]
    back = [gradients[place] for place in used]
    owner.half |= any(one.dtype in HALVES for one in back)
    if any(one.ndim == 0 or one.shape[0] != count for one in back):
        raise SharedError(unit.path, f"outputs shared by {count}")
    parameters = {local: owner.parameters[name].detach() for local, name in unit.names.items()}
    states = random_states(unit.module)
    examples = _Examples(call, parameters, inputs, rows, used, back)
    # what was drawn for all is drawn once more, to give each example its part
    drawn = call.began.states if call.drew else None
    with (
        owner.paused(), torch.enable_grad(), call.began.precision(), replay(unit.module, drawn)
    ):  # fmt: skip
        found = examples.gradients()
    if not same_states(states, random_states(unit.module)):
        call.refuse_drawn("dropout that draws anew")
    for local, name in unit.names.items():
        owner.into(name).add_dense(found[local].detach())
    owner.came_back(list(unit.names.values()))


@dataclass(frozen=True, eq=False)
class _Examples:
    """The examples of one call, each of which is run through the module again.

    Attributes:
        call: of the module.
        parameters: whose gradients are found, by what they are called in the module.
        inputs: that it was given.
        rows: which of them have a row for each example.
        used: which of its outputs have gradients.
        back: these, a row for each example.
    """

    call: Call
    parameters: dict[str, Tensor]
    inputs: Sequence[Tensor]
    rows: Sequence[bool]
    used: Sequence[int]
    back: Sequence[Tensor]

    def gradients(self) -> dict[str, Tensor]:
        """Return (B, …) gradients by parameter."""
        try:
            drawn = self._drawn() if self.call.drew else None
            found = self._mapped(drawn)
            return self._one_by_one(drawn) if found is None else found
        except DrawError:
            self.call.refuse_drawn("dropout that is not told apart by examples")
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, IndexError) as error:
            why = f"{type(error).__name__} of one alone"
            raise SharedError(self.call.unit.path, why) from error

    def _drawn(self) -> Drawn:
        """Return what the module drew for the batch, of generators that stand as they did."""
        args, kwargs = self.call.given(self.inputs)
        # fused kernels of attention keep what they draw to themselves
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Drawn() as drawn:
            functional_call(self.call.unit.module, self.parameters, args, kwargs)
        kept: Drawn = drawn
        return kept

    def _single(
        self, values: dict[str, Tensor], given: tuple[Tensor, ...], back: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return Σ ⟨g, y(θ)⟩ of one example, whose gradient is Jᵀg, and y."""
        args, kwargs = self.call.given(given)
        output = functional_call(self.call.unit.module, values, args, kwargs)
        leaves = [
            one
            for one in pytree.tree_leaves(output)
            if isinstance(one, Tensor) and one.is_floating_point()
        ]
        found = [leaves[self.call.kept[place]] for place in self.used]
        terms = [(one * held).sum() for one, held in zip(found, back, strict=True)]
        # what was drawn is known by the outputs
        kept = [one.detach() for one in found] if self.call.drew else []
        return torch.stack([one.double() for one in terms]).sum(), kept

    def _mapped(self, drawn: Drawn | None) -> dict[str, Tensor] | None:
        """Return (B, …) gradients by ``torch.func``; None where it cannot follow the module."""
        inputs = tuple(
            one.unsqueeze(1) if row else one
            for one, row in zip(self.inputs, self.rows, strict=True)
        )
        over = (None, tuple(0 if row else None for row in self.rows), 0)
        back = tuple(one.unsqueeze(1) for one in self.back)
        randomness = "error" if drawn is None else "different"
        try:
            # the fused kernels of attention have no rule of vmap
            with sdpa_kernel(SDPBackend.MATH), self._part(drawn, None):
                each = vmap(grad(self._single, has_aux=True), in_dims=over, randomness=randomness)
                found: dict[str, Tensor]
                found, outputs = each(self.parameters, inputs, back)
            self._refuse_other([one.flatten(0, 1) for one in outputs])
        except (RuntimeError, TypeError, ValueError):
            return None
        return found

    def _one_by_one(self, drawn: Drawn | None) -> dict[str, Tensor]:
        """Return (B, …) gradients, one forward and one backward pass for each example."""
        leaves = {name: one.clone().requires_grad_() for name, one in self.parameters.items()}
        kept: dict[str, list[Tensor]] = {name: [] for name in leaves}
        outputs: list[list[Tensor]] = []
        for index in range(self.back[0].shape[0]):
            here = slice(index, index + 1)
            given = tuple(
                one[here] if row else one for one, row in zip(self.inputs, self.rows, strict=True)
            )
            with self._part(drawn, index):
                value, own = self._single(leaves, given, tuple(one[here] for one in self.back))
            outputs.append(own)
            found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
            for (name, leaf), one in zip(leaves.items(), found, strict=True):
                kept[name].append(torch.zeros_like(leaf) if one is None else one)
        self._refuse_other([torch.cat(every) for every in zip(*outputs, strict=True)])
        return {name: torch.stack(every) for name, every in kept.items()}

    @contextmanager
    def _part(self, drawn: Drawn | None, place: int | None) -> Iterator[None]:
        """Draw for the examples, or for the one at a place, what was drawn for them."""
        if drawn is None:
            yield
            return
        with sdpa_kernel(SDPBackend.MATH), drawn.again(len(self.back[0]), place):
            yield

    def _refuse_other(self, outputs: Sequence[Tensor]) -> None:
        """Refuse outputs of examples alone that are not those that they had in the batch.

        Raises:
            DrawError: other numbers were drawn.
        """
        if not self.call.drew:
            return
        known = [self.call.marks[place] for place in self.used]
        for one, mine, true in zip(outputs, marks(outputs, len(self.back[0])), known, strict=True):
            half = one.dtype in HALVES or self.call.began.in_half
            allowed = SAME * (HALF if half else 1.0) * true[:, 2:] + 1e-12
            # what is not finite is nobody's to compare
            if bool(((mine - true).abs() > allowed).any()):
                raise DrawError("an example alone draws other numbers")
