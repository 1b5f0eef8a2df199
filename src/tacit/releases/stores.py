"""A release in a file of rows: what is certified of them stands with them, and nothing else does.

The certificate is strict JSON: in the metadata of safetensors and Parquet, or beside a .npy file.
It names the tensor or column of the rows, their SHA-256, that of every tensor beside them, and
holds the release that they are of.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.files import atomic_stream, check_writable, read_bytes, write_text_atomic
from tacit.documents import Envelope, dumps, loads
from tacit.releases.release import Release
from tacit.releases.vectors import (
    SAFETENSORS,
    SUFFIXES,
    VectorBlocks,
    Vectors,
    check_suffix,
    open_npy,
    open_parquet,
    open_safetensors,
    open_vectors,
    read_header,
    sha256_of,
)

# of what is certified, in the metadata of safetensors and Parquet
KEY = "tacit"
ENVELOPE = Envelope("tacit.store", 1)
# in the place of a digest until the rows are written, and as long
UNKNOWN = "0" * 64
# pyarrow's own errors are of these kinds, one of what it has not implemented among them
UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError,
    NotImplementedError,
)  # fmt: skip

# what the digest of the rows makes of a release, as its dictionary
Certificate = Callable[[str], Mapping[str, Any]]


class RowDetails(ABC):
    """What a workflow keeps of a release whose values are the rows of a file.

    Attributes:
        tensor: of the rows, in the file and in memory: a field that stands apart from the JSON.
        about: what the release's digests call the rows.
    """

    tensor: ClassVar[str]
    about: ClassVar[str]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and numbers of each, (n, d)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers, little-endian."""

    def beside(self) -> Mapping[str, Array]:
        """Return what else is published, too large for the JSON, by the name of its tensor."""
        return {}

    def check(self, rows: Vectors) -> None:
        """Refuse rows that are none of what they are said to be.

        Raises:
            ValueError: one is not finite.
        """
        if not np.isfinite(rows).all():
            raise ValueError(f"its {self.tensor} are not all finite")

    def check_beside(self, parts: Mapping[str, Array], release: Release[Any]) -> None:
        """Refuse tensors beside the rows that are none of the release.

        Raises:
            ValueError: there are some.
        """
        del release
        if parts:
            raise ValueError(f"it holds {len(parts)} tensors beside its {self.tensor}")

    def filled(self, rows: Vectors, parts: Mapping[str, Array]) -> Self:
        """Return the same with the rows of its file and the tensors beside them."""
        del parts
        return replace(self, **{self.tensor: rows})  # type: ignore[type-var]


@dataclass(frozen=True)
class Store:
    """A file of rows, opened.

    Attributes:
        rows: what it holds.
        tensor: their name.
        digest: SHA-256 of the rows, as the file says.
        decoded: whether the rows were worked out of those that were released.
        parts: tensors beside the rows, by name.
        release: the dictionary of the release that they are of.
    """

    rows: VectorBlocks
    tensor: str
    digest: str
    decoded: bool
    parts: Mapping[str, Array]
    release: Mapping[str, Any]


def side_file(path: Path) -> Path:
    """Return the file that holds the certificate of a .npy file.

    Example:
        >>> side_file(Path("codes.npy")).name
        'codes.npy.json'
    """
    return path.with_name(path.name + ".json")


def is_store(path: Path) -> bool:
    """Whether a file of this name holds rows, with a certificate in it or beside it."""
    return path.suffix.lower() in SUFFIXES


def save_rows(release: Release[Any], path: str | os.PathLike[str]) -> None:
    """Write the rows of a release with what is certified of them, whole or not at all.

    All of the release is written, what is its holder's too; ``save_rows(release.public(), path)``
    writes what may be published.

    Args:
        release: noised states, codes or quotients that are in memory.
        path: ``.safetensors``, ``.parquet``, or ``.npy`` with the certificate in ``PATH.json``.

    Raises:
        ValueError: it has no rows in memory, or the file cannot be written.
    """
    details = release.details
    rows = getattr(details, details.tensor, None) if isinstance(details, RowDetails) else None
    if rows is None:
        raise ValueError(f"release: expected rows to write, got {release.kind!r} without them")
    write_rows(
        "path",
        check_suffix("path", check_writable("path", path)),
        [rows],
        details,
        certificate=lambda _: release.to_dict(),
        parts=details.beside(),
    )


