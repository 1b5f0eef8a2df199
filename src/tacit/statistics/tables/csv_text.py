"""CSV: the bytes of a file as UTF-8 text, its records, and the line that each begins on."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from tacit.statistics.tables.cells import integers
from tacit.statistics.tables.table import is_number, plain_text

# Bytes decoded at a time.
DECODED = 1 << 20
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
DELIMITERS = (",", ";", "\t", "|")
NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
# Bytes parsed at a time, more where rows are wide; no record is longer, but one whose quote is
# never closed.
BLOCK, LARGEST_BLOCK = 1 << 22, 1 << 28
ROWS_IN_A_BLOCK = 1 << 10
HEADER_BYTES = 1 << 22
BLANK_LINE = re.compile(rb'[ \t,;|"]*(?:\r\n|\n|\r|\Z)')
# A record added where there are quotes: one that is never closed swallows it.
LAST = "end of the table"


class Decoded(NamedTuple):
    """UTF-8 text from ``start`` on, and what has to be said of how it was read."""

    content: bytes
    start: int
    note: str | None


def decompress(content: bytes, label: str) -> bytes:
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


def decode(content: bytes, encoding: str | None, label: str) -> Decoded:
    """Return a text as UTF-8.

    Without an ``encoding`` it is that of the byte-order mark; else UTF-16 where every other byte
    is zero; else UTF-8, and bytes that are not are read as Windows-1252, as a browser does.

    Raises:
        ValueError: an unknown encoding, or a line that is not in the encoding given.
    """
    for mark, name in MARKS.items():
        if content.startswith(mark) and _agrees(encoding, name):
            rest = Decoded(content, len(mark), None)
            return rest if name == "utf-8" else _transcode(content[len(mark) :], name, label)
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
    return _transcode(content, encoding, label)


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


def _transcode(content: bytes, encoding: str, label: str) -> Decoded:
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
    for start in range(0, len(content), DECODED):
        yield bytes(view[start : start + DECODED])


def _as_western(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    # five bytes have no character in Windows-1252; ISO-8859-1 has one for each
    return bad.decode("cp1252", "ignore") or bad.decode("latin-1"), error.end


codecs.register_error(WESTERN, _as_western)


class CsvText:
    """A CSV text read in batches, strictly: every record has as many fields as the header.

    Attributes:
        names: of the columns, from the header.
        notes: what has to be said of how it was read.
    """

    def __init__(
        self,
        content: bytes,
        label: str,
        *,
        encoding: str | None,
        delimiter: str | None,
        decimal: str,
    ) -> None:
        content, start, note = decode(content, encoding, label)
        self.notes: tuple[str, ...] = () if note is None else (f"{label}: {note}",)
        if b"\x00" in content:
            raise ValueError(f"data: {label} is not text (it holds a zero byte)")
        self._label, self._given = label, delimiter is not None
        start, self._first_line = self._first_record(content, start)
        header = content[start : start + HEADER_BYTES].decode("utf-8", "ignore")
        self._delimiter = delimiter_of(header, delimiter, decimal)
        names = fields_of(header, self._delimiter)
        self._width = len(names)
        wide = ROWS_IN_A_BLOCK * sum(len(name) + 1 for name in names)
        self._block = min(max(BLOCK, wide), LARGEST_BLOCK)
        self._quoted = b'"' in content
        self._records = 0
        self._long: list[tuple[int, int]] = []
        self._refused: list[tuple[int, int]] = []
        self._batches = self._read(content, start)
        first = next(self._batches)
        try:
            self.names = self._names([column[0].as_py() for column in first.columns])
        except ValueError:
            self.close()
            raise
        self._head = first.slice(1)

    def close(self) -> None:
        """Stop reading."""
        self._batches.close()

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of some records, then of the next ones.

        Raises:
            ValueError: a record has too few or too many fields, or a quote is never closed.
        """
        if len(self._head):
            yield self._head.columns
        for batch in self._batches:
            yield batch.columns

    def place(self, row: int) -> str:
        """Return ``"line 7"`` for a row, counted from 0 after the header."""
        return f"line {self._line(row + 1)}"

    def _line(self, record: int) -> int:
        # a record over several lines moves those after it down
        return self._first_line + record + sum(more for at, more in self._long if at < record)

    def _first_record(self, content: bytes, start: int) -> tuple[int, int]:
        """Return where the header begins, and its line."""
        line = 1
        while blank := BLANK_LINE.match(content, start):
            if blank.end() == len(content):
                raise ValueError(
                    f"data: {self._label} is empty; expected a header line and rows of numbers"
                )
            start, line = blank.end(), line + 1
        return start, line

    def _names(self, cells: list[str]) -> tuple[str, ...]:
        names = tuple(plain_text(cell) for cell in cells)
        if all(is_number(name) for name in names):
            raise ValueError(
                f"data: {self._label}: expected a header line with column names, got numbers"
            )
        return names

    def _read(self, content: bytes, start: int) -> Generator[Any]:
        """Yield record batches of texts, the header the first record of all."""
        rest = pa.py_buffer(content).slice(start)
        if self._quoted:
            end = b"" if content.endswith((b"\n", b"\r")) else b"\n"
            sentinel = self._delimiter.join([LAST] * self._width).encode()
            rest = pa.py_buffer(b"".join((memoryview(content)[start:], end, sentinel)))
        held = None
        # closed before anything is raised: its read-ahead thread must not outlive the caller
        with self._open(rest) as reader:
            while (batch := self._next(reader)) is not None:
                self._count(batch)
                if held is not None:
                    yield held
                held = batch
        if held is None or self._refused:
            self._refuse()
        assert held is not None
        if self._quoted:
            final = len(held) - 1
            if any(column[final].as_py() != LAST for column in held.columns):
                line = self._line(self._records - 1)
                raise ValueError(
                    f"data: {self._label}, line {line}: a quote opens there and is never closed"
                )
            held = held.slice(0, final)
        if len(held):
            yield held

    def _open(self, content: Any) -> Any:
        names = [str(place) for place in range(self._width)]
        return arrow_csv.open_csv(
            pa.BufferReader(content),
            # a row has its number on one thread only
            arrow_csv.ReadOptions(use_threads=False, block_size=self._block, column_names=names),
            arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=self._quoted,
                ignore_empty_lines=False,
                invalid_row_handler=self._skip,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )

    def _skip(self, row: Any) -> str:
        self._refused.append((row.number, row.actual_columns))
        return "skip"

    def _next(self, reader: Any) -> Any:
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None
        except pa.ArrowInvalid:
            # its words hold cells
            raise ValueError(
                f"data: {self._label}, line {self._line(self._records)}: the record is longer than "
                f"{self._block >> 20} MiB; a quote that opens there is never closed"
            ) from None

    def _count(self, batch: Any) -> None:
        if self._quoted:
            breaks = sum(_line_breaks(column) for column in batch.columns)
            for place in np.flatnonzero(breaks):
                self._long.append((self._records + int(place), int(breaks[place])))
        self._records += len(batch)
        if self._refused and self._records >= self._refused[0][0] - 1:
            self._refuse()

    def _refuse(self) -> None:
        record, fields = self._refused[0]
        advice = "" if self._given else "; delimiter= names another separator"
        raise ValueError(
            f"data: {self._label}, line {self._line(record - 1)}: expected {self._width} fields as "
            f"in the header, got {fields}{advice}"
        )


def delimiter_of(header: str, given: str | None, decimal: str) -> str:
    """Return the separator given, or the one that splits the header into most names."""
    if given is not None:
        one = NAMED_DELIMITERS.get(given, given)
        if len(one) != 1 or not one.isascii() or one in '"\r\n' or one.isalnum():
            raise ValueError(f"delimiter: expected one character such as ';' or tab, got {given!r}")
        return one
    # with a decimal comma, a comma that splits nothing separates nothing
    likely = DELIMITERS[1:] + DELIMITERS[:1] if decimal == "," else DELIMITERS
    return max(likely, key=lambda one: len(fields_of(header, one)))


def fields_of(header: str, delimiter: str) -> list[str]:
    """Return the fields of the first record of a text."""
    try:
        return next(csv.reader(io.StringIO(header, newline=""), delimiter=delimiter), [])
    except csv.Error:
        # a field beyond csv's own limit, from a quote that is never closed
        return []


def _line_breaks(column: Any) -> Any:
    """Return how many lines each cell runs over, less one: (n,)."""
    feeds, returns, both = (
        integers(pc.count_substring(column, mark)) for mark in ("\n", "\r", "\r\n")
    )
    return feeds + returns - both
