"""A folder of safetensors: parts of documents, and a manifest that says which of them count."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import text as checked_text
from tacit._ground.files import absolute, atomic_stream, held, write_text_atomic
from tacit.documents import Envelope, dumps, loads
from tacit.stores.backends.base import (
    Backend,
    ChangedError,
    ClearColumns,
    Records,
    State,
    check_codes,
)
from tacit.stores.sealing import HANDLE_BYTES, Sealed

MANIFEST = "store.json"
ENVELOPE = Envelope("tacit.store-folder", 1)
# documents of a part: a deletion writes the parts anew in which something is deleted
PART_ROWS = 2048
PART = "part-{}.safetensors"


class FolderBackend(Backend):
    """A folder of the store's own; the manifest is replaced in one step, and with it the store.

    Args:
        path: the folder, made when something is written.

    Raises:
        ValueError: it is a file.

    Example:
        >>> FolderBackend("notes.store").words
        'a folder of safetensors'
    """

    words: ClassVar[str] = "a folder of safetensors"
    left: ClassVar[str] = "nothing in its files; what a disk keeps of removed files is the disk's"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = absolute("path", path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"path: expected a folder, got the file {self.path}")
        self._parts: list[_Part] = []
        self._where: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]] | None = None
        self._sizes: tuple[int, ...] = ()
        # files beside the parts that were read last
        self._named: list[str] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def state(self) -> State | None:
        content = self._manifest()
        if content is None:
            return None
        return State(content["header"], base64.b64decode(content["counts"]))

    def token(self) -> object:
        try:
            about = (self.path / MANIFEST).stat()
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size

    def columns(self, sizes: tuple[int, ...]) -> ClearColumns:
        content = self._manifest() or {"parts": [], "beside": []}
        self._sizes, self._named = sizes, content["beside"]
        self._parts = [self._opened(name, sizes) for name in content["parts"]]
        whole = ClearColumns.joined([part.columns for part in self._parts], sizes)
        lengths = [len(part.columns) for part in self._parts]
        rows = [np.arange(length) for length in lengths]
        found, order = whole.ordered()
        # where the sealed bytes of each row are: which part, which row of it
        parts = np.repeat(np.arange(len(lengths)), lengths)[order]
        self._where = parts, np.concatenate([np.empty(0, np.intp), *rows])[order]
        return found

    def fetch(self, positions: npt.NDArray[np.intp]) -> list[Sealed]:
        if self._where is None:
            raise ChangedError
        parts, rows = (found[positions].tolist() for found in self._where)
        # slices of what is mapped, in one loop: a call for each would take as long again
        held = [(part.mapped, part.starts) for part in self._parts]
        found: list[Sealed] = []
        for part, row in zip(parts, rows, strict=True):
            mapped, starts = held[part]
            found.append(mapped[starts[row] : starts[row + 1]])
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"path: cannot make {self.path} ({error.strerror})") from None
        with held(self.path / MANIFEST):
            yield

    def write(self, state: State, put: Records | None, remove: npt.NDArray[np.intp]) -> None:
        """As ``Backend.write``: parts first, then the manifest that names them."""
        content = self._manifest() or {"parts": []}
        kept, records = list(content["parts"]), [] if put is None else [put]
        if len(remove):
            assert self._where is not None
            parts, rows = (found[remove] for found in self._where)
            # a part in which something is deleted is written anew without it
            for place in np.unique(parts).tolist():
                kept.remove(self._parts[place].name)
                records.append(self._parts[place].without(rows[parts == place]))
        if put is not None:
            records.extend(self._small(kept, len(put.columns)))
        self._commit(state, kept, self._written([_joined(records)]))

    def _small(self, kept: list[str], count: int) -> Iterator[Records]:
        """Take the parts that ``count`` new documents are written together with; yield them.

        A part is written anew with as many others as it has, or more: so there are a logarithm of
        parts that are not full, and a document is written a logarithm of times.
        """
        for part in sorted(self._parts, key=lambda one: len(one.columns)):
            size = len(part.columns)
            if part.name in kept and size <= min(count, PART_ROWS - count):
                kept.remove(part.name)
                yield part.without(np.empty(0, np.intp))
                count += size

    def overwrite(self, state: State, records: Iterable[Records]) -> None:
        self._commit(state, [], self._written(records))

    def compact(self) -> None:
        """Write all documents into full parts, in the order of their handles."""
        state, sizes = self.state(), self._sizes
        assert state is not None
        columns = self.columns(sizes)

        def records() -> Iterator[Records]:
            for start in range(0, len(columns), PART_ROWS):
                rows = np.arange(start, min(start + PART_ROWS, len(columns)))
                held = ClearColumns(
                    columns.handles[rows], columns.versions[rows], columns.codes[rows]
                )
                yield Records(held, self.fetch(rows))

        self.overwrite(state, records())

    def _written(self, records: Iterable[Records]) -> list[str]:
        """Write parts of documents, each in the order of its handles; return their names."""
        names = []
        for record in records:
            columns, order = record.columns.ordered()
            sealed = [record.sealed[place] for place in order.tolist()]
            for start in range(0, len(columns), PART_ROWS):
                end = start + PART_ROWS
                held = ClearColumns(
                    columns.handles[start:end], columns.versions[start:end],
                    columns.codes[start:end],
                )  # fmt: skip
                names.append(self._write_part(held, sealed[start:end]))
        return names

    def _write_part(self, columns: ClearColumns, sealed: list[Sealed]) -> str:
        from safetensors.numpy import save

        name = PART.format(secrets.token_hex(16))
        ends = np.cumsum([0, *map(len, sealed)]).astype(np.uint64)
        tensors: dict[str, Any] = {
            "handles": np.ascontiguousarray(columns.handles),
            "versions": columns.versions,
            "starts": ends,
            "sealed": np.frombuffer(b"".join(sealed), np.uint8),
            "codes": np.ascontiguousarray(columns.codes),
        }
        with atomic_stream("path", self.path / name) as stream:
            stream.write(save(tensors))
        return name

    def _beside(self, names: list[str]) -> list[str]:
        """Write what stands beside the parts of these names; return the names of its files."""
        return []

    def _commit(self, state: State, kept: list[str], new: list[str]) -> None:
        names = [*kept, *new]
        beside = self._beside(names)
        content = {
            "header": state.header,
            "counts": base64.b64encode(state.counts).decode(),
            "parts": names,
            "beside": beside,
        }
        write_text_atomic("path", self.path / MANIFEST, dumps(ENVELOPE.closed(content)))
        # from here on the new store counts; what it does not name is left of the old one, of a
        # process that was killed, or of a write that failed
        known = {MANIFEST, f".{MANIFEST}.lock", *names, *beside}
        for place in self.path.iterdir():
            if place.name not in known and _own(place.name):
                place.unlink(missing_ok=True)

    def _manifest(self) -> Any:
        place = self.path / MANIFEST
        if not place.is_file():
            return None
        try:
            document = place.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"store: cannot read {place}") from None
        content = ENVELOPE.fields("store", loads(document, name="store", source=str(place)))
        try:
            for name in ("header", "counts"):
                checked_text(name, content[name])
            base64.b64decode(content["counts"], validate=True)
            names = [*content["parts"], *content["beside"]]
            # a name that leads elsewhere would be read, and removed
            if not all(isinstance(name, str) and _own(name) for name in names):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"store: {place} is not the manifest of a store") from None
        return content

    def _opened(self, name: str, sizes: tuple[int, ...]) -> _Part:
        from safetensors import SafetensorError, safe_open

        place = self.path / name
        try:
            with safe_open(place, framework="np") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys() if key != "sealed"}  # noqa: SIM118
                size = file.get_slice("sealed").get_shape()
            rows = len(tensors["handles"])
            starts, versions = tensors["starts"], tensors["versions"]
            fits = (
                tensors["handles"].shape == (rows, HANDLE_BYTES)
                and tensors["handles"].dtype == np.uint8
                and starts.shape == (rows + 1,)
                and versions.shape == (rows,)
                and starts.dtype == versions.dtype == np.uint64
                and size == [int(starts[-1])]
                and starts[0] == 0
                and (starts[1:] >= starts[:-1]).all()
            )
            if not fits:
                raise ValueError
        except FileNotFoundError:
            # another process has committed since the manifest was read, or the file is lost
            raise ChangedError(f"store: its manifest names {place}, which is missing") from None
        except (OSError, SafetensorError, KeyError, ValueError, TypeError):
            raise ValueError(f"store: {place} is cut off or not a part of a store") from None
        codes = check_codes(tensors["codes"], sizes)
        columns = ClearColumns(tensors["handles"], versions, codes)
        return _Part(name, place, columns, starts)


class _Part:
    """A part of a folder, whose sealed bytes are read when they are asked for.

    Attributes:
        mapped: bytes of its file; they stay readable when another process replaces it.
        starts: where in the file the sealed bytes of every document start, and the last end.
    """

    def __init__(
        self, name: str, path: Path, columns: ClearColumns, starts: npt.NDArray[np.uint64]
    ) -> None:
        self.name, self.columns = name, columns
        self.mapped = memoryview(np.memmap(path, np.uint8, "r"))  # type: ignore[arg-type]
        first = _offset_of(path, "sealed")
        self.starts = [first + start for start in starts.tolist()]

    def without(self, rows: npt.NDArray[np.intp]) -> Records:
        """Return the documents but for these."""
        kept = np.setdiff1d(np.arange(len(self.columns)), rows)
        columns = self.columns
        held = ClearColumns(columns.handles[kept], columns.versions[kept], columns.codes[kept])
        return Records(
            held, [self.mapped[self.starts[row] : self.starts[row + 1]] for row in kept.tolist()]
        )


def _joined(records: Sequence[Records]) -> Records:
    """Return the documents of several, of one at least, as one."""
    held = [one.columns for one in records]
    columns = ClearColumns(
        np.concatenate([one.handles for one in held]),
        np.concatenate([one.versions for one in held]),
        np.concatenate([one.codes for one in held]),
    )
    return Records(columns, [sealed for one in records for sealed in one.sealed])


def _offset_of(path: Path, tensor: str) -> int:
    """Return where the bytes of a tensor start in a file."""
    from tacit.releases.vectors import read_header

    header, start = read_header("store", path)
    return start + int(header[tensor]["data_offsets"][0])


def _own(name: str) -> bool:
    """Whether a file of this name is one that the store writes beside its manifest."""
    stem = name.removeprefix(".")
    if "/" in name or "\\" in name:
        return False
    return stem.startswith(("part-", "codes-")) or (
        stem.startswith(MANIFEST) and stem.endswith(".tmp")
    )
