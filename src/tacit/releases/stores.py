"""A certificate that stands with a file of rows, read once the rows are those it was made for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tacit._ground.files import read_bytes
from tacit.documents import loads

# of what is certified, in the metadata of safetensors and Parquet
KEY = "tacit"
LARGEST_HEADER = 2**27
BYTES_TOGETHER = 2**24
ROWS_TOGETHER = 2**18
# pyarrow's own errors are of these kinds, one of what it has not implemented among them
UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError,
    NotImplementedError,
)  # fmt: skip
# what pyarrow adds to the metadata of Parquet
SCHEMA = "ARROW:schema"

# the certificate, the bytes of its rows in order, and the names of what else is in the file
Held = tuple[Mapping[str, Any], Iterator[bytes], list[str]]


def side_file(path: Path) -> Path:
    """Return the file that holds the certificate of a .npy file.

    Example:
        >>> side_file(Path("codes.npy")).name
        'codes.npy.json'
    """
    return path.with_name(path.name + ".json")


def is_store(path: Path) -> bool:
    """Whether a file of this name holds rows, with a certificate in it or beside it."""
    return path.suffix.lower() in READERS


def read_store(path: Path) -> Mapping[str, Any]:
    """Return the certificate of a file of rows, its rows held against their SHA-256.

    Args:
        path: ``.safetensors``, ``.parquet``, or ``.npy`` with the certificate in ``PATH.json``.

    Raises:
        ValueError: no such file, one without a certificate, or rows other than those certified.
    """
    name = os.fspath(path)
    found = hashlib.sha256()
    try:
        content, parts, _ = _held(path)
        for part in parts:
            found.update(part)
        expected = content.get("decoded", content["digest"])
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    if found.hexdigest() != expected:
        raise ValueError(f"release: the rows in {name} are not those that were certified (SHA-256)")
    return content


def uncertified(path: Path) -> list[str]:
    """Return the names of tensors, columns or metadata of a file beside rows and certificate.

    Raises:
        ValueError: no such file, or one without a certificate.
    """
    try:
        return _held(path)[2]
    except UNREADABLE as error:
        raise _unreadable(path, error) from None


def _held(path: Path) -> Held:
    if not path.is_file():
        raise _MissingError(f"release: no such file: {path}")
    return READERS[path.suffix.lower()](path)


def _unreadable(path: Path, error: Exception) -> ValueError:
    if isinstance(error, _MissingError):
        return ValueError(str(error))
    return ValueError(f"release: {path} holds no release of tacit")


class _MissingError(ValueError):
    """A file, its certificate, or the package that reads such files is not there."""


def _safetensors(path: Path) -> Held:
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = loads(stream.read(min(size, LARGEST_HEADER)))
    metadata = header.pop("__metadata__")
    content = loads(metadata[KEY])
    _check_filled(header, path.stat().st_size - 8 - size)
    start, end = header[content["tensor"]]["data_offsets"]
    others = [name for name in header if name != content["tensor"]]
    others += [name for name in metadata if name != KEY]
    return content, _bytes(path, 8 + size + start, end - start), others


def _check_filled(header: Mapping[str, Any], size: int) -> None:
    """Refuse bytes of no tensor, which no digest could cover."""
    filled = 0
    for start, end in sorted(about["data_offsets"] for about in header.values()):
        if start != filled or end < start:
            raise ValueError("the tensors do not stand one after the other")
        filled = end
    if filled != size:
        raise ValueError("the tensors do not fill the file")


def _npy(path: Path) -> Held:
    side = side_file(path)
    if not side.is_file():
        raise _MissingError(f"release: expected the certificate of {path} in {side.name}, got none")
    with path.open("rb") as stream:
        _after_header(stream)
        start = stream.tell()
    # whatever stands after the rows counts as rows
    rows = _bytes(path, start, path.stat().st_size)
    return loads(read_bytes("release", side)), rows, []


def _after_header(stream: BinaryIO) -> None:
    if np.lib.format.read_magic(stream) >= (2, 0):
        np.lib.format.read_array_header_2_0(stream)
    else:
        np.lib.format.read_array_header_1_0(stream)


def _parquet(path: Path) -> Held:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        metadata = {name.decode(): text for name, text in (file.metadata.metadata or {}).items()}
        content = loads(metadata[KEY])
        columns = file.schema_arrow.names
        if content["tensor"] not in columns:
            raise ValueError("the column that is certified is not there")
        others = [name for name in columns if name != content["tensor"]]
        others += [name for name in metadata if name not in (KEY, SCHEMA)]
    return content, _column(parquet, path, content["tensor"]), others


def _column(parquet: Any, path: Path, name: str) -> Iterator[bytes]:
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS_TOGETHER, columns=[name]):
            column = batch.column(0)
            flat = column.flatten() if hasattr(column, "flatten") else column
            rows = np.asarray(flat.to_numpy(zero_copy_only=False))
            yield np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")).tobytes()


def _bytes(path: Path, start: int, size: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        while size > 0 and (part := stream.read(min(size, BYTES_TOGETHER))):
            yield part
            size -= len(part)


READERS: dict[str, Callable[[Path], Held]] = {
    ".safetensors": _safetensors,
    ".npy": _npy,
    ".parquet": _parquet,
}
