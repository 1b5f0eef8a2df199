"""Which texts and canaries every round has: all copies of a canary in one round of a pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class CanarySchedule:
    """Passes over n texts and m canaries of v copies each, in batches of one size.

    Examples are counted texts first, then the copies of canary 0, of canary 1, …. A canary takes
    part in one round of a pass, so that nobody's budget is divided by more rounds than passes.

    Attributes:
        texts: n.
        canaries: m.
        copies: v.
        batch: B.
        passes: over the data.
        order: seed of the shuffles, which do not depend on the data.

    Raises:
        ValueError: the copies that meet in a round are more than a batch.

    Example:
        >>> schedule = CanarySchedule(texts=8, canaries=2, copies=3, batch=5, passes=1, order=0)
        >>> [schedule.examples(number).size for number in range(schedule.rounds)]
        [5, 5, 4]
    """

    texts: int
    canaries: int
    copies: int
    batch: int
    passes: int
    order: int

    def __post_init__(self) -> None:
        meeting = self.copies * self._dealt(0)
        if meeting > self.batch:
            raise ValueError(
                f"batch: expected room for the {meeting} copies of canaries that meet in a round, "
                f"got {self.batch}"
            )

    @property
    def a_pass(self) -> int:
        """Rounds of one pass."""
        return -(-(self.texts + self.canaries * self.copies) // self.batch)

    @property
    def rounds(self) -> int:
        """Rounds in all."""
        return self.a_pass * self.passes

    def groups(self, *, texts: bool) -> npt.NDArray[np.int64]:
        """Return the reference of each example: m canaries, then the texts, or −1 for these.

        Args:
            texts: whether every text is a reference of its own.
        """
        own = self.canaries + np.arange(self.texts) if texts else np.full(self.texts, -1)
        return np.concatenate([own, np.repeat(np.arange(self.canaries), self.copies)])

    def examples(self, number: int) -> Indices:
        """Return the examples of a round, counted from 0."""
        turn, place = divmod(number, self.a_pass)
        source = np.random.default_rng([self.order, turn])
        shuffled, dealt = source.permutation(self.texts), source.permutation(self.canaries)
        before = place * self.batch - self.copies * sum(map(self._dealt, range(place)))
        room = self.batch - self.copies * self._dealt(place)
        theirs = dealt[place :: self.a_pass]
        copies = self.texts + (theirs[:, None] * self.copies + np.arange(self.copies)).ravel()
        return np.concatenate([shuffled[before : before + room], copies]).astype(np.intp)

    def _dealt(self, place: int) -> int:
        """Return how many canaries a round of a pass has."""
        return len(range(place, self.canaries, self.a_pass))
