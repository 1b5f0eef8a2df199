"""Rows and bits of a space in files, so that a start reads these and not every content."""

from __future__ import annotations

import json
import mmap
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit._ground.files import write_bytes_atomic
from tacit_dock.private import open_private
from tacit_dock.search.vectors import Vectors

FOLDER, FORM, NAMES, ROWS, MADE = "index", "form.json", "names", "rows", "made"
# Digits of a SHA-256: what a row is the vector of.
DIGITS = 64
PREFIX = "sha256:"
Bits = NDArray[np.uint8]


@dataclass(frozen=True)
class KeptRows:
    """What was kept of a space, row by row.

    Attributes:
        made: of the files.
        revisions: what a row is the vector of; empty where it was erased.
        rows: unit vectors, mapped from the file: what is changed of them is changed here alone.
        bits: of the rows, by the name of their index.
        centres: that the bits are told about, by the same names.
    """

    made: str
    revisions: list[str]
    rows: Vectors
    bits: Mapping[str, Bits]
    centres: Mapping[str, Vectors]


class KeptSpace:
    """The files of a space: one for every kind of record, all in the order of the rows.

    A row is there once its name is, which is written last, after the others are on the disk. Files
    grow at their end and are replaced by new ones, so that what another server has mapped stays.
    What was withdrawn is overwritten.

    Args:
        folder: of the space.
        form: what the files are read by; those of another form are as if there were none.
    """

    def __init__(self, folder: Path, form: Mapping[str, object]) -> None:
        self.folder, self._form = folder, dict(form)

    @classmethod
    def of(cls, root: Path, space: str, form: Mapping[str, object]) -> KeptSpace:
        """Return that of a space of the dock in a folder."""
        return cls(root / FOLDER / space.removeprefix(PREFIX), form)

    @property
    def made(self) -> str:
        """By which files are told from those that replaced them; empty without any of this form."""
        with suppress(OSError, ValueError):
            told = json.loads(self._at(FORM).read_text("utf-8"))
            if isinstance(told, dict) and told == {**self._form, MADE: told.get(MADE)}:
                return str(told[MADE])
        return ""

    @property
    def count(self) -> int:
        """Rows that are there whole; 0 where the files are of another form."""
        if not self.made:
            return 0
        try:
            return min(self._at(name).stat().st_size // size for name, size in self._records())
        except OSError:
            return 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in all files."""
        return sum(size for _, size in self._records())

    def read(self) -> KeptRows | None:
        """Return what is there; None where nothing is that can be read."""
        made, count, records = self.made, self.count, dict(self._records())
        if not count:
            return None
        names = [name for name in records if name not in (NAMES, ROWS)]
        try:
            digits = np.fromfile(self._at(NAMES), dtype=f"S{DIGITS}", count=count)
            rows = np.memmap(
                self._at(ROWS), dtype=np.float32, mode="c", shape=(count, records[ROWS] // 4)
            )
            bits = {
                name: np.fromfile(self._at(name), dtype=np.uint8, count=count * records[name])
                for name in names
            }
            centres = {
                name: np.fromfile(self._at(f"{name}.centre"), dtype=np.float32) for name in names
            }
        except (OSError, ValueError):
            return None
        if self.made != made:
            # replaced meanwhile: these are parts of two
            return None
        with suppress(AttributeError, OSError):
            # a search reads a few rows here and there
            rows._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
        revisions = [PREFIX + one.decode() if one else "" for one in digits.tolist()]
        shaped = {name: held.reshape(count, -1) for name, held in bits.items()}
        return KeptRows(made, revisions, np.asarray(rows), shaped, centres)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the files against other servers; whether nobody else did."""
        self.folder.parent.mkdir(exist_ok=True, mode=0o700)
        self.folder.mkdir(exist_ok=True, mode=0o700)
        descriptor = os.open(self._at("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (ImportError, OSError):
                yield False
                return
            yield True
        finally:
            os.close(descriptor)

    def begin(self, centres: Mapping[str, Vectors]) -> str:
        """Replace the files by empty ones, alone with them; return what these are told by."""
        self._at(FORM).unlink(missing_ok=True)
        for name, _ in self._records():
            self._at(name).unlink(missing_ok=True)
            self._at(name).touch(mode=0o600)
        for name, centre in centres.items():
            content = centre.astype("<f4").tobytes()
            write_bytes_atomic("index", self._at(f"{name}.centre"), content, mode=0o600)
        made = secrets.token_hex(16)
        content = json.dumps({**self._form, MADE: made}).encode()
        write_bytes_atomic("index", self._at(FORM), content, mode=0o600)
        return made

    def append(self, revisions: Iterable[str], rows: Vectors, bits: Mapping[str, Bits]) -> None:
        """Add rows behind those that are there, alone with the files."""
        count = self.count
        columns: dict[str, bytes | memoryview] = {ROWS: rows.astype("<f4", copy=False).data}
        columns |= {name: np.ascontiguousarray(held).data for name, held in bits.items()}
        digits = (name.removeprefix(PREFIX).encode().ljust(DIGITS, b"\0") for name in revisions)
        # a name tells that its row is whole
        columns[NAMES] = b"".join(digits)
        for name, content in columns.items():
            with open(self._at(name), "r+b", opener=open_private) as stream:
                # what a server that was killed left behind is overwritten
                stream.seek(count * dict(self._records())[name])
                stream.write(content)
                stream.truncate()
                stream.flush()
                os.fsync(stream.fileno())

    def erase(self, places: Iterable[int]) -> None:
        """Overwrite rows with zeros, their names too."""
        at = sorted(places)
        for name, size in reversed(self._records()):
            with open(self._at(name), "r+b") as stream:
                for place in at:
                    stream.seek(place * size)
                    stream.write(bytes(size))
                stream.flush()
                os.fsync(stream.fileno())

    def _at(self, name: str) -> Path:
        return self.folder / name

    def _records(self) -> list[tuple[str, int]]:
        """Return the files and the bytes of a record of each, the names first."""
        held = self._form.get("records")
        found = held if isinstance(held, dict) else {}
        return [(NAMES, DIGITS), *((str(name), int(size)) for name, size in found.items())]


def erase(root: Path, digests: Iterable[str]) -> None:
    """Overwrite what the index keeps of contents that are gone, in every space of a dock."""
    wanted = np.array(
        sorted(digest.removeprefix(PREFIX).encode() for digest in digests), dtype=f"S{DIGITS}"
    )
    if not len(wanted):
        return
    for path in (root / FOLDER).glob(f"*/{FORM}"):
        with suppress(FileNotFoundError, ValueError):
            kept = KeptSpace(path.parent, json.loads(path.read_text("utf-8")))
            names = np.fromfile(path.with_name(NAMES), dtype=f"S{DIGITS}")
            found = np.flatnonzero(np.isin(names, wanted))
            if len(found):
                kept.erase(found.tolist())
