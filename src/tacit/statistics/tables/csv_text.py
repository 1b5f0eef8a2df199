"""The records of a CSV text, and the line of the file that each begins on."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from tacit.statistics.tables.buffers import integers
from tacit.statistics.tables.cells import is_number, plain_text
from tacit.statistics.tables.decoding import decoded

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
        content, start, note = decoded(content, encoding, label)
        self.notes: tuple[str, ...] = () if note is None else (f"{label}: {note}",)
        if b"\x00" in content:
            raise ValueError(f"data: {label} is not text (it holds a zero byte)")
        self._label, self._given = label, delimiter is not None
        start, self._first_line = self._first_record(content, start)
        header = content[start : start + HEADER_BYTES].decode("utf-8", "ignore")
        self._delimiter = _delimiter(header, delimiter, decimal)
        names = _fields(header, self._delimiter)
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
        with self._opened(rest) as reader:
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

    def _opened(self, content: Any) -> Any:
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


def _delimiter(header: str, given: str | None, decimal: str) -> str:
    """Return the separator given, or the one that splits the header into most names."""
    if given is not None:
        one = NAMED_DELIMITERS.get(given, given)
        if len(one) != 1 or not one.isascii() or one in '"\r\n' or one.isalnum():
            raise ValueError(f"delimiter: expected one character such as ';' or tab, got {given!r}")
        return one
    # with a decimal comma, a comma that splits nothing separates nothing
    likely = DELIMITERS[1:] + DELIMITERS[:1] if decimal == "," else DELIMITERS
    return max(likely, key=lambda one: len(_fields(header, one)))


def _fields(header: str, delimiter: str) -> list[str]:
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
