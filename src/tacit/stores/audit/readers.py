"""Stores as they lie on a disk: which kind, how many rows, live vectors, what is in the clear."""

from __future__ import annotations

import math
import re
import sqlite3
import zlib
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tacit._ground.lazy import install_with
from tacit._ground.unpacking import ExpandedError, check_expanded
from tacit.guarantees import MaximalLeakage
from tacit.releases.loading import load_rows
from tacit.releases.stores import check_rows, open_store, side_file
from tacit.releases.vectors import SUFFIXES, open_vectors
from tacit.stores.audit.faiss_bits import index_bits
from tacit.stores.audit.opened import (
    SEALED,
    OpenedStore,
    Rows,
    StoredColumns,
    StoredTables,
    sealed_store,
    told,
)

MAGIC = b"SQLite format 3\0"
CHROMA = "chroma.sqlite3"
UNKNOWN = "a file of an unknown kind"
SQLITE, SEALED_SQLITE = "a database of SQLite", "a sealed database of SQLite"
CERTIFIED = "codes with their certificate"
WHOLE = "a file of whole numbers"
WHOLE_STANDING = "as whole numbers: quantised vectors, or codes without the certificate beside them"
WHOLE_INSTEAD = (
    "run tacit hidden encode on what they were made of, which writes a certificate beside the codes"
)
# files of rows that are read, whatever the order and the type of their numbers
READ = (*SUFFIXES, ".npz")
LOGS = ("-wal", "-shm", "-journal")
# Of a folder that is a store of a kind, the names of the store's own files below it.
SEALED_FILES = re.compile(
    r"\.?(store\.json|part-[0-9a-f]{32}\.safetensors|codes-[0-9a-f]{32}\.faiss)"
    r"(\.lock|\.[0-9a-f]{16}\.tmp)?"
)
CHROMA_FILES = re.compile(
    r"chroma\.sqlite3(-wal|-shm|-journal)?|[0-9a-f-]{36}/(index_metadata\.pickle|"
    r"(data_level0|header|length|link_lists)\.bin)"
)
QDRANT_FILES = re.compile(
    r"meta\.json|\.lock|collection/[^/]+/storage\.sqlite(-wal|-shm|-journal)?"
)
LANCE_FILES = re.compile(r"[^/]+\.lance/.*")
KINDS, ROW_AXES = "fiu", 2
# what reading a damaged, encrypted or otherwise compressed archive ends in
DAMAGED = (
    ValueError, OSError, EOFError, BadZipFile, TokenError, SyntaxError, RuntimeError,
    NotImplementedError, zlib.error,
)  # fmt: skip


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
        return _folder_of_a_kind(path, width, by)
    if is_sqlite(path):
        return _sqlite(path, width, by)
    with path.open("rb") as stream:
        first = stream.read(2)
    if first in (b"Ix", b"Iw", b"IH", b"IB"):
        return _faiss(path)
    if path.suffix.lower() in READ:
        return _rows_alone(path)
    return OpenedStore(kind=UNKNOWN)


def is_sqlite(path: Path) -> bool:
    """Whether a file is there that begins as a database of SQLite does."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _folder_of_a_kind(path: Path, width: int | None, by: str | None) -> OpenedStore:
    """Open a folder as the store that it is, and every file that stands beside the store's own."""
    if (path / "store.json").is_file():
        from tacit.stores.backends.folder import FolderBackend

        found = sealed_store(FolderBackend(path), "a sealed folder")
        return _with_others(found, path, width, SEALED_FILES)
    if (path / "collection").is_dir() and (path / "meta.json").is_file():
        from tacit.stores.audit.qdrant import read_qdrant

        return _with_others(read_qdrant(path, by), path, width, QDRANT_FILES)
    if (path / "PG_VERSION").is_file():
        from tacit.stores.audit.postgresql import CLUSTER

        return CLUSTER
    if (path / CHROMA).is_file():
        return _with_others(_chroma(path, width, by), path, width, CHROMA_FILES)
    if list(path.glob("*.lance")):
        return _with_others(_lance(path, by), path, width, LANCE_FILES)
    if by is not None:
        raise ValueError(f"--person: expected a store that has columns beside it, got {path}")
    parts, beside = _read_files(path, width)
    if not parts:
        return OpenedStore(kind="a folder of no kind of store that is known here")
    return OpenedStore(
        kind=f"a folder of {len(parts):,} files of vectors or stores",
        rows=sum(one.rows or 0 for one in parts.values()),
        clear=beside,
        parts=parts,
    )


