"""Reading a table of numbers from a CSV file, with every refusal naming the line and the column."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.files import read_bytes

DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of finite numbers: ``rows`` has shape (n, len(names)).

    ``fingerprint`` is that of the whole file the table was read from, as `fingerprint` gives it.
    """

    names: tuple[str, ...]
    rows: Array
    fingerprint: str


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Table:
    """Read columns of numbers from a CSV file that has a header line.

    The delimiter is the one of comma, semicolon and tab that splits the header into most names.
    The text is UTF-8, with or without a byte-order mark; quoted fields may hold the delimiter.

    Args:
        path: the file.
        columns: names of the columns to read, in this order; every column when None. Columns left
            out may hold anything.

    Returns:
        The ``Table`` of the chosen columns.

    Raises:
        ValueError: for a missing, empty or undecodable file, a repeated or empty column name, a
            column that is not there (those there are listed), a line with too few or too many
            fields, or a field that is not a finite number (its line and column are named).

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.csv"
        >>> _ = path.write_text("height,name,weight\\n1.5,ann,50\\n1.75,bob,70\\n")
        >>> table = read_table(path, ["weight", "height"])
        >>> table.names, table.rows.tolist()
        (('weight', 'height'), [[50.0, 1.5], [70.0, 1.75]])
    """
    content = read_bytes("data", path)
    label = os.path.basename(os.fspath(path))
    text = _decode(content, label)
    header, records = _split(text, label)
    chosen = _choose(header, columns, label)
    rows = np.empty((len(records), len(chosen)), dtype=np.float64)
    advice = "" if columns is not None else "; name the columns to read to leave it out"
    for target, (name, position) in enumerate(chosen):
        rows[:, target] = [_number(cells[position], line, name, advice) for line, cells in records]
    names = tuple(name for name, _ in chosen)
    return Table(names=names, rows=rows, fingerprint=_rows_digest(header, records))


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Return ``"sha256:<hex>"`` of a table's rows: the default name of the secret in a ledger.

    It is the same for the same rows however they are written: delimiter, quoting, line ends (in a
    cell too), Unicode composition, order of the rows and of the columns, spelling of a number.
    Numbers are compared as parsed: those that round to the same float are the same.

    Raises:
        ValueError: when the file cannot be read as a table.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.csv").write_text("x,y\\n1.5,ann\\n2,bob\\n")
        >>> _ = (folder / "b.csv").write_text('x;y\\r\\n2.0;"bob"\\r\\n15e-1;ann\\r\\n')
        >>> fingerprint(folder / "a.csv") == fingerprint(folder / "b.csv")
        True
    """
    label = os.path.basename(os.fspath(path))
    return _rows_digest(*_split(_decode(read_bytes("data", path), label), label))


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return ``"sha256:<hex>"`` of a file's bytes, by which Tacit 0.1 named a secret.

    Raises:
        ValueError: when the file cannot be read.
    """
    return "sha256:" + hashlib.sha256(read_bytes("data", path)).hexdigest()


def _rows_digest(header: list[str], records: list[tuple[int, list[str]]]) -> str:
    header = [_one_spelling(name) for name in header]
    order = sorted(range(len(header)), key=header.__getitem__)
    rows = sorted(_list_digest(_plain(cells[i]) for i in order) for _, cells in records)
    whole = hashlib.sha256(_list_digest(header[i] for i in order))
    for row in rows:
        whole.update(row)
    return "sha256:" + whole.hexdigest()


def _list_digest(cells: Iterable[str]) -> bytes:
    return hashlib.sha256(json.dumps(list(cells)).encode()).digest()


def _plain(cell: str) -> str:
    """Return one spelling of a cell; numbers that read as the same float are the same."""
    if not cell.isascii() or "_" in cell or not _is_number(cell):
        return f"text {_one_spelling(cell)}"
    return repr(float(cell) + 0.0)


def _one_spelling(text: str) -> str:
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))


def _decode(content: bytes, label: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"data: {label} is not UTF-8 text (byte {error.start} is 0x{content[error.start]:02x})"
        ) from None
    if not text.strip():
        raise ValueError(f"data: {label} is empty; expected a header line and rows of numbers")
    if "\x00" in text:
        raise ValueError(f"data: {label} is not text (it holds a zero byte)")
    return text


def _parse(text: str, delimiter: str, label: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records: list[tuple[int, list[str]]] = []
    try:
        for cells in reader:
            records.append((reader.line_num, [cell.strip() for cell in cells]))
    except csv.Error as error:
        raise ValueError(f"data: {label}, line {reader.line_num}: {error}") from None
    while records and not any(records[-1][1]):
        records.pop()
    return records


def _delimiter(text: str) -> str:
    first = next(line for line in text.splitlines() if line.strip())
    counts = {
        delimiter: len(next(csv.reader([first], delimiter=delimiter))) for delimiter in DELIMITERS
    }
    return max(DELIMITERS, key=lambda delimiter: counts[delimiter])


def _split(text: str, label: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    records = _parse(text, _delimiter(text), label)
    while records and not any(records[0][1]):
        records.pop(0)
    if not records:
        raise ValueError(f"data: {label} is empty; expected a header line and rows of numbers")
    header = records.pop(0)[1]
    _check_header(header, label)
    if not records:
        raise ValueError(f"data: {label} has a header line but no rows")
    for line, cells in records:
        if len(cells) != len(header):
            raise ValueError(
                f"data: {label}, line {line}: expected {len(header)} fields as in the header, "
                f"got {len(cells)}"
            )
    return header, records


def _check_header(header: list[str], label: str) -> None:
    for position, name in enumerate(header, start=1):
        if not name:
            raise ValueError(f"data: {label}: column {position} has no name in the header line")
    if all(_is_number(name) for name in header):
        raise ValueError(
            f"data: {label}: expected a header line with column names, got {len(header)} numbers"
        )
    repeated = [name for position, name in enumerate(header) if name in header[:position]]
    if repeated:
        raise ValueError(f"data: {label}: the header names the column {repeated[0]!r} twice")


def _choose(header: list[str], columns: Sequence[str] | None, label: str) -> list[tuple[str, int]]:
    if columns is None:
        return list(zip(header, range(len(header)), strict=True))
    wanted = [columns] if isinstance(columns, str) else list(columns)
    if not wanted:
        raise ValueError("columns: expected at least one column name, got none")
    for position, name in enumerate(wanted):
        if name not in header:
            raise ValueError(
                f"columns: {label} has no column {name!r}; it has {', '.join(map(repr, header))}"
            )
        if name in wanted[:position]:
            raise ValueError(f"columns: the column {name!r} is asked for twice")
    return [(name, header.index(name)) for name in wanted]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str, line: int, name: str, advice: str) -> float:
    where = f"data: line {line}, column {name!r}"
    if not text:
        raise ValueError(f"{where}: expected a number, got an empty field")
    # float() also reads "1_000" and digits of other scripts, which no other CSV reader does
    if "_" in text or not text.isascii() or not _is_number(text):
        raise ValueError(f"{where}: expected a number, got text{advice}")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{where}: expected a finite number, got NaN or an infinity")
    return number
