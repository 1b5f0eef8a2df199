"""Where the ledger is kept: connections, and one write at a time, whose turn it is by a lock."""

from __future__ import annotations

import os
import random
import secrets
import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tacit._ground.files import is_marked_read_only, link_new
from tacit.databases import (
    WAIT_SECONDS,
    label_of,
    open_engine,
    parse_location,
    reason,
    transaction_options,
)
from tacit.ledger.chain import check_head, initial_rows
from tacit.ledger.migration import OLD_SCHEMA, migrate
from tacit.ledger.tables import SCHEMA, meta_table, metadata

try:
    import fcntl
except ImportError:  # a system without it has SQLite's own wait alone
    fcntl = None  # type: ignore[assignment]

PAUSE_SECONDS = 0.01
MAKING_LOCK = 7166963201


@contextmanager
def turn(folder: Path, seconds: float) -> Iterator[None]:
    """Hold a folder's advisory lock while writing, so that no two wait on SQLite's.

    SQLite waits by sleeping up to 0.1 s between attempts, and a process that writes often takes its
    lock again within that time: 64 such processes starve each other. Nothing rests on this lock:
    where it cannot be had, SQLite's is waited for as ever. The kernel frees it when a process dies.
    """
    descriptor = _opened(folder)
    if descriptor is None:
        yield
        return
    try:
        _wait(descriptor, seconds)
        yield
    finally:
        # said aloud, because a child forked meanwhile would hold it by its copy of the descriptor
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _opened(folder: Path) -> int | None:
    if fcntl is None:
        return None
    try:
        return os.open(folder, os.O_RDONLY)
    except OSError:
        return None


def _wait(descriptor: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            # when to try again is no secret; the pause differs so that no one is always late
            time.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))
        except OSError:
            return


class MissingLedgerError(ValueError):
    """There is no ledger yet, and none was to be made."""


class LedgerStore:
    """One database: SQLite in WAL mode from a path or URL, PostgreSQL from a URL."""

    def __init__(
        self, location: str | os.PathLike[str], *, create: bool = True, check: bool = True
    ) -> None:
        self.url = parse_location("ledger", location)
        self.label = label_of(self.url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._identity: tuple[int, int] | None = None
        if self.is_sqlite:
            path = Path(self.label)
            if not check_sqlite_file(path, create=create):
                _make_sqlite(path)
            self._identity = _identity(path)
        self._engine = open_engine("ledger", self.url)
        self._process, self._checking = os.getpid(), check
        weakref.finalize(self, self._engine.dispose)
        self._open(create)

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[sa.Connection]:
        """Open one transaction: BEGIN IMMEDIATE on SQLite to write, so that writers queue.

        What only reads sees one moment of the database, whatever is written meanwhile.
        """
        self._check_in_place()
        queued = write and self.is_sqlite
        line = turn(Path(self.label).parent, WAIT_SECONDS) if queued else nullcontext()
        try:
            with line, self._engine.connect() as connection:
                opened = connection.execution_options(**transaction_options(self.url, write=write))
                with opened.begin():
                    yield opened
        except (DBAPIError, sqlite3.Error) as error:
            # SQLite's driver speaks for itself where a verification reads its rows
            raise ValueError(f"ledger: {self.label}: {reason(error)}") from None
        except SQLAlchemyError as error:
            raise ValueError(f"ledger: {self.label}: {error}") from None
        except UnicodeError as error:
            raise ValueError(f"ledger: expected text that can be stored ({error})") from None

    def _check_in_place(self) -> None:
        """Refuse a file that was removed or replaced: what is written there would be lost."""
        if self._process != os.getpid():
            # connections do not survive a fork; those of the parent are left to it
            self._engine.dispose(close=False)
            self._process = os.getpid()
        if self.is_sqlite and _identity(Path(self.label)) != self._identity:
            raise ValueError(f"ledger: {self.label} was removed or replaced since it was opened")

    def _open(self, create: bool) -> None:
        if not self._is_ready(create):
            with self.transaction() as connection:
                if not self.is_sqlite:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MAKING_LOCK})")
                # another process may have made or migrated it meanwhile
                found = _schema(connection)
                if found is None:
                    _make_tables(connection)
                elif found == OLD_SCHEMA:
                    migrate(connection, self.label)
            self._is_ready(create)

    def _is_ready(self, create: bool) -> bool:
        """Whether there is a ledger of this schema, whole; refuse what can become none."""
        with self.transaction(write=False) as connection:
            found = _schema(connection)
            if found == SCHEMA:
                self._check(connection)
                return True
            if found is None and _tables(connection) & set(metadata.tables):
                raise ValueError(f"ledger: {self.label} contradicts itself: tables are missing")
            if found is None and self.is_sqlite:
                empty = not _tables(connection)
                what = "holds no tables" if empty else "is the database of another program"
                raise ValueError(f"ledger: {self.label} {what}")
            if found is None and not create:
                raise MissingLedgerError(f"ledger: {self.label} holds no ledger")
            if found not in (None, OLD_SCHEMA):
                raise ValueError(
                    f"ledger: {self.label} has schema {found!r}; this version reads schema "
                    f"{SCHEMA!r}"
                )
        return False

    def _check(self, connection: sa.Connection) -> None:
        missing = set(metadata.tables) - _tables(connection)
        if missing:
            listed = ", ".join(sorted(missing))
            raise ValueError(f"ledger: {self.label} contradicts itself: it lacks {listed}")
        if self._checking:
            check_head(connection)


