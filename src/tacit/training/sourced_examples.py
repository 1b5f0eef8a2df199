"""Examples with sources: whose each of them is, and which of them a round has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, positive
from tacit._ground.values import Within, value
from tacit.guarantees.base import texts
from tacit.training.account import Beside

Indices: TypeAlias = npt.NDArray[np.intp]
Examples: TypeAlias = tuple[torch.Tensor, torch.Tensor]


@value
class SourcedExamples:
    """Examples, whose each of them is, and others that nothing is learned from.

    Args:
        data: (inputs, targets), n examples.
        sources: (n,) the name of each example's source.
        held_out: (inputs, targets) that nothing is learned from, known to everybody.
        batch: Examples in a round; all of them when left out, which is least noisy.
        order: Seed of the shuffles; it must not depend on the data.
        remarks: What the holder of the release should know of them.
    """

    data: Any
    sources: Any
    held_out: Any
    batch: Annotated[int, Within(1, ends="[)")] | None = None
    order: Annotated[int, Within(0, ends="[)")] = 0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EpochSchedule:
    """Passes over n examples in batches of a fixed size, shuffled anew in each pass.

    Which examples a round has is decided by its number alone, so that a run can go on.

    Attributes:
        count: n.
        batch: B at most.
        passes: over the data.
        order: seed of the shuffles, which do not depend on the data.

    Example:
        >>> schedule = EpochSchedule(count=5, batch=2, passes=2, order=0)
        >>> schedule.rounds, sorted(schedule.examples(3).tolist() + schedule.examples(4).tolist())
        (6, [0, 1, 3, 4])
    """

    count: int
    batch: int
    passes: int
    order: int

    @property
    def a_pass(self) -> int:
        """Rounds of one pass."""
        return -(-self.count // self.batch)

    @property
    def rounds(self) -> int:
        """Rounds in all."""
        return self.a_pass * self.passes

    def examples(self, number: int) -> Indices:
        """Return the examples of a round, counted from 0."""
        # the pass, and the batch within it
        turn, place = divmod(number, self.a_pass)
        order = _shuffle(self.order, turn, self.count)
        return order[place * self.batch : (place + 1) * self.batch].copy()

    def participations(self, groups: Indices) -> int:
        """Return in how many rounds any one group takes part at most; −1 is no group."""
        # rounds that have an example of the group
        taken = np.zeros(int(groups.max()) + 1, dtype=np.int64)
        for number in range(self.rounds):
            present = np.unique(groups[self.examples(number)])
            taken[present[present >= 0]] += 1
        return int(taken.max())


@lru_cache(maxsize=2)
def _shuffle(order: int, turn: int, count: int) -> Indices:
    found: Indices = np.random.default_rng([order, turn]).permutation(count)
    found.flags.writeable = False
    return found


def examples_of(name: str, examples: Any) -> Examples:
    """Return inputs and targets as tensors of their own, finite and equally many."""
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise ValueError(f"{name}: expected (inputs, targets), got {type(examples).__name__}")
    # copied: what is checked and certified here is what is trained on
    found = [
        part.detach().clone() if isinstance(part, torch.Tensor) else _tensor(name, part)
        for part in examples
    ]
    for what, part in zip(("inputs", "targets"), found, strict=True):
        if part.ndim == 0 or len(part) == 0:
            raise ValueError(f"{name}: expected examples, got none in {what}")
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise ValueError(f"{name}: expected finite {what}, got NaN or infinite ones")
    if len(found[0]) != len(found[1]):
        raise ValueError(
            f"{name}: expected a target for each input, got {len(found[0])} and {len(found[1])}"
        )
    return found[0], found[1]


def _tensor(name: str, values: ArrayLike) -> torch.Tensor:
    found = np.asarray(values)
    if found.dtype.kind in "iu":
        return torch.from_numpy(found.astype(np.int64))
    try:
        return torch.from_numpy(found.astype(np.float32))
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected numbers, got {found.dtype}") from None


def sources_of(sources: Any, count: int, declared: Any) -> tuple[tuple[str, ...], Indices]:
    """Return the names of all sources, sorted, and the place of each example's among them."""
    given = texts("sources", list(sources))
    if len(given) != count:
        raise ValueError(f"sources: expected {count} names, one an example, got {len(given)}")
    # declared sources count though they have no example
    roster = {*given, *declared} if isinstance(declared, Mapping) else {*given}
    names = tuple(sorted(map(str, roster)))
    if len(names) < 2:
        raise ValueError("sources: expected at least 2, got 1")
    place = {name: number for number, name in enumerate(names)}
    return names, np.array([place[name] for name in given], dtype=np.intp)


def budgets_of(promise: Beside, names: tuple[str, ...]) -> Array:
    """Return ε of every source, in the order of their names."""
    epsilon = promise.epsilon
    if promise.references is not None or promise.participations is not None or epsilon is None:
        raise ValueError(
            "promise: expected Beside(epsilon=…, delta=…) alone: the references are the sources, "
            "and the passes say in how many rounds each takes part"
        )
    if not isinstance(epsilon, Mapping):
        return np.full(len(names), positive("epsilon", epsilon))
    missing = len(set(names) - set(epsilon))
    if missing:
        raise ValueError(f"epsilon: expected every source, got none for {missing} of {len(names)}")
    return np.array([positive("epsilon", epsilon[name]) for name in names])
