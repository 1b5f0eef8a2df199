"""A table of LanceDB: its versions are cleaned, so that what was deleted is gone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from tacit._ground.files import absolute, held
from tacit._ground.lazy import install_with
from tacit.stores.backends.base import (
    Backend,
    ChangedError,
    ClearColumns,
    Records,
    State,
    columns_of,
)
from tacit.stores.sealing import HANDLE_BYTES

TABLE = "tacit_documents"
# the row of the header, in one commit with the documents; no id has this handle but by a chance
# of 2⁻¹²⁸
HEAD = bytes(HANDLE_BYTES)
NAMES = ("handle", "version", "code", "sealed")


class LanceBackend(Backend):
    """A table of a local LanceDB; any client of LanceDB reads its columns.

    Old versions of the table are removed after every write, so that no reader may hold one open.

    Args:
        path: the folder of the database.

    Raises:
        ValueError: LanceDB is not installed.
    """

    words: ClassVar[str] = "a table of LanceDB"
    left: ClassVar[str] = "nothing after compact, which removes its old versions"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            import lancedb
        except ImportError:
            raise ValueError(f"lancedb: not installed; {install_with('lancedb')}") from None
        self.path = absolute("path", path)
        self._connect, self._table = lancedb.connect, cast(Any, None)
        self._places: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._handles: list[bytes] = []

    def __repr__(self) -> str:
        return f"LanceBackend({str(self.path)!r})"

    def state(self) -> State | None:
        table = self._opened()
        if table is None:
            return None
        found = table.search().where(_among([HEAD])).select(["code", "sealed"]).to_arrow()
        if found.num_rows != 1:
            raise ValueError(f"store: {self.path} holds no header")
        try:
            header = found["code"][0].as_py().decode()
        except UnicodeDecodeError:
            raise ValueError(f"store: {self.path} holds no header") from None
        return State(header, found["sealed"][0].as_py())

    def token(self) -> object:
        table = self._opened()
        return None if table is None else table.version

    def columns(self, sizes: tuple[int, ...]) -> ClearColumns:
        table = self._opened()
        assert table is not None
        asked = table.search().select(list(NAMES[:3])).with_row_id(True).limit(None)
        found = asked.to_arrow()
        rows = np.array([one != HEAD for one in found["handle"].to_pylist()])
        found = found.filter(rows)
        columns, order = columns_of(
            found["handle"].to_pylist(), found["version"].to_pylist(), found["code"].to_pylist(),
            sizes,
        ).ordered()  # fmt: skip
        self._places = found["_rowid"].to_numpy()[order]
        self._handles = columns.names()
        return columns

    def fetch(self, positions: npt.NDArray[np.intp]) -> list[bytes]:
        table = self._table
        assert table is not None
        wanted = self._places[positions].tolist()
        try:
            taken = table.take_row_ids(wanted).select(["handle", "sealed"]).to_arrow()
        except (RuntimeError, OSError, ValueError):
            raise ChangedError("store: a document that was found is gone") from None
        # handles say which is which, in whatever order rows come
        found = dict(zip(taken["handle"].to_pylist(), taken["sealed"].to_pylist(), strict=True))
        names = [self._handles[place] for place in positions.tolist()]
        if any(name not in found for name in names):
            raise ChangedError("store: a document that was found is gone")
        return [found[name] for name in names]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """As ``Backend.writing``: processes wait for each other by a file beside the table."""
        self.path.mkdir(parents=True, exist_ok=True)
        with held(self.path / TABLE):
            yield

    def write(self, state: State, put: Records | None, remove: npt.NDArray[np.intp]) -> None:
        """As ``Backend.write``: header, documents and removals are one commit."""
        new = set() if put is None else set(put.columns.names())
        # a document in the place of another of its handle is in the first commit
        gone = [self._handles[place] for place in remove.tolist()]
        gone = [handle for handle in gone if handle not in new]
        table = self._opened()
        if table is None:
            self.overwrite(state, [] if put is None else [put])
            return
        rows = self._rows(state, [] if put is None else [put])
        merged = table.merge_insert("handle").when_matched_update_all()
        merged = merged.when_not_matched_insert_all()
        if gone:
            merged = merged.when_not_matched_by_source_delete(_among(gone))
        merged.execute(rows)
        self._clean()

    def overwrite(self, state: State, records: Iterable[Records]) -> None:
        """As ``Backend.overwrite``: one new version of the table."""
        rows = self._rows(state, list(records))
        mode = "create" if self._opened() is None else "overwrite"
        self._table = self._connect(self.path).create_table(TABLE, rows, mode=mode)
        self._clean()

    def compact(self) -> None:
        self._opened()
        self._clean()

    def close(self) -> None:
        self._table = None

    def _opened(self) -> Any:
        if self._table is not None:
            self._table.checkout_latest()
            return self._table
        if not self.path.is_dir():
            return None
        try:
            self._table = self._connect(self.path).open_table(TABLE)
        except (ValueError, FileNotFoundError):
            return None
        return self._table

    def _clean(self) -> None:
        """Remove files of all versions but the last, and of writes that failed."""
        with warnings.catch_warnings():
            # it warns that readers of old versions fail, which is what is meant
            warnings.simplefilter("ignore")
            self._opened().optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
        self._table.checkout_latest()

    def _rows(self, state: State, records: list[Records]) -> Any:
        """Return the header and documents as an Arrow table, documents in order of handles."""
        import pyarrow as pa

        columns: tuple[list[Any], ...] = ([HEAD], [0], [state.header.encode()], [state.counts])
        for record in records:
            found, order = record.columns.ordered()
            columns[0].extend(found.names())
            columns[1].extend(found.versions.tolist())
            columns[2].extend(code.tobytes() for code in found.codes)
            columns[3].extend(record.sealed[place] for place in order.tolist())
        kinds = (pa.binary(), pa.int64(), pa.binary(), pa.binary())
        arrays = [pa.array(held, kind) for held, kind in zip(columns, kinds, strict=True)]
        return pa.table(arrays, names=list(NAMES))


def _among(handles: list[bytes]) -> str:
    return "handle IN (" + ", ".join(f"X'{one.hex()}'" for one in handles) + ")"
