"""CSV: the bytes of a file as UTF-8 text, its records, and the line that each begins on."""

from __future__ import annotations

import bisect
import bz2
import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, NoReturn

from tacit._ground.unpacking import ExpandedError, unpacked
from tacit.statistics.tables.columns import ColumnCells
from tacit.statistics.tables.table import is_number, plain_text

# Bytes decoded at a time.
DECODED = 1 << 20


def _unzstd(content: bytes, label: str) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        return unpacked(zstd.open, content, label)
    except zstd.ZstdError as error:
        raise ValueError(error) from None


COMPRESSED: dict[bytes, tuple[str, Callable[[bytes, str], bytes]]] = {
    b"\x1f\x8b": ("gzip", partial(unpacked, gzip.open)),
    b"BZh": ("bz2", partial(unpacked, bz2.open)),
    b"\x28\xb5\x2f\xfd": ("zstd", _unzstd),
}
FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"\xfd7zXZ": "compressed by xz",
    b"\x04\x22\x4d\x18": "compressed by LZ4",
    b"ARROW1": "an Arrow file, which pyarrow or polars makes a frame of",
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
# Records parsed at a time, and the longest field: one that is longer has a quote that never closes.
ROWS_AT_A_TIME = 1 << 14
LONGEST_FIELD = 1 << 22
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
    """Return the content of a gzip, bzip2 or zstd file, any other as it is.

    Raises:
        ValueError: the file is cut short, is of a kind that is no table, or expands beyond measure.
    """
    for magic, (codec, unpack) in COMPRESSED.items():
        if content.startswith(magic):
            try:
                return unpack(content, f"data: {label}")
            except ExpandedError:
                raise
            except (OSError, EOFError, ValueError, zlib.error):
                raise ValueError(f"data: {label} is not whole: its {codec} stream breaks") from None
    for magic, kind in FOREIGN.items():
        if content.startswith(magic):
            raise ValueError(f"data: expected CSV or Parquet, got {kind}: {label}")
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
        self._width = len(fields_of(header, self._delimiter))
        self._quoted = b'"' in content
        stream = io.BytesIO(content)
        stream.seek(start)
        # ends of lines stand as they are within quotes
        ends = "" if self._quoted else None
        self._lines = io.TextIOWrapper(stream, "utf-8", "replace", newline=ends)
        self._reader = csv.reader(chain(self._lines, self._last()), delimiter=self._delimiter)
        self._records, self._ended = 0, False
        # after every record that runs over several lines: how many records, and lines, there are
        self._long: list[tuple[int, int]] = []
        self.names = self._names([cells[0] for cells in self._columns(1)])

    def close(self) -> None:
        """Stop reading."""

    def batches(self) -> Iterator[list[ColumnCells]]:
        """Yield the columns of some records, then of the next ones.

        Raises:
            ValueError: a record has too few or too many fields, or a quote is never closed.
        """
        while columns := self._columns(ROWS_AT_A_TIME):
            yield list(map(ColumnCells, columns))

    def place(self, row: int) -> str:
        """Return ``"line 7"`` for a row, counted from 0 after the header."""
        return f"line {self._line(row + 1)}"

    def _line(self, record: int) -> int:
        # a record over several lines moves those after it down
        before = bisect.bisect_right(self._long, record, key=lambda one: one[0])
        records, lines = self._long[before - 1] if before else (0, 0)
        return self._first_line + lines + record - records

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

    def _columns(self, count: int) -> list[Sequence[str]]:
        """Return the columns of the next records, none after the last one."""
        if self._quoted:
            records = self._quoted_records(count)
            return list(zip(*records, strict=True))
        # without quotes a record is a line; an empty one has empty fields
        mark, more = self._delimiter, self._width - 1
        lines = [line.rstrip("\n") or mark * more for line in islice(self._lines, count)]
        if {line.count(mark) for line in lines} - {more}:
            marks = [line.count(mark) for line in lines]
            place = next(place for place, found in enumerate(marks) if found != more)
            self._records += place
            self._refuse(marks[place] + 1)
        self._records += len(lines)
        cells = mark.join(lines).split(mark)
        return [cells[place :: self._width] for place in range(self._width if lines else 0)]

    def _last(self) -> Iterator[str]:
        self._ended = True
        yield self._delimiter.join([LAST] * self._width)

    def _quoted_records(self, count: int) -> list[list[str]]:
        limit, records = csv.field_size_limit(LONGEST_FIELD), []
        try:
            lines = self._reader.line_num
            for record in islice(self._reader, count):
                if self._ended and record != [LAST] * self._width:
                    raise self._never_closed("a quote opens there and is never closed")
                if self._ended:
                    break
                if record and len(record) != self._width:
                    self._refuse(len(record))
                records.append(record or [""] * self._width)
                self._records += 1
                if self._reader.line_num != lines + 1:
                    self._long.append((self._records, self._reader.line_num))
                lines = self._reader.line_num
        except csv.Error:
            # its words are those of a limit
            size = f"{LONGEST_FIELD >> 20} MiB"
            raise self._never_closed(
                f"a field is longer than {size}; a quote that opens there is never closed"
            ) from None
        finally:
            csv.field_size_limit(limit)
        return records

    def _never_closed(self, what: str) -> ValueError:
        return ValueError(f"data: {self._label}, line {self._line(self._records)}: {what}")

    def _refuse(self, fields: int) -> NoReturn:
        advice = "" if self._given else "; delimiter= names another separator"
        raise ValueError(
            f"data: {self._label}, line {self._line(self._records)}: expected {self._width} fields "
            f"as in the header, got {fields}{advice}"
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
