"""What the persons of a table add: their sums, lengths and clipped totals, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.bounded.contributions import Contributions
from tacit.statistics.pairs.pairing import Indices
from tacit.statistics.people.vectors import (
    Lengths,
    PersonMetric,
    Whole,
    clipped,
    person_sums,
)

MEMORY = "memory"
# Sums of persons that are held at a time: 128 MiB.
HELD = 2**24


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

    def longest(self, metric: PersonMetric, radius: int, norm: int, count: int) -> Whole:
        """Return some of the longest vectors, clipped."""
        return _longest(clipped(metric.coordinates(self.sums), radius, norm), count)


@dataclass(frozen=True, eq=False)
class InPieces:
    """Persons whose rows are in memory and whose sums would be too many: some at a time.

    Attributes:
        added: what a row can add.
        rows: (n, p) the table, person by person.
        persons: (n,) rising places of their persons, all of 0 … P − 1.
    """

    added: Contributions = field(repr=False)
    rows: Array = field(repr=False)
    persons: Indices = field(repr=False)
    engine: str = MEMORY

    @staticmethod
    def of(added: Contributions, rows: Array, persons: Indices) -> InPieces | InMemory:
        """Return the persons of a table, at once where their sums are few."""
        count = int(persons.max(initial=-1)) + 1
        if count * len(added.query.terms) <= HELD:
            return InMemory(person_sums(added, rows, persons))
        order = np.argsort(persons, kind="stable")
        return InPieces(added, rows[order], persons[order])

    def _pieces(self) -> Iterator[InMemory]:
        """Yield some persons after the other; what they add is computed anew each time."""
        step = max(1, HELD // max(len(self.added.query.terms), 1))
        for start in range(0, int(self.persons[-1]) + 1, step):
            low, high = np.searchsorted(self.persons, [start, start + step]).tolist()
            own = self.persons[low:high] - start
            yield InMemory(person_sums(self.added, self.rows[low:high], own))

    def total(self, metric: PersonMetric, radius: int, norm: int) -> Whole:
        """Return the sum of the vectors, each clipped to the radius, (k,)."""
        found = [one.total(metric, radius, norm) for one in self._pieces()]
        return np.asarray(np.sum(found, axis=0))

    def whole(self, metric: PersonMetric) -> Array:
        """Return the sum of the vectors as they are, (k,), for the holder alone."""
        return np.asarray(np.sum([one.whole(metric) for one in self._pieces()], axis=0))

    def beyond(self, metric: PersonMetric, radii: Sequence[int], norm: int) -> Whole:
        """Return how many persons are longer than each of some radii."""
        found = [one.beyond(metric, radii, norm) for one in self._pieces()]
        return np.asarray(np.sum(found, axis=0))

    def longest(self, metric: PersonMetric, radius: int, norm: int, count: int) -> Whole | None:
        """Return some of the longest vectors, clipped."""
        kept = np.zeros((0, len(self.added.query.terms)), dtype=np.int64)
        for one in self._pieces():
            kept = _longest(np.concatenate([kept, one.longest(metric, radius, norm, count)]), count)
        return kept


def _longest(values: Whole, count: int) -> Whole:
    """Return so many of the longest vectors (P, k), in their order."""
    order = np.argsort(-np.square(values.astype(np.float64)).sum(axis=1), kind="stable")
    return values[np.sort(order[:count])]
