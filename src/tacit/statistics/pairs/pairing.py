"""The declared secret of a release by pairs: which row of every group is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource
from tacit._ground.frozen import read_only
from tacit._ground.random import fair_choices
from tacit._ground.reprs import short_repr

Indices: TypeAlias = npt.NDArray[np.intp]

SMALLEST_GROUP = 2


@short_repr
@read_only
@dataclass(frozen=True, eq=False)
class Pairing:
    """P disjoint groups of k rows each; of every group one row is drawn, each as likely.

    It is made of the pool alone, before anything is drawn, and an attacker may know it.

    Attributes:
        members: (P, k) rows of the pool, none twice.
        pool_rows: N; the rows that are in no group are never drawn.
        method: how the groups were chosen, in a few words.

    Raises:
        ValueError: no group, a row outside 0 … N − 1, or one that is in two groups.
    """

    members: Indices
    pool_rows: int
    method: str

    def __post_init__(self) -> None:
        members = np.array(self.members)
        if members.ndim != 2 or members.shape[1] < SMALLEST_GROUP or not len(members):
            raise ValueError(
                f"members: expected (groups, {SMALLEST_GROUP} or more) rows, got shape "
                f"{members.shape}"
            )
        if members.dtype.kind not in "iu":
            raise ValueError(f"members: expected integers, got entries of type {members.dtype}")
        low, high = int(members.min()), int(members.max())
        if low < 0 or high >= self.pool_rows:
            raise ValueError(
                f"members: expected rows 0 to {self.pool_rows - 1}, got {low if low < 0 else high}"
            )
        counts = np.bincount(members.ravel(), minlength=self.pool_rows)
        if counts.max() > 1:
            raise ValueError(
                f"members: expected every row once, got row {int(counts.argmax())} "
                f"{int(counts.max())} times"
            )
        members = members.astype(np.intp)
        members.flags.writeable = False
        object.__setattr__(self, "members", members)

    def __len__(self) -> int:
        """Return P, the number of groups and of rows drawn."""
        return len(self.members)

    @property
    def group_size(self) -> int:
        """Rows in a group, k: every row in one is drawn with probability 1/k."""
        return int(self.members.shape[1])

    @property
    def left_out(self) -> Indices:
        """Rows in no group, ascending: fewer than k, and never drawn."""
        inside = np.zeros(self.pool_rows, dtype=bool)
        inside[self.members] = True
        return np.flatnonzero(~inside)

    def differences(self, values: Array) -> Iterator[Array]:
        """Yield ``values[a] − values[b]``, (P, d), for every two places a, b in a group.

        Args:
            values: (N, d), one row for each of the pool.
        """
        for first in range(self.group_size):
            for second in range(first + 1, self.group_size):
                yield values[self.members[:, first]] - values[self.members[:, second]]

    def swaps(self, values: Array) -> Array:
        """Return all of ``differences`` below one another, (P k (k − 1)/2, d).

        Args:
            values: (N, d), one row for each of the pool.
        """
        return np.concatenate(list(self.differences(values)))

    def draw(self, rng: RandomSource = None) -> Indices:
        """Draw one row of every group, (P,), each as likely; from the operating system if None."""
        places = fair_choices(len(self), self.group_size, rng)
        return self.members[np.arange(len(self)), places]

    def to_dict(self) -> dict[str, Any]:
        """Return what may be said of it without naming rows."""
        return {
            "method": self.method,
            "groups": len(self),
            "group_size": self.group_size,
            "left_out": int(self.left_out.size),
        }
