"""A release between the moment it is paid for and the moment it is stored."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import sqlalchemy as sa

from tacit.documents import dumps, loads
from tacit.ledger.chain import append, check_row, lock_page, now
from tacit.ledger.records import CANCELLED, COMMITTED, DRAWN, RESERVED
from tacit.ledger.rows import row_charges
from tacit.ledger.store import LedgerStore
from tacit.ledger.tables import RELEASE, chain_table, entry_table

# made once, as those of the chain; an update sets the columns that it is given
ENTRY = sa.select(entry_table).where(
    entry_table.c.number == sa.bindparam("numbered"), entry_table.c.secret == sa.bindparam("named")
)
MOVED = entry_table.update().where(entry_table.c.number == sa.bindparam("numbered"))


class Reservation:
    """A cost already counted, for one release that is about to be drawn.

    Call ``mark_drawn()`` just before the noise is drawn and ``commit(record)`` once the release is
    stored. ``cancel()`` gives the cost back, which is possible only before ``mark_drawn()``. As a
    context manager, an exception before the draw cancels; after it, the cost stays spent. A crash
    at any point leaves the cost spent.
    """

    def __init__(self, store: LedgerStore, number: int, secret: str) -> None:
        self._store, self.number, self.secret = store, number, secret

    @property
    def status(self) -> str:
        """Return "reserved", "drawn", "committed" or "cancelled", as the ledger has it."""
        with self._store.transaction(write=False) as connection:
            return str(self._read(connection)["status"])

    @property
    def record(self) -> dict[str, Any] | None:
        """Return what was committed beside the cost; None before."""
        with self._store.transaction(write=False) as connection:
            text = self._read(connection)["record"]
        return None if text is None else dict(loads(text, name="record"))

    @property
    def seal(self) -> str | None:
        """Return the hash of the link that entered it, which no other ledger has; None for none."""
        query = sa.select(chain_table.c.hash).where(
            chain_table.c.kind == RELEASE,
            chain_table.c.number == self.number,
            chain_table.c.secret == self.secret,
        )
        with self._store.transaction(write=False) as connection:
            found = connection.execute(query.order_by(chain_table.c.place).limit(1)).scalar()
        return None if found is None else str(found)

    def mark_drawn(self) -> None:
        """Say that the noise is drawn from here on: the cost cannot be given back any more.

        Raises:
            ValueError: when the reservation was used or cancelled before.
        """
        self._move(DRAWN, {RESERVED})

    def commit(self, record: dict[str, Any]) -> None:
        """Store what was released beside the cost.

        Raises:
            ValueError: when ``record`` is not JSON-able, or the reservation was committed or
                cancelled before.
        """
        text = dumps(record, name="record")
        self._move(COMMITTED, {RESERVED, DRAWN}, record=text)

    def cancel(self) -> None:
        """Give the cost back: nothing was drawn.

        Raises:
            ValueError: when the release was drawn, committed or cancelled before.
        """
        self._move(CANCELLED, {RESERVED})

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self.status == RESERVED:
            self.cancel()

    def _move(self, status: str, allowed: set[str], **values: str) -> None:
        with self._store.transaction() as connection:
            page = lock_page(connection, self.secret, sqlite=self._store.is_sqlite)
            row = self._read(connection)
            if row["status"] not in allowed:
                raise ValueError(
                    f"reservation: release {self.number} of secret {self.secret!r} is already "
                    f"{row['status']}; it cannot become {status}"
                )
            check_row(connection, RELEASE, row)
            account = page.account
            if status == CANCELLED:
                account = account.removed(row_charges(row))
            elif status == COMMITTED:
                account = account.closed()
            change = {"status": status, "changed": now(), **values}
            connection.execute(MOVED, {"numbered": self.number, **change})
            append(connection, page, account, RELEASE, {**row, **change}, status)

    def _read(self, connection: sa.Connection) -> dict[str, Any]:
        found = connection.execute(ENTRY, {"numbered": self.number, "named": self.secret})
        row = found.mappings().first()
        if row is None:
            raise ValueError(
                f"reservation: release {self.number} of secret {self.secret!r} is no longer in the "
                "ledger; it contradicts itself"
            )
        return dict(row)
