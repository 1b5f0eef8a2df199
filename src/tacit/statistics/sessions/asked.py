"""A query of a session at a price: by pairs, or of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.guarantees import GaussianDP, InformationBound, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.statistics.bounded import workflow as tables
from tacit.statistics.bounded.contributions import contributions
from tacit.statistics.bounded.plan import table_plan
from tacit.statistics.pairs import Pairing
from tacit.statistics.prepared_numbers import Plan
from tacit.statistics.promises import Declared
from tacit.statistics.rows import words
from tacit.statistics.rows.plan import SumPlan, sum_plan
from tacit.statistics.rows.workflow import METHOD, pairing_notes
from tacit.statistics.sessions.kept import Kept
from tacit.statistics.sums.query import SumQuery, known_names, sum_query

# Tries at the price of an error that is not linear in the noise, and how close is close enough.
MOST_TRIES, CLOSE = 30, 0.99


@dataclass(frozen=True, eq=False)
class Asked:
    """A query with its price, certified and not drawn.

    Attributes:
        description: what is asked.
        names: d labels.
        plan: draws the numbers.
        guarantee: what this answer alone is certified for, and the ledger counts.
        method: how the noise was chosen.
        notes: what a reader should know.
        limits: (d, 2), (lowest, highest) that each number can be; None for anything.
    """

    description: str
    names: tuple[str, ...]
    plan: Plan = field(repr=False)
    guarantee: Guarantee = field(repr=False)
    method: str = field(repr=False)
    notes: tuple[str, ...] = field(repr=False)
    limits: Array | None = field(default=None, repr=False)

    @property
    def spend(self) -> float:
        """μ, or nats."""
        if isinstance(self.guarantee, GaussianDP):
            return self.guarantee.mu
        assert isinstance(self.guarantee, InformationBound)
        return self.guarantee.nats


class Promise(ABC):
    """What a session hides, and how a query is answered under it."""

    #: secret in words, and unit of the budget
    secret: str
    squares: bool = True

    @abstractmethod
    def ask(self, query: Any, target: str | None, spend: float, kept: Kept) -> Asked:
        """Return the query at a price."""

    @abstractmethod
    def membership(self, budget: float, *, reproducible: bool) -> SuccessBound:
        """Return what all answers together hide, up to the budget."""

    def after(self, asked: Asked, kept: Kept, released: Array) -> Array:
        """Return the bounds of the posterior weights after an answer."""
        del asked, released
        return kept.bounds

    def priced(
        self, query: Any, target: str | None, error: Array, most: float, kept: Kept
    ) -> Asked:
        """Return the query at the least price, at most ``most``, for errors no larger than given.

        Raises:
            ValueError: no price is enough, or the price would depend on a table that is hidden.
        """
        spend, best = most, None
        for _ in range(MOST_TRIES):
            asked = self.ask(query, target, spend, kept)
            if error.size not in (1, asked.plan.errors.size):
                raise ValueError(
                    f"error: expected one number or {asked.plan.errors.size}, got {error.size}"
                )
            ratio = float(np.max(asked.plan.errors / error))
            if ratio <= 1.0:
                best = asked
                if ratio >= CLOSE or ratio == 0.0:
                    break
            elif best is None:
                raise ValueError(
                    f"error: expected what is left of the budget to reach it, got errors "
                    f"{ratio:.3g} times as large at that price"
                )
            # errors are about inverse to μ, and to the root of nats
            step = ratio if self.squares else ratio**2
            spend = min(spend * step * (1.0 if ratio > 1.0 else 1.0 + 1e-9), most)
        assert best is not None
        return best


@dataclass(eq=False)
class ByPairs(Promise):
    """One row of every group, drawn once; squares of μ add.

    Attributes:
        rows: the pool.
        columns: names.
        pairing: the groups.
        declared: what is known of the columns.
        cost: as ``prepare`` takes it.
        progress: whether to show a bar.
    """

    rows: Array
    columns: tuple[str, ...]
    pairing: Pairing
    declared: Declared
    cost: Any
    progress: bool | None

    @property
    def secret(self) -> str:  # type: ignore[override]
        """The secret in words."""
        size = self.pairing.group_size
        return words.SECRET if size == 2 else words.SECRET.replace("pair", f"group of {size}")

    def ask(self, query: Any, target: str | None, spend: float, kept: Kept) -> Asked:
        """Return the query at μ = ``spend``."""
        adding = sum_query(query, self.declared.columns(self.columns, self.rows), target)
        plan = sum_plan(
            _adding(adding, query, "rows"),
            self.rows,
            spend,
            pairing=self.pairing,
            group_size=self.pairing.group_size,
            cost=self.cost,
            progress=self.progress,
        )
        drawn = self.pairing.members[np.arange(len(self.pairing)), kept.drawn]
        _, held, *_ = words.theorem(
            plan.noise.mu, self.pairing, reproducible=kept.reproducible, together=True
        )
        return Asked(
            description=plan.query.description,
            names=plan.query.names,
            plan=_OfPairs(plan, drawn),
            guarantee=held,
            method=METHOD,
            notes=pairing_notes(plan, self.cost),
            limits=plan.query.limits(),
        )

    def membership(self, budget: float, *, reproducible: bool) -> SuccessBound:
        """Return what all answers together hide."""
        first, *_ = words.theorem(budget, self.pairing, reproducible=reproducible, together=True)
        assert isinstance(first, SuccessBound)
        return first


@dataclass(frozen=True, eq=False)
class _OfPairs:
    """Answers from rows that were drawn before."""

    plan: SumPlan
    drawn: Any

    @property
    def errors(self) -> Array:
        return self.plan.errors

    @property
    def sampling(self) -> Array:
        return self.plan.sampling

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        return self.plan.at(self.drawn, rng)


@dataclass(eq=False)
class OfTable(Promise):
    """All rows of a table, clamped to declared bounds; squares of μ add.

    Attributes:
        rows: the table.
        columns: names.
        declared: bounds, levels and adjacency.
        cost: as ``prepare`` takes it.
    """

    rows: Array
    columns: tuple[str, ...]
    declared: Declared
    cost: Any
    secret = tables.SECRET

    def ask(self, query: Any, target: str | None, spend: float, kept: Kept) -> Asked:
        """Return the query at μ = ``spend``."""
        known = self.declared.columns(self.columns)
        adding = _adding(sum_query(query, known, target), query, "table")
        tables.check_declared(adding, self.columns, self.declared.observed)
        added = contributions(adding, self.columns, self.declared.bounds)
        _, held = tables.held(
            spend, self.declared.adjacency, reproducible=kept.reproducible, together=True
        )
        return Asked(
            description=adding.description,
            names=adding.names,
            plan=table_plan(added, self.rows, spend, self.declared.adjacency, self.cost),
            guarantee=held,
            method=tables.METHOD,
            notes=tables.table_notes(added, self.columns, len(self.rows), self.declared.adjacency),
            limits=added.limits(),
        )

    def priced(
        self, query: Any, target: str | None, error: Array, most: float, kept: Kept
    ) -> Asked:
        """Return the query at the price of an error, where that says nothing of the table."""
        known = self.declared.columns(self.columns)
        adding = _adding(sum_query(query, known, target), query, "table")
        if not (adding.linear and self.declared.adjacency == "replace"):
            raise ValueError(
                "error: expected spend or share for this query, whose errors depend on the table "
                "that is hidden, so that a price found by them would tell of it"
            )
        return super().priced(query, target, error, most, kept)

    def membership(self, budget: float, *, reproducible: bool) -> SuccessBound:
        """Return what all answers together hide."""
        first, _ = tables.held(
            budget, self.declared.adjacency, reproducible=reproducible, together=True
        )
        return first


def _adding(adding: SumQuery | None, query: Any, protect: str) -> SumQuery:
    if adding is None:
        raise ValueError(
            f"query: expected one of {', '.join(known_names())} in a session with "
            f"protect={protect!r}, as only sums add up over queries, got {query!r}"
        )
    return adding
