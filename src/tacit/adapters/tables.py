"""Tables of texts, one record a row: CSV and JSON lines, gzipped or not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit._ground.files import read_bytes
from tacit._ground.reprs import shown

KINDS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")
NUMBER = re.compile("-?(0|[1-9][0-9]{0,17})")


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return some columns of a table as text, row by row.

    Raises:
        ValueError: no such file, row or column, one that cannot be told from another, or a row that
            is cut.
    """
    lines = _lines(path)
    try:
        rows = _objects(path, lines) if ".jsonl" in path.name else _rows(path, lines)
    except (csv.Error, RecursionError) as error:
        raise ValueError(f"data: cannot read {path.name} ({type(error).__name__})") from None
    if not rows:
        raise ValueError(f"data: expected rows in {path}, got none")
    missing = [name for name in columns if name not in rows[0]]
    if missing:
        raise ValueError(
            f"data: expected a column {missing[0]!r} in {path.name}, got {shown(list(rows[0]))}"
        )
    # an empty text is a record; a class is needed
    if any(row.get(name) in (None, "") for row in rows for name in columns[1:]):
        raise ValueError(f"data: expected {' and '.join(columns)} in every row of {path.name}")
    told = [[row.get(name) for name in columns] for row in rows]
    found = [tuple(_text("" if value is None else value) for value in row) for row in told]
    for name, column in zip(columns, zip(*found, strict=True), strict=True):
        if None in column:
            raise ValueError(f"data: expected text in every row of {name!r}, got something else")
    return [tuple(map(str, row)) for row in found]


def class_names(known: Sequence[str], named: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the names of classes 0, 1, …: the model's where they fit, numbers, else sorted.

    Args:
        known: what the model calls them.
        named: the class of every record.
        count: k, classes of the model.

    Raises:
        ValueError: more classes than the model has, or numbers outside 0 … k − 1 and 1 … k.
    """
    found = sorted(set(named), key=lambda one: (not one.isdigit(), len(one), one))
    if set(found) <= set(known):
        return tuple(known)
    if all(NUMBER.fullmatch(one) for one in found):
        numbers = list(map(int, found))
        # what reaches k counts from 1
        first = int(max(numbers) == count)
        outside = sum(not first <= int(one) < first + count for one in named)
        if outside:
            raise ValueError(
                f"data: expected classes from 0 to {count - 1}, as the model has them, got "
                f"{outside} outside"
            )
        return tuple(str(one) for one in range(first, first + count))
    if len(found) > count:
        raise ValueError(
            f"data: expected at most the {count} classes of the model, got {len(found)}"
        )
    return tuple(found)


def _lines(path: Path) -> io.StringIO:
    content = read_bytes("data", path)
    if path.name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            raise ValueError(f"data: cannot read {path}: it is no gzip file") from None
    try:
        return io.StringIO(content.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError:
        raise ValueError(f"data: expected UTF-8 in {path}") from None


def _objects(path: Path, lines: io.StringIO) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for place, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError:
            raise ValueError(f"data: line {place} of {path.name} is no JSON") from None
        if row is not None:
            rows.append(row if isinstance(row, dict) else {})
    return rows


def _rows(path: Path, lines: io.StringIO) -> list[dict[str, Any]]:
    with _wide_fields(len(lines.getvalue())):
        header, *rows = [row for row in csv.reader(lines) if row] or [[]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ValueError(
            f"data: expected each column of {path.name} once, got {shown(twice)} twice"
        )
    for row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"data: expected {len(header)} columns in every row of {path.name}, got one with "
                f"{len(row)}; a text with a comma is quoted"
            )
    return [dict(zip(header, row, strict=True)) for row in rows]


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
