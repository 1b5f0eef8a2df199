"""What a session hides, and how it answers a query at a price: what all promises share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit._ground.random import fair_choices, uniform_index
from tacit.guarantees import GaussianDP, InformationBound, SuccessBound
from tacit.releases.prepared import Expected
from tacit.releases.promises import Effort
from tacit.releases.release import Release
from tacit.releases.strength import SMALLEST_MU
from tacit.statistics.details import Turn
from tacit.statistics.pools import Pool
from tacit.statistics.prepared import StatisticRequest, expected_errors
from tacit.statistics.queries.language import bind_query, summable_queries
from tacit.statistics.queries.statistic import Query, SumQuery
from tacit.statistics.sessions.state import SessionState

# Tries at the price of an error that is not linear in the noise, and how close is close enough.
MOST_TRIES, CLOSE = 30, 0.99
# A hair above the price of an error that is reached: rounding would lead back and forth.
HAIR = 1e-9
NOBODY, NO_BOUNDS = np.empty((0, 0), dtype=np.int64), np.empty((2, 0))


@dataclass(frozen=True, eq=False)
class Question:
    """A query with its price, certified and not drawn.

    Attributes:
        plan: draws the numbers.
        planned: the release but for what is drawn; its second guarantee is what this answer alone
            is certified for, and the ledger counts; where keys are found what all of them are.
        found: the same where keys or bounds are found when it is drawn; None where they are known.
    """

    plan: Any = field(repr=False)
    planned: Release[Any] = field(repr=False)
    found: Any = field(default=None, repr=False)

    @property
    def spend(self) -> float:
        """μ, or nats."""
        held = self.planned.guarantees[1]
        if isinstance(held, GaussianDP):
            return held.mu
        if isinstance(held, InformationBound):
            return held.nats
        level: float = self.planned.details.level
        return level

    @property
    def expected(self) -> tuple[Expected, ...]:
        """The error that every number will have."""
        if self.found is not None:
            told: tuple[Expected, ...] = self.found.expected
            return told
        return expected_errors(self.planned.names, self.plan.errors)


class Questions(ABC):
    """What a session hides, and how a query is answered under it.

    Attributes:
        budget: μ, or nats, of all answers.
        said: what must be the same when the session is taken up again.
        members: (P, k) groups; none where there are no groups.
        bounds: (2, K) of the posterior weights; none where there are no candidates.
        sides: rows of every group, of which one is drawn; candidates where there are no groups; 0
            where nothing is drawn.
        whole: whether a ledger counts all answers together, once.
    """

    #: whether squares of what is spent add up, as those of μ do
    squares: bool = True
    budget: float
    said: dict[str, Any]
    members: Any = NOBODY
    bounds: Array = NO_BOUNDS
    sides: int = 0
    whole: bool = False

    def __init__(
        self,
        pool: Pool,
        promise: Any,
        effort: Effort,
        cost: Any,
        source: np.random.Generator,
        stored: SessionState | None,
    ) -> None:
        """Open a session, or take it up as it is stored."""
        self.pool, self.promise, self.cost = pool, promise, cost
        # answers are not attacked
        self.effort = replace(effort, trials=0)
        self._open(source, stored)

    @abstractmethod
    def _open(self, source: np.random.Generator, stored: SessionState | None) -> None:
        """Set what is declared; what was chosen at random is as it is stored."""

    @abstractmethod
    def ask(self, query: Any, target: str | None, spend: float, state: SessionState) -> Question:
        """Return the query at a price."""

    @abstractmethod
    def membership(self) -> SuccessBound:
        """Return what all answers together hide, up to the budget."""

    def ready(
        self, plan: Any, planned: Release[Any], rng: RandomSource
    ) -> tuple[Any, Release[Any]]:
        """Return what is drawn, once all that is found of the secret for it was found."""
        return plan, planned

    def after(self, question: Question, state: SessionState, released: Array) -> Array:
        """Return the bounds of the posterior weights after an answer."""
        return state.bounds

    def price(
        self, query: Any, target: str | None, error: Array, most: float, state: SessionState
    ) -> Question:
        """Return the query at the least price, at most ``most``, for errors no larger than given.

        Raises:
            ValueError: no price is enough, or the price would depend on a table that is hidden.
        """
        spend, best = most, None
        for _ in range(MOST_TRIES):
            question = self.ask(query, target, spend, state)
            errors = question.plan.errors
            if error.size not in (1, errors.size):
                raise ValueError(f"error: expected one number or {errors.size}, got {error.size}")
            with np.errstate(over="ignore"):
                ratio = float(np.max(errors / error))
            if ratio <= 1.0:
                best = question
                if ratio >= CLOSE or ratio == 0.0:
                    break
            elif best is None:
                raise ValueError(
                    f"error: expected what is left of the budget to reach it, got errors "
                    f"{ratio:.3g} times as large at that price"
                )
            # errors are about inverse to μ, and to the root of nats
            step = ratio if self.squares else ratio**2
            spend *= step * (1.0 if ratio > 1.0 else 1.0 + HAIR)
            # at an error beyond all that noise can be, the least price that there is
            spend = min(max(spend, SMALLEST_MU), most)
        assert best is not None
        return best

    def draw_secret(self, rng: np.random.Generator | None) -> Any:
        """Draw the secret, once."""
        if self.sides == 0:
            return np.empty(0, dtype=np.int64)
        if len(self.members):
            return fair_choices(len(self.members), self.sides, rng).astype(np.int64)
        return np.array([uniform_index(self.sides, rng)], dtype=np.int64)

    def check(self, stored: SessionState) -> None:
        """Refuse a file that does not hold what this promise keeps.

        Raises:
            ValueError: it does not; the message names the field.
        """
        groups, weights = len(self.members), self.bounds.shape[1]
        count = groups or min(self.sides, 1)
        drawn, bounds = stored.drawn, stored.bounds
        if drawn.shape != (count,) or ((drawn < 0) | (drawn >= self.sides)).any():
            raise ValueError(
                f"session.drawn: expected {count} numbers from 0 to {self.sides - 1}, got others"
                if count
                else "session.drawn: expected none, as all rows of a table are used, got some"
            )
        if len(stored.members) != groups:
            raise ValueError(
                f"session.members: expected {groups} groups, got {len(stored.members)}"
            )
        ordered = bounds.shape == (2, weights) and bool((bounds[0] <= bounds[1]).all())
        if not (ordered and np.isfinite(bounds).all()):
            raise ValueError(
                f"session.bounds: expected (2, {weights}) ends of weights in order, got others"
            )

    def _request(self, query: Any, target: str | None, *, looked_at: bool) -> StatisticRequest:
        bound = bind_query(query, self.pool.as_columns(looked_at=looked_at), target)
        return StatisticRequest(bound, self.pool, self.promise, self.effort, self.cost, None)

    def _turn(self, state: SessionState, spend: float) -> Turn:
        return Turn(turn=state.turn + 1, spend=spend, budget=self.budget)


class TableOfAll(Questions):
    """All rows of a table that is hidden, through queries that add up; squares of μ add."""

    def declare(self, budget: float, **more: Any) -> None:
        """Set the budget μ, and what of the table was declared."""
        self.budget = budget
        declared = self.pool.declaration()
        self.said = {
            "budget": self.budget,
            "adjacency": self.promise.adjacency.value,
            **more,
            "bounds": {name: list(pair) for name, pair in declared["bounds"].items()},
            "levels": {name: list(held) for name, held in declared["levels"].items()},
        }

    @abstractmethod
    def certify(self, request: StatisticRequest, mu: float, turn: Turn) -> tuple[Any, Release[Any]]:
        """Return the plan of a query at μ, and the release but for what is drawn."""

    def ask(self, query: Any, target: str | None, spend: float, state: SessionState) -> Question:
        """Return the query at μ = ``spend``."""
        request = self._request(query, target, looked_at=False)
        check_sums(request.query)
        return Question(*self.certify(request, spend, self._turn(state, spend)))


def check_sums(query: Query) -> SumQuery:
    """Return a query that adds up.

    Raises:
        ValueError: it does not.
    """
    if not isinstance(query, SumQuery):
        raise ValueError(
            f"query: expected one of {', '.join(summable_queries())} in a session, as only sums "
            f"add up over queries, got {query.description!r}"
        )
    return query
