"""Prompts as people keep them: lines, JSON lines, a column of CSV or of Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit._ground.files import read_bytes
from tacit._ground.unpacking import unpacked

USUAL_COLUMNS = ("prompt", "text")
KINDS = {
    ".txt": "lines",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
# JSON can write one alone, no tokenizer takes it
SURROGATE = re.compile("[\ud800-\udfff]")


def refuse_halves(name: str, texts: Sequence[str]) -> None:
    """Refuse texts with half of a surrogate pair, which no tokenizer takes.

    Raises:
        ValueError: one of them has it; the message names its place and shows nothing of it.
    """
    for place, text in enumerate(texts):
        if SURROGATE.search(text):
            raise ValueError(f"{name}: expected text, got half of a surrogate pair in text {place}")


@dataclass(frozen=True)
class PromptTexts:
    """Texts of prompts, and where each stands.

    Attributes:
        texts: none of them empty, unless every line was asked for.
        places: such as "line 3", for messages that must not show the text.
    """

    texts: tuple[str, ...]
    places: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"PromptTexts(<{len(self):,} prompts>)"

    def select(self, kept: Sequence[int]) -> PromptTexts:
        """Return some of them."""
        return PromptTexts(tuple(self.texts[i] for i in kept), tuple(self.places[i] for i in kept))


def read_prompts(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    name: str = "prompts",
    every: bool = False,
) -> PromptTexts:
    """Read one prompt a line, a JSON line, or a row of CSV or Parquet.

    Args:
        path: ``.txt`` (a prompt a line, empty lines left out), ``.jsonl`` or ``.ndjson`` (strings,
            or objects), ``.csv``, ``.tsv`` (with a header) or ``.parquet``; all but the last in
            UTF-8, and with ``.gz`` after it when compressed. Or a folder: the lines of its
            ``.txt`` and ``.txt.gz`` files, in alphabetical order.
        column: of objects, CSV and Parquet; when left out ``prompt``, else ``text``.
        name: what messages call the argument.
        every: return a text for every line, object or row, in order and whatever it holds: one
            without a text is empty, and what is no Unicode is read as U+FFFD. How many prompts
            there are, and whether they can be read, then tells nothing of one of them.

    Returns:
        The prompts in the order of the file, repeated where they repeat.

    Raises:
        ValueError: no prompt there, no such column, or a cell without a text; the message names
            line and column, and shows nothing of the text.
    """
    given = os.fspath(path)
    if Path(given).is_dir():
        return _folder(Path(given), column, name, every)
    suffixes = [suffix.lower() for suffix in Path(given).suffixes[-2:]]
    packed = suffixes[-1:] == [".gz"]
    kind = KINDS.get((suffixes[:-1] if packed else suffixes)[-1:][0] if suffixes else "")
    if kind is None or (packed and (kind == "parquet" or len(suffixes) < 2)):
        raise ValueError(
            f"{name}: expected a file that ends in {', '.join(KINDS)}, or .gz after it, got {given}"
        )
    content = read_bytes(name, given)
    rows: Iterable[tuple[str, Any]]
    if kind == "parquet":
        rows = _parquet(given, column, name)
    else:
        whole = _unpacked(content, given, name) if packed else content
        text = _decoded(whole, name, every=every)
        if kind == "lines":
            lines = lines_of(text, every=every)
            rows = zip(lines.places, lines.texts, strict=True)
        elif kind == "json":
            rows = _json_lines(text, column, name, every=every)
        else:
            tab = ".tsv" in suffixes
            rows = _csv(text, column, name, "\t" if tab else ",", every=every)
    found: list[tuple[str, str]] = []
    for place, cell in rows:
        if every:
            found.append((place, whole_text(cell)))
            continue
        if not isinstance(cell, str) or not cell.strip():
            held = "an empty text" if isinstance(cell, str) else type(cell).__name__
            raise ValueError(f"{name}: {place}: expected a text, got {held}")
        if SURROGATE.search(cell):
            raise ValueError(f"{name}: {place}: expected text, got half of a surrogate pair")
        found.append((place, cell))
    if not found:
        raise ValueError(f"{name}: expected at least one prompt in {given}, got none")
    return PromptTexts(tuple(cell for _, cell in found), tuple(place for place, _ in found))


def whole_text(cell: Any) -> str:
    """Return a text that a tokenizer takes, whatever a cell holds: the empty one for none.

    Example:
        >>> [whole_text(cell) for cell in ("a", None, 3.0)]
        ['a', '', '']
    """
    return SURROGATE.sub("\ufffd", cell) if isinstance(cell, str) else ""


def _folder(folder: Path, column: str | None, name: str, every: bool) -> PromptTexts:
    """Return the lines of the texts in a folder, empty ones left out unless all are wanted."""
    if column is not None:
        raise ValueError(f"{name}: expected no column for a folder of texts, got {column!r}")
    texts: list[str] = []
    places: list[str] = []
    for file in sorted(folder.iterdir()):
        if not file.name.endswith((".txt", ".txt.gz")):
            continue
        content = read_bytes(name, os.fspath(file))
        whole = _unpacked(content, file.name, name) if file.suffix == ".gz" else content
        found = lines_of(_decoded(whole, f"{name}: {file.name}", every=every), every=every)
        texts += found.texts
        places += (f"{file.name}, {place}" for place in found.places)
    if not texts:
        raise ValueError(f"{name}: expected .txt or .txt.gz files with lines in {folder}, got none")
    return PromptTexts(tuple(texts), tuple(places))


def lines_of(text: str, *, every: bool = False) -> PromptTexts:
    """Return the lines of a text that are not empty, or every line, as prompts."""
    lines = _ended(_lines(text)) if every else _lines(text)
    held = [(i, line) for i, line in enumerate(lines, 1) if every or line.strip()]
    return PromptTexts(tuple(line for _, line in held), tuple(f"line {i}" for i, _ in held))


def _lines(text: str) -> list[str]:
    """Split at line ends alone: other separators may stand inside a prompt."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _ended(lines: list[str]) -> list[str]:
    """Leave out what stands after the last line end, where nothing does: it is no line."""
    return lines if lines[-1] else lines[:-1]


