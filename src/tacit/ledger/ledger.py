"""The ledger of releases and budgets."""

from __future__ import annotations

import json
import os
from typing import Any

import sqlalchemy as sa

from tacit import __version__
from tacit.guarantees import Guarantee, guarantee_from_json
from tacit.ledger.notions import (
    Budget,
    Charge,
    Spending,
    charge_of,
    curve_epsilon,
    exceeds,
    left,
    limits,
    obstacle,
    total,
)
from tacit.ledger.records import (
    COMMITTED,
    RESERVED,
    SPENT,
    BudgetExceededError,
    Entry,
    IncomparableGuaranteeError,
)
from tacit.ledger.reservation import Reservation, now
from tacit.ledger.store import Store, budget_table, entry_table, secret_table


class Ledger:
    """A durable account of every release against every secret.

    Nats add, (ε, δ) add, Rényi curves add per order; sums are exact and rounded up. A release is
    refused before anything is drawn when spent + asked > budget, in one transaction, so that
    processes that race for the same budget cannot overrun it together.

    Args:
        location: a file path, a ``sqlite:///`` URL, or a ``postgresql://`` URL.
        create: make the ledger when it is not there yet; otherwise a missing one is an error.

    Raises:
        ValueError: for a file that is corrupt, read-only or of another program, or a URL that is
            neither SQLite nor PostgreSQL.

    Example:
        >>> import os, tempfile
        >>> from tacit.guarantees import InformationBound
        >>> ledger = Ledger(os.path.join(tempfile.mkdtemp(), "ledger.db"))
        >>> _ = ledger.set_budget("customers", mi_budget=0.02)
        >>> bound = InformationBound(
        ...     nats=0.015, secret="rows drawn", evidence="theorem", assumptions=(), source="-"
        ... )
        >>> with ledger.reserve("customers", bound, "mean age") as reservation:
        ...     reservation.mark_drawn()
        ...     reservation.commit({"release": [41.3]})
        >>> ledger.spent("customers").nats
        0.015
        >>> ledger.reserve("customers", bound, "mean income")
        Traceback (most recent call last):
            ...
        tacit.ledger.records.BudgetExceededError: budget: secret 'customers' has a budget of \
0.02 nats, 0.015 nats spent, and this release asks for 0.015 nats; nothing was drawn
    """

    def __init__(self, location: str | os.PathLike[str], *, create: bool = True) -> None:
        self._store = Store(location, create=create)

    @property
    def location(self) -> str:
        """Where the ledger is kept, without a password."""
        return self._store.label

    def set_budget(
        self,
        secret: str,
        *,
        mi_budget: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> Budget:
        """Set what may be spent on ``secret`` from now on, releases already made included.

        Args:
            secret: the name of the secret.
            mi_budget: nats > 0 for the releases certified in information.
            epsilon: ε > 0 for the releases certified in differential privacy.
            delta: δ in [0, 1) beside ``epsilon``; 0 when left out.

        Raises:
            ValueError: when no limit is given or one is out of range.
        """
        budget = limits(mi_budget, epsilon, delta)
        name = _secret(secret)
        with self._store.transaction() as connection:
            self._store.lock(connection, name)
            connection.execute(
                budget_table.insert().values(
                    secret=name,
                    nats=budget.nats,
                    epsilon=budget.epsilon,
                    delta=budget.delta,
                    time=now(),
                    version=__version__,
                )
            )
        return budget

    def budget(self, secret: str) -> Budget | None:
        """Return the budget in force, None when none was set."""
        with self._store.transaction() as connection:
            return _budget(connection, _secret(secret))

    def spent(self, secret: str) -> Spending:
        """Return the totals of every release that counts, per notion, rounded up."""
        with self._store.transaction() as connection:
            entries = _live(connection, _secret(secret))
        return _total(entries)

    def remaining(self, secret: str) -> Budget | None:
        """Return what is left of the budget, rounded down; None when no budget was set.

        Every limit is 0 when the releases recorded cannot all be counted against the budget.
        """
        name = _secret(secret)
        with self._store.transaction() as connection:
            budget, entries = _budget(connection, name), _live(connection, name)
        if budget is None:
            return None
        return _remaining(budget, [entry.charge for entry in entries])

    def secrets(self) -> tuple[str, ...]:
        """Return the names of all secrets, sorted."""
        with self._store.transaction() as connection:
            names = connection.execute(sa.select(secret_table.c.secret)).scalars().all()
        return tuple(sorted(names))

    def entries(self, secret: str | None = None) -> tuple[Entry, ...]:
        """Return every entry, cancelled ones included, oldest first; of one secret if named."""
        query = sa.select(entry_table).order_by(entry_table.c.number)
        if secret is not None:
            query = query.where(entry_table.c.secret == _secret(secret))
        with self._store.transaction() as connection:
            return tuple(_entry(row) for row in connection.execute(query))

    def reserve(
        self, secret: str, guarantee: Guarantee, description: str, *, reproducible: bool = False
    ) -> Reservation:
        """Spend ``guarantee`` on ``secret``, before the release it certifies is drawn.

        Args:
            secret: the name of the secret.
            guarantee: what the release about to be drawn is certified for.
            description: what is released, for the record.
            reproducible: whether the noise comes from a seed, which voids the guarantee: refused
                under a budget, recorded as spending everything otherwise.

        Returns:
            The ``Reservation``. It counts as spent from now on, until it is cancelled; after a
            crash it stays spent.

        Raises:
            BudgetExceededError: when spent + asked > budget.
            IncomparableGuaranteeError: when the budget cannot count this guarantee, or one already
                recorded.
        """
        name = _secret(secret)
        charge = charge_of(guarantee, reproducible=reproducible)
        if not isinstance(description, str):
            raise ValueError(f"description: expected text, got {description!r}")
        with self._store.transaction() as connection:
            self._store.lock(connection, name)
            budget = _budget(connection, name)
            if budget is not None:
                _admit(name, budget, _live(connection, name), charge)
            result = connection.execute(
                entry_table.insert().values(
                    secret=name,
                    status=RESERVED,
                    **_columns(charge, guarantee, reproducible),
                    description=description,
                )
            )
            number = int(result.inserted_primary_key[0])  # type: ignore[index]
        return Reservation(self._store, number, name)


def _admit(secret: str, budget: Budget, entries: list[Entry], charge: Charge) -> None:
    charges = [entry.charge for entry in entries]
    reason = obstacle(budget, [charge])
    if reason is not None:
        raise IncomparableGuaranteeError(
            f"guarantee: {reason} (secret {secret!r}); nothing was drawn"
        )
    reason = obstacle(budget, [*charges, charge])
    if reason is not None:
        raise IncomparableGuaranteeError(
            f"guarantee: among the releases recorded for secret {secret!r}, {reason}; "
            "nothing was drawn"
        )
    if exceeds(budget, [*charges, charge]):
        raise BudgetExceededError(secret, budget, _total(entries), charge)


def _remaining(budget: Budget, charges: list[Charge]) -> Budget:
    spent = total(charges)
    if spent.void or obstacle(budget, charges) is not None:
        return Budget(
            nats=None if budget.nats is None else 0.0,
            epsilon=None if budget.epsilon is None else 0.0,
            delta=None if budget.delta is None else 0.0,
        )
    nats = None if budget.nats is None else left(budget.nats, spent.nats)
    if budget.epsilon is None or budget.delta is None:
        return Budget(nats=nats)
    if spent.renyi:
        epsilon = max(curve_epsilon(curve, budget.delta) for curve in spent.renyi.values())
        return Budget(nats=nats, epsilon=left(budget.epsilon, epsilon), delta=budget.delta)
    epsilon, delta = next(iter(spent.approximate.values()), (0.0, 0.0))
    return Budget(nats=nats, epsilon=left(budget.epsilon, epsilon), delta=left(budget.delta, delta))


def _columns(charge: Charge, guarantee: Guarantee, reproducible: bool) -> dict[str, Any]:
    time = now()
    return {
        "notion": charge.notion,
        "nats": charge.nats,
        "epsilon": charge.epsilon,
        "delta": charge.delta,
        "failure": charge.failure,
        "guarantee": guarantee.to_json(),
        "reproducible": reproducible,
        "time": time,
        "changed": time,
        "version": __version__,
    }


def _secret(secret: str) -> str:
    if not isinstance(secret, str) or not secret.strip():
        raise ValueError(f"secret: expected a name, got {secret!r}")
    return secret


def _budget(connection: sa.Connection, secret: str) -> Budget | None:
    row = connection.execute(
        sa.select(budget_table.c.nats, budget_table.c.epsilon, budget_table.c.delta)
        .where(budget_table.c.secret == secret)
        .order_by(budget_table.c.number.desc())
        .limit(1)
    ).first()
    return None if row is None else Budget(nats=row.nats, epsilon=row.epsilon, delta=row.delta)


def _live(connection: sa.Connection, secret: str) -> list[Entry]:
    query = (
        sa.select(entry_table)
        .where(entry_table.c.secret == secret, entry_table.c.status.in_(SPENT))
        .order_by(entry_table.c.number)
    )
    return [_entry(row) for row in connection.execute(query)]


def _total(entries: list[Entry]) -> Spending:
    unfinished = sum(entry.status != COMMITTED for entry in entries)
    return total([entry.charge for entry in entries], open_count=unfinished)


def _entry(row: sa.Row[Any]) -> Entry:
    guarantee = guarantee_from_json(row.guarantee)
    return Entry(
        number=row.number,
        secret=row.secret,
        status=row.status,
        time=row.time,
        description=row.description,
        guarantee=guarantee,
        charge=charge_of(guarantee, reproducible=row.reproducible),
        reproducible=row.reproducible,
        version=row.version,
        record=None if row.record is None else json.loads(row.record),
    )
