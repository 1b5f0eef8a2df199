"""A release in a file of rows: what is certified of them stands with them, and nothing else does.

The certificate is strict JSON: in the metadata of safetensors and Parquet, or beside a .npy file.
It names the tensor or column of the rows, their SHA-256, that of every tensor beside them, and
holds the release that they are of.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Self, TypeVar

import numpy as np

from tacit import codec
from tacit._ground.checks import Array
from tacit._ground.files import (
    atomic_stream,
    check_room,
    check_writable,
    read_bytes,
    write_text_atomic,
)
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
    read_header,
    sha256_of,
)

# of what is certified, in the metadata of safetensors and Parquet
KEY = "tacit"
ENVELOPE = Envelope("tacit.store", 1)
# in the place of a digest until the rows are written, and as long
UNKNOWN = "0" * 64
BESIDE = "it holds {} tensors, columns or entries of metadata beside the rows that it certifies"
# Of the certificate and other heads of a file, at most as a rule.
HEAD_BYTES = 1 << 18
UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError,
    NotImplementedError,
)  # fmt: skip

Content = TypeVar("Content")


@dataclass(frozen=True)
class Layout:
    """How rows stand in a file.

    Attributes:
        tensor: name of the tensor or column.
        shape: (n, d).
        dtype: of the numbers, little-endian.
        decoded: whether they were worked out of the rows that were released.
    """

    tensor: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    decoded: bool = False


class RowDetails(ABC):
    """What a workflow keeps of a release whose values are the rows of a file.

    Attributes:
        tensor: of the rows, in the file, among the digests of the release, and in memory: a field
            that stands apart from the JSON.
        decoder: what other rows may be worked out of those released with, such as "the codebook";
            empty where nothing does.
    """

    tensor: ClassVar[str]
    decoder: ClassVar[str] = ""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """How many rows there are, and of what."""

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

    def check_decoded(self, rows: VectorBlocks) -> None:
        """Refuse rows that cannot be worked out of those released.

        Raises:
            ValueError: they cannot.
        """
        if not self.decoder:
            raise ValueError(f"nothing decodes its {self.tensor}, and its rows are others")
        for part in rows.blocks():
            if part.dtype.kind != "f":
                raise ValueError(f"decoded rows: expected floating-point numbers, got {part.dtype}")

    def check_beside(self, parts: Mapping[str, Array], release: Release[Any]) -> None:
        """Refuse tensors beside the rows that are none of the release.

        Raises:
            ValueError: there are some.
        """
        if parts:
            raise ValueError(BESIDE.format(len(parts)))

    def filled(self, rows: Vectors, parts: Mapping[str, Array]) -> Self:
        """Return the same with the rows of its file and the tensors beside them."""
        return replace(self, **{self.tensor: rows})  # type: ignore[type-var]


@dataclass(frozen=True, kw_only=True)
class RowCertificate(Generic[Content]):
    """What stands with rows: their name and digest, those of tensors beside them, their release."""

    tensor: str
    rows: str
    decoded: bool
    parts: Mapping[str, str]
    release: Content


@dataclass(frozen=True)
class RowStore:
    """A file of rows, opened.

    Attributes:
        certificate: what stands with the rows, the release as a dictionary.
        rows: what the file holds.
        parts: tensors beside the rows, by name.
    """

    certificate: RowCertificate[Any]
    rows: VectorBlocks
    parts: Mapping[str, Array]


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
    place = check_suffix("path", check_writable("path", path))
    write_rows("path", place, [rows], details.layout, lambda _: release, details.beside())


def check_rows_room(argument: str, path: Path, planned: Release[Any], copies: int = 1) -> None:
    """Refuse a disk without room for rows before they are drawn and paid for: no ledger has them.

    Args:
        argument: what names the file.
        path: where they go.
        planned: the release but for what is drawn.
        copies: how many such files go there.

    Raises:
        ValueError: it has not.
    """
    details = planned.details
    layout, parts = details.layout, details.beside().values()
    size = math.prod(layout.shape) * layout.dtype.itemsize + 8 * sum(part.size for part in parts)
    # while they are packed the rows of a Parquet file stand beside it, plain and packed
    times = 3 if path.suffix.lower() == ".parquet" else 1
    check_room(argument, path.parent, copies * (times * size + HEAD_BYTES))


def write_rows(
    argument: str,
    path: Path,
    rows: Iterable[Vectors],
    layout: Layout,
    release: Callable[[str], Release[Any]],
    parts: Mapping[str, Array] | None = None,
) -> str:
    """Write blocks of rows with the release that they are of, and return their SHA-256.

    Args:
        argument: what named the file.
        path: ``.safetensors``, ``.npy`` or ``.parquet``.
        rows: blocks (k, d) that add up to n rows.
        layout: how they stand in the file.
        release: from the digest of the rows.
        parts: tensors that stand beside them, in safetensors alone.
    """
    suffix, others = path.suffix.lower(), dict(sorted((parts or {}).items()))
    if others and suffix != ".safetensors":
        raise ValueError(
            f"{argument}: expected a file ending in .safetensors, which holds tensors beside the "
            f"rows, got {path.name}"
        )

    def certificate(digest: str) -> dict[str, Any]:
        held = RowCertificate(
            tensor=layout.tensor,
            rows=digest,
            decoded=layout.decoded,
            parts={name: _digest(part) for name, part in others.items()},
            release=None,
        )
        told = codec.write(RowCertificate, held)
        return ENVELOPE.closed({**told, "release": release(digest).to_dict()})

    with atomic_stream(argument, path) as stream:
        if suffix == ".safetensors":
            digest = _to_safetensors(stream, rows, layout, certificate, others)
        elif suffix == ".npy":
            header = {"descr": layout.dtype.str, "fortran_order": False, "shape": layout.shape}
            np.lib.format.write_array_header_1_0(stream, header)
            digest = _copied(stream.write, rows, layout)
        else:
            digest = _to_parquet(stream, path.parent, rows, layout, certificate)
    if suffix == ".npy":
        text = dumps(certificate(digest), indent=2, ascii_only=True)
        write_text_atomic(argument, side_file(path), text + "\n")
    return digest


def open_store(path: Path) -> RowStore:
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
        # block by block: a store need not fit in memory
        digest = sha256_of(found.rows.blocks())
    except UNREADABLE:
        raise ValueError(f"release: {path} holds no release of tacit") from None
    if digest != found.certificate.rows:
        raise ValueError(f"release: the rows in {path} are not those that were certified (SHA-256)")
    content: Mapping[str, Any] = found.certificate.release
    return content


def certified(content: Any) -> Any:
    """Return the release in the certificate of a .npy file, and anything else as it is.

    Raises:
        ValueError: a certificate that lacks something, or has more.
    """
    if not isinstance(content, Mapping) or content.get("format") != ENVELOPE.format:
        return content
    return _certificate(content).release


def check_rows(release: Release[Any], path: Path) -> str:
    """Hold a file of rows, whose digest was looked at, against the release that it carries.

    Returns:
        What could not be held against it, as the end of a sentence; empty where all was.

    Raises:
        ValueError: they are not the rows released, nor can they be worked out of them.
    """
    found, details = open_store(path), release.details
    assert isinstance(details, RowDetails)
    held, layout = found.certificate, details.layout
    # what was decoded has a width and a type of its own
    shape = (found.rows.count, layout.shape[1] if held.decoded else found.rows.width)
    if shape != layout.shape or (not held.decoded and held.tensor != layout.tensor):
        raise ValueError(f"its rows are not the {layout.tensor} that it certifies")
    if not held.decoded and (details.tensor, held.rows) not in release.digests:
        raise ValueError("its rows are not those that were released (SHA-256)")
    if held.decoded:
        if found.parts:
            raise ValueError(BESIDE.format(len(found.parts)))
        details.check_decoded(found.rows)
        return f"{details.decoder} that its rows were decoded with is not in the file"
    for part in found.rows.blocks():
        if part.dtype != layout.dtype:
            raise ValueError(f"its rows are not the {layout.tensor} that it certifies")
        details.check(part)
    details.check_beside(found.parts, release)
    return ""


class _RefusedError(ValueError):
    """What is wrong with a file in a sentence of its own."""


def _certificate(content: Any) -> RowCertificate[Any]:
    given = ENVELOPE.fields("release", content)
    held: RowCertificate[Any] = codec.read(RowCertificate, given, "release")
    return held


def _opened(
    content: Any,
    rows: Callable[[str], VectorBlocks],
    others: Iterable[str] = (),
    part: Callable[[str], Array] | None = None,
) -> RowStore:
    """Return a file of the certificate given, whose tensors and metadata are named."""
    try:
        held = _certificate(content)
    except ValueError as error:
        raise _RefusedError(str(error)) from None
    # a tensor, column or word that nothing certifies could carry anything out
    if beside := set(others) - {held.tensor, *held.parts}:
        raise _RefusedError(f"release: the file contradicts itself: {BESIDE.format(len(beside))}")
    if held.parts and part is None:
        raise _RefusedError(
            f"release: expected no tensor beside the rows of such a file, got {len(held.parts)}"
        )
    parts = {} if part is None else {name: part(name) for name in held.parts}
    if any(_digest(one) != held.parts[name] for name, one in parts.items()):
        raise _RefusedError("release: a tensor beside the rows is not the one that was certified")
    return RowStore(held, rows(held.tensor), parts)


def _from_safetensors(path: Path) -> RowStore:
    header, start = read_header("release", path)
    metadata = header.pop("__metadata__")
    # bytes of no tensor, which no digest could cover, have no place
    filled = 0
    for first, last in sorted(about["data_offsets"] for about in header.values()):
        if first != filled or last < first:
            raise ValueError("the tensors leave gaps in the file or overlap")
        filled = last
    if filled != path.stat().st_size - start:
        raise ValueError("the tensors do not fill the file")

    def part(name: str) -> Array:
        first, last = header[name]["data_offsets"]
        with path.open("rb") as stream:
            stream.seek(start + first)
            content = stream.read(last - first)
        if header[name]["dtype"] != "F64":
            raise TypeError("expected numbers of double precision beside rows")
        return np.frombuffer(content, "<f8").reshape(header[name]["shape"])

    return _opened(
        loads(metadata[KEY]),
        lambda name: open_safetensors("release", path, name),
        [*header, *(set(metadata) - {KEY})],
        part,
    )


def _from_npy(path: Path) -> RowStore:
    side = side_file(path)
    if not side.is_file():
        raise _RefusedError(f"release: expected the certificate of {path} in {side.name}, got none")
    found = open_npy("release", path)
    # whatever stands after the rows counts as rows
    if found.end != path.stat().st_size:
        raise _RefusedError(
            f"release: the rows in {path} are not those that were certified (SHA-256)"
        )
    return _opened(loads(read_bytes("release", side)), lambda _: found)


def _from_parquet(path: Path) -> RowStore:
    from tacit._ground.parquet import SCHEMA, ParquetFile

    with ParquetFile(path) as file:
        metadata = file.metadata
        others = [*file.names, *(set(metadata) - {KEY, SCHEMA})]
    return _opened(
        loads(metadata[KEY]), lambda name: open_parquet("release", path, name, ""), others
    )


def _digest(part: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(part, "<f8").tobytes()).hexdigest()


def _copied(write: Callable[[bytes], Any], rows: Iterable[Vectors], layout: Layout) -> str:
    """Write the bytes of rows, block by block, and return their SHA-256."""
    found, done = hashlib.sha256(), 0
    for part in rows:
        content = np.ascontiguousarray(part, layout.dtype).tobytes()
        found.update(content)
        write(content)
        done += len(part)
    if done != layout.shape[0]:
        raise ValueError(f"rows: expected {layout.shape[0]}, got {done}")
    return found.hexdigest()


def _to_safetensors(
    stream: BinaryIO,
    rows: Iterable[Vectors],
    layout: Layout,
    certificate: Callable[[str], dict[str, Any]],
    parts: Mapping[str, Array],
) -> str:
    # the digest is known when the rows are written, and stands before them
    header = _header(layout, certificate(UNKNOWN), parts)
    stream.write(header)
    digest = _copied(stream.write, rows, layout)
    for part in parts.values():
        stream.write(np.ascontiguousarray(part, "<f8").tobytes())
    # the digest is as long as what stood in its place, so the data stay where they are
    final = _header(layout, certificate(digest), parts)
    assert len(final) == len(header)
    stream.seek(0)
    stream.write(final)
    return digest


def _header(layout: Layout, content: Mapping[str, Any], parts: Mapping[str, Array]) -> bytes:
    kinds = {np.dtype(value): key for key, value in SAFETENSORS.items() if value != "bfloat16"}
    header: dict[str, Any] = {"__metadata__": {KEY: dumps(content)}}
    sizes = {layout.tensor: (kinds[layout.dtype], layout.shape, layout.dtype.itemsize)}
    end = 0
    for name, (kind, shape, size) in {
        **sizes,
        **{name: ("F64", part.shape, 8) for name, part in parts.items()},
    }.items():
        start, end = end, end + math.prod(shape) * size
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    text = dumps(header).encode()
    # tensors start at a multiple of eight bytes
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _to_parquet(
    stream: BinaryIO,
    beside: Path,
    rows: Iterable[Vectors],
    layout: Layout,
    certificate: Callable[[str], dict[str, Any]],
) -> str:
    from tacit._ground.parquet import write_parquet

    # the digest stands with the rows, and is known when all of them are there
    with tempfile.TemporaryDirectory(dir=beside, prefix=".") as folder:
        plain, packed = Path(folder, "rows"), Path(folder, "rows.parquet")
        with plain.open("wb") as file:
            digest = _copied(file.write, rows, layout)
        held = np.memmap(plain, layout.dtype, "r", shape=layout.shape)
        write_parquet(packed, layout.tensor, held, KEY, dumps(certificate(digest)))
        with packed.open("rb") as file:
            shutil.copyfileobj(file, stream)
    return digest


READERS: dict[str, Callable[[Path], RowStore]] = {
    ".safetensors": _from_safetensors,
    ".npy": _from_npy,
    ".parquet": _from_parquet,
}
