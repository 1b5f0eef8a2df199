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
from tacit.statistics.people.found import bounds_needed, mu_beside_keys, prepare_found
from tacit.statistics.people.release import PeopleDetails, certify
from tacit.statistics.people.workflow import certify_people, with_radius
from tacit.statistics.pools import Pool
from tacit.statistics.prepared import StatisticRequest
from tacit.statistics.queries.language import bind_query, columns_read, keys_read
from tacit.statistics.sessions.questions import Question, TableOfAll, check_sums
from tacit.statistics.sessions.state import SessionState


class PeopleQuestions(TableOfAll):
    """A table whose persons are clipped, each answer to its own length; squares of μ add.

    Keys and bounds that nobody declared are found by the first answer that needs them, for a share
    of what it is charged, and stand from then on: what is computed of them is post-processing. The
    δ of finding keys, over all answers, is set apart when the session opens; an answer may spend
    the part of it that it spends of μ². A person's own keys pass in some answer with this chance
    at most, along every path of answers, and without that answers are told apart by the noise
    alone, which is μ-Gaussian: (ε, δ) together, whatever each question is chosen by.
    """

    delta: float = 0.0

    def _open(self, source: np.random.Generator, stored: SessionState | None) -> None:
        promise = self.promise
        if promise.pure:
            raise ValueError("delta: expected a value beside epsilon in a session, got none")
        budget = promise.largest_mu()
        columns = self.pool.columns
        if both := [one for one in self.pool.seekable if columns.index(one) in self.pool.bounds]:
            raise ValueError(
                f"bounds: expected none of {both[0]}, whose categories are found, so that it "
                "groups rows and is no number, got some"
            )
        if self.pool.seekable:
            budget, self.delta = mu_beside_keys(promise)
            # (ε, δ) of all answers is no sum of each one's
            self.whole = True
        asked: dict[str, Any] = {"consistent": True} if promise.consistent else {}
        if promise.max_rows is not None:
            asked["max_rows"] = promise.max_rows
        if self.pool.unknown:
            asked["unknown"] = [self.pool.columns[place] for place in self.pool.unknown]
        if self.pool.seekable:
            asked["sought"] = list(self.pool.seekable)
        self.declare(
            budget, person=promise.person, unit=promise.secret_unit, clip=promise.clip, **asked
        )

    def ask(self, query: Any, target: str | None, spend: float, state: SessionState) -> Question:
        """Return the query at μ = ``spend``, by keys and bounds that are known or will be found."""
        known, earlier = _known(self.pool, state)
        pool = _needed(known, query, target)
        bound = bind_query(query, pool.as_columns(looked_at=False), target)
        request = StatisticRequest(bound, pool, self.promise, self.effort, self.cost, None)
        check_sums(bound)
        turn = replace(self._turn(state, spend), delta=self.delta, earlier=earlier)
        if pool.sought is None and not pool.unknown:
            return Question(*self.certify(request, spend, turn))
        found = prepare_found(request, session=turn)
        return Question(found.plan, found.planned, found)

    def certify(self, request: StatisticRequest, mu: float, turn: Turn) -> tuple[Any, Release[Any]]:
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
        raise ValueError(
            "error: expected spend or share, as how many persons there are is hidden, so that a "
            "price found by an error would tell of it"
        )

    def membership(self) -> SuccessBound:
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
            session=Turn(turn=1, spend=0.0, budget=self.budget, delta=self.delta),
        )
        bound = certify(details)[0]
        assert isinstance(bound, SuccessBound)
        return bound


def _known(pool: Pool, state: SessionState) -> tuple[Pool, tuple[str, ...]]:
    """Return the pool with the keys and bounds that earlier answers published, and whose."""
    earlier: list[str] = []
    if not pool.seekable and not pool.unknown:
        return pool, ()
    for one in state.answers:
        if one.release is None:
            continue
        details: PeopleDetails = Release.from_dict(dict(one.release)).details
        bounds: Any = details.promise.bounds or {}
        for name in () if details.ranges is None else details.ranges.columns:
            place = pool.columns.index(name)
            left = tuple(at for at in pool.unknown if at != place)
            earlier.append(name)
            pool = replace(pool, bounds={**pool.bounds, place: tuple(bounds[name])}, unknown=left)
        keys: Any = (details.promise.levels or {}).get(details.key_column or "", ())
        if keys:
            # of none a later answer may find more
            earlier.append(str(details.key_column))
            pool = replace(pool, sought=details.key_column).with_keys(tuple(keys))
    return pool, tuple(earlier)


def _needed(pool: Pool, query: Any, target: str | None) -> Pool:
    """Return the pool that seeks what a query needs, and nothing else.

    Raises:
        ValueError: it needs the keys of several columns that were not found.
    """
    read, groups = columns_read(query, target), keys_read(query, target)
    sought = [name for name in pool.seekable if name in groups]
    if len(sought) > 1:
        raise ValueError(
            f"query: expected at most one column whose keys are still to be found, as one answer "
            f"finds those of one column, got {', '.join(sought)}"
        )
    if read is None:
        # "all columns" are those of numbers: what groups rows in another query is none of them
        pool = pool.without([name for name in pool.seekable if name not in groups])
    pool = replace(pool, sought=next(iter(sought), None))
    bound = check_sums(bind_query(query, pool.as_columns(looked_at=False), target))
    return pool.seeking_bounds(bounds_needed(bound))