def _unpacked(content: bytes, path: str, name: str) -> bytes:
    try:
        return unpacked(gzip.open, content, f"{name}: {path}")
    except (OSError, EOFError, zlib.error):
        raise ValueError(f"{name}: cannot unpack {path}: it is damaged or no gzip") from None


def _decoded(content: bytes, name: str, *, every: bool = False) -> str:
    try:
        return content.decode("utf-8-sig", errors="replace" if every else "strict")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{name}: line {line}: expected UTF-8, got {error.reason}") from None


def _chosen(columns: Sequence[str], column: str | None, name: str, place: str) -> str:
    """Return the column asked for, else the usual one; a file without a header shows no cell."""
    wanted = USUAL_COLUMNS if column is None else (column,)
    found = [held for held in wanted if held in columns]
    if not found:
        named = " or ".join(map(repr, wanted))
        other = "" if column is not None else "; --column names another"
        raise ValueError(
            f"{name}: {place}: expected a column {named} among {len(columns)}, got none{other}"
        )
    return found[0]


def _json_lines(
    text: str, column: str | None, name: str, *, every: bool
) -> Iterator[tuple[str, Any]]:
    if every:
        for number, line in enumerate(_ended(_lines(text)), 1):
            yield f"line {number}", _json_cell(line, column)
        return
    for number, line in enumerate(_lines(text), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"{name}: {place}: expected a line of JSON") from None
        if isinstance(entry, dict):
            key = _chosen(list(entry), column, name, place)
            yield f"{place}, column {key!r}", entry[key]
        elif column is not None:
            held = type(entry).__name__
            raise ValueError(f"{name}: {place}: expected an object with {column!r}, got {held}")
        else:
            yield place, entry


def _json_cell(line: str, column: str | None) -> Any:
    """Return what a line of JSON holds, None where that is no text."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return entry if column is None else None
    wanted = USUAL_COLUMNS if column is None else (column,)
    return next((entry[key] for key in wanted if key in entry), None)


def _csv(
    text: str, column: str | None, name: str, separator: str, *, every: bool
) -> Iterator[tuple[str, Any]]:
    source = io.StringIO(text, newline="")
    reader = csv.reader(source, delimiter=separator, strict=not every)
    limit = csv.field_size_limit(max(len(text), 1))
    try:
        header = next(reader, [])
        key = _chosen(header, column, name, "line 1")
        if header.count(key) > 1:
            raise ValueError(f"{name}: line 1: expected one column {key!r}, got several")
        at, start = header.index(key), reader.line_num + 1
        for row in reader:
            place = f"line {start}, column {key!r}"
            start = reader.line_num + 1
            if every:
                yield place, row[at] if at < len(row) else None
                continue
            if len(row) not in (0, len(header)):
                raise ValueError(f"{name}: {place}: expected {len(header)} cells, got {len(row)}")
            if row:
                yield place, row[at]
    except csv.Error as error:
        raise ValueError(f"{name}: line {reader.line_num}: no CSV ({error})") from None
    finally:
        csv.field_size_limit(limit)


def _parquet(path: str, column: str | None, name: str) -> Iterator[tuple[str, Any]]:
    from tacit._ground.parquet import ParquetError, ParquetFile

    try:
        with ParquetFile(path) as file:
            key = _chosen(file.names, column, name, "schema")
            found = [held.to_pylist() for (held,) in file.batches(file.column(key))]
    except ParquetError:
        raise ValueError(f"{name}: expected a Parquet file that can be read, got another") from None
    for number, cell in enumerate(itertools.chain.from_iterable(found), 1):
        yield f"row {number}, column {key!r}", cell