def write_rows(
    argument: str,
    path: Path,
    rows: Iterable[Vectors],
    details: RowDetails,
    certificate: Certificate,
    parts: Mapping[str, Array] | None = None,
) -> str:
    """Write blocks of released rows with their certificate; return their SHA-256.

    Args:
        argument: what named the file.
        path: ``.safetensors``, ``.npy`` or ``.parquet``.
        rows: blocks (k, d) that add up to n rows.
        details: says how many, and of what type.
        certificate: from the digest of the rows.
        parts: tensors that stand beside them, in safetensors alone.
    """
    layout = _Layout(details.tensor, details.shape, details.dtype)
    return _write(argument, path, rows, layout, certificate, parts or {})


def write_decoded(
    argument: str,
    path: Path,
    tensor: str,
    rows: Iterable[Vectors],
    shape: tuple[int, int],
    release: Release[Any],
) -> str:
    """Write what was worked out of released rows, in float32, with the certificate of those.

    Args:
        argument: what named the file.
        path: as for ``write_rows``.
        tensor: name of the rows.
        rows: blocks (k, d) that add up to n rows.
        shape: (n, d).
        release: that they were worked out of: post-processing, so that its guarantees stand.
    """
    layout = _Layout(tensor, shape, np.dtype("<f4"), decoded=True)
    return _write(argument, path, rows, layout, lambda _: release.to_dict(), {})


def open_store(path: Path) -> Store:
    """Return a file of rows and its certificate; refuse whatever else is in the file.

    Raises:
        ValueError: no such file, one without a certificate, or something beside what it certifies.
    """
    try:
        if not path.is_file():
            raise _RefusedError(f"release: no such file: {path}")
        return READERS[path.suffix.lower()](path)
    except _RefusedError as error:
        raise ValueError(str(error)) from None
    except UNREADABLE:
        raise ValueError(f"release: {path} holds no release of tacit") from None


def read_store(path: Path) -> Mapping[str, Any]:
    """Return the release of a file of rows, the rows held against their SHA-256.

    Args:
        path: ``.safetensors``, ``.parquet``, or ``.npy`` with the certificate in ``PATH.json``.

    Raises:
        ValueError: as ``open_store``, or rows other than those certified.
    """
    found = open_store(path)
    try:
        digest = sha256_of(found.rows.blocks())
    except UNREADABLE:
        raise ValueError(f"release: {path} holds no release of tacit") from None
    if digest != found.digest:
        raise ValueError(f"release: the rows in {path} are not those that were certified (SHA-256)")
    return found.release


def check_rows(release: Release[Any], path: Path) -> None:
    """Hold a file of rows, whose digest was looked at, against the release that it carries.

    Raises:
        ValueError: they are not the rows released, nor worked out of them.
    """
    found, details = open_store(path), release.details
    assert isinstance(details, RowDetails)
    if found.decoded:
        if open_vectors("release", path, column=_column(found, path)).count != details.shape[0]:
            raise ValueError("it holds another number of rows than were released")
        return
    if (found.tensor, found.rows.count, found.rows.width) != (details.tensor, *details.shape):
        raise ValueError(f"its rows are not the {details.tensor} that it certifies")
    if (details.about, found.digest) not in release.digests:
        raise ValueError("its rows are not those that were released (SHA-256)")
    for part in found.rows.blocks():
        if part.dtype != details.dtype:
            raise ValueError(f"its rows are not the {details.tensor} that it certifies")
        details.check(part)
    details.check_beside(found.parts, release)


def _column(found: Store, path: Path) -> str | None:
    return None if path.suffix.lower() == ".npy" else found.tensor


class _RefusedError(ValueError):
    """What is wrong with a file in a sentence of its own."""