def _with_others(
    found: OpenedStore, path: Path, width: int | None, own: re.Pattern[str]
) -> OpenedStore:
    """Return a store of a folder with what was read of the files there that are none of its own."""
    parts, beside = _read_files(path, width, own)
    whole = {"": found, **parts} if parts else {}
    return replace(found, parts=whole, clear=(*found.clear, *beside))


def _rows_alone(path: Path) -> OpenedStore:
    """Read a file of rows: codes with their certificate, or vectors as they are."""
    try:
        # decoded rows are refused: whether they are those of a codebook is for --codebook to say
        release = load_rows(path)
    except ValueError:
        release = None
    if release is None:
        try:
            rows, kind, beside = _numbers("PATH", path)
        except ValueError as error:
            # damaged, or no rows: vectors are looked for in its bytes
            why = str(error).removeprefix("PATH: ")
            return OpenedStore(kind=f"a file of no vectors ({why})")
        if kind == "f":
            return OpenedStore(kind="a file of vectors", vectors=rows, rows=len(rows), clear=beside)
        return OpenedStore(
            kind=WHOLE,
            vectors=rows,
            rows=len(rows),
            clear=beside,
            standing=WHOLE_STANDING,
            instead=WHOLE_INSTEAD,
        )
    check_rows(release, path)
    held = [one.factor for one in release.guarantees if isinstance(one, MaximalLeakage)]
    return OpenedStore(
        kind=CERTIFIED,
        rows=open_store(path).rows.count,
        bits=math.log2(min(held)) if held else None,
    )


def read_vectors(name: str, path: Path) -> Rows:
    """Return the rows of a file, or of all files of vectors in a folder, one below the other.

    Raises:
        ValueError: there are none, or of several widths.
    """
    if not path.exists():
        raise ValueError(f"{name}: no such file or folder: {path}")
    files = [path]
    if path.is_dir():
        files = [one for one in _files(path) if one.suffix.lower() in READ]
    rows = [_numbers(name, one)[0] for one in files]
    if not rows:
        raise ValueError(f"{name}: expected files ending in {', '.join(READ)}, got none in {path}")
    if len({one.shape[1] for one in rows}) > 1:
        widths = ", ".join(map(str, sorted({one.shape[1] for one in rows})))
        raise ValueError(f"{name}: expected vectors of one length, got {widths} in {path}")
    return np.concatenate(rows)


def _numbers(name: str, path: Path) -> tuple[Rows, str, tuple[str, ...]]:
    """Return the rows (n, d) of a file, the kind of number, ``"f"`` or whole, and other arrays."""
    if path.suffix.lower() not in READ:
        raise ValueError(f"{name}: expected a file ending in {', '.join(READ)}, got {path}")
    if path.suffix.lower() not in (".npy", ".npz"):
        blocks = list(open_vectors(name, path).blocks())
        return np.concatenate([np.asarray(one, np.float32) for one in blocks]), "f", ()
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            # what a head says, no reader of an archive goes beyond
            size = sum(one.file_size for one in loaded.zip.infolist())
            check_expanded(size, path.stat().st_size, f"{name}: {path}")
        found = {"": loaded} if isinstance(loaded, np.ndarray) else {**loaded}
    except ExpandedError:
        raise
    except (*DAMAGED, MemoryError):
        raise ValueError(f"{name}: {path} is damaged, or no file of NumPy") from None
    # an archive may hold other files, which are bytes
    beside = [f"file {key}" for key, one in found.items() if not isinstance(one, np.ndarray)]
    found = {key: one for key, one in found.items() if isinstance(one, np.ndarray)}
    # of one vector alone a row
    rows = {key: one[None] if one.ndim == 1 else one for key, one in found.items() if one.size}
    rows = {
        key: one for key, one in rows.items() if one.ndim == ROW_AXES and one.dtype.kind in KINDS
    }
    beside += [f"array {key}" for key, one in found.items() if one.size and key not in rows]
    held = list(rows.values())
    if len({one.shape[1] for one in held}) != 1:
        got = ", ".join(f"{one.dtype} {one.shape}" for one in found.values()) or "nothing"
        raise ValueError(f"{name}: expected numbers (n, d), a vector in a row, got {got} in {path}")
    kinds = {one.dtype.kind for one in held}
    joined = np.concatenate([one.astype(np.float32) for one in held])
    return joined, "f" if "f" in kinds else "u", tuple(beside)


