"""The one reader: columns of finite numbers from a file, a frame or a query."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from tacit._ground.checks import Array, choice
from tacit._ground.files import read_bytes
from tacit.statistics.tables.cells import RowBits, column_cells
from tacit.statistics.tables.columns import Codes, Numbers
from tacit.statistics.tables.csv_text import CsvText
from tacit.statistics.tables.database import queried
from tacit.statistics.tables.decoding import decompressed
from tacit.statistics.tables.header import Header, Levels, Request, Source
from tacit.statistics.tables.table import Category, Table
from tacit.statistics.tables.typed import frame, typed_file
from tacit.statistics.tables.words import dropped_words, observed_words

STANDARD_INPUT = "-"
MARKS = (".", ",")
# The column of zeros of a table of which no column is read.
UNREAD = "row"
CONDUCT = ("refuse", "drop", "drop-unreadable")


def read_table(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    categories: Levels | None = None,
    missing: str = "refuse",
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    show_values: bool = False,
) -> Table:
    """Read columns of numbers from a file or a data frame.

    A file is CSV with a header line, Parquet or Arrow, as its first bytes say, plain or compressed
    by gzip, bzip2, zstd or LZ4. Columns that are not read may hold anything.

    Args:
        source: a path; ``"-"`` for standard input; or a data frame that exports itself to Arrow, as
            those of pandas and polars do.
        columns: names of the columns to read, in this order; every column when None.
        categories: columns to read as codes 0, 1, …, each with its levels, or None for those that
            occur. Codes go by the sorted levels. Categorical columns of a frame are coded unasked.
        missing: of rows with nothing in a column read: ``"refuse"`` the table, or ``"drop"`` them
            and count them; ``"drop-unreadable"`` drops those too that hold there what would refuse
            the table: text or an infinite number among numbers, an integer beyond 2⁵³, a level
            that is not declared. Whether a row is dropped depends on that row alone. Nothing is an
            empty field, or NA, N/A, NaN or null among numbers.
        encoding: of a CSV file; found when None: by its mark, else UTF-16, UTF-8 or Windows-1252.
        delimiter: of a CSV file; when None the one of comma, semicolon, tab and bar that splits the
            header into most names.
        decimal: the mark in the numbers of texts, ``"."`` or ``","``.
        show_values: whether a refusal may repeat the cell and the header it is about.

    Returns:
        The ``Table``.

    Raises:
        ValueError: for a file that is missing, damaged or no table; a repeated or empty column
            name; a column that is not there; a record with too few or too many fields; a cell
            that is no finite number or an integer beyond 2⁵³, with its line and column.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.csv"
        >>> _ = path.write_text("height;city;weight\\n1,5;Rome;50\\n1,75;Bern;70\\n")
        >>> table = read_table(path, ["weight", "city"], decimal=",", categories={"city": None})
        >>> table.columns, table.rows.tolist(), table.categories["city"].levels
        (('weight', 'city'), [[50.0, 1.0], [70.0, 0.0]], ('Bern', 'Rome'))
    """
    choice("missing", missing, CONDUCT)
    choice("decimal", decimal, MARKS)
    opened = _opened(source, encoding, delimiter, decimal)
    with closing(opened.source):
        return _read(opened, Request(columns, categories or {}, missing, decimal, show_values))


def read_query(
    sql: str,
    database: str | os.PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    categories: Levels | None = None,
    missing: str = "refuse",
    decimal: str = ".",
    show_values: bool = False,
) -> Table:
    """Read columns of numbers from the result of a query, on a database that is only read.

    Args:
        sql: one statement that returns rows.
        database: an SQLite or DuckDB file, or the URL of any database that SQLAlchemy knows; None
            for DuckDB in memory, which reads the files that the query names.
        columns: as for ``read_table``, as are the arguments after it.
        categories: columns to read as codes.
        missing: what to do with rows that lack a column read.
        decimal: the mark in the numbers of texts.
        show_values: whether a refusal may repeat what the database said, and cells.

    Returns:
        The ``Table``. Its fingerprint is of the rows returned: other queries on the same database
        have others, so releases from several of them need one name in a ledger.

    Raises:
        ValueError: no such database, a query that fails or returns nothing; and as ``read_table``.

    Example:
        >>> import contextlib, pathlib, sqlite3, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.db"
        >>> with contextlib.closing(sqlite3.connect(path)) as people, people:
        ...     _ = people.execute("create table person (age, name)")
        ...     _ = people.execute("insert into person values (41, 'ann'), (17, 'bob')")
        >>> read_query("select age from person where age > 18", path).rows.tolist()
        [[41.0]]
    """
    choice("missing", missing, CONDUCT)
    choice("decimal", decimal, MARKS)
    table = queried(sql, database, show_values=show_values)
    label = "a query" if database is None else f"a query of {_name(database)}"
    request = Request(columns, categories or {}, missing, decimal, show_values)
    with closing(table):
        return _read(_Opened(table, label, None), request)


def fingerprint(
    source: Any,
    *,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
) -> str:
    """Return ``"sha256:<hex>"`` of a table's rows: the default name of the secret in a ledger.

    It is the same for the same rows however they are stored: container, compression, encoding,
    delimiter, quoting, line ends (in a cell too), Unicode composition, order of the rows and of
    the columns, spelling of a number or of nothing. Numbers are compared as parsed: those that
    round to the same float are the same.

    Raises:
        ValueError: when the source cannot be read as a table.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.csv").write_text("x,y\\n1.5,ann\\n2,bob\\n")
        >>> _ = (folder / "b.csv").write_text('x;y\\r\\n2.0;"bob"\\r\\n15e-1;ann\\r\\n')
        >>> fingerprint(folder / "a.csv") == fingerprint(folder / "b.csv")
        True
    """
    return fingerprints(source, encoding=encoding, delimiter=delimiter, decimal=decimal).rows


class Fingerprints(NamedTuple):
    """What names a table: its rows, and the bytes of its file, by which Tacit 0.1 did."""

    rows: str
    file: str | None


def fingerprints(
    source: Any,
    *,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
) -> Fingerprints:
    """Return the fingerprint of a table's rows, and of its file where it is one."""
    choice("decimal", decimal, MARKS)
    opened = _opened(source, encoding, delimiter, decimal)
    with closing(opened.source):
        rows = RowBits(Header(opened.source, opened.label, Request()).names)
        for batch in opened.source.batches():
            rows.add([column_cells(column, decimal) for column in batch])
    return Fingerprints(rows.fingerprint(), opened.digest)


