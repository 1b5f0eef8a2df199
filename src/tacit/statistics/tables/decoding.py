"""The bytes of a file as UTF-8 text: its compression and its encoding, found or given."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

BLOCK = 1 << 20
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"\xfd7zXZ": "compressed by xz",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "a database, which is read by a query",
}
# The longer marks first: UTF-32 begins as UTF-16 does.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
WESTERN = "tacit-windows-1252"


class Decoded(NamedTuple):
    """UTF-8 text from ``start`` on, and what has to be said of how it was read."""

    content: bytes
    start: int
    note: str | None


def decompressed(content: bytes, label: str) -> bytes:
    """Return the content of a gzip, bzip2, zstd or LZ4 file, any other as it is.

    Raises:
        ValueError: the file is cut short, or is of a kind that is no table.
    """
    for magic, codec in COMPRESSED.items():
        if content.startswith(magic):
            try:
                whole: bytes = pa.CompressedInputStream(pa.BufferReader(content), codec).read()
            except (OSError, pa.ArrowInvalid):
                raise ValueError(f"data: {label} is not whole: its {codec} stream breaks") from None
            return whole
    for magic, kind in FOREIGN.items():
        if content.startswith(magic):
            raise ValueError(f"data: expected CSV, Parquet or Arrow, got {kind}: {label}")
    return content


def decoded(content: bytes, encoding: str | None, label: str) -> Decoded:
    """Return a text as UTF-8.

    Without an ``encoding`` it is that of the byte-order mark; else UTF-16 where every other byte
    is zero; else UTF-8, and bytes that are not are read as Windows-1252, as a browser does.

    Raises:
        ValueError: an unknown encoding, or a line that is not in the encoding given.
    """
    for mark, name in MARKS.items():
        if content.startswith(mark) and _agrees(encoding, name):
            rest = Decoded(content, len(mark), None)
            return rest if name == "utf-8" else _transcoded(content[len(mark) :], name, label)
    if encoding is None:
        encoding = _wide(content) or "utf-8"
        if encoding == "utf-8":
            return _western(content)
    try:
        # an encoding of bytes as bytes is no encoding of text
        "a".encode(encoding)
    except LookupError:
        raise ValueError(
            f"encoding: expected a text encoding such as utf-8 or latin-1, got {encoding!r}"
        ) from None
    return _transcoded(content, encoding, label)


def _agrees(encoding: str | None, name: str) -> bool:
    if encoding is None:
        return True
    asked = encoding.lower().replace("_", "-").removesuffix("-sig")
    return asked in (name, name[:6], "utf8" if name == "utf-8" else name)


def _wide(content: bytes) -> str | None:
    """Return the UTF-16 that has no mark: a header of ASCII letters shows it by its zero bytes."""
    head = content[:200]
    if b"\x00" not in head or len(head) < 4:
        return None
    high, low = head[0::2], head[1::2]
    if not any(low) and all(high):
        return "utf-16-le"
    return "utf-16-be" if not any(high) and all(low) else None


def _western(content: bytes) -> Decoded:
    if content.isascii():
        return Decoded(content, 0, None)
    try:
        for _ in codecs.iterdecode(_blocks(content), "utf-8"):
            pass
    except UnicodeDecodeError:
        parts = codecs.iterdecode(_blocks(content), "utf-8", WESTERN)
        note = "read as Windows-1252 where it is not UTF-8; encoding= names another"
        return Decoded(b"".join(part.encode() for part in parts), 0, note)
    return Decoded(content, 0, None)


def _transcoded(content: bytes, encoding: str, label: str) -> Decoded:
    parts: list[bytes] = []
    try:
        for part in codecs.iterdecode(_blocks(content), encoding):
            parts.append(part.encode())
    except UnicodeError as error:
        before = b"".join(parts)
        if isinstance(error, UnicodeDecodeError):
            before += error.object[: error.start].decode(encoding, "ignore").encode()
        line = before.count(b"\n") + 1
        raise ValueError(
            f"data: {label}, line {line}: expected {encoding} text, got other bytes"
        ) from None
    return Decoded(b"".join(parts), 0, None)


def _blocks(content: bytes) -> Iterator[bytes]:
    view = memoryview(content)
    for start in range(0, len(content), BLOCK):
        yield bytes(view[start : start + BLOCK])


def _as_western(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    # five bytes have no character in Windows-1252; ISO-8859-1 has one for each
    return bad.decode("cp1252", "ignore") or bad.decode("latin-1"), error.end


codecs.register_error(WESTERN, _as_western)
