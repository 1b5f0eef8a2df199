"""Rows of persons: indexed by persons, all of their rows, and sums over these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array


@dataclass(frozen=True, eq=False)
class RowsOfPersons:
    """A pool of persons: indexed by persons it gives all of their rows, person by person.

    Attributes:
        rows: (n, p).
        persons: (n,) place of the person of every row, all of 0 … P − 1.
    """

    rows: Array
    persons: npt.NDArray[np.intp]

    def __len__(self) -> int:
        """Return P, the number of persons."""
        return len(self._starts) - 1

    def __getitem__(self, persons: Any) -> Array:
        """Return the rows of some persons."""
        chosen = np.asarray(persons, dtype=np.intp)
        sizes = self._starts[chosen + 1] - self._starts[chosen]
        # places 0 … m − 1 of each, after where the rows of the person start
        inner = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found: Array = self.rows[self._order[np.repeat(self._starts[chosen], sizes) + inner]]
        return found

    def sums(self, added: Array) -> Array:
        """Return sums (P, k) over the rows of every person of what rows (n, k) add."""
        if not len(added):
            return added
        return np.add.reduceat(added[self._order], self._starts[:-1], axis=0)

    def means(self) -> Array:
        """Return the mean of every person's rows, (P, p)."""
        return self.sums(self.rows) / np.diff(self._starts)[:, None]

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self.persons, kind="stable")

    @cached_property
    def _starts(self) -> npt.NDArray[np.intp]:
        counts = np.bincount(self.persons)
        return np.concatenate([[0], np.cumsum(counts)])
