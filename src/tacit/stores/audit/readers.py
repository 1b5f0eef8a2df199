"""Stores as they lie on a disk: which kind, how many rows, live vectors, what is in the clear."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from tacit._ground.lazy import install_with
from tacit.guarantees import MaximalLeakage
from tacit.releases.loading import load_rows
from tacit.releases.stores import check_rows, open_store
from tacit.releases.vectors import SUFFIXES, open_vectors
from tacit.stores.audit.faiss_bits import index_bits
from tacit.stores.audit.opened import (
    SEALED,
    OpenedStore,
    Rows,
    StoredColumns,
    read_only,
    sealed_store,
    told,
)

MAGIC = b"SQLite format 3\0"
CHROMA = "chroma.sqlite3"
UNKNOWN = "a file of an unknown kind"


def read_store(path: Path, width: int | None = None, by: str | None = None) -> OpenedStore:
    """Open what is at a path, for reading alone.

    Args:
        path: a file or a folder.
        width: d, where a codebook or vectors say it: bytes of 4 d are vectors.
        by: column that says whom a row is about.

    Raises:
        ValueError: it cannot be read.
    """
    if not path.exists():
        raise ValueError(f"PATH: no such file or folder: {path}")
    if path.is_dir():
        if (path / "store.json").is_file():
            from tacit.stores.backends.folder import FolderBackend

            return sealed_store(FolderBackend(path), "a sealed folder")
        if (path / "collection").is_dir() and (path / "meta.json").is_file():
            from tacit.stores.audit.qdrant import read_qdrant

            return read_qdrant(path, by)
        if (path / "PG_VERSION").is_file():
            from tacit.stores.audit.postgresql import CLUSTER

            return CLUSTER
        if (path / CHROMA).is_file():
            return _chroma(path, width, by)
        if list(path.glob("*.lance")):
            return _lance(path, by)
        if any(one.suffix in SUFFIXES for one in path.iterdir()):
            return OpenedStore(kind="a folder of files of vectors, each of which is audited alone")
        return OpenedStore(kind="a folder of an unknown kind")
    with path.open("rb") as stream:
        first = stream.read(16)
    if first == MAGIC:
        return _sqlite(path, width, by)
    if first[:2] == b"Ix" or first[:2] in (b"Iw", b"IH", b"IB"):
        return _faiss(path)
    if path.suffix in SUFFIXES:
        return _rows_alone(path)
    return OpenedStore(kind=UNKNOWN)


def _rows_alone(path: Path) -> OpenedStore:
    """Read a file of rows: codes with their certificate, or vectors as they are."""
    try:
        # decoded rows are refused: whether they are those of a codebook is for --codebook to say
        release = load_rows(path)
    except ValueError:
        release = None
    if release is None:
        try:
            blocks = [np.asarray(one, np.float32) for one in open_vectors("PATH", path).blocks()]
        except ValueError:
            # whole numbers, several columns, or damaged: vectors are looked for in its bytes
            return OpenedStore(kind=UNKNOWN)
        rows = np.concatenate(blocks)
        return OpenedStore(kind="a file of vectors", vectors=rows, rows=len(rows))
    check_rows(release, path)
    held = [one.factor for one in release.guarantees if isinstance(one, MaximalLeakage)]
    return OpenedStore(
        kind="codes with their certificate",
        rows=open_store(path).rows.count,
        bits=math.log2(min(held)) if held else None,
    )


def _faiss(path: Path) -> OpenedStore:
    try:
        import faiss
    except ImportError:
        raise ValueError(f"PATH: an index of FAISS needs faiss: {install_with('llm')}") from None
    try:
        index = faiss.read_index(str(path))
    except RuntimeError:
        raise ValueError(f"PATH: {path} is cut off or no index of FAISS") from None
    return OpenedStore(
        kind=f"an index of FAISS ({type(index).__name__})",
        vectors=_given_back(index),
        index=index_bits(index),
        rows=int(index.ntotal),
        clean="faiss.write_index(tacit.hidden_states.faiss_index(codec, codes), path)",
    )


def _given_back(index: Any) -> Rows | None:
    """Return the vectors that an index of FAISS gives back; None where its class gives none.

    Where ``reconstruct`` raises, ``reconstruct_n`` ends the process: one vector is tried first.
    """
    import faiss

    # names of one's own stand over an index whose places are 0 … n − 1
    while isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
        index = faiss.downcast_index(index.index)
    try:
        # lists have no places without a map, and give all of them back at once
        if index.ntotal and not isinstance(index, faiss.IndexIVF):
            index.reconstruct(0)
        return np.asarray(index.reconstruct_n(0, index.ntotal), np.float32)
    except RuntimeError:
        return None


def _sqlite(path: Path, width: int | None, by: str | None) -> OpenedStore:
    try:
        with read_only(path) as connection:
            names = _tables(connection)
            found = StoredColumns()
            for name in names:
                if name not in SEALED:
                    _read_table(connection, name, width, by, found)
        if "tacit_documents" in names:
            from tacit.stores.backends.database import DatabaseBackend

            return sealed_store(DatabaseBackend(path), "a sealed database of SQLite", found)
    except sqlite3.DatabaseError:
        raise ValueError(f"PATH: {path} is not a database of SQLite, or is damaged") from None
    return told(found, "a database of SQLite", f'sqlite3 "{path}" VACUUM', by)


def _chroma(path: Path, width: int | None, by: str | None) -> OpenedStore:
    # what was added or deleted stands in a queue of operations until it is purged
    found = StoredColumns()
    try:
        with read_only(path / CHROMA) as connection:
            for name in _tables(connection):
                _read_table(connection, name, width, by, found)
    except sqlite3.DatabaseError:
        raise ValueError(f"PATH: {path / CHROMA} is not a database of SQLite") from None
    return told(found, "a store of Chroma", f'chroma vacuum --path "{path}"', by)


def _tables(connection: sqlite3.Connection) -> list[str]:
    asked = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    return [row[0] for row in connection.execute(asked)]


def _read_table(
    connection: sqlite3.Connection,
    name: str,
    width: int | None,
    by: str | None,
    found: StoredColumns,
) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    try:
        cursor = connection.execute(f"SELECT * FROM {quoted}")
    except sqlite3.OperationalError:
        # a virtual table of an extension that is not here
        return
    columns = [about[0] for about in cursor.description]
    rows = cursor.fetchall()
    for place, column in enumerate(columns):
        held = [row[place] for row in rows if row[place] is not None]
        if width and held and all(isinstance(one, bytes) and len(one) == 4 * width for one in held):
            found.vectors.append(np.frombuffer(b"".join(held), "<f4").reshape(-1, width))
        elif held:
            found.clear.append(f"{name}.{column}")
        if column == by:
            found.counts.update(held)


def _lance(path: Path, by: str | None) -> OpenedStore:
    try:
        import lancedb
    except ImportError:
        raise ValueError(f"PATH: a LanceDB needs lancedb: {install_with('lancedb')}") from None
    database, found = lancedb.connect(path), StoredColumns()
    for place in sorted(path.glob("*.lance")):
        if place.stem in SEALED:
            continue
        table: Any = database.open_table(place.stem).to_arrow()
        for name in table.schema.names:
            _read_column(f"{place.stem}.{name}", table[name], found)
            if name == by:
                found.counts.update(table[name].to_pylist())
    if (path / "tacit_documents.lance").is_dir():
        from tacit.stores.backends.lance import LanceBackend

        return sealed_store(LanceBackend(path), "a sealed table of LanceDB", found)
    clean = "table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)"
    return told(found, "a LanceDB", clean, by)


def _read_column(name: str, column: Any, found: StoredColumns) -> None:
    kind = str(column.type)
    if kind.startswith("fixed_size_list") and ("float" in kind or "double" in kind):
        rows = np.asarray(column.combine_chunks().flatten().to_numpy(), np.float32)
        found.vectors.append(rows.reshape(len(column), -1))
    else:
        found.clear.append(name)
