"""The one reader: columns of finite numbers from a file, a frame or a query."""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from tacit._ground.checks import Array, choice
from tacit._ground.files import read_bytes
from tacit.statistics.tables.cells import (
    DECIMAL_COMMA,
    TEXT,
    CategoryCodes,
    NumberCells,
    RowBits,
    UnreadableCell,
    column_cells,
)
from tacit.statistics.tables.columns import ColumnCells
from tacit.statistics.tables.csv_text import CsvText, decompress
from tacit.statistics.tables.table import (
    UNREAD,
    Category,
    DataTable,
    check_levels,
    dropped_words,
    observed_note,
    plain_text,
)
from tacit.statistics.tables.typed import TypedTable, frame, run_sql, typed_file

# Likeness of a column's name to one that is not there, for "did you mean".
LIKE = 0.7
# Asked for where no column is read and rows are counted: no column can have this name.
NO_COLUMN = ("",)
Levels = Mapping[str, Sequence[str] | None]
STANDARD_INPUT = "-"
MARKS = (".", ",")
CONDUCT = ("refuse", "drop", "drop-unreadable", "bounded")


class TableSource(Protocol):
    """What a table is read from, whatever it is stored as."""

    names: tuple[str, ...]
    notes: tuple[str, ...]

    def batches(self) -> Iterator[list[ColumnCells]]:
        """Yield the columns of some rows, then of the next ones."""

    def place(self, row: int) -> str:
        """Return where a row stands."""

    def close(self) -> None:
        """Stop reading, and let go of what is read from."""


@dataclass(frozen=True)
class ReadRequest:
    """What is to be read of a source, and how refusals are worded."""

    columns: Sequence[str] | None = None
    categories: Levels = field(default_factory=dict)
    missing: str = "refuse"
    decimal: str = "."
    show_values: bool = False


class MissingColumnError(ValueError):
    """A column was asked for that the table does not have.

    Attributes:
        column: its name as it was asked for.
    """

    def __init__(self, sentence: str, column: str) -> None:
        super().__init__(sentence)
        self.column = column


