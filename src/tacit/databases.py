"""How SQLite and PostgreSQL are opened, by whatever keeps something in them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from tacit._ground.files import absolute, spelled
from tacit._ground.lazy import install_with

# How long a writer waits for the one before, and a client for a server that is not there.
WAIT_SECONDS, CONNECT_SECONDS = 60, 10
# Of a URL's query: what stands in no message and no release.
SECRETS = ("password", "sslpassword")
# The execution option of a transaction that only reads.
READ_ONLY = "tacit_read_only"
# A commit is on the disk when it returns, of a server too that does not wait by itself.
PRAGMAS = ("foreign_keys = ON", "synchronous = FULL")
WAIT_FOR_DISK = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)
REASONS = {
    "file is not a database": "it is not a SQLite database",
    "malformed": "the database is corrupt",
    "readonly": "it is read-only",
    "unable to open": "it cannot be opened or made there",
    "locked": f"another process held it for more than {WAIT_SECONDS} s",
    "disk is full": "the disk is full: free space beside it and try again",
    # a limit on the size of files, among what a system may refuse
    "disk I/O error": "the system could not read or write it or its journal: free space beside it, "
    "raise the limit on the size of files (ulimit -f) or check the disk, and try again",
}


def parse_location(name: str, location: str | os.PathLike[str]) -> sa.URL:
    """Return the URL of a plain path, a ``sqlite:///`` URL or a ``postgresql://`` URL.

    Args:
        name: what a ValueError calls it.
        location: where the database is.

    Raises:
        ValueError: it is none of them, or a database that is gone with its process.

    Example:
        >>> parse_location("ledger", "postgres://host/book").drivername
        'postgresql+psycopg'
    """
    text = spelled(name, location, kind="a file path or a database URL")
    if not text.strip():
        raise ValueError(f"{name}: expected a file path or a database URL, got {text!r}")
    if "://" not in text:
        if text == ":memory:":
            raise ValueError(f"{name}: expected a durable file, got ':memory:'")
        return sa.URL.create("sqlite", database=str(absolute(name, text)))
    try:
        url = sa.make_url(text.replace("postgres://", "postgresql://", 1))
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ValueError(f"{name}: expected a file path or a database URL, got neither") from None
    if backend == "sqlite":
        if not url.database or url.database == ":memory:":
            raise ValueError(f"{name}: expected a durable file, got {text!r}")
        return url.set(database=str(absolute(name, url.database)))
    if backend != "postgresql":
        raise ValueError(f"{name}: expected SQLite or PostgreSQL, got a URL of {backend!r}")
    return url.set(drivername="postgresql+psycopg") if url.drivername == backend else url


def label_of(url: sa.URL) -> str:
    """Return the path of a SQLite file, or the URL without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.difference_update_query(SECRETS).render_as_string(hide_password=True)


def open_engine(
    name: str, url: sa.URL, *, connections: int = 1, pragmas: Sequence[str] = ()
) -> sa.Engine:
    """Return an engine whose transactions write one after the other on SQLite.

    Args:
        name: what a ValueError calls the database.
        url: where it is; the file of a SQLite database is there already.
        connections: that are kept open.
        pragmas: of a SQLite connection, beside those of every one.

    Raises:
        ValueError: the driver of PostgreSQL is not installed.
    """
    options: dict[str, Any] = {
        "poolclass": QueuePool, "pool_size": connections, "max_overflow": -1,
    }  # fmt: skip
    if url.get_backend_name() != "sqlite":
        try:
            server = sa.create_engine(
                url,
                pool_pre_ping=True,
                connect_args={"connect_timeout": CONNECT_SECONDS},
                **options,
            )
            sa.event.listen(server, "begin", _begun_on_server)
            return server
        except ModuleNotFoundError:
            raise ValueError(
                f"{name}: {label_of(url)} needs the driver psycopg: {install_with('postgres')}"
            ) from None
    # mode=rw: a file that is gone is an error, never made anew
    uri = f"{Path(str(url.database)).as_uri()}?mode=rw"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=WAIT_SECONDS)

    def connected(connection: Any, _: Any) -> None:
        # the driver's own BEGIN is deferred; ours is sent by _begun
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (f"busy_timeout = {1000 * WAIT_SECONDS}", *PRAGMAS, *pragmas):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    engine = sa.create_engine("sqlite://", creator=connect, **options)
    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", _begun)
    return engine


def transaction_options(url: sa.URL, *, write: bool) -> dict[str, Any]:
    """Return the execution options of a transaction: what only reads sees one moment.

    What writes sees what the one before it wrote once it holds its lock, whatever a server's own
    default is.
    """
    options: dict[str, Any] = {READ_ONLY: not write}
    if url.get_backend_name() != "sqlite":
        options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
    return options


def reason(error: Exception) -> str:
    """Return what a driver's error says, in a sentence where it is a usual one."""
    text = str(getattr(error, "orig", error)).strip().split("\n")[0]
    return next((sentence for sign, sentence in REASONS.items() if sign in text), text)


def _begun(connection: sa.Connection) -> None:
    read_only = connection.get_execution_options().get(READ_ONLY)
    # BEGIN IMMEDIATE: a writer waits here, not in the middle of what it does
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _begun_on_server(connection: sa.Connection) -> None:
    if not connection.get_execution_options().get(READ_ONLY):
        connection.exec_driver_sql(WAIT_FOR_DISK)