def _name(database: str | os.PathLike[str]) -> str:
    # a URL may hold a password, and its last part does not
    return os.fspath(database).rpartition("/")[2].partition("?")[0]


class _Opened(NamedTuple):
    """A source, what it is called, and the digest of its bytes where it is a file."""

    source: Source
    label: str
    digest: str | None


def _opened(source: Any, encoding: str | None, delimiter: str | None, decimal: str) -> _Opened:
    if hasattr(source, "__arrow_c_stream__"):
        _no_text(encoding, delimiter, "a data frame")
        return _Opened(frame(source), "the data frame", None)
    if not isinstance(source, (str, os.PathLike)):
        hint = "; collect() makes a frame of it" if hasattr(source, "collect") else ""
        raise ValueError(
            "data: expected a path or a data frame of pandas or polars, got "
            f"{type(source).__name__}{hint}"
        )
    if source == STANDARD_INPUT:
        label, content = "standard input", sys.stdin.buffer.read()
    else:
        label, content = os.path.basename(os.fspath(source)), read_bytes("data", source)
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    content = decompressed(content, label)
    table = typed_file(content, label)
    if table is not None:
        _no_text(encoding, delimiter, label)
        return _Opened(table, label, digest)
    text = CsvText(content, label, encoding=encoding, delimiter=delimiter, decimal=decimal)
    return _Opened(text, label, digest)


def _no_text(encoding: str | None, delimiter: str | None, label: str) -> None:
    for name, given in (("encoding", encoding), ("delimiter", delimiter)):
        if given is not None:
            raise ValueError(f"{name}: expected it for a CSV file only, got it for {label}")


def _read(opened: _Opened, request: Request) -> Table:
    source = opened.source
    header = Header(source, opened.label, request)
    everything = RowBits(header.names)
    gathered: dict[int, Numbers | Codes] = {}
    count = 0
    for batch in source.batches():
        if not gathered:
            gathered = {place: header.gatherer(place, batch[place]) for place in header.chosen}
        columns = [column_cells(column, request.decimal) for column in batch]
        found = [(gathered[place].add(columns[place]), place) for place in header.chosen]
        problems = [(problem, place) for problem, place in found if problem is not None]
        if problems:
            header.refuse(count, *min(problems))
        everything.add(columns)
        count += len(columns[0].numbers)
    if not count:
        raise ValueError(f"data: {opened.label} has a header line but no rows")
    # the last lines of a spreadsheet are often bare separators
    count = everything.filled() if isinstance(source, CsvText) else count
    return _finished(opened, header, gathered, everything.fingerprint(), count)


def _finished(
    opened: _Opened,
    header: Header,
    gathered: dict[int, Numbers | Codes],
    name: str,
    count: int,
) -> Table:
    """Return the table of what was gathered, with the rows that lack something dropped."""
    if not header.chosen:
        # rows that are only counted
        return _table(opened, (UNREAD,), np.zeros((count, 1)), {}, name, 0)
    rows = np.empty((count, len(gathered)))
    categories: dict[str, Category] = {}
    for target, place in enumerate(header.chosen):
        column = gathered.pop(place)
        if isinstance(column, Codes):
            values, categories[header.names[place]] = column.values()
        else:
            values = column.values()
        rows[:, target] = values[:count]
    whole = ~np.isnan(rows).any(axis=1)
    dropped = count - int(np.count_nonzero(whole))
    if dropped:
        header.refuse_missing(rows)
        rows = rows[whole]
    if not len(rows):
        raise ValueError(f"data: every row of {opened.label} lacks one of the columns read")
    columns = tuple(header.names[place] for place in header.chosen)
    return _table(opened, columns, rows, categories, name, dropped)


def _table(
    opened: _Opened,
    columns: tuple[str, ...],
    rows: Array,
    categories: dict[str, Category],
    name: str,
    dropped: int,
) -> Table:
    notes = list(opened.source.notes)
    if dropped:
        notes.append(dropped_words(dropped, dropped + len(rows)))
    notes += [
        observed_words(column) for column, category in categories.items() if not category.declared
    ]
    return Table(
        columns=columns,
        rows=rows,
        fingerprint=name,
        label=opened.label,
        categories=categories,
        dropped=dropped,
        notes=tuple(notes),
        file_digest=opened.digest,
    )
