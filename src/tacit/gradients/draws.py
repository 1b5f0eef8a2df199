"""What a module drew as it ran, and the part of it that is of each example."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.gradients.batches import HALVES, random_states, replay, same_states

T = TypeVar("T")
# Functions that return what they drew, whatever they were given.
DRAWS = {
    "bernoulli", "bernoulli_", "rand", "rand_like", "randn", "randn_like", "randint",
    "randint_like", "randperm", "uniform", "uniform_", "normal", "normal_", "exponential",
    "exponential_", "native_dropout", "multinomial", "poisson",
}  # fmt: skip
DROPOUT = "native_dropout"
# What their law follows from; of the others tensors are read by their shape alone.
OF_LAW = {"p", "mean", "std", "low", "high", "n", "from", "to", "lambd", "train", "replacement"}
OF_WHOLE = {"aten.bernoulli.default", "aten.multinomial.default", "aten.poisson.default"}
# Between a probability or the like of an example among others and alone, and in half precision.
SAME_LAW, ROUGH_LAW = 1e-3, 5e-2


class DrawError(RuntimeError):
    """What was drawn for a batch is not told apart by its examples."""


class LawError(DrawError):
    """What is drawn for an example has another law among others than alone."""


@dataclass(frozen=True, eq=False)
class DrawnValues:
    """What a module drew at once, and by which law.

    Attributes:
        values: that were drawn.
        law: what they follow from, by name: a probability, a range, a mean.
    """

    values: Tensor
    law: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Began:
    """How a module began to run: where generators stood, and in which precision.

    Attributes:
        states: of torch's.
        others: of Python's and of NumPy's.
        autocast: the type of device, the precision, and whether it was on.
    """

    states: list[Tensor]
    others: tuple[Any, bytes]
    autocast: tuple[str, torch.dtype, bool] | None

    @staticmethod
    def now(module: nn.Module) -> Began:
        """Return where all stands before a module runs."""
        # of a module without parameters, such as the loss of one, the host's
        kind = next((one.device.type for one in module.parameters()), "cpu")
        autocast = None
        if torch.amp.is_autocast_available(kind):
            autocast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        return Began(random_states(module), _others(), autocast)

    def drew(self, module: nn.Module) -> bool:
        """Whether anything was drawn since."""
        return not same_states(self.states, random_states(module)) or self.drew_elsewhere()

    def drew_elsewhere(self) -> bool:
        """Whether Python's generator or NumPy's was drawn from since."""
        return self.others != _others()

    @property
    def in_half(self) -> bool:
        """Whether it ran in half precision."""
        return self.autocast is not None and self.autocast[2]

    def precision(self) -> AbstractContextManager[Any]:
        """Run in the precision of that time."""
        if self.autocast is None:
            return nullcontext()
        kind, precision, on = self.autocast
        return torch.autocast(kind, dtype=precision, enabled=on, cache_enabled=False)


class Drawn(TorchDispatchMode):
    """Keeps what is drawn, in its order.

    Attributes:
        values: that were drawn.
        lost: whether some were drawn that are not known.
    """

    def __init__(self, *, lost: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values: list[DrawnValues] = []
        self.lost = lost

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            draws = _draws(func, args, kwargs)
        except DrawError:
            draws, self.lost = False, True
        law = _law(func, args, kwargs) if draws else {}
        found = func(*args, **kwargs)
        if draws:
            # what follows may scale it in place; of dropout the mask
            values = (found[1] if _name(func) == DROPOUT else found).clone()
            self.values.append(DrawnValues(values, law))
        return found

    def again(self, count: int, place: int | None) -> AbstractContextManager[Any]:
        """Draw for each of ``count`` examples, or for the one at a place, what it had.

        Raises:
            DrawError: some of it is not known.
        """
        if self.lost:
            raise DrawError("some of what was drawn is not known")
        return DrawnAgain(self.values, count, place) if self.values else nullcontext()


def drawn_by(module: nn.Module, run: Callable[[], T]) -> tuple[T, Drawn]:
    """Return what a run of a module returns, and what it drew.

    Args:
        module: the module.
        run: runs once; a second time, from the same states, if it drew.
    """
    began = Began.now(module)
    result = run()
    if not began.drew(module):
        return result, Drawn()
    drawn = Drawn(lost=began.drew_elsewhere())
    with replay(module, began.states), drawn:
        result = run()
    return result, drawn


class DrawnAgain(TorchDispatchMode):
    """Gives each example what was drawn for it among the others of its batch.

    Args:
        values: that were drawn for all, in their order.
        count: of examples.
        place: of the only example that runs; None where ``vmap`` runs each of them.
    """

    def __init__(self, values: Sequence[DrawnValues], count: int, place: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left, self._count, self._place = list(values), count, place

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _draws(func, args, kwargs):
            return func(*args, **kwargs)
        if not self._left:
            raise DrawError("an example alone draws more often")
        held = self._left.pop(0)
        self._refuse_other(held.law, _law(func, args, kwargs))
        values, found = held.values, func(*args, **kwargs)
        if _name(func) == DROPOUT:
            mask = found[1].copy_(self._part(values, found[1].shape))
            share = 1.0 - float(args[1])
            return args[0] * mask * (1.0 / share if share > 0.0 else 0.0), mask
        return found.copy_(self._part(values, found.shape))

    def _refuse_other(self, among: dict[str, Any], alone: dict[str, Any]) -> None:
        """Refuse what is drawn by another law where others are there.

        Raises:
            LawError: such as a mask whose probability is a mean of the batch.
        """
        # one that stands for all has the law of all
        if self._count == 1:
            return
        for name in among.keys() | alone.keys():
            true, mine = among.get(name), alone.get(name)
            if isinstance(true, Tensor) and isinstance(mine, Tensor):
                part = self._part(true, mine.shape)
                allowed = ROUGH_LAW if true.dtype in HALVES else SAME_LAW
                # what is not finite is nobody's to compare
                largest = part.abs().max() if part.numel() else 0.0
                same = not bool(((mine - part).abs() > allowed * largest + 1e-12).any())
            else:
                same = type(true) is type(mine) and true == mine
            if not same:
                raise LawError(f"{name} of an example alone is another")

    def _part(self, values: Tensor, shape: torch.Size) -> Tensor:
        if self._place is not None:
            return of_examples(values, shape, self._count)[self._place]
        # vmap puts examples first
        if not shape or shape[0] != self._count:
            raise DrawError("examples draw together")
        return of_examples(values, shape[1:], self._count)


def of_examples(values: Tensor, shape: Sequence[int], count: int) -> Tensor:
    """Return the values that were drawn for each example, (count, …).

    Args:
        values: that were drawn for all.
        shape: that an example alone draws. Examples follow one another along the only dimension in
            which all drew ``count`` times as many; where all drew as many as one, they share them.
        count: of examples.

    Raises:
        DrawError: neither is so.
    """
    whole, single = tuple(values.shape), tuple(shape)
    if whole == single:
        return values.expand(count, *single)
    for place in range(min(len(whole), len(single))):
        if whole == (*single[:place], count * single[place], *single[place + 1 :]):
            # (…, count · n, …) as (…, count, n, …)
            apart = values.reshape(*single[:place], count, *single[place:])
            return apart.movedim(place, 0)
    raise DrawError(f"{whole} numbers of {count} examples, of which one alone draws {single}")


def marks(outputs: Sequence[Tensor], count: int) -> list[Tensor]:
    """Return what tells the rows of outputs by: two sums of each, weighed, and its length, (B, 3).

    Of what was drawn for another example the sums differ by about the length of the difference.

    Args:
        outputs: those without a row for each example have none.
        count: of examples.
    """
    found = []
    for one in outputs:
        own = one.detach() if one.ndim and one.shape[0] == count else one.new_zeros(0, 1)
        rows = own.reshape(*own.shape, 1).flatten(1).double()
        places = torch.arange(rows.shape[1], dtype=torch.float64, device=rows.device)
        weights = torch.stack([places.cos(), places.sin()], dim=1)
        found.append(torch.cat([rows @ weights, rows.norm(dim=1, keepdim=True)], dim=1))
    return found


def _others() -> tuple[Any, bytes]:
    return random.getstate(), pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def _law(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that what a function draws follows from, by name."""
    named = [one.name for one in func._schema.arguments]
    given = dict(zip(named, args, strict=False)) | kwargs
    own = OF_LAW | {"self"} if str(func) in OF_WHOLE else OF_LAW
    return {
        name: one.detach().clone() if isinstance(one, Tensor) else one
        for name, one in given.items()
        if name in own
    }


def _draws(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a function draws, and returns what it drew.

    Raises:
        DrawError: what it returns is made of what it was given, too.
    """
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    if _name(func) in DRAWS:
        return True
    # attention drops nothing unless it is told to
    places = [place for place, one in enumerate(func._schema.arguments) if one.name == "dropout_p"]
    given = [args[place] if place < len(args) else kwargs.get("dropout_p", 0.0) for place in places]
    if given == [0.0]:
        return False
    raise DrawError(f"{_name(func)} draws")
