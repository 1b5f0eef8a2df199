"""Where a dock's records are: SQLite in WAL mode by a path, PostgreSQL by a URL."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tacit.databases import label_of, open_engine, parse_location, reason, transaction_options
from tacit_dock.errors import UnavailableError
from tacit_dock.private import keep_private
from tacit_dock.reserve import FullError, is_full
from tacit_dock.tables import ADDED, MOVED, SCHEMA, meta_table, metadata, revision_table, word_table

# the key of the lock under which PostgreSQL makes the tables of a dock
MAKING_LOCK = 7166963202
CHANGE = "change"
NEWEST = f"SELECT value FROM {meta_table.name} WHERE key = '{CHANGE}'"
CONNECTIONS = 8
# what a withdrawal removes is overwritten
PRAGMAS = ("journal_mode = WAL", "secure_delete = ON")


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
        self.url = parse_location("database", location)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.label = label_of(self.url)
        self.is_new = self.is_sqlite and not os.path.exists(self.label)
        if self.is_sqlite:
            _check_file(Path(self.label), create=create)
        self._engine = open_engine("database", self.url, connections=CONNECTIONS, pragmas=PRAGMAS)
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
        with self._opened(write=False) as connection:
            yield connection

    def newest_change(self) -> int:
        """Return the number of the newest change; asked before every search, so of the driver.

        Raises:
            UnavailableError: the database does not answer.
        """
        try:
            with closing(self._engine.raw_connection()) as connection:
                cursor = connection.cursor()
                cursor.execute(NEWEST)
                found = cursor.fetchone()
        except SQLAlchemyError as error:
            raise UnavailableError(f"database: {self.label}: {error}") from error
        except self._engine.dialect.loaded_dbapi.Error as error:
            raise UnavailableError(f"database: {self.label}: {reason(error)}") from error
        if found is None:
            raise UnavailableError(f"database: {self.label}: its records were moved")
        return int(found[0])

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
        with line, self._opened(write=True) as connection:
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
        with self._opened(write=True) as connection:
            yield connection

    @contextmanager
    def _opened(self, *, write: bool) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                opened = connection.execution_options(**transaction_options(self.url, write=write))
                with opened.begin():
                    yield opened
        except DBAPIError as error:
            if is_full(error.orig):
                raise FullError from error
            raise UnavailableError(f"database: {self.label}: {reason(error)}") from error
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
