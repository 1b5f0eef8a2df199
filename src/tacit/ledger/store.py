"""Where the ledger is kept: tables, connections, and one write transaction at a time per secret."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tacit._files import is_marked_read_only

SCHEMA = "1"
WAIT_SECONDS = 60

metadata = sa.MetaData()

meta_table = sa.Table(
    "tacit_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

secret_table = sa.Table("tacit_secrets", metadata, sa.Column("secret", sa.Text, primary_key=True))

# append-only: the newest row is the budget in force, the older ones its history
budget_table = sa.Table(
    "tacit_budgets",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("secret", sa.ForeignKey("tacit_secrets.secret"), nullable=False, index=True),
    sa.Column("nats", sa.Double),
    sa.Column("epsilon", sa.Double),
    sa.Column("delta", sa.Double),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
)

entry_table = sa.Table(
    "tacit_entries",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("secret", sa.ForeignKey("tacit_secrets.secret"), nullable=False, index=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("notion", sa.Text, nullable=False),
    sa.Column("nats", sa.Double, nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("failure", sa.Double, nullable=False),
    sa.Column("guarantee", sa.Text, nullable=False),
    sa.Column("reproducible", sa.Boolean, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("changed", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("record", sa.Text),
)


class Store:
    """One database: SQLite in WAL mode from a path or URL, PostgreSQL from a URL."""

    def __init__(self, location: str | os.PathLike[str], *, create: bool = True) -> None:
        self.url = parse_location(location)
        self.label = label_of(self.url)
        if self.url.get_backend_name() == "sqlite":
            check_sqlite_file(Path(self.label), create=create)
        self._engine = self._connectable()
        self._prepare(create)

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a SQLite file."""
        return bool(self._engine.dialect.name == "sqlite")

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Open one write transaction: BEGIN IMMEDIATE on SQLite, so readers-then-writers queue."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise ValueError(f"ledger: {self.label}: {_reason(error)}") from None
        except SQLAlchemyError as error:
            raise ValueError(f"ledger: {self.label}: {error}") from None

    def lock(self, connection: sa.Connection, secret: str) -> None:
        """Hold the row of ``secret`` until the transaction ends, making it when it is new."""
        present = sa.select(secret_table.c.secret).where(secret_table.c.secret == secret)
        if self.is_sqlite:
            if connection.execute(present).first() is None:
                connection.execute(secret_table.insert().values(secret=secret))
            return
        from sqlalchemy.dialects.postgresql import insert

        connection.execute(insert(secret_table).values(secret=secret).on_conflict_do_nothing())
        connection.execute(present.with_for_update()).one()

    def _connectable(self) -> sa.Engine:
        try:
            engine = sa.create_engine(self.url, poolclass=NullPool)
        except ModuleNotFoundError:
            raise ValueError(
                f"ledger: {self.label} needs the driver psycopg; install tacit[postgres]"
            ) from None
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", _on_connect)
            sa.event.listen(engine, "begin", _on_begin)
        return engine

    def _prepare(self, create: bool) -> None:
        with self.transaction() as connection:
            tables = set(sa.inspect(connection).get_table_names())
            if meta_table.name in tables:
                self._check_schema(connection)
                return
            if tables and self.is_sqlite:
                raise ValueError(f"ledger: {self.label} is a database of something else than tacit")
            if not create:
                raise ValueError(f"ledger: {self.label} holds no ledger")
            if not self.is_sqlite:
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7166963201)")
            metadata.create_all(connection)
            if connection.execute(sa.select(meta_table.c.value)).first() is None:
                connection.execute(meta_table.insert().values(key="schema", value=SCHEMA))

    def _check_schema(self, connection: sa.Connection) -> None:
        found = connection.execute(
            sa.select(meta_table.c.value).where(meta_table.c.key == "schema")
        ).scalar_one_or_none()
        if found != SCHEMA:
            raise ValueError(
                f"ledger: {self.label} has schema {found!r}; this version reads schema {SCHEMA!r}"
            )


def parse_location(location: str | os.PathLike[str]) -> sa.URL:
    """Return the URL of a plain path, a ``sqlite:///`` URL or a ``postgresql://`` URL."""
    text = os.fspath(location)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"ledger: expected a file path or a database URL, got {location!r}")
    if "://" not in text:
        if text == ":memory:":
            raise ValueError("ledger: expected a durable file, got ':memory:'")
        return sa.URL.create("sqlite", database=str(Path(text).expanduser().resolve()))
    try:
        url = sa.make_url(text.replace("postgres://", "postgresql://", 1))
        name = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ValueError("ledger: expected a file path or a database URL, got neither") from None
    if name == "sqlite":
        if not url.database or url.database == ":memory:":
            raise ValueError(f"ledger: expected a durable file, got {text!r}")
        return url.set(database=str(Path(url.database).expanduser().resolve()))
    if name != "postgresql":
        raise ValueError(f"ledger: expected SQLite or PostgreSQL, got a URL of {name!r}")
    return url.set(drivername="postgresql+psycopg") if url.drivername == name else url


def label_of(url: sa.URL) -> str:
    """Return the path of a SQLite file, or the URL without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.render_as_string(hide_password=True)


def check_sqlite_file(path: Path, *, create: bool) -> None:
    """Refuse a file that is missing (unless it is to be made), read-only or not SQLite."""
    if not path.exists():
        if not create:
            raise ValueError(f"ledger: no such file: {path}")
        if not path.parent.is_dir():
            raise ValueError(f"ledger: no such folder: {path.parent}")
        return
    if not path.is_file():
        raise ValueError(f"ledger: expected a file, got {path}")
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise ValueError(f"ledger: cannot read {path} ({error.strerror})") from None
    if start and start != b"SQLite format 3\x00":
        raise ValueError(f"ledger: {path} is not a SQLite database")
    if is_marked_read_only(path) or not os.access(path, os.W_OK):
        raise ValueError(f"ledger: {path} is read-only")


def _on_connect(connection: Any, record: Any) -> None:
    del record
    # the driver's own BEGIN is deferred; ours is sent by _on_begin
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {1000 * WAIT_SECONDS}")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA journal_mode")
    if cursor.fetchone()[0] != "wal":
        _enter_wal(cursor)
    cursor.close()


def _enter_wal(cursor: Any) -> None:
    # the switch to WAL does not wait for other connections; whoever holds the lock makes the switch
    import time

    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _on_begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _reason(error: DBAPIError) -> str:
    text = str(error.orig).strip().split("\n")[0]
    known = {
        "file is not a database": "it is not a SQLite database",
        "malformed": "the database is corrupt",
        "readonly": "it is read-only",
        "unable to open": "it cannot be opened or made there",
        "locked": f"another process held it for more than {WAIT_SECONDS} s",
    }
    for sign, sentence in known.items():
        if sign in text:
            return sentence
    return text
