"""Sessions about people: all rows of a person, clipped together, through many queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.guarantees import SuccessBound
from tacit.releases.release import Release
from tacit.statistics.details import Turn
from tacit.statistics.people.contributors import MEMORY
from tacit.statistics.people.release import PeopleDetails, certify
from tacit.statistics.people.workflow import certify_people, with_radius
from tacit.statistics.prepared import StatisticRequest
from tacit.statistics.sessions.questions import Question, TableOfAll
from tacit.statistics.sessions.state import SessionState


class PeopleQuestions(TableOfAll):
    """A table whose persons are clipped, each answer to its own length; squares of μ add."""

    def _open(self, source: np.random.Generator, stored: SessionState | None) -> None:
        del source, stored
        if self.promise.pure:
            raise ValueError("delta: expected a value beside epsilon in a session, got none")
        if self.pool.unknown:
            raise ValueError("bounds: expected numbers through a session, got auto")
        promise = self.promise
        asked = {"consistent": True} if promise.consistent else {}
        self.declare(person=promise.person, unit=promise.secret_unit, clip=promise.clip, **asked)

    def certify(self, request: StatisticRequest, mu: float, turn: Turn) -> tuple[Any, Release[Any]]:
        """Return the plan of a query at μ, and the release but for what is drawn."""
        return certify_people(request, mu, source=request.source(), session=turn)

    def ready(
        self, plan: Any, planned: Release[Any], rng: RandomSource
    ) -> tuple[Any, Release[Any]]:
        """Return what is drawn, with the length that persons are clipped to."""
        return with_radius(plan, planned, rng)

    def price(
        self, query: Any, target: str | None, error: Array, most: float, state: SessionState
    ) -> Question:
        """Return the query at the price of an error, where that says nothing of the table."""
        del query, target, error, most, state
        raise ValueError(
            "error: expected spend or share, as how many persons there are is hidden, so that a "
            "price found by an error would tell of it"
        )

    def membership(self) -> SuccessBound:
        """Return what all answers together hide."""
        details = PeopleDetails(
            promise=replace(self.promise, bounds=None, levels=None),
            query=(),
            columns=self.pool.columns,
            level=self.budget,
            radius=0,
            grid_bits=0,
            norm=2,
            variance=0,
            scale=(1, 1),
            found="declared",
            share=0.0,
            engine=MEMORY,
            session=Turn(turn=1, spend=0.0, budget=self.budget),
        )
        bound = certify(details)[0]
        assert isinstance(bound, SuccessBound)
        return bound
