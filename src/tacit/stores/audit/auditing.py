"""What a thief of a store's files gets, in one verdict with what removes each fault."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit import codec as written
from tacit.documents import Envelope
from tacit.hidden_states import Codec, ResidualCodebook
from tacit.stores.audit.opened import OpenedStore
from tacit.stores.audit.readers import is_sqlite, read_store
from tacit.stores.audit.traces import Trace, find_vectors
from tacit.text import number_up

ENVELOPE = Envelope("tacit.store-audit", 1)
# sums that a search keeps, where the usual ones do not find a code again that is there
WIDEST_BEAM = 256
ROWS_TOGETHER = 8192
ASSUMED = (
    "the codebook or index that codes the vectors was fitted on other data than the store's",
    "the order of rows and the times of files tell nothing of a document",
)
ELSEWHERE = "the server's files, which are not to be read from here, hold nothing left over"
SERVERS = ("postgresql://", "postgresql+psycopg://", "postgres://")
BITS_DIGITS = 4
# Logs of SQLite by the end of their names, and what empties each.
CLEARED = {"-wal": "wal_checkpoint(TRUNCATE)", "-journal": "journal_mode = DELETE"}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that a thief gets beside codes.

    Attributes:
        what: it is, in a sentence.
        remedy: what removes it.
    """

    what: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class StoreAudit:
    """What the files of a store tell.

    Attributes:
        kind: of the store, in words.
        rows: live rows; None where they are not read.
        bits: at most so many are told of a document, rounded up; None where no bound holds.
        rows_per_person: rows about one person at most, as counted or declared; None if neither.
        on_codebook: live vectors that are those of a codebook to the bit; None where not known.
        traces: exact vectors that were found, by file.
        clear: columns in the clear beside vectors, which tell whatever they hold.
        assumptions: what must hold for the bits.
        faults: what is wrong, none if a thief has codes alone.
    """

    kind: str
    rows: int | None
    bits: float | None
    rows_per_person: int | None
    on_codebook: int | None
    traces: tuple[Trace, ...]
    clear: tuple[str, ...]
    assumptions: tuple[str, ...]
    faults: tuple[Fault, ...]

    @property
    def verdict(self) -> str:
        """What a thief gets, in a sentence."""
        if self.faults:
            return f"A thief gets more than codes: {self.faults[0].what}"
        if self.bits is None:
            if self.rows is None:
                return (
                    "What a thief learns is not known, as the rows of the store could not be read."
                )
            return "Nothing exact was found, and no bound on what a thief learns is known."
        told = f"A thief learns at most {number_up(self.bits, BITS_DIGITS)} bits of any document"
        if self.rows_per_person is not None and self.rows_per_person > 1:
            whole = number_up(self.bits * self.rows_per_person, BITS_DIGITS)
            told += f", {whole} of the person with most rows ({self.rows_per_person})"
        if not self.clear:
            return f"{told}."
        beside = "columns and files" if any("file " in one for one in self.clear) else "columns"
        return f"{told}, from its vectors; other {beside} tell what they hold ({len(self.clear)})."

    def to_dict(self) -> dict[str, Any]:
        """Return it as strict JSON holds it, its verdict first."""
        return ENVELOPE.closed({"verdict": self.verdict, **written.write(StoreAudit, self)})


def audit_store(
    path: str | os.PathLike[str],
    *,
    codec: Codec | None = None,
    vectors: npt.NDArray[np.float32] | None = None,
    by: str | None = None,
) -> StoreAudit:
    """Look at every byte of a store, live or left over, as a thief of its files would.

    Args:
        path: a file or folder: FAISS, SQLite, LanceDB, Chroma, Qdrant's client, a sealed store,
            a folder of such files and of vectors (.npy, .npz, .safetensors, .parquet), or anything
            else, in which vectors are looked for and nothing is read; or a URL of PostgreSQL,
            whose files are looked at where they lie here.
        codec: the codebook that live vectors are to be those of, to the last bit.
        vectors: (n, d), exact ones that should be nowhere.
        by: column that says whom a row is about.

    Returns:
        The audit, which finds faults or a bound.

    Raises:
        ValueError: it cannot be read, or codebook and vectors are of other widths.

    Example:
        >>> import tempfile
        >>> rows = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
        >>> place = tempfile.mkdtemp() + "/floats.bin"
        >>> _ = Path(place).write_bytes(b"log " + rows[2:].tobytes())
        >>> found = audit_store(place, vectors=rows)
        >>> found.traces[0].vectors, found.faults[0].what
        (3, 'exact vectors: 3 of 5 stand in floats.bin (float32)')
    """
    width = codec.width if codec is not None else None if vectors is None else vectors.shape[1]
    if vectors is not None and vectors.shape[1] != width:
        raise ValueError(
            f"--vectors: expected {width} columns, as the codebook has, got {vectors.shape[1]}"
        )
    place: Path | None
    if os.fspath(path).startswith(SERVERS):
        from tacit.stores.audit.postgresql import read_postgresql

        opened, place = read_postgresql(os.fspath(path), width, by)
    else:
        place = Path(path)
        opened = read_store(place, width, by)
    traces = () if vectors is None or place is None else find_vectors(place, vectors)
    count = 0 if vectors is None else len(vectors)
    faults = [
        Fault(
            what=f"exact vectors: {one.vectors:,} of {count:,} stand in {one.file} ({one.form})",
            remedy=opened.clean,
        )
        for one in traces
    ]
    whole = [
        _AuditedPart.of(name, one, codec) for name, one in (opened.parts or {"": opened}).items()
    ]
    faults += [fault for one in whole for fault in one.faults(codec)]
    if place is not None and opened.rows is not None and (opened.parts or opened.sealed is None):
        faults += _log_faults(place)
    most = opened.most
    told, coded = [one.bits(codec) for one in whole], [one.coded for one in whole]
    # files may be about one document: what they tell of it adds up
    bits = None if None in told else sum(one or 0.0 for one in told)
    if opened.sealed is not None:
        most = opened.sealed.settings.rows_per_person
    return StoreAudit(
        kind=opened.kind,
        rows=opened.rows,
        bits=bits,
        rows_per_person=most,
        on_codebook=None if None in coded else sum(one or 0 for one in coded),
        traces=traces,
        clear=opened.clear,
        assumptions=(() if bits is None else ASSUMED) + ((ELSEWHERE,) if place is None else ()),
        faults=tuple(faults),
    )


