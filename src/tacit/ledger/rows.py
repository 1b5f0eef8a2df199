"""Rows of the tables: written from values, read back as values."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from tacit import __version__
from tacit.documents import dumps, loads
from tacit.guarantees import Guarantee, guarantee_from_dict
from tacit.ledger.account import Account
from tacit.ledger.chain import ADVICE, Page, append, now
from tacit.ledger.notions import Budget, Charge, charges_of
from tacit.ledger.records import Entry
from tacit.ledger.tables import BUDGET, RELEASE, TABLE_OF, budget_table

# what parsing an edited row can end in
UNREADABLE = (TypeError, KeyError, AttributeError, ValueError, RecursionError)
NUMBERS = ("nats", "leakage", "epsilon", "delta", "mu", "failure")
LIMITS = ("nats", "leakage", "epsilon", "delta", "mu")
NEW_ROW = {table.name: table.insert() for table in TABLE_OF.values()}


def who_am_i() -> str:
    """Return user and host of this process, as the operating system gives them."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def entry_row(
    secret: str,
    status: str,
    guarantees: Sequence[Guarantee],
    charges: Sequence[Charge],
    description: str,
    *,
    reproducible: bool,
) -> dict[str, Any]:
    """Return a release as a row without its number."""
    time = now()
    # a sum of one number: + 0.0 because SQLite keeps no sign of zero
    numbers = {name: max(getattr(c, name) for c in charges) + 0.0 for name in NUMBERS}
    return {
        "secret": secret,
        "status": status,
        "notion": "+".join(charge.notion for charge in charges),
        **numbers,
        "guarantees": guarantees_json(guarantees),
        "reproducible": reproducible,
        "time": time,
        "changed": time,
        "description": description,
        "version": __version__,
        "record": None,
    }


def entry_of(row: Mapping[Any, Any]) -> Entry:
    """Return a row as an ``Entry``."""
    try:
        guarantees = guarantees_of(row)
        record = row["record"]
        return Entry(
            number=row["number"],
            secret=row["secret"],
            status=row["status"],
            time=row["time"],
            description=row["description"],
            guarantees=guarantees,
            charges=charges_of(guarantees, reproducible=row["reproducible"]),
            reproducible=row["reproducible"],
            version=row["version"],
            record=None if record is None else loads(record),
        )
    except UNREADABLE:
        raise _unreadable(RELEASE, row) from None


def guarantees_json(guarantees: Sequence[Guarantee]) -> str:
    """Return the statements about one release as a JSON list."""
    content = [guarantee.to_dict() for guarantee in guarantees]
    return dumps(content)


def guarantees_of(row: Mapping[Any, Any]) -> tuple[Guarantee, ...]:
    """Return the statements of a row."""
    return tuple(guarantee_from_dict(content) for content in loads(row["guarantees"]))


def row_charges(row: Mapping[Any, Any]) -> tuple[Charge, ...]:
    """Return what the release of a row costs."""
    return _charges(row["guarantees"], row["reproducible"])


@lru_cache(maxsize=1024)
def _charges(guarantees: str, reproducible: bool) -> tuple[Charge, ...]:
    """Return the costs of statements as they are stored; many releases state the same."""
    return charges_of(guarantees_of({"guarantees": guarantees}), reproducible=reproducible)


def budget_row(secret: str, budget: Budget | None, who: str, time: str) -> dict[str, Any]:
    """Return a budget as a row without its number; every limit is NULL once all are dropped."""
    orders = None if budget is None or budget.orders is None else list(budget.orders)
    return {
        "secret": secret,
        **{name: None if budget is None else getattr(budget, name) for name in LIMITS},
        "orders": None if orders is None else dumps(orders),
        "who": who,
        "time": time,
        "version": __version__,
    }


def budget_of(row: Mapping[Any, Any]) -> Budget | None:
    """Return the budget of a row, None where it has no limit."""
    if all(row[name] is None for name in LIMITS):
        return None
    orders = row["orders"]
    try:
        return Budget(
            **{name: row[name] for name in LIMITS},
            orders=None if orders is None else tuple(loads(orders)),
        )
    except UNREADABLE:
        raise _unreadable(BUDGET, row) from None


def _unreadable(kind: str, row: Mapping[Any, Any]) -> ValueError:
    return ValueError(f"ledger: {kind} {row['number']} cannot be read; it {ADVICE}")


def add_row(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Insert a row and return it with its number."""
    result = connection.execute(NEW_ROW[table.name], dict(row))
    return {"number": int(result.inserted_primary_key[0]), **row}  # type: ignore[index]


def record_budget(
    connection: sa.Connection, page: Page, account: Account, who: str, time: str
) -> None:
    """Enter the budget of ``account`` as a new row of the history, and seal it."""
    row = budget_row(page.secret, account.budget, who, time)
    append(connection, page, account, BUDGET, add_row(connection, budget_table, row), "set")
