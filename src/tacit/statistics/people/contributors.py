"""What the persons of a table add: their sums, lengths and clipped totals, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.people.vectors import Lengths, PersonMetric, Whole, clipped

MEMORY = "memory"


class Contributors(Protocol):
    """Persons, each of whom adds a vector of whole numbers; secret.

    All answers are the same integers wherever the persons' rows are.
    """

    @property
    def engine(self) -> str:
        """What summed the rows."""

    def total(self, metric: PersonMetric, radius: int, norm: int) -> Whole:
        """Return the sum of the vectors, each clipped to the radius, (k,)."""

    def whole(self, metric: PersonMetric) -> Array:
        """Return the sum of the vectors as they are, (k,), for the holder alone."""

    def beyond(self, metric: PersonMetric, radii: Sequence[int], norm: int) -> Whole:
        """Return how many persons are longer than each of some radii."""

    def longest(self, metric: PersonMetric, radius: int, norm: int, count: int) -> Whole | None:
        """Return some of the longest vectors, clipped, for an attack; None where none is run."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """Persons whose sums are in memory.

    Attributes:
        sums: (P, k) of every person, in units of the grid.
    """

    sums: Array = field(repr=False)
    engine: str = MEMORY

    def total(self, metric: PersonMetric, radius: int, norm: int) -> Whole:
        """Return the sum of the vectors, each clipped to the radius, (k,)."""
        return np.asarray(clipped(metric.coordinates(self.sums), radius, norm).sum(axis=0))

    def whole(self, metric: PersonMetric) -> Array:
        """Return the sum of the vectors as they are, (k,), for the holder alone."""
        return np.asarray(metric.coordinates(self.sums).sum(axis=0))

    def beyond(self, metric: PersonMetric, radii: Sequence[int], norm: int) -> Whole:
        """Return how many persons are longer than each of some radii."""
        lengths = Lengths.of(metric.coordinates(self.sums), norm)
        return np.array([np.count_nonzero(lengths.beyond(radius)) for radius in radii])

    def longest(self, metric: PersonMetric, radius: int, norm: int, count: int) -> Whole | None:
        """Return some of the longest vectors, clipped."""
        values = clipped(metric.coordinates(self.sums), radius, norm)
        order = np.argsort(-np.square(values.astype(np.float64)).sum(axis=1), kind="stable")
        return values[np.sort(order[:count])]
