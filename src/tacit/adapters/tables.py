"""Tables of records, as text row by row: each row is read, or refused, by itself alone."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tacit._ground.files import read_bytes
from tacit._ground.unpacking import unpacked

# Tables of texts, one record a row.
KINDS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")
# The line where a record begins, and its cells.
Record: TypeAlias = tuple[int, Sequence[Any]]


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return some columns of a table as text, row by row.

    Args:
        path: a file of one of ``KINDS``.
        columns: names; a row may be empty in the first, and in no other.

    Raises:
        ValueError: no such file, row or column, one that cannot be told from another, or a row that
            is cut. It holds no cell: a header may be a record of a file that has none.
    """
    lines = _lines(path)
    read = _objects if ".jsonl" in path.name else _rows
    found = []
    for line, cells in read(path.name, lines, columns):
        # text and whole numbers; anything else is refused without being shown
        row = ["" if cell is None else _text(cell) for cell in cells]
        place = f"data: line {line} of {path.name}"
        for name, cell in zip(columns, row, strict=True):
            if cell is None:
                raise ValueError(f"{place}: expected text in {name!r}, got something else")
        # an empty text is a record; a class is needed
        if "" in row[1:]:
            raise ValueError(f"{place}: expected {' and '.join(columns)} in every row, got none")
        found.append(tuple(map(str, row)))
    if not found:
        raise ValueError(f"data: expected rows in {path}, got none")
    return found


def _lines(path: Path) -> io.StringIO:
    content = read_bytes("data", path)
    if path.name.endswith(".gz"):
        try:
            # a cut or damaged archive is one sentence
            content = unpacked(gzip.open, content, f"data: {path}")
        except (OSError, EOFError, zlib.error):
            raise ValueError(f"data: cannot read {path}: it is no gzip file") from None
    try:
        return io.StringIO(content.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError:
        raise ValueError(f"data: expected UTF-8 in {path}") from None


def _objects(name: str, lines: io.StringIO, columns: Sequence[str]) -> Iterator[Record]:
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"data: line {place} of {name} is no JSON") from None
        held = row if isinstance(row, dict) else {}
        for column in columns:
            if column not in held:
                # its keys are a record's, and are not shown
                raise ValueError(f"data: line {place} of {name}: expected a column {column!r}")
        yield place, [held[column] for column in columns]


def _rows(name: str, lines: io.StringIO, columns: Sequence[str]) -> Iterator[Record]:
    """Yield the rows of a CSV file: a quote is closed at the end of its cell, or refused."""
    # csv's own limit of a field is 131,072 letters
    with _wide_fields(len(lines.getvalue())):
        rows = _records(name, csv.reader(lines, strict=True))
        _, header = next(rows, (0, []))
        if not header:
            return
        places = [_place(name, header, column) for column in columns]
        for line, row in rows:
            # a comma in a text that is not quoted shifts every cell behind it
            if len(row) != len(header):
                raise ValueError(
                    f"data: line {line} of {name}: expected {len(header)} columns, got "
                    f"{len(row)}; a text with a comma is quoted"
                )
            yield line, [row[place] for place in places]


def _records(name: str, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the line where each row that is not blank begins, and its cells."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error:
            # without it every record up to the next quote would be one
            raise ValueError(
                f"data: line {line} of {name}: a quote opens there that no quote before a comma or "
                "the end of a line closes"
            ) from None
        if row is None:
            return
        if row:
            yield line, row


def _place(name: str, header: Sequence[str], column: str) -> int:
    """Return where a column stands, counted from 0."""
    at = [place for place, held in enumerate(header) if held == column]
    if not at:
        raise ValueError(
            f"data: expected a column {column!r} among the {len(header)} of {name}, got none"
        )
    if len(at) > 1:
        raise ValueError(
            f"data: expected the column {column!r} of {name} once, got columns "
            f"{' and '.join(str(place + 1) for place in at)}"
        )
    return at[0]


@contextmanager
def _wide_fields(most: int) -> Iterator[None]:
    """Let a field be as long as its file; the limit is the process's."""
    before = csv.field_size_limit(max(most, 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _text(value: Any) -> str | None:
    """Return text or a whole number as text that has a UTF-8 form; None for anything else."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return None
    try:
        str(value).encode("utf-8")
    except UnicodeEncodeError:
        return None
    return str(value)
