"""What was read of a store, whatever its kind."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.stores.audit.faiss_bits import IndexBits
from tacit.stores.backends.base import Backend, ChangedError, State
from tacit.stores.header import StoreHeader

Rows = npt.NDArray[np.float32]
# tables of a sealed store in a database
SEALED = ("tacit_documents", "tacit_store")
# How often a byte of a database may be read: a table of words to search for has what another has.
MOST_TIMES = 4
# Bytes that a text of SQLite may have though the file is small, as what its schema is put into.
LEAST_LENGTH = 1 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenedStore:
    """What was read of a store.

    Attributes:
        kind: which, in words.
        vectors: (n, d) live rows; None where they are not read.
        clear: columns that hold anything beside vectors.
        index: what an index of FAISS keeps; None for another store.
        bits: of a row that a certificate beside the rows allows; None where there is none.
        sealed: header of a sealed store; None for another.
        rows: how many there are; None where that is not read.
        most: rows of the value of the column asked for that has most; None where none was.
        clean: what removes left-overs of such a store.
        standing: how live vectors stand there, in words.
        instead: what to do about live vectors.
        parts: of a folder, what was read of each of its files, by name.
    """

    kind: str
    vectors: Rows | None = None
    clear: tuple[str, ...] = ()
    index: IndexBits | None = None
    bits: float | None = None
    sealed: StoreHeader | None = None
    rows: int | None = None
    most: int | None = None
    clean: str = "write the store again in another folder, and remove this one"
    standing: str = "as numbers, exact unless they are decoded codes"
    instead: str = (
        "if they are decoded codes, run tacit audit store PATH --codebook BOOK; else run tacit "
        "hidden encode, and store the codes in their place"
    )
    parts: Mapping[str, OpenedStore] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StoredColumns:
    """Columns as they are read: vectors, names of others, and how often whose rows there are."""

    vectors: list[Rows] = field(default_factory=list)
    clear: list[str] = field(default_factory=list)
    counts: Counter[Any] = field(default_factory=Counter)


def told(found: StoredColumns, kind: str, clean: str, by: str | None) -> OpenedStore:
    """Return the store that columns are of; vectors of several widths are not read."""
    if by is not None and not found.counts:
        raise ValueError(f"--person: expected a column of the store, got {by!r}, which it has not")
    widths = {rows.shape[1] for rows in found.vectors}
    vectors: Sequence[Rows] = found.vectors if len(widths) == 1 else []
    return OpenedStore(
        kind=kind,
        vectors=np.concatenate(vectors) if vectors else None,
        clear=tuple(found.clear),
        rows=sum(map(len, vectors)) if vectors else None,
        most=max(found.counts.values()) if found.counts else None,
        clean=clean,
    )


def sealed_store(backend: Backend, kind: str, beside: StoredColumns | None = None) -> OpenedStore:
    """Return what the header of a sealed store says, and how many rows it has.

    Args:
        backend: where it is.
        kind: in words.
        beside: columns of other tables in the same place, which are not sealed.
    """
    state = backend.state()
    assert isinstance(state, State)
    header = StoreHeader.read(state.header)
    try:
        rows = len(backend.columns(header.sizes))
    except ChangedError as error:
        # nothing is written while it is looked at: a part of it is missing
        raise ValueError(
            str(error) or "store: it holds another number of rows than it says"
        ) from None
    backend.close()
    clean = "tacit.stores.SealedStore(…).compact()"
    others = told(beside or StoredColumns(), kind, clean, None)
    mixed = beside is not None and bool(beside.vectors) and others.vectors is None
    clear = (*others.clear, *(["vectors of several lengths"] if mixed else []))
    return replace(others, sealed=header, rows=rows, clear=clear)


class StoredTables:
    """Tables of a database of SQLite, of which nothing is changed, as they stand in its file.

    What a view or a column computes stands nowhere, and pages that are named twice are no two.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        # immutable: no journal or lock is made beside what is looked at
        place = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(place, uri=True)
        # a table of words may be of a view, which may be without an end
        self._connection.set_authorizer(_of_no_view)
        length = max(MOST_TIMES * path.stat().st_size, LEAST_LENGTH)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
        # a cell of other bytes is one
        self._connection.text_factory = lambda cell: cell.decode("utf-8", "replace")
        self._left = MOST_TIMES * path.stat().st_size
        asked = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        self.names = [row[0] for row in self._connection.execute(asked)]

    def read(self, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the columns of one of ``names``, and its rows.

        Raises:
            sqlite3.OperationalError: a virtual table that is of a view, or of what is not here.
            sqlite3.DatabaseError: it is none, or there are more of them than the file holds.
        """
        if table not in self.names:
            raise sqlite3.DatabaseError("no such table")
        asked = "SELECT name, hidden FROM pragma_table_xinfo(?)"
        about = self._connection.execute(asked, (table,))
        # what is computed is hidden, as is what a virtual table has beside its columns
        columns = [name for name, hidden in about if not hidden]
        listed, rows = ", ".join(map(_quoted, columns)), []
        if not columns:
            return [], []
        for row in self._rows(f"SELECT {listed} FROM {_quoted(table)}"):
            self._left -= 1 + sum(len(one) for one in row if isinstance(one, bytes | str))
            if self._left < 0:
                raise sqlite3.DatabaseError("more rows than its file holds")
            rows.append(row)
        return columns, rows

    def _rows(self, asked: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(asked)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
                raise sqlite3.OperationalError("a table of a view") from None
            raise


def _of_no_view(*asked: Any) -> int:
    """Allow what is asked for directly; last stands the view that it is asked for by."""
    return sqlite3.SQLITE_OK if asked[-1] is None else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
