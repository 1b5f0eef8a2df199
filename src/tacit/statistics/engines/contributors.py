"""What persons add whose rows are in an engine of SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.bounded.contributions import Contributions
from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.quantiles import QuantileStatement
from tacit.statistics.engines.statement import RowSource, Statement
from tacit.statistics.people.vectors import PersonMetric, Whole
from tacit.statistics.queries.chosen import AskedQuantile


class SqlEngine(Protocol):
    """What runs a statement."""

    @property
    def dialect(self) -> Dialect:
        """How it writes."""

    @property
    def label(self) -> str:
        """Its name and version."""

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that reads.

        Raises:
            ValueError: it fails, in words that hold nothing of the rows.
        """


@dataclass(eq=False)
class InEngine:
    """Persons whose rows are in an engine, which sums and clips them.

    Attributes:
        where: the engine.
        rows: what is read there.
        added: what a row can add.
    """

    where: SqlEngine = field(repr=False)
    rows: RowSource = field(repr=False)
    added: Contributions = field(repr=False)
    _counted: dict[Any, Whole] = field(default_factory=dict, repr=False)
    _weighed: dict[str, dict[tuple[int, ...], list[tuple[int, int]]]] = field(
        default_factory=dict, repr=False
    )
    _known: dict[Any, tuple[Whole, Array]] = field(default_factory=dict, repr=False)

    @property
    def engine(self) -> str:
        """What summed the rows."""
        return self.where.label

    def statement(self, metric: PersonMetric) -> Statement:
        """Return what is asked of the engine."""
        return Statement(self.rows, self.added, metric, self.where.dialect)

    def total(self, metric: PersonMetric, radius: int, norm: int) -> Whole:
        """Return the sum of the vectors, each clipped to the radius, (k,)."""
        return self._sums(metric, radius, norm)[0]

    def whole(self, metric: PersonMetric) -> Array:
        """Return the sum of the vectors as they are, (k,), for the holder alone."""
        if not self._known:
            self._sums(metric, metric.radius(1.0), 2)
        return next(iter(self._known.values()))[1]

    def beyond(self, metric: PersonMetric, radii: Sequence[int], norm: int) -> Whole:
        """Return how many persons are longer than each of some radii."""
        asked = (tuple(radii), norm)
        if asked not in self._counted:
            (found,) = self.where.run(self.statement(metric).beyond(radii, norm))
            self._counted[asked] = np.array([int(count or 0) for count in found], dtype=np.int64)
        return self._counted[asked]

    def ranked(self, asked: AskedQuantile) -> QuantileStatement:
        """Return what is asked of the engine for a quantile."""
        return QuantileStatement(self.rows, self.where.dialect, asked)

    def weights(self, asked: AskedQuantile) -> tuple[Whole, Whole]:
        """Return places of points of a number, and what persons weigh there."""
        statement = self.ranked(asked)
        if statement.text not in self._weighed:
            cells: dict[tuple[int, ...], list[tuple[int, int]]] = {}
            for *cell, place, weight in self.where.run(statement.text):
                cells.setdefault(tuple(map(int, cell)), []).append((int(place), int(weight)))
            self._weighed[statement.text] = cells
        found = self._weighed[statement.text].get(statement.cell, [])
        table = np.array(found, dtype=np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def longest(self, metric: PersonMetric, radius: int, norm: int, count: int) -> None:
        """Return none: no person's vector leaves the engine, so none is attacked."""
        del metric, radius, norm, count

    def _sums(self, metric: PersonMetric, radius: int, norm: int) -> tuple[Whole, Array]:
        if not self.added.query.terms:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        if (radius, norm) not in self._known:
            asked = self.statement(metric)
            found = self.where.run(asked.totals(radius, norm))
            self._known[radius, norm] = self._placed(asked, found)
        return self._known[radius, norm]

    def _placed(self, asked: Statement, found: Iterable[Sequence[Any]]) -> tuple[Whole, Array]:
        """Return the sums of (block, cell, clipped and whole of each measure) in their places."""
        short = np.zeros(len(self.added.query.terms), dtype=np.int64)
        whole = np.zeros(len(short))
        blocks = asked.blocks
        for block, cell, *sums in found:
            for measure, place in enumerate(blocks[int(block)].places[int(cell)]):
                if place >= 0:
                    short[place] = int(sums[2 * measure])
                    whole[place] = float(sums[2 * measure + 1])
        return short, whole
