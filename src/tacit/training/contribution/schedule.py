"""Which examples every round has: decided by the round's number alone, so that a run can go on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Passes over n examples in batches of a fixed size, shuffled anew in each pass.

    Attributes:
        count: n.
        batch: B at most.
        passes: over the data.
        order: seed of the shuffles, which do not depend on the data.

    Example:
        >>> schedule = Schedule(count=5, batch=2, passes=2, order=0)
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
        turn, place = divmod(number, self.a_pass)
        shuffled = _shuffled(self.order, turn, self.count)
        return shuffled[place * self.batch : (place + 1) * self.batch].copy()

    def participations(self, groups: Indices) -> int:
        """Return in how many rounds any one group takes part at most; −1 is no group."""
        taken = np.zeros(int(groups.max()) + 1, dtype=np.int64)
        for number in range(self.rounds):
            present = np.unique(groups[self.examples(number)])
            taken[present[present >= 0]] += 1
        return int(taken.max())


@lru_cache(maxsize=2)
def _shuffled(order: int, turn: int, count: int) -> Indices:
    found: Indices = np.random.default_rng([order, turn]).permutation(count)
    found.flags.writeable = False
    return found
