"""Files of vectors, read a block of rows at a time: safetensors, NumPy, Parquet."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tacit._ground.arrow import absent, numbers, stored
from tacit.documents import loads

if TYPE_CHECKING:
    from tacit._ground.parquet import ParquetFile

Vectors = npt.NDArray[Any]

# numbers of a block: 32 MB of float64, and few enough calls of the operating system
ENTRIES_TOGETHER = 2**22
# a header that says it is longer is none: it names tensors, and holds none of their numbers
LARGEST_HEADER = 2**27
SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16",
    "U8": "u1", "U16": "<u2", "U32": "<u4",
}  # fmt: skip
# DuckDB's names of types of numbers and of codes
FLOATING = ("FLOAT", "DOUBLE")
WHOLE = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
)  # fmt: skip
SUFFIXES = (".safetensors", ".npy", ".parquet")


@runtime_checkable
class VectorBlocks(Protocol):
    """n rows of d numbers, read a block at a time.

    Attributes:
        count: n.
        width: d.
        metadata: what stands in the file beside them.
    """

    @property
    def count(self) -> int:
        """As the attribute."""

    @property
    def width(self) -> int:
        """As the attribute."""

    @property
    def metadata(self) -> dict[str, str]:
        """As the attribute."""

    def blocks(self) -> Iterator[Vectors]:
        """Yield blocks (k, d) in order."""


@dataclass(frozen=True)
class StoredRows:
    """Rows that stand one after the other in a file.

    Attributes:
        name: argument that named the file.
        path: the file.
        offset: bytes before the first row.
        kind: type of the numbers, ``"bfloat16"`` beside those of NumPy.
        count: n.
        width: d.
        metadata: what stands in the file beside them.
    """

    name: str
    path: Path
    offset: int
    kind: str
    count: int
    width: int
    metadata: dict[str, str]

    @property
    def end(self) -> int:
        """Where the file goes on after the last row."""
        return self.offset + self.count * self.width * self._dtype.itemsize

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.kind == "bfloat16" else self.kind)

    def blocks(self) -> Iterator[Vectors]:
        """Yield blocks (k, d) in order; those of bfloat16 as float32."""
        step = max(1, ENTRIES_TOGETHER // max(1, self.width))
        size = self.width * self._dtype.itemsize
        for start in range(0, self.count, step):
            # the last block is what is left
            rows = min(step, self.count - start)
            content = self._read(self.offset + start * size, rows * size)
            if len(content) < rows * size:
                raise ValueError(f"{self.name}: {self.path} ends in row {start} or after it")
            part = np.frombuffer(content, self._dtype).reshape(rows, self.width)
            if self.kind == "bfloat16":
                # bfloat16 is the upper half of float32
                part = (part.astype("<u4") << 16).view("<f4")
            yield part

    def _read(self, offset: int, size: int) -> bytes:
        try:
            with self.path.open("rb") as stream:
                # a head may say any number: no more is asked for than there is
                held = os.fstat(stream.fileno()).st_size
                stream.seek(min(offset, held))
                return stream.read(min(size, held))
        except OSError as error:
            raise ValueError(f"{self.name}: cannot read {self.path} ({error.strerror})") from None


@dataclass(frozen=True)
class ParquetRows:
    """A column of lists of one length, or columns of numbers, of a Parquet file.

    Attributes:
        name: argument that named the file.
        path: the file.
        columns: their names.
        listed: whether a row is a list in one column, whose length no header may tell.
        count: n.
        width: d.
        metadata: what stands in the file beside them.
        whole: whether every row is read, whatever it holds.
    """

    name: str
    path: Path
    columns: tuple[str, ...]
    listed: bool
    count: int
    width: int
    metadata: dict[str, str]
    whole: bool = False

    def every(self, width: int) -> ParquetRows:
        """Return the same rows, one of d numbers for each whatever it holds.

        What is missing is NaN; a list of another length is cut, or ends in NaN.
        """
        return replace(self, width=width if self.listed else self.width, whole=True)

    def blocks(self) -> Iterator[Vectors]:
        """Yield blocks (k, d) in order."""
        from tacit._ground.parquet import ParquetFile

        with ParquetFile(self.path) as file:
            columns = [file.column(name) for name in self.columns]
            if self.listed:
                yield from self._lists(file, columns[0])
                return
            start = 0
            for batch in file.batches(", ".join(columns)):
                self._refuse_missing(batch, start)
                yield np.stack([numbers(column) for column in batch], axis=1)
                start += len(batch[0])

    def _lists(self, file: ParquetFile, column: str) -> Iterator[Vectors]:
        # number by number: rows as wide as these would fill the memory in one batch of lists
        entries = f"unnest(list_resize(coalesce({column}, []), {self.width}))"
        parts, filled, done = [np.empty(0)][:0], 0, 0
        for entry, length in file.batches(f"{entries}, len({column})"):
            row = (done + filled) // self.width
            self._refuse_missing([length], row)
            if not self.whole and ((stored(length) != self.width).any() or absent(entry).any()):
                raise ValueError(
                    f"{self.name}: expected {self.width} numbers in every row, got others from row "
                    f"{row} on"
                )
            parts.append(numbers(entry))
            filled += len(entry)
            if filled >= ENTRIES_TOGETHER or done + filled == self.count * self.width:
                flat = np.concatenate(parts)
                rows = len(flat) // self.width
                yield flat[: rows * self.width].reshape(rows, self.width)
                parts, filled = [flat[rows * self.width :]], len(flat) - rows * self.width
                done += rows * self.width

    def _refuse_missing(self, columns: Sequence[Any], start: int) -> None:
        if not self.whole and any(absent(column).any() for column in columns):
            raise ValueError(f"{self.name}: expected no missing rows, got one from row {start} on")


def sha256_of(blocks: Iterable[Vectors]) -> str:
    """Return the SHA-256 of rows in order, the bytes of every number little-endian."""
    found = hashlib.sha256()
    for part in blocks:
        found.update(np.ascontiguousarray(part, part.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def open_vectors(
    name: str, path: str | os.PathLike[str], *, column: str | None = None, integers: bool = False
) -> VectorBlocks:
    """Return the rows of a file, of which nothing but the header is read.

    Args:
        name: the argument that named it.
        path: ``.safetensors``, ``.npy`` or ``.parquet``.
        column: the tensor or the column, where there are several.
        integers: codes are expected, and vectors otherwise.

    Raises:
        ValueError: no such file, or not two-dimensional numbers of the kind expected.
    """
    place = Path(path)
    if place.is_dir():
        raise ValueError(f"{name}: expected a file, got a folder: one file at a time")
    if not place.is_file():
        raise ValueError(f"{name}: no such file: {place}")
    suffix = check_suffix(name, place).suffix.lower()
    wanted = "ui" if integers else "f"
    if suffix == ".parquet":
        return open_parquet(name, place, column, wanted)
    if suffix == ".npy":
        if column is not None:
            raise ValueError(f"--column: a .npy file has no columns, got {column!r}")
        found = open_npy(name, place)
    else:
        found = open_safetensors(name, place, column)
    kind = "f" if found.kind == "bfloat16" else np.dtype(found.kind).kind
    if kind not in wanted:
        expected = "codes (unsigned integers)" if integers else "floating-point numbers"
        raise ValueError(f"{name}: expected {expected}, got {found.kind} in {place}")
    if found.end > place.stat().st_size:
        raise ValueError(f"{name}: {place} is cut off: it ends before its last row")
    return found


def check_suffix(name: str, path: Path) -> Path:
    """Return the path when its ending names a kind of file that is read and written here."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{name}: expected a file ending in {', '.join(SUFFIXES)}, got {path}")
    return path


