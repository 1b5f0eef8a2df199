"""Where a dock's records are: SQLite in WAL mode by a path, PostgreSQL by a URL."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from tacit._ground.files import absolute, spelled
from tacit._ground.lazy import install_with
from tacit_dock.errors import UnavailableError
from tacit_dock.private import keep_private
from tacit_dock.reserve import FullError, is_full
from tacit_dock.tables import ADDED, MOVED, SCHEMA, meta_table, metadata, revision_table, word_table

WAIT_SECONDS = 60
CONNECT_SECONDS = 10
MAKING_LOCK = 7166963202
CHANGE = "change"
READ_ONLY = "tacit_read_only"
KNOWN = {
    "file is not a database": "it is not a SQLite database",
    "malformed": "the database is corrupt",
    "readonly": "it is read-only",
    "unable to open": "it cannot be opened or made there",
    "locked": f"another process held it for more than {WAIT_SECONDS} s",
    "disk is full": "the disk is full",
}


class Database:
    """One database with the tables of a dock; every write transaction waits for the one before."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        create: bool = True,
        fill_in: Callable[[sa.Connection], None] = lambda _: None,
    ) -> None:
        self._fill_in = fill_in
        self.url = parse_location(location)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.label = (
            str(self.url.database)
            if self.is_sqlite
            else self.url.render_as_string(hide_password=True)
        )
        self.is_new = self.is_sqlite and not os.path.exists(self.label)
        if self.is_sqlite:
            _check_file(Path(self.label), create=create)
        self._engine = _engine(self.url, self.label)
        self._file = _file_of(self.label) if self.is_sqlite else None
        self._line = threading.Lock()
        weakref.finalize(self, self._engine.dispose)
        try:
            self._open(create)
        except UnavailableError as error:
            raise ValueError(str(error)) from None

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a transaction that sees one moment of the database, whatever is written meanwhile.

        Raises:
            UnavailableError: the database does not answer.
        """
        options: dict[str, Any] = {READ_ONLY: True}
        if not self.is_sqlite:
            options["isolation_level"] = "REPEATABLE READ"
        with self._opened(options) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[tuple[sa.Connection, int]]:
        """Open a transaction alone, with the number of the change that it makes.

        Numbers become visible in their order, so that who has seen one has seen all before.

        Raises:
            UnavailableError: the database does not answer.
            FullError: its disk is full.
        """
        # threads of this process queue here: SQLite would have them poll
        line = self._line if self.is_sqlite else nullcontext()
        with line, self._opened({READ_ONLY: False}) as connection:
            row = sa.select(meta_table.c.value).where(meta_table.c.key == CHANGE)
            held = connection.execute(row.with_for_update()).scalar_one_or_none()
            if held is None:
                raise UnavailableError(f"database: {self.label}: its records were moved")
            change = int(held) + 1
            yield connection, change
            connection.execute(
                sa.update(meta_table).where(meta_table.c.key == CHANGE).values(value=str(change))
            )
            # what is written to a file that was removed or replaced is nowhere
            if self._file is not None and _file_of(self.label) != self._file:
                raise UnavailableError(f"database: {self.label} is gone, or another file by now")

    @contextmanager
    def alone(self) -> Iterator[sa.Connection]:
        """Open a transaction that writes all there is: no number of a change is its own.

        Raises:
            UnavailableError: the database does not answer.
            FullError: its disk is full.
        """
        with self._opened({READ_ONLY: False}) as connection:
            yield connection

    @contextmanager
    def _opened(self, options: dict[str, Any]) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                opened = connection.execution_options(**options)
                with opened.begin():
                    yield opened
        except DBAPIError as error:
            if is_full(error.orig):
                raise FullError from error
            raise UnavailableError(f"database: {self.label}: {_reason(error)}") from error
        except SQLAlchemyError as error:
            raise UnavailableError(f"database: {self.label}: {error}") from error

    def truncate_log(self) -> None:
        """Have SQLite copy its log into the database and empty it; PostgreSQL keeps its own."""
        if not self.is_sqlite:
            return
        errors = suppress(SQLAlchemyError, UnavailableError)
        with self._line, errors, self._engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def discard(self) -> None:
        """Remove a file of SQLite that was just made and is not wanted."""
        self.close()
        for end in ("", "-wal", "-shm"):
            Path(self.label + end).unlink(missing_ok=True)

    def _open(self, create: bool) -> None:
        with self.alone() as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MAKING_LOCK})")
            tables = set(sa.inspect(connection).get_table_names())
            if meta_table.name not in tables:
                if tables & set(metadata.tables) or (tables and self.is_sqlite):
                    raise ValueError(f"database: {self.label} is a database of something else")
                if not create:
                    raise ValueError(f"database: {self.label} holds no dock")
                metadata.create_all(connection)
                rows = [{"key": "schema", "value": SCHEMA}, {"key": CHANGE, "value": "0"}]
                connection.execute(meta_table.insert(), rows)
                return
            query = sa.select(meta_table.c.value).where(meta_table.c.key == "schema")
            found = connection.execute(query).scalar_one_or_none()
            if found in ADDED:
                _add_columns(connection, found)
                # it was made in another order; what is in it is worked out again
                word_table.drop(connection, checkfirst=True)
                metadata.create_all(connection)
                self._fill_in(connection)
            elif str(found).startswith(MOVED):
                where = str(found).removeprefix(MOVED)
                raise ValueError(f"database: the records of {self.label} were moved: give {where}")
            elif found != SCHEMA:
                raise ValueError(
                    f"database: {self.label} has schema {found!r}; this version reads {SCHEMA!r}"
                )


def _add_columns(connection: sa.Connection, schema: str) -> None:
    """Give a database of an older schema the columns that it lacks, empty."""
    table = revision_table.name
    there = {column["name"] for column in sa.inspect(connection).get_columns(table)}
    for name in sorted(set(ADDED[schema]) - there):
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {name} TEXT")
        if revision_table.c[name].index:
            connection.exec_driver_sql(f"CREATE INDEX ix_{table}_{name} ON {table} ({name})")
    mine = meta_table.c.key == "schema"
    connection.execute(sa.update(meta_table).where(mine).values(value=SCHEMA))


def parse_location(location: str | os.PathLike[str]) -> sa.URL:
    """Return the URL of a plain path, a ``sqlite:///`` URL or a ``postgresql://`` URL.

    Raises:
        ValueError: it is none of them.
    """
    text = spelled("database", location, kind="a file path or a database URL")
    if not text.strip() or text == ":memory:":
        raise ValueError(f"database: expected a file path or a database URL, got {text!r}")
    if "://" not in text:
        return sa.URL.create("sqlite", database=str(absolute("database", text)))
    try:
        url = sa.make_url(text.replace("postgres://", "postgresql://", 1))
        name = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ValueError("database: expected a file path or a database URL, got neither") from None
    if name == "sqlite":
        if not url.database or url.database == ":memory:":
            raise ValueError("database: expected a durable file, got none")
        return url.set(database=str(absolute("database", url.database)))
    if name != "postgresql":
        raise ValueError(f"database: expected SQLite or PostgreSQL, got a URL of {name!r}")
    return url.set(drivername="postgresql+psycopg") if url.drivername == name else url


def _file_of(path: str) -> tuple[int, int] | None:
    """Return which file a path names, None where it names none."""
    with suppress(FileNotFoundError):
        told = os.stat(path)
        return told.st_dev, told.st_ino
    return None


def _check_file(path: Path, *, create: bool) -> None:
    if not path.exists():
        if not create:
            raise ValueError(f"database: no such file: {path}")
        if not path.parent.is_dir():
            raise ValueError(f"database: no such folder: {path.parent}")
        if not os.access(path.parent, os.W_OK):
            raise ValueError(f"database: cannot write in {path.parent}")
        # SQLite gives its log the permissions of the database
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    elif not path.is_file():
        raise ValueError(f"database: expected a file, got {path}")
    elif not os.access(path, os.W_OK):
        raise ValueError(f"database: {path} is read-only")
    else:
        for held in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            keep_private(held)


def _engine(url: sa.URL, label: str) -> sa.Engine:
    options: dict[str, Any] = {"poolclass": QueuePool, "pool_size": 8, "max_overflow": -1}
    if url.get_backend_name() == "sqlite":

        def connect() -> sqlite3.Connection:
            # one that is gone is not made again
            place = f"file:{quote(str(url.database))}?mode=rw"
            return sqlite3.connect(place, uri=True, check_same_thread=False, timeout=WAIT_SECONDS)

        engine = sa.create_engine("sqlite://", creator=connect, **options)
        sa.event.listen(engine, "connect", _on_connect)
        sa.event.listen(engine, "begin", _on_begin)
        return engine
    try:
        return sa.create_engine(
            url,
            pool_pre_ping=True,
            connect_args={"connect_timeout": CONNECT_SECONDS},
            **options,
        )
    except ModuleNotFoundError:
        raise ValueError(
            f"database: {label} needs the driver psycopg: {install_with('postgres')}"
        ) from None


def _on_connect(connection: Any, record: Any) -> None:
    del record
    # the driver's own BEGIN is deferred; ours is sent by _on_begin
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {1000 * WAIT_SECONDS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    # a commit is on the disk when it returns
    cursor.execute("PRAGMA synchronous = FULL")
    # what a withdrawal removes is overwritten
    cursor.execute("PRAGMA secure_delete = ON")
    cursor.close()


def _on_begin(connection: sa.Connection) -> None:
    read_only = connection.get_execution_options().get(READ_ONLY)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _reason(error: DBAPIError) -> str:
    text = str(error.orig).strip().split("\n")[0]
    return next((sentence for sign, sentence in KNOWN.items() if sign in text), text)
