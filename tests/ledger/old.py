"""Writing a ledger as Tacit 0.1 did."""

from __future__ import annotations

from typing import Any

from tacit.guarantees import Guarantee

TABLES = (
    "CREATE TABLE tacit_meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE tacit_secrets (secret TEXT NOT NULL PRIMARY KEY)",
    "CREATE TABLE tacit_budgets (number {serial} PRIMARY KEY, secret TEXT NOT NULL "
    "REFERENCES tacit_secrets (secret), nats DOUBLE PRECISION, epsilon DOUBLE PRECISION, "
    "delta DOUBLE PRECISION, time TEXT NOT NULL, version TEXT NOT NULL)",
    "CREATE INDEX ix_tacit_budgets_secret ON tacit_budgets (secret)",
    "CREATE TABLE tacit_entries (number {serial} PRIMARY KEY, secret TEXT NOT NULL "
    "REFERENCES tacit_secrets (secret), status TEXT NOT NULL, notion TEXT NOT NULL, "
    "nats DOUBLE PRECISION NOT NULL, epsilon DOUBLE PRECISION NOT NULL, "
    "delta DOUBLE PRECISION NOT NULL, failure DOUBLE PRECISION NOT NULL, guarantee TEXT NOT NULL, "
    "reproducible BOOLEAN NOT NULL, time TEXT NOT NULL, changed TEXT NOT NULL, "
    "description TEXT NOT NULL, version TEXT NOT NULL, record TEXT)",
    "CREATE INDEX ix_tacit_entries_secret ON tacit_entries (secret)",
)


class OldLedger:
    """A database of schema 1 behind a DB-API connection of sqlite3 or psycopg."""

    def __init__(self, connection: Any, *, mark: str = "?", serial: str = "INTEGER") -> None:
        self.connection, self.mark = connection, mark
        for statement in TABLES:
            self._execute(statement.format(serial=serial))
        self._insert("tacit_meta", key="schema", value="1")
        self.step = 0
        self.announced: set[str] = set()

    def budget(self, secret: str, **limits: float) -> None:
        self._secret(secret)
        self._insert("tacit_budgets", secret=secret, time=self._time(), version="0.1.0", **limits)

    def release(
        self,
        secret: str,
        guarantee: Guarantee,
        status: str = "committed",
        *,
        reproducible: bool = False,
        text: str | None = None,
    ) -> None:
        self._secret(secret)
        time = self._time()
        self._insert(
            "tacit_entries",
            secret=secret,
            status=status,
            notion="information",
            nats=0.0,
            epsilon=0.0,
            delta=0.0,
            failure=0.0,
            guarantee=guarantee.to_json() if text is None else text,
            reproducible=reproducible,
            time=time,
            changed=time,
            description=f"step {self.step}",
            version="0.1.0",
            record='{"release": [1.5]}' if status == "committed" else None,
        )

    def _time(self) -> str:
        self.step += 1
        return f"2026-01-01T00:00:{self.step:02d}.000+00:00"

    def _secret(self, secret: str) -> None:
        if secret not in self.announced:
            self._insert("tacit_secrets", secret=secret)
            self.announced.add(secret)

    def _insert(self, table: str, **values: Any) -> None:
        marks = ", ".join(self.mark for _ in values)
        self._execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        self.connection.cursor().execute(statement, values)
        self.connection.commit()