def read_header(name: str, path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file and where its data start."""
    try:
        with path.open("rb") as stream:
            # eight bytes say how long the JSON after them is
            size = int.from_bytes(stream.read(8), "little")
            if size > LARGEST_HEADER:
                raise ValueError
            header = loads(stream.read(size))
        if not isinstance(header, dict):
            raise ValueError
    except OSError as error:
        raise ValueError(f"{name}: cannot read {path} ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{name}: {path} is not a safetensors file") from None
    return header, 8 + size


def open_safetensors(name: str, path: Path, column: str | None) -> StoredRows:
    """Return a tensor of two dimensions, the only one where none is named."""
    header, start = read_header(name, path)
    metadata = header.pop("__metadata__", {})
    try:
        matrices = [key for key, about in header.items() if len(about["shape"]) == 2]
        wanted = [column] if column is not None else matrices
        if len(wanted) != 1 or wanted[0] not in matrices:
            raise ValueError(
                f"{name}: expected one tensor of two dimensions, got "
                f"{', '.join(matrices) or 'none'} in {path}; --column names one"
            )
        about = header[wanted[0]]
        kind = SAFETENSORS.get(about["dtype"], about["dtype"])
        if kind not in SAFETENSORS.values():
            raise ValueError(f"{name}: expected numbers of a type known here, got {kind}")
        count, width = (int(size) for size in about["shape"])
        return StoredRows(
            name, path, start + int(about["data_offsets"][0]), kind, *_sized(name, count, width),
            dict(metadata),
        )  # fmt: skip
    except (KeyError, TypeError, IndexError):
        raise ValueError(f"{name}: {path} is not a safetensors file") from None


def open_npy(name: str, path: Path) -> StoredRows:
    """Return the rows of a .npy file that has them one after the other."""
    try:
        with path.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0
            if version >= (2, 0):
                read = np.lib.format.read_array_header_2_0
            shape, by_column, dtype = read(stream)
            offset = stream.tell()
    except OSError as error:
        raise ValueError(f"{name}: cannot read {path} ({error.strerror})") from None
    except (ValueError, TokenError, SyntaxError, MemoryError):
        # one that NumPy takes for Python 2 is tokenised first; one may say that it is gigabytes
        raise ValueError(f"{name}: {path} is not a .npy file") from None
    if len(shape) != 2 or dtype.hasobject or dtype.names is not None:
        raise ValueError(f"{name}: expected numbers of shape (n, d), got {dtype} of shape {shape}")
    # of one row or one column both orders are the same bytes
    if by_column and min(shape) > 1:
        raise ValueError(
            f"{name}: expected rows one after the other, got columns (Fortran order) in {path}; "
            "numpy.ascontiguousarray turns them"
        )
    count, width = _sized(name, *shape)
    return StoredRows(name, path, offset, dtype.str, count, width, {})


def open_parquet(name: str, path: Path, column: str | None, wanted: str) -> ParquetRows:
    """Return a column of lists, or columns of numbers, of the kind ``"f"``, ``"ui"`` or any."""
    from tacit._ground.parquet import ParquetError, ParquetFile

    try:
        with ParquetFile(path) as file:
            kinds = file.sql_types()
            lists = [each for each, kind in kinds.items() if kind.endswith("]")]
            chosen = [column] if column is not None else lists or list(kinds)
            if column is not None and column not in kinds:
                raise ValueError(f"--column: expected one of {', '.join(kinds)}")
            if len(lists) > 1 and column is None:
                raise ValueError(f"--column: expected one of {', '.join(lists)}, got none")
            nested = kinds[chosen[0]].endswith("]")
            tests = {"f": FLOATING, "ui": WHOLE}
            for each in chosen if wanted else ():
                kind = kinds[each].partition("[")[0]
                if kind not in tests[wanted]:
                    raise ValueError(
                        f"{name}: expected {'numbers' if wanted == 'f' else 'codes'}, got "
                        f"{kind} in column {each}"
                    )
            width = len(chosen)
            if nested and file.count:
                # no header tells the length of a list: the first row does
                (head,) = next(file.batches(f"len({file.column(chosen[0])})"))
                width = max(1, int(np.nan_to_num(numbers(head)[0])))
            return ParquetRows(
                name, path, tuple(chosen), nested, *_sized(name, file.count, width), file.metadata
            )
    except ParquetError:
        raise ValueError(f"{name}: {path} is not a Parquet file") from None


def _sized(name: str, count: int, width: int) -> tuple[int, int]:
    if count < 1 or width < 1:
        raise ValueError(f"{name}: expected at least one row of numbers, got shape {count, width}")
    return int(count), int(width)