def _opened(content: Any, rows: Callable[[str], VectorBlocks], others: Iterable[str],
            read: Callable[[str], Array]) -> Store:  # fmt: skip
    """Return a file of the certificate given, whose other tensors and metadata are named."""
    try:
        given = ENVELOPE.fields("release", content)
    except ValueError as error:
        raise _RefusedError(str(error)) from None
    if set(given) != {"tensor", "rows", "decoded", "parts", "release"}:
        raise ValueError("a field is missing or unknown")
    if beside := set(others) - {given["tensor"], *given["parts"]}:
        raise _RefusedError(
            f"release: the file contradicts itself: it holds {len(beside)} tensors, columns or "
            "entries of metadata beside the rows that it certifies"
        )
    parts = {name: read(name) for name in given["parts"]}
    if any(_digest(part) != given["parts"][name] for name, part in parts.items()):
        raise _RefusedError("release: a tensor beside the rows is not that which was certified")
    if not isinstance(given["decoded"], bool):
        raise TypeError("decoded: expected true or false")
    return Store(
        rows=rows(given["tensor"]),
        tensor=given["tensor"],
        digest=given["rows"],
        decoded=given["decoded"],
        parts=parts,
        release=given["release"],
    )


def _from_safetensors(path: Path) -> Store:
    header, start = read_header("release", path)
    metadata = header.pop("__metadata__")
    _check_filled(header, path.stat().st_size - start)

    def read(name: str) -> Array:
        first, last = header[name]["data_offsets"]
        with path.open("rb") as stream:
            stream.seek(start + first)
            content = stream.read(last - first)
        # what stands beside rows is in double precision
        if header[name]["dtype"] != "F64":
            raise TypeError("expected numbers of double precision")
        return np.frombuffer(content, "<f8").reshape(header[name]["shape"])

    others = [*header, *(name for name in metadata if name != KEY)]
    return _opened(
        loads(metadata[KEY]), lambda name: open_safetensors("release", path, name), others, read
    )


def _check_filled(header: Mapping[str, Any], size: int) -> None:
    """Refuse bytes of no tensor, which no digest could cover."""
    filled = 0
    for start, end in sorted(about["data_offsets"] for about in header.values()):
        if start != filled or end < start:
            raise ValueError("the tensors do not stand one after the other")
        filled = end
    if filled != size:
        raise ValueError("the tensors do not fill the file")


def _from_npy(path: Path) -> Store:
    side = side_file(path)
    if not side.is_file():
        raise _RefusedError(f"release: expected the certificate of {path} in {side.name}, got none")
    found = open_npy("release", path)
    if found.end != path.stat().st_size:
        raise _RefusedError(
            f"release: the rows in {path} are not those that were certified (SHA-256)"
        )
    return _opened(loads(read_bytes("release", side)), lambda _: found, (), _no_part)


def _from_parquet(path: Path) -> Store:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        metadata = {name.decode(): text for name, text in (file.metadata.metadata or {}).items()}
        # pyarrow adds its own schema
        others = [*file.schema_arrow.names, *(set(metadata) - {KEY, "ARROW:schema"})]

    def rows(name: str) -> VectorBlocks:
        return open_parquet("release", path, name, "")

    return _opened(loads(metadata[KEY]), rows, others, _no_part)


def _no_part(name: str) -> Array:
    raise ValueError(f"{name}: no tensor stands beside rows in such a file")


def _digest(part: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(part, "<f8").tobytes()).hexdigest()


@dataclass(frozen=True)
class _Layout:
    """How rows stand in a file: their name, (n, d), their type, and whether they were decoded."""

    tensor: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    decoded: bool = False


