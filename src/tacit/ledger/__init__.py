"""The ledger: every release against a secret, and a budget that is never overrun."""

from __future__ import annotations

from tacit.ledger.ledger import Ledger
from tacit.ledger.notions import Budget, Charge, Spending, charge_of, exact_sum
from tacit.ledger.records import BudgetExceededError, Entry, IncomparableGuaranteeError
from tacit.ledger.reservation import Reservation

__all__ = [
    "Budget",
    "BudgetExceededError",
    "Charge",
    "Entry",
    "IncomparableGuaranteeError",
    "Ledger",
    "Reservation",
    "Spending",
    "charge_of",
    "exact_sum",
]
