"""Sessions of a table: all of its rows, clamped to declared bounds, through many queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array
from tacit.guarantees import SuccessBound
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.release import Release
from tacit.statistics.bounded.release import TableDetails, certify
from tacit.statistics.bounded.workflow import certify_table
from tacit.statistics.details import Turn
from tacit.statistics.prepared import StatisticRequest
from tacit.statistics.sessions.questions import Question, TableOfAll, check_sums
from tacit.statistics.sessions.state import SessionState


class TableQuestions(TableOfAll):
    """All rows of a table, clamped to declared bounds; squares of μ add."""

    def _open(self, source: np.random.Generator, stored: SessionState | None) -> None:
        self.declare(self.promise.largest_mu())

    def certify(self, request: StatisticRequest, mu: float, turn: Turn) -> tuple[Any, Release[Any]]:
        return certify_table(request, mu, source=request.source(), session=turn)

    def price(
        self, query: Any, target: str | None, error: Array, most: float, state: SessionState
    ) -> Question:
        """Return the query at the price of an error, where that says nothing of the table."""
        adding = check_sums(self._request(query, target, looked_at=False).query)
        if not (adding.linear and self.promise.adjacency is Adjacency.REPLACE):
            raise ValueError(
                "error: expected spend or share for this query, whose errors depend on the table "
                "that is hidden, so that a price found by them would tell of it"
            )
        return super().price(query, target, error, most, state)

    def membership(self) -> SuccessBound:
        details = TableDetails(
            promise=replace(self.promise, bounds=None, levels=None),
            query=(),
            columns=self.pool.columns,
            mu=self.budget,
            session=Turn(turn=1, spend=0.0, budget=self.budget),
        )
        return certify(self.budget, details)[0]