def _files(folder: Path) -> list[Path]:
    """Return the files below a folder, in order."""
    return sorted(one for one in folder.rglob("*") if one.is_file())


def _read_files(
    path: Path, width: int | None, own: re.Pattern[str] | None = None
) -> tuple[dict[str, OpenedStore], tuple[str, ...]]:
    """Read every file below a folder as what it is, but for those of these names.

    Returns:
        Those that hold rows, by name, and in words what stands beside rows.
    """
    parts: dict[str, OpenedStore] = {}
    beside = [
        f"file {one.relative_to(path)}, a link to a folder, not followed"
        for one in sorted(path.rglob("*"))
        if one.is_symlink() and one.is_dir()
    ]
    certificates, logs = set[Path](), set[Path]()
    for one in _files(path):
        name = one.relative_to(path).as_posix()
        if (own is not None and own.fullmatch(name)) or one in certificates | logs:
            # of the store, or of the file beside it and looked at with it
            continue
        opened = read_store(one, width)
        if opened.kind == CERTIFIED and one.suffix.lower() == ".npy":
            certificates.add(side_file(one))
        elif opened.kind in (SQLITE, SEALED_SQLITE):
            logs |= {Path(f"{one}{end}") for end in LOGS}
        if opened.rows is not None:
            parts[name] = opened
        elif opened.kind == UNKNOWN:
            beside.append(f"file {name}")
        else:
            # a database of texts, a damaged file
            beside.extend(opened.clear or [f"file {name} ({opened.kind})"])
    columns = (f"{name}: {column}" for name, one in parts.items() for column in one.clear)
    return parts, (*columns, *beside)


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
        there, found = StoredTables(path), StoredColumns()
        for name in there.names:
            if name not in SEALED:
                _read_table(there, name, width, by, found)
        if "tacit_documents" in there.names:
            from tacit.stores.backends.database import DatabaseBackend

            return sealed_store(DatabaseBackend(path), SEALED_SQLITE, found)
    except sqlite3.DatabaseError:
        raise ValueError(f"PATH: {path} is not a database of SQLite, or is damaged") from None
    return told(found, SQLITE, f'sqlite3 "{path}" VACUUM', by)


def _chroma(path: Path, width: int | None, by: str | None) -> OpenedStore:
    # what was added or deleted stands in a queue of operations until it is purged
    found = StoredColumns()
    try:
        there = StoredTables(path / CHROMA)
        for name in there.names:
            _read_table(there, name, width, by, found)
    except sqlite3.DatabaseError:
        raise ValueError(f"PATH: {path / CHROMA} is not a database of SQLite") from None
    return told(found, "a store of Chroma", f'chroma vacuum --path "{path}"', by)


def _read_table(
    there: StoredTables, name: str, width: int | None, by: str | None, found: StoredColumns
) -> None:
    try:
        columns, rows = there.read(name)
    except sqlite3.OperationalError:
        # a virtual table of an extension that is not here
        return
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