def check_sqlite_file(path: Path, *, create: bool) -> bool:
    """Return whether the file is there; refuse one that is not a ledger that can be written.

    A file is missing legitimately only where none was: beside its journal, it was removed.
    """
    journal = path.with_name(path.name + "-wal")
    orphaned = journal.exists() and journal.stat().st_size > 0
    if not path.exists():
        if not create:
            raise MissingLedgerError(f"ledger: no such file: {path}")
        if not path.parent.is_dir():
            raise ValueError(f"ledger: no such folder: {path.parent}")
        if orphaned:
            raise ValueError(f"ledger: {path} is missing, but its journal {journal} is there")
        return False
    if not path.is_file():
        raise ValueError(f"ledger: expected a file, got {path}")
    # its bytes are left to SQLite: closing a file of our own would free the locks it holds there
    if not path.stat().st_size:
        raise ValueError(
            f"ledger: {path} is empty (0 bytes), and no ledger ever is: restore it from a copy, "
            "or remove it to begin another"
        )
    if is_marked_read_only(path) or not os.access(path, os.W_OK):
        raise ValueError(f"ledger: {path} is read-only")
    return True


def _make_sqlite(path: Path) -> None:
    """Make a whole ledger beside ``path`` and link it there: no process ever sees half of one."""
    making = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            # it names secrets and holds what was released: nobody beside owner and group reads it
            os.close(os.open(making, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o660))
        except OSError as error:
            raise ValueError(f"ledger: cannot make {path} ({error.strerror})") from None
        # WAL mode stays with the file; a file that is already there keeps the mode it has
        with closing(sqlite3.connect(making)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        engine = open_engine("ledger", sa.URL.create("sqlite", database=str(making)))
        try:
            with engine.begin() as begun:
                _make_tables(begun)
        finally:
            engine.dispose()
        link_new("ledger", making, path)
    except (DBAPIError, sqlite3.Error) as error:
        raise ValueError(f"ledger: {path}: {reason(error)}") from None
    finally:
        for extra in ("", "-wal", "-shm"):
            making.with_name(making.name + extra).unlink(missing_ok=True)


def _make_tables(connection: sa.Connection) -> None:
    metadata.create_all(connection)
    connection.execute(meta_table.insert(), initial_rows())


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size else None


def _tables(connection: sa.Connection) -> set[str]:
    return set(sa.inspect(connection).get_table_names())


def _schema(connection: sa.Connection) -> str | None:
    """Return the schema, None where there is no ledger, "" where it does not say."""
    if meta_table.name not in _tables(connection):
        return None
    query = sa.select(meta_table.c.value).where(meta_table.c.key == "schema")
    return str(connection.execute(query).scalar_one_or_none() or "")