class Header:
    """The names of a source, and what was asked of them.

    The header of a text may be a row of data, or a line of a file that is no table: a refusal
    names a column by its number there, unless the caller named it first.
    """

    def __init__(self, source: TableSource, label: str, request: ReadRequest) -> None:
        self.names = source.names
        self._source, self._label, self._request = source, label, request
        self.typed = isinstance(source, TypedTable)
        self._told = self.typed or request.show_values
        self._places = self._check_names()
        listed = request.columns
        if isinstance(listed, str):
            raise ValueError(f"columns: expected a list of names, got {listed!r}")
        if listed is not None and tuple(listed) == NO_COLUMN:
            listed = ()
        elif listed is not None and not len(listed):
            raise ValueError("columns: expected at least one column name, got none")
        wanted = list(self.names if listed is None else listed)
        self._asked = {plain_text(str(name)) for name in (*(listed or ()), *request.categories)}
        self.chosen = self._positions(wanted)
        self._levels: dict[int, list[str] | None] = {}
        for name, levels in request.categories.items():
            place = self._position(name, "categories")
            self._levels[place] = None if levels is None else check_levels(name, levels)
            if place not in self.chosen:
                raise ValueError(
                    f"categories: expected one of the columns read, got {self.names[place]!r}"
                )

    def gatherer(self, place: int, column: ColumnCells) -> NumberCells | CategoryCodes:
        """Return what gathers a column: numbers, or codes where it is a category.

        Raises:
            ValueError: its type is neither of numbers nor of texts, such as durations.
        """
        if place in self._levels or column.coded:
            by_value = self._request.decimal if self.typed else None
            levels = self._levels.get(place)
            return CategoryCodes(levels, lenient=self._lenient, by_value=by_value)
        if column.odd is not None:
            raise ValueError(
                f"data: {self._column(place)}: expected numbers, got {column.odd}; give them in a "
                "unit, such as days, or leave the column out"
            )
        return NumberCells(lenient=self._lenient, bounded=self._request.missing == "bounded")

    def refuse(self, before: int, problem: UnreadableCell, place: int) -> NoReturn:
        """Refuse the table for a cell of a batch that ``before`` rows precede."""
        held = f" ({problem.cell!r})" if self._request.show_values else ""
        where = f"{self._source.place(before + problem.row)}, {self._column(place)}"
        sentence = problem.sentence
        if self._request.decimal == "." and DECIMAL_COMMA.fullmatch(problem.cell):
            sentence = f"{TEXT.partition(';')[0]}, as a number with a decimal comma is: --decimal ,"
        raise ValueError(f"data: {where}: {sentence}{held}")

    def refuse_missing(self, rows: Array) -> None:
        """Refuse the table for its first cell with nothing in it, unless such rows are dropped."""
        if self._request.missing != "refuse":
            return
        row, target = np.argwhere(np.isnan(rows))[0].tolist()
        where = f"{self._source.place(row)}, {self._column(self.chosen[target])}"
        raise ValueError(
            f"data: {where}: expected a value, got an empty field or NaN; missing='drop' "
            "(--missing drop) leaves such rows out and counts them"
        )

    @property
    def _lenient(self) -> bool:
        return self._request.missing in ("drop-unreadable", "bounded")

    def _column(self, place: int) -> str:
        named = self._told or self.names[place] in self._asked
        return f"column {self.names[place]!r}" if named else f"column {place + 1}"

    def _check_names(self) -> dict[str, int]:
        if not self.names:
            raise ValueError(f"data: {self._label} has no columns")
        first: dict[str, int] = {}
        for place, name in enumerate(self.names):
            if not name:
                raise ValueError(f"data: {self._label}: column {place + 1} has no name")
            if name in first:
                raise ValueError(
                    f"data: {self._label}: columns {first[name] + 1} and {place + 1} have one name"
                    + (f", {name!r}" if self._told else "")
                )
            first[name] = place
        return first

    def _positions(self, wanted: Sequence[str]) -> list[int]:
        places: dict[int, str] = {}
        for name in wanted:
            place = self._position(name, "columns")
            if place in places:
                raise ValueError(f"columns: the column {name!r} is asked for twice")
            places[place] = name
        return list(places)

    def _position(self, name: str, argument: str) -> int:
        spelled = plain_text(str(name))
        if spelled in self._places:
            return self._places[spelled]
        near = difflib.get_close_matches(spelled, self.names, 1, LIKE)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if self._told:
            hint = f"; it has {', '.join(map(repr, self.names))}"
        elif not near:
            hint = f" among its {len(self.names)}; show_values (--show-values) lists them"
        raise MissingColumnError(f"{argument}: {self._label} has no column {name!r}{hint}", name)


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
) -> DataTable:
    """Read columns of numbers from a file or a data frame.

    A file is CSV with a header line or Parquet, as its first bytes say, plain or compressed by
    gzip, bzip2 or zstd. Columns that are not read may hold anything.

    Args:
        source: a path; ``"-"`` for standard input; or a data frame that exports itself to Arrow, as
            those of pandas and polars do.
        columns: names of the columns to read, in this order; every column when None.
        categories: columns to read as codes 0, 1, …, each with its levels, or None for those that
            occur. Codes go by the sorted levels. Categorical columns of a frame are coded unasked.
        missing: of rows with nothing in a column read: ``"refuse"`` the table, or ``"drop"`` them
            and count them; ``"drop-unreadable"`` drops those too that hold there what would refuse
            the table: text or an infinite number among numbers, an integer beyond 2⁵³, a level
            that is not declared; ``"bounded"`` does so too, but an infinite number is the largest
            there is, for bounds that hold it. Whether a row is dropped depends on that row alone.
            Nothing is an empty field, or NA, N/A, NaN or null among numbers.
        encoding: of a CSV file; found when None: by its mark, else UTF-16, UTF-8 or Windows-1252.
        delimiter: of a CSV file; when None the one of comma, semicolon, tab and bar that splits the
            header into most names.
        decimal: the mark in the numbers of texts, ``"."`` or ``","``.
        show_values: whether a refusal may repeat the cell and the header it is about.

    Returns:
        The ``DataTable``.

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
    opened = _open(source, encoding, delimiter, decimal)
    with closing(opened.source):
        return _read(opened, ReadRequest(columns, categories or {}, missing, decimal, show_values))


def read_query(
    sql: str,
    database: str | os.PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    categories: Levels | None = None,
    missing: str = "refuse",
    decimal: str = ".",
    show_values: bool = False,
) -> DataTable:
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
        The ``DataTable``. Its fingerprint is of the rows returned: other queries on the same
        database have others, so releases from several of them need one name in a ledger.

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
    table = run_sql(sql, database, show_values=show_values)
    label = "a query" if database is None else f"a query of {_name(database)}"
    request = ReadRequest(columns, categories or {}, missing, decimal, show_values)
    with closing(table):
        return replace(_read(_Opened(table, label, None), request), queried=True)


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
    opened = _open(source, encoding, delimiter, decimal)
    with closing(opened.source):
        header = Header(opened.source, opened.label, ReadRequest())
        rows = RowBits(header.names)
        for batch in opened.source.batches():
            rows.add([column_cells(column, decimal, typed=header.typed) for column in batch])
    return Fingerprints(rows.fingerprint(), opened.digest)


def _name(database: str | os.PathLike[str]) -> str:
    # a URL may hold a password, and its last part does not
    return os.fspath(database).rpartition("/")[2].partition("?")[0]


class _Opened(NamedTuple):
    """A source, what it is called, and the digest of its bytes where it is a file."""

    source: TableSource
    label: str
    digest: str | None


def _open(source: Any, encoding: str | None, delimiter: str | None, decimal: str) -> _Opened:
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
    plain = decompress(content, label)
    kept = None if source == STANDARD_INPUT or plain is not content else os.fspath(source)
    table = typed_file(plain, kept, label)
    if table is not None:
        _no_text(encoding, delimiter, label)
        return _Opened(table, label, digest)
    text = CsvText(plain, label, encoding=encoding, delimiter=delimiter, decimal=decimal)
    return _Opened(text, label, digest)


def column_names(
    source: Any, *, encoding: str | None, delimiter: str | None, decimal: str
) -> tuple[str, ...]:
    """Return the names of the columns of a table, in their order.

    Raises:
        ValueError: as ``read_table``.
    """
    opened = _open(source, encoding, delimiter, decimal)
    with closing(opened.source):
        return tuple(opened.source.names)


def _no_text(encoding: str | None, delimiter: str | None, label: str) -> None:
    for name, given in (("encoding", encoding), ("delimiter", delimiter)):
        if given is not None:
            raise ValueError(f"{name}: expected it for a CSV file only, got it for {label}")


def _read(opened: _Opened, request: ReadRequest) -> DataTable:
    source = opened.source
    header = Header(source, opened.label, request)
    everything = RowBits(header.names)
    gathered: dict[int, NumberCells | CategoryCodes] = {}
    count = 0
    for batch in source.batches():
        if not gathered:
            gathered = {place: header.gatherer(place, batch[place]) for place in header.chosen}
        columns = [column_cells(one, request.decimal, typed=header.typed) for one in batch]
        found = [(gathered[place].add(columns[place]), place) for place in header.chosen]
        problems = [(problem, place) for problem, place in found if problem is not None]
        if problems:
            header.refuse(count, *min(problems))
        everything.add(columns)
        count += len(columns[0].numbers)
    if not gathered:
        # no row: nothing is gathered, and a promise about the table answers as for any other
        gathered = {place: header.gatherer(place, ColumnCells(())) for place in header.chosen}
    # the last lines of a spreadsheet are often bare separators
    count = everything.filled() if isinstance(source, CsvText) else count
    return _finish(opened, header, gathered, everything.fingerprint(), count)


def _finish(
    opened: _Opened,
    header: Header,
    gathered: dict[int, NumberCells | CategoryCodes],
    name: str,
    count: int,
) -> DataTable:
    """Return the table of what was gathered, with the rows that lack something dropped."""
    if not header.chosen:
        # rows that are only counted
        return _table(opened, (UNREAD,), np.zeros((count, 1)), {}, name, 0)
    rows = np.empty((count, len(gathered)))
    categories: dict[str, Category] = {}
    for target, place in enumerate(header.chosen):
        column = gathered.pop(place)
        if isinstance(column, CategoryCodes):
            values, categories[header.names[place]] = column.values()
        else:
            values = column.values()
        rows[:, target] = values[:count]
    whole = ~np.isnan(rows).any(axis=1)
    dropped = count - int(np.count_nonzero(whole))
    if dropped:
        header.refuse_missing(rows)
        rows = rows[whole]
    columns = tuple(header.names[place] for place in header.chosen)
    return _table(opened, columns, rows, categories, name, dropped)


def _table(
    opened: _Opened,
    columns: tuple[str, ...],
    rows: Array,
    categories: dict[str, Category],
    name: str,
    dropped: int,
) -> DataTable:
    notes = list(opened.source.notes)
    if dropped:
        notes.append(dropped_words(dropped, dropped + len(rows)))
    notes += [
        observed_note(column) for column, category in categories.items() if not category.declared
    ]
    return DataTable(
        columns=columns,
        rows=rows,
        fingerprint=name,
        label=opened.label,
        categories=categories,
        dropped=dropped,
        notes=tuple(notes),
        file_digest=opened.digest,
    )
