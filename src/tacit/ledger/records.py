"""What the ledger returns and what it refuses with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.guarantees import Guarantee
from tacit.ledger.notions import Budget, Charge, Spending, shown

RESERVED, DRAWN, COMMITTED, CANCELLED = "reserved", "drawn", "committed", "cancelled"
SPENT = (RESERVED, DRAWN, COMMITTED)


class BudgetExceededError(ValueError):
    """A release was refused because the budget of its secret does not reach."""

    def __init__(self, secret: str, budget: Budget, spent: Spending, asked: Charge) -> None:
        self.secret, self.budget, self.spent, self.asked = secret, budget, spent, asked
        super().__init__(
            f"budget: secret {secret!r} has a budget of {budget}, {_spent(budget, spent)} spent, "
            f"and this release asks for {asked}; nothing was drawn"
        )


class IncomparableGuaranteeError(ValueError):
    """A release was refused because its guarantee cannot be counted against the budget set."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One release in the ledger.

    ``status`` is "reserved", "drawn", "committed" (all three count as spent) or "cancelled".
    ``time`` is ISO-8601 UTC; ``record`` is what the release stored when it was committed.
    """

    number: int
    secret: str
    status: str
    time: str
    description: str
    guarantee: Guarantee
    charge: Charge
    reproducible: bool
    version: str
    record: dict[str, Any] | None

    @property
    def counts(self) -> bool:
        """Whether the entry counts as spent."""
        return self.status in SPENT

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as a JSON-able dictionary."""
        return {
            "number": self.number,
            "secret": self.secret,
            "status": self.status,
            "time": self.time,
            "description": self.description,
            "notion": self.charge.notion,
            "cost": str(self.charge),
            "guarantee": self.guarantee.to_dict(),
            "reproducible": self.reproducible,
            "version": self.version,
            "record": self.record,
        }


def _spent(budget: Budget, spent: Spending) -> str:
    if spent.void:
        return "everything (a reproducible release is recorded)"
    parts = [] if budget.nats is None else [f"{shown(spent.nats)} nats"]
    if budget.epsilon is not None:
        pairs = [f"ε = {shown(e)}, δ = {shown(d)}" for e, d in spent.approximate.values()]
        parts += pairs or (["a Rényi curve"] if spent.renyi else ["ε = 0"])
    return " and ".join(parts)