@dataclass(frozen=True, eq=False)
class _AuditedPart:
    """One file of a folder, or the store itself, and how many of its rows are a codebook's."""

    name: str
    opened: OpenedStore
    coded: int | None

    @staticmethod
    def of(name: str, opened: OpenedStore, codec: Codec | None) -> _AuditedPart:
        coded = None
        if codec is not None and opened.vectors is not None:
            coded = on_codebook(codec, opened.vectors)
        return _AuditedPart(name, opened, coded)

    def faults(self, codec: Codec | None) -> list[Fault]:
        found = _live_faults(self.opened, codec, self.coded)
        if not self.name:
            return found
        return [replace(one, what=f"{self.name}: {one.what}") for one in found]

    def bits(self, codec: Codec | None) -> float | None:
        return _bits(self.opened, codec, self.coded)


def on_codebook(codec: Codec, rows: npt.NDArray[np.float32]) -> int:
    """Return how many rows are vectors of the codebook, to the last bit.

    Raises:
        ValueError: rows of another width.
    """
    if rows.shape[1] != codec.width:
        raise ValueError(
            f"--codebook: it is of {codec.width} numbers, the store of {rows.shape[1]}"
        )
    found = 0
    for start in range(0, len(rows), ROWS_TOGETHER):
        part = rows[start : start + ROWS_TOGETHER]
        same = _same(codec, part)
        if isinstance(codec, ResidualCodebook) and not same.all():
            # a search that keeps few sums may miss the one that a row is
            same[~same] = _same(replace(codec, beam=WIDEST_BEAM), part[~same])
        found += int(same.sum())
    return found


def _same(codec: Codec, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    if not len(rows):
        return np.zeros(0, bool)
    finite = np.asarray(np.isfinite(rows).all(axis=1), bool)
    decoded = codec.decode(codec.encode(np.where(finite[:, None], rows, 0.0))).numpy()
    # the bits of every number, as −0 equals 0 and is another number
    held = np.ascontiguousarray(rows).view(np.uint32)
    equal = np.asarray((decoded.view(np.uint32) == held).all(axis=1), bool)
    found: npt.NDArray[np.bool_] = np.logical_and(equal, finite)
    return found


def _live_faults(opened: OpenedStore, codec: Codec | None, coded: int | None) -> list[Fault]:
    found, rows = [], opened.vectors
    if coded is not None and rows is not None and coded < len(rows):
        found.append(
            Fault(
                what=(
                    f"live vectors: {len(rows) - coded:,} of {len(rows):,} are none of the codebook"
                ),
                remedy="run tacit hidden encode and decode, and make a new store of what decode "
                "writes",
            )
        )
    elif opened.index is not None and opened.index.exact and coded is None:
        found.append(Fault(what="live vectors: the index keeps them exact", remedy=opened.clean))
    elif rows is not None and codec is None and opened.index is None:
        found.append(
            Fault(
                what=f"live vectors: {len(rows):,} stand there {opened.standing}",
                remedy=opened.instead,
            )
        )
    if opened.index is not None and opened.index.graph and not found and coded is None:
        found.append(
            Fault(
                what="neighbours: a graph that was built on exact vectors tells about them",
                remedy="build the graph on decoded codes",
            )
        )
    return found


def _log_faults(place: Path) -> list[Fault]:
    """Return the logs of SQLite, of which rows are not read: a database is opened without them."""
    alone = (Path(f"{place}{end}") for end in CLEARED)
    below = sorted(place.rglob("*")) if place.is_dir() else alone
    return [
        Fault(
            what=f"rows that are not read: {log.name}, a log of SQLite, may hold any",
            remedy=f'sqlite3 "{str(log).removesuffix(end)}" "PRAGMA {pragma}"',
        )
        for log in below
        for end, pragma in CLEARED.items()
        if log.name.endswith(end) and log.is_file() and log.stat().st_size
        if end == "-wal" or is_sqlite(Path(str(log).removesuffix(end)))
    ]


def _bits(opened: OpenedStore, codec: Codec | None, coded: int | None) -> float | None:
    """Return what vectors and lists tell of a document at most, in bits."""
    if opened.bits is not None:
        return opened.bits
    if opened.sealed is not None:
        header = opened.sealed
        return math.log2(math.prod(header.sizes) * len(header.settings.buckets))
    if codec is not None and coded is not None and coded == opened.rows:
        # decoded codes, one of Π C_j vectors; numbers that an index keeps of its own beside them
        return math.log2(codec.size) + (0 if opened.index is None else opened.index.name)
    if opened.index is not None and not opened.index.exact and not opened.index.graph:
        return float(opened.index.bits)
    return None