def _write(
    argument: str, path: Path, rows: Iterable[Vectors], layout: _Layout, certificate: Certificate,
    parts: Mapping[str, Array],
) -> str:  # fmt: skip
    suffix = path.suffix.lower()
    if parts and suffix != ".safetensors":
        raise ValueError(
            f"{argument}: expected a file ending in .safetensors, which holds tensors beside the "
            f"rows, got {path.name}"
        )

    def content(digest: str) -> dict[str, Any]:
        return ENVELOPE.closed(
            {
                "tensor": layout.tensor,
                "rows": digest,
                "decoded": layout.decoded,
                "parts": {name: _digest(part) for name, part in parts.items()},
                "release": certificate(digest),
            }
        )

    with atomic_stream(argument, path) as stream:
        if suffix == ".safetensors":
            digest = _as_safetensors(stream, rows, layout, content, parts)
        elif suffix == ".npy":
            header = {"descr": layout.dtype.str, "fortran_order": False, "shape": layout.shape}
            np.lib.format.write_array_header_1_0(stream, header)
            digest = _copied(stream, rows, layout)
        else:
            digest = _as_parquet(stream, rows, layout, content)
    if suffix == ".npy":
        text = dumps(content(digest), indent=2, ascii_only=True)
        write_text_atomic(argument, side_file(path), text + "\n")
    return digest


def _copied(stream: BinaryIO, rows: Iterable[Vectors], layout: _Layout) -> str:
    found, done = hashlib.sha256(), 0
    for part in rows:
        content = np.ascontiguousarray(part, layout.dtype).tobytes()
        found.update(content)
        stream.write(content)
        done += len(part)
    _check_count(done, layout)
    return found.hexdigest()


def _check_count(done: int, layout: _Layout) -> None:
    if done != layout.shape[0]:
        raise ValueError(f"rows: expected {layout.shape[0]}, got {done}")


def _as_safetensors(
    stream: BinaryIO, rows: Iterable[Vectors], layout: _Layout, content: Certificate,
    parts: Mapping[str, Array],
) -> str:  # fmt: skip
    header = _header(layout, content(UNKNOWN), parts)
    stream.write(header)
    digest = _copied(stream, rows, layout)
    for _, part in sorted(parts.items()):
        stream.write(np.ascontiguousarray(part, "<f8").tobytes())
    # the digest is as long as what stood in its place, so the data stay where they are
    final = _header(layout, content(digest), parts)
    assert len(final) == len(header)
    stream.seek(0)
    stream.write(final)
    return digest


def _header(layout: _Layout, content: Mapping[str, Any], parts: Mapping[str, Array]) -> bytes:
    kinds = {np.dtype(value): key for key, value in SAFETENSORS.items() if value != "bfloat16"}
    shape, dtype = layout.shape, layout.dtype
    end = shape[0] * shape[1] * dtype.itemsize
    header: dict[str, Any] = {
        "__metadata__": {KEY: dumps(content)},
        layout.tensor: {"dtype": kinds[dtype], "shape": list(shape), "data_offsets": [0, end]},
    }
    for name, part in sorted(parts.items()):
        size = 8 * part.size
        header[name] = {
            "dtype": "F64", "shape": list(part.shape), "data_offsets": [end, end + size]
        }  # fmt: skip
        end += size
    text = dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _as_parquet(
    stream: BinaryIO, rows: Iterable[Vectors], layout: _Layout, content: Certificate
) -> str:
    import pyarrow
    from pyarrow import parquet

    shape, dtype = layout.shape, layout.dtype
    entry = pyarrow.from_numpy_dtype(dtype)
    kind = entry if shape[1] == 1 else pyarrow.list_(entry, shape[1])
    schema = pyarrow.schema([pyarrow.field(layout.tensor, kind, nullable=False)])
    found, done = hashlib.sha256(), 0
    with parquet.ParquetWriter(stream, schema) as writer:
        for part in rows:
            block = np.ascontiguousarray(part, dtype)
            found.update(block.tobytes())
            done += len(block)
            values = pyarrow.array(block.reshape(-1), entry)
            if shape[1] > 1:
                values = pyarrow.FixedSizeListArray.from_arrays(values, shape[1])
            writer.write_table(pyarrow.Table.from_arrays([values], schema=schema))
        _check_count(done, layout)
        digest = found.hexdigest()
        writer.add_key_value_metadata({KEY: dumps(content(digest))})
    return digest


READERS: dict[str, Callable[[Path], Store]] = {
    ".safetensors": _from_safetensors,
    ".npy": _from_npy,
    ".parquet": _from_parquet,
}
