"""SQLite and PostgreSQL: a table of documents and a table of one header."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, InterfaceError, OperationalError

from tacit._ground.files import check_writable
from tacit.databases import (
    label_of,
    open_engine,
    parse_location,
    reason,
    transaction_options,
)
from tacit.stores.backends.base import (
    Backend,
    ChangedError,
    ClearColumns,
    Records,
    State,
    columns_of,
)

# values of one statement: SQLite takes 32,766, older ones 999
TOGETHER = 900
METADATA = sa.MetaData()
HEADS = sa.Table(
    "tacit_store",
    METADATA,
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("header", sa.Text, nullable=False),
    sa.Column("counts", sa.LargeBinary, nullable=False),
)
ROWS = sa.Table(
    "tacit_documents",
    METADATA,
    # rows stand in the order of their handles, which is none
    sa.Column("handle", sa.LargeBinary(16), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("code", sa.LargeBinary, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
# what is deleted is overwritten with zeros
PRAGMAS = ("secure_delete = ON",)
FAULTS = (OperationalError, DatabaseError, InterfaceError)


class DatabaseBackend(Backend):
    """A SQLite file or a PostgreSQL database.

    Args:
        location: a path, a ``sqlite:///`` URL or a ``postgresql://`` URL.

    Raises:
        ValueError: none of them, or the driver is not installed.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self._url = parse_location("location", location)
        self._sqlite = self._url.get_backend_name() == "sqlite"
        self._engine: sa.Engine | None = None
        self._active: sa.Connection | None = None
        self._handles: list[bytes] = []

    words: ClassVar[str] = "a table of SQLite or PostgreSQL"
    left: ClassVar[str] = (
        "SQLite: nothing after compact; PostgreSQL: sealed bytes in its write-ahead log, archives "
        "and backups"
    )

    def __repr__(self) -> str:
        return f"DatabaseBackend({label_of(self._url)!r})"

    def state(self) -> State | None:
        if not self._there():
            return None
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(HEADS.name):
                return None
            row = connection.execute(sa.select(HEADS.c.header, HEADS.c.counts)).one_or_none()
        return None if row is None else State(row.header, bytes(row.counts))

    def token(self) -> object:
        if not self._there():
            return None
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(HEADS.name):
                return None
            return connection.execute(sa.select(HEADS.c.header)).scalar_one_or_none()

    def columns(self, sizes: tuple[int, ...]) -> ClearColumns:
        asked = sa.select(ROWS.c.handle, ROWS.c.version, ROWS.c.code)
        with self._reading() as connection:
            rows = connection.execute(asked).all()
        handles, versions, codes = zip(*rows, strict=True) if rows else ((), (), ())
        found = columns_of(
            [bytes(one) for one in handles], versions, [bytes(one) for one in codes], sizes
        ).ordered()[0]
        self._handles = found.names()
        return found

    def fetch(self, positions: npt.NDArray[np.intp]) -> list[bytes]:
        wanted = [self._handles[place] for place in positions.tolist()]
        found: dict[bytes, bytes] = {}
        with self._reading() as connection:
            for start in range(0, len(wanted), TOGETHER):
                some = wanted[start : start + TOGETHER]
                asked = sa.select(ROWS.c.handle, ROWS.c.sealed).where(ROWS.c.handle.in_(some))
                found.update(
                    (bytes(row.handle), bytes(row.sealed)) for row in connection.execute(asked)
                )
        if len(found) < len(wanted):
            raise ChangedError("store: a document that was found is gone")
        return [found[name] for name in wanted]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """As ``Backend.writing``: one transaction, in which SQLite lets nobody else write."""
        self._make()
        with self._faults(), self._opened().connect() as connection:
            chosen = connection.execution_options(**transaction_options(self._url, write=True))
            with chosen.begin():
                if not self._sqlite:
                    # writers wait here for the one before; readers do not
                    chosen.execute(sa.text(f"LOCK TABLE {HEADS.name} IN SHARE ROW EXCLUSIVE MODE"))
                self._active = chosen
                try:
                    yield
                finally:
                    self._active = None

    def write(self, state: State, put: Records | None, remove: npt.NDArray[np.intp]) -> None:
        connection = self._within()
        self._head(connection, state)
        gone = [self._handles[place] for place in remove.tolist()]
        for start in range(0, len(gone), TOGETHER):
            some = gone[start : start + TOGETHER]
            connection.execute(sa.delete(ROWS).where(ROWS.c.handle.in_(some)))
        if put is not None:
            self._insert(connection, put)

    def overwrite(self, state: State, records: Iterable[Records]) -> None:
        """As ``Backend.overwrite``: the old documents go when all the new ones are there."""
        connection = self._within()
        old = list(self._handles)
        for record in records:
            self._insert(connection, record)
        for start in range(0, len(old), TOGETHER):
            some = old[start : start + TOGETHER]
            connection.execute(sa.delete(ROWS).where(ROWS.c.handle.in_(some)))
        self._head(connection, state)

    def compact(self) -> None:
        """As ``Backend.compact``: ``VACUUM`` of SQLite, ``VACUUM FULL`` of PostgreSQL."""
        command = "VACUUM" if self._sqlite else f"VACUUM FULL {ROWS.name}, {HEADS.name}"
        with self._faults():
            # outside of a transaction, in which neither does it
            connection = self._opened().raw_connection()
            try:
                driver: Any = connection.driver_connection
                if not self._sqlite:
                    driver.autocommit = True
                driver.execute(command)
                if not self._sqlite:
                    driver.autocommit = False
            finally:
                connection.close()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _there(self) -> bool:
        """Whether there is a database; a file of SQLite that is not there is not made."""
        return not self._sqlite or Path(str(self._url.database)).is_file()

    def _make(self) -> None:
        if not self._there():
            place = check_writable("location", str(self._url.database))
            os.close(os.open(place, os.O_CREAT | os.O_RDWR, 0o600))
        with self._faults(), self._opened().begin() as connection:
            METADATA.create_all(connection)

    def _opened(self) -> sa.Engine:
        if self._engine is None:
            pragmas = PRAGMAS if self._sqlite else ()
            self._engine = open_engine("location", self._url, pragmas=pragmas)
        return self._engine

    def _within(self) -> sa.Connection:
        assert self._active is not None
        return self._active

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        if self._active is not None:
            yield self._active
            return
        with self._faults(), self._opened().connect() as connection:
            chosen = connection.execution_options(**transaction_options(self._url, write=False))
            with chosen.begin():
                yield chosen

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except FAULTS as error:
            raise ValueError(f"store: {label_of(self._url)}: {reason(error)}") from None

    def _head(self, connection: sa.Connection, state: State) -> None:
        connection.execute(sa.delete(HEADS))
        values = {"place": 0, "header": state.header, "counts": state.counts}
        connection.execute(sa.insert(HEADS), values)

    def _insert(self, connection: sa.Connection, put: Records) -> None:
        columns, order = put.columns.ordered()
        columned = zip(
            columns.names(),
            columns.versions.tolist(),
            [code.tobytes() for code in columns.codes],
            [put.sealed[place] for place in order.tolist()],
            strict=True,
        )
        names = ("handle", "version", "code", "sealed")
        values = [dict(zip(names, row, strict=True)) for row in columned]
        if values:
            connection.execute(sa.insert(ROWS), values)
