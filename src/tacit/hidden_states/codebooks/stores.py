"""Files of codes and of decoded vectors, written a block of rows at a time, whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tacit._ground.files import atomic_stream, read_bytes, write_text_atomic
from tacit.documents import dumps, loads
from tacit.hidden_states.codebooks.vectors import (
    SAFETENSORS,
    SUFFIXES,
    Blocks,
    Vectors,
    open_vectors,
)
from tacit.releases.stores import KEY, side_file

UNKNOWN = "0" * 64

# what a digest of the rows makes of the certificate
Certificate = Callable[[str], Mapping[str, Any]]


def write_rows(
    argument: str,
    path: Path,
    name: str,
    rows: Iterable[Vectors],
    *,
    dtype: np.dtype[Any],
    shape: tuple[int, int],
    certificate: Certificate,
) -> str:
    """Write blocks of rows and the certificate that goes with them; return their SHA-256.

    Args:
        argument: what named the file.
        path: ``.safetensors``, ``.npy`` (the certificate in ``PATH.json``) or ``.parquet``.
        name: of the tensor or the column.
        rows: blocks (k, d) that add up to n rows.
        dtype: of the numbers, little-endian.
        shape: (n, d).
        certificate: from the digest of the rows.
    """
    write = {".safetensors": _safetensors, ".npy": _npy, ".parquet": _parquet}[path.suffix.lower()]
    with atomic_stream(argument, path) as stream:
        digest = write(stream, name, rows, dtype, shape, certificate)
    if path.suffix.lower() == ".npy":
        content = dumps(certificate(digest), indent=2, ascii_only=True)
        write_text_atomic(argument, side_file(path), content + "\n")
    return digest


def read_certificate(argument: str, path: str | os.PathLike[str]) -> tuple[Blocks, dict[str, Any]]:
    """Return the codes of a file and the certificate that stands with them.

    Raises:
        ValueError: no such file, or one without a certificate.
    """
    found = open_vectors(argument, path, integers=True)
    place = Path(path)
    text = found.metadata.get(KEY)
    if place.suffix.lower() == ".npy":
        text = read_bytes(argument, side_file(place)).decode("utf-8", "replace")
    try:
        content = loads(text or "")
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{argument}: expected codes with their certificate, got {place}")
    return found, content


def check_suffix(argument: str, path: Path) -> Path:
    """Return the path when its ending names a kind of file that is written here."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{argument}: expected a file ending in {', '.join(SUFFIXES)}, got {path.name}"
        )
    return path


def _copied(
    stream: BinaryIO, rows: Iterable[Vectors], dtype: np.dtype[Any], shape: tuple[int, int]
) -> str:
    found = hashlib.sha256()
    done = 0
    for part in rows:
        content = np.ascontiguousarray(part, dtype).tobytes()
        found.update(content)
        stream.write(content)
        done += len(part)
    if done != shape[0]:
        raise ValueError(f"rows: expected {shape[0]}, got {done}")
    return found.hexdigest()


def _safetensors(
    stream: BinaryIO, name: str, rows: Iterable[Vectors], dtype: np.dtype[Any],
    shape: tuple[int, int], certificate: Certificate,
) -> str:  # fmt: skip
    header = _header(name, dtype, shape, certificate(UNKNOWN))
    stream.write(header)
    digest = _copied(stream, rows, dtype, shape)
    # the digest is as long as what stood in its place, so the data stay where they are
    final = _header(name, dtype, shape, certificate(digest))
    assert len(final) == len(header)
    stream.seek(0)
    stream.write(final)
    return digest


def _header(
    name: str, dtype: np.dtype[Any], shape: tuple[int, int], content: Mapping[str, Any]
) -> bytes:
    kinds = {np.dtype(value): key for key, value in SAFETENSORS.items() if value != "bfloat16"}
    about = {
        "dtype": kinds[dtype],
        "shape": list(shape),
        "data_offsets": [0, shape[0] * shape[1] * dtype.itemsize],
    }
    metadata = {KEY: dumps(content)}
    text = dumps({"__metadata__": metadata, name: about}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _npy(
    stream: BinaryIO, name: str, rows: Iterable[Vectors], dtype: np.dtype[Any],
    shape: tuple[int, int], certificate: Certificate,
) -> str:  # fmt: skip
    del name, certificate
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return _copied(stream, rows, dtype, shape)


def _parquet(
    stream: BinaryIO, name: str, rows: Iterable[Vectors], dtype: np.dtype[Any],
    shape: tuple[int, int], certificate: Certificate,
) -> str:  # fmt: skip
    import pyarrow
    from pyarrow import parquet

    entry = pyarrow.from_numpy_dtype(dtype)
    kind = entry if shape[1] == 1 else pyarrow.list_(entry, shape[1])
    schema = pyarrow.schema([pyarrow.field(name, kind, nullable=False)])
    found = hashlib.sha256()
    done = 0
    with parquet.ParquetWriter(stream, schema) as writer:
        for part in rows:
            block = np.ascontiguousarray(part, dtype)
            found.update(block.tobytes())
            done += len(block)
            values = pyarrow.array(block.reshape(-1), entry)
            if shape[1] > 1:
                values = pyarrow.FixedSizeListArray.from_arrays(values, shape[1])
            writer.write_table(pyarrow.Table.from_arrays([values], schema=schema))
        if done != shape[0]:
            raise ValueError(f"rows: expected {shape[0]}, got {done}")
        digest = found.hexdigest()
        content = dumps(certificate(digest))
        writer.add_key_value_metadata({KEY: content})
    return digest
