"""Sessions by pairs: one row of every group, drawn once, through many queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit.guarantees import SuccessBound
from tacit.statistics.details import Turn
from tacit.statistics.pairs.matching import nearest
from tacit.statistics.pairs.pairing import Pairing, choose_pairing
from tacit.statistics.rows.release import theorem
from tacit.statistics.rows.workflow import certify_sums, describe_pairing, group_size
from tacit.statistics.sessions.questions import Question, Questions, check_sums
from tacit.statistics.sessions.state import SessionState


class PairQuestions(Questions):
    """One row of every group, drawn once; squares of μ add."""

    def _open(self, source: np.random.Generator, stored: SessionState | None) -> None:
        if self.pool.persons is not None:
            raise ValueError(
                "person: expected none through a session by pairs of rows, got a column; a release "
                "by itself takes one, and so does a session of a table"
            )
        rows, asked = self.pool.rows, self.promise.pairs
        if stored is None:
            size = group_size(self.promise.rate)
            pairing = choose_pairing(asked, rows, self.pool.columns, size, source)
            if pairing is None:
                pairing = nearest(rows, group_size=size, progress=self.effort.progress)
        else:
            method = str(stored.declared.get("pairing", ""))
            pairing = Pairing(stored.members.astype(np.intp), len(rows), method)
        self.pairing, self.sides = pairing, pairing.group_size
        self.budget = replace(self.promise, rate=1.0 / self.sides).largest_mu()
        self.members = pairing.members.astype(np.int64)
        word = "nearest" if asked is None else asked if isinstance(asked, str) else "given"
        self.said = {
            "budget": self.budget,
            "group_size": self.sides,
            "pairing": pairing.method,
            "pairs": word,
            "rate": self.promise.rate,
        }

    def ask(self, query: Any, target: str | None, spend: float, state: SessionState) -> Question:
        """Return the query at μ = ``spend``."""
        request = self._request(query, target, looked_at=True)
        check_sums(request.query)
        plan, planned = certify_sums(
            request,
            spend,
            self.pairing,
            self.sides,
            source=request.source(),
            session=self._turn(state, spend),
        )
        drawn = self.pairing.members[np.arange(len(self.pairing)), state.drawn]
        return Question(replace(plan, drawn=drawn), planned)

    def membership(self) -> SuccessBound:
        details = describe_pairing(self.promise, self.pool, self.pairing)
        turn = Turn(turn=1, spend=0.0, budget=self.budget)
        first = theorem(0.0, replace(details, session=turn))[0]
        assert isinstance(first, SuccessBound)
        return first
