"""What the ledger returns and what it refuses with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.guarantees import Guarantee
from tacit.ledger.notions import Budget, Charge, Spending, shown
from tacit.text import in_nats

RESERVED, DRAWN, COMMITTED, CANCELLED = "reserved", "drawn", "committed", "cancelled"


class BudgetExceededError(ValueError):
    """A release was refused because the budget of its secret does not reach."""

    def __init__(
        self,
        secret: str,
        budget: Budget,
        spent: Spending,
        charges: Sequence[Charge],
        curves: str = "",
    ) -> None:
        self.secret, self.budget, self.spent = secret, budget, spent
        self.asked = charges[0]
        asked = " and ".join(str(charge) for charge in charges)
        super().__init__(
            f"budget: secret {secret!r} has a budget of {budget}, {_spent(budget, spent)} spent, "
            f"and this release asks for {asked}{curves}; nothing was drawn"
        )


class IncomparableGuaranteeError(ValueError):
    """A release was refused because its guarantee cannot be counted against the budget set."""


class NoBudgetError(ValueError):
    """A release was refused because its secret has no budget in a ledger where others have."""

    def __init__(self, secret: str, near: Sequence[str], budgeted: Sequence[str]) -> None:
        self.secret, self.near, self.budgeted = secret, tuple(near), tuple(budgeted)
        super().__init__(
            f"secret: {secret!r} has no budget, and other secrets of this ledger have one; "
            f"{suggestion(near, budgeted)}set one, or ask for a release without a budget "
            "(--no-budget, no_budget=True); nothing was drawn"
        )


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One release in the ledger.

    ``status`` is "reserved", "drawn", "committed" or "cancelled"; whatever is not cancelled counts
    as spent. ``guarantees`` and ``charges`` are its statements and what each costs, the first of
    them ``guarantee`` and ``charge``. ``time`` is ISO-8601 UTC; ``record`` is what the release
    stored when it was committed.
    """

    number: int
    secret: str
    status: str
    time: str
    description: str
    guarantees: tuple[Guarantee, ...]
    charges: tuple[Charge, ...]
    reproducible: bool
    version: str
    record: dict[str, Any] | None

    @property
    def guarantee(self) -> Guarantee:
        """The first statement about the release."""
        return self.guarantees[0]

    @property
    def charge(self) -> Charge:
        """What the first statement costs."""
        return self.charges[0]

    @property
    def cost(self) -> str:
        """What the release costs, in words."""
        return " and ".join(str(charge) for charge in self.charges)

    @property
    def counts(self) -> bool:
        """Whether the entry counts as spent: an unknown status does."""
        return self.status != CANCELLED

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as a JSON-able dictionary."""
        return {
            "number": self.number,
            "secret": self.secret,
            "status": self.status,
            "time": self.time,
            "description": self.description,
            "notion": "+".join(charge.notion for charge in self.charges),
            "cost": self.cost,
            "guarantee": self.guarantee.to_dict(),
            "guarantees": [guarantee.to_dict() for guarantee in self.guarantees],
            "reproducible": self.reproducible,
            "version": self.version,
            "record": self.record,
        }


@dataclass(frozen=True, kw_only=True)
class BudgetChange:
    """One change of a budget: when, by whom (user and host), from what to what."""

    time: str
    who: str
    old: Budget | None
    new: Budget | None

    def to_dict(self) -> dict[str, Any]:
        """Return the change as a JSON-able dictionary."""
        return {
            "time": self.time,
            "who": self.who,
            "old": None if self.old is None else self.old.to_dict(),
            "new": None if self.new is None else self.new.to_dict(),
        }


def suggestion(near: Sequence[str], others: Sequence[str]) -> str:
    """Return the names that may have been meant as the middle of a sentence."""
    if near:
        return f"did you mean {' or '.join(map(repr, near))}? "
    return f"it has {', '.join(map(repr, others))}; " if others else ""


def _spent(budget: Budget, spent: Spending) -> str:
    if spent.void:
        return "everything (a reproducible release is recorded)"
    parts = [] if budget.nats is None else [in_nats(shown(spent.nats))]
    if budget.epsilon is not None:
        pairs = [f"ε = {shown(e)}, δ = {shown(d)}" for e, d in spent.approximate.values()]
        parts += pairs or (["a Rényi curve"] if spent.renyi else ["ε = 0"])
    if budget.mu is not None:
        parts += [f"μ = {shown(mu)}" for mu in spent.gaussian.values()] or ["μ = 0"]
    if budget.leakage is not None:
        parts.append(f"{in_nats(shown(spent.leakage))} of maximal leakage")
    return " and ".join(parts)
