"""Tables whose columns have types: Parquet, Arrow, data frames, results of database queries."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tacit._ground.lazy import install_with
from tacit.statistics.tables.cells import spell
from tacit.statistics.tables.table import plain_text

ROWS_AT_A_TIME = 1 << 16
PARQUET, ARROW = b"PAR1", b"ARROW1"
# What a statement that only reads begins with, after comments and brackets; writing behind WITH is
# refused by the connection.
READING = re.compile(r"(?is)\A(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with|values|table)\b")
# Modules of drivers, and the extras that install them.
DRIVERS = {"psycopg": "postgres"}
# What Arrow says of values that it has no column for.
NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)
SQLITE, DUCKDB = b"SQLite format 3\x00", b"DUCK"


class TypedTable:
    """Record batches with named columns; rows are counted from 1, as a database does.

    Attributes:
        names: of the columns.
        notes: what has to be said of how it was read.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, names: Sequence[Any], batches: Iterable[list[Any]]) -> None:
        self.names = tuple(plain_text(str(name)) for name in names)
        self._batches = batches

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of some rows, then of the next ones."""
        yield from self._batches

    def place(self, row: int) -> str:
        """Return ``"row 7"`` for a row counted from 0."""
        return f"row {row + 1}"

    def close(self) -> None:
        """Stop reading."""
        if isinstance(self._batches, Generator):
            self._batches.close()


def typed_file(content: bytes, label: str) -> TypedTable | None:
    """Return the table of a Parquet or Arrow file, None for a file of another kind.

    Raises:
        ValueError: a file of that kind that is damaged.
    """
    try:
        if content.startswith(PARQUET):
            from pyarrow import parquet

            file = parquet.ParquetFile(pa.BufferReader(content))
            rows = file.iter_batches(ROWS_AT_A_TIME)
            return TypedTable(file.schema_arrow.names, _whole(rows, label))
        if content.startswith(ARROW):
            reader = pa.ipc.open_file(pa.BufferReader(content))
            batches = (reader.get_batch(place) for place in range(reader.num_record_batches))
            return TypedTable(reader.schema.names, _whole(batches, label))
    except (pa.ArrowException, OSError):
        raise _damage(label) from None
    return None


def frame(source: Any) -> TypedTable:
    """Return the table of a data frame that exports itself to Arrow; its index is left out."""
    kind = type(source).__name__
    if len(getattr(source, "shape", (0, 0))) != 2:
        raise ValueError(f"data: expected a data frame, got a {kind}; give it as a frame")
    module = type(source).__module__.partition(".")[0]
    if module == "pandas":
        # its own export makes columns of an index
        columns = [_series(source.iloc[:, place]) for place in range(source.shape[1])]
        return TypedTable(source.columns, [columns])
    polars = module == "polars"
    # Arrow has objects of Python's by their addresses: these are read cell by cell
    foreign = polars and any(str(held) == "Object" for held in source.dtypes)
    if not foreign:
        try:
            reader = pa.RecordBatchReader.from_stream(source)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if not polars:
                raise ValueError(
                    f"data: expected columns that Arrow can hold, got a {kind} with others"
                ) from None
            # such as integers of 128 bits
            foreign = True
    if foreign:
        return TypedTable(source.columns, [[as_column(one.to_list()) for one in source]])
    return TypedTable(reader.schema.names, (batch.columns for batch in reader))


def as_column(cells: list[Any]) -> Any:
    """Return Python values as an Arrow column: each as its text where they are of several kinds.

    Arrow's own column of several kinds would depend on which of them comes first.
    """
    if len(set(map(type, cells)) - {type(None)}) <= 1:
        try:
            return pa.array(cells)
        except NOT_ARROW:
            pass
    return pa.array(list(map(spell, cells)), pa.large_string())


def _series(series: Any) -> Any:
    if series.dtype != object:
        try:
            return _one_array(pa.Array.from_pandas(series))
        except NOT_ARROW:
            pass
    absent = series.isna().tolist()
    cells = zip(series.tolist(), absent, strict=True)
    column = as_column([None if nothing else cell for cell, nothing in cells])
    # a category stays one whatever its levels are
    return column.dictionary_encode() if str(series.dtype) == "category" else column


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _whole(batches: Iterable[Any], label: str) -> Iterator[list[Any]]:
    try:
        for batch in batches:
            yield batch.columns
    except (pa.ArrowException, OSError):
        raise _damage(label) from None


def _damage(label: str) -> ValueError:
    return ValueError(f"data: {label} is not whole: it cannot be read as the table it begins as")


def run_sql(sql: str, database: str | os.PathLike[str] | None, *, show_values: bool) -> TypedTable:
    """Return the rows of a query.

    Args:
        sql: one statement that returns rows.
        database: an SQLite or DuckDB file, or the URL of any database that SQLAlchemy knows; None
            for DuckDB in memory, which reads the files that the query names.
        show_values: whether a refusal repeats what the database said, which may hold values.

    Raises:
        ValueError: no such database, or a query that fails or returns nothing.
    """
    if database is None:
        return _duckdb(sql, ":memory:", show_values)
    location = os.fspath(database)
    if "://" in location:
        return _sqlalchemy(sql, location, show_values)
    path = Path(location).expanduser().resolve()
    try:
        with path.open("rb") as file:
            magic = file.read(16)
    except OSError as error:
        raise ValueError(f"database: cannot read {location} ({error.strerror})") from None
    if magic[8:12] == DUCKDB:
        return _duckdb(sql, str(path), show_values)
    if magic == SQLITE:
        return _sqlalchemy(sql, f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true", show_values)
    raise ValueError(
        f"database: expected an SQLite or DuckDB file, or a URL, got another file: {location}"
    )


def _sqlalchemy(sql: str, url: str, show_values: bool) -> TypedTable:
    import sqlalchemy

    if not READING.match(sql):
        raise _no_columns()
    url = _with_driver(url)
    opened = contextlib.ExitStack()
    try:
        # no pool: what is closed is closed at once
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        if missing in DRIVERS:
            raise ValueError(
                f"database: it needs the driver {missing}: {install_with(DRIVERS[missing])}"
            ) from None
        raise _query_error(error, show_values) from None
    try:
        connection = opened.enter_context(_forbid_writing(engine))
        result = connection.execution_options(stream_results=True).exec_driver_sql(sql)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        opened.close()
        raise _query_error(error, show_values) from None
    if not result.returns_rows:
        connection.close()
        raise _no_columns()

    def batches() -> Iterator[list[Any]]:
        # closing rolls back: whatever the statement did, the database is as it was
        with connection:
            try:
                for rows in result.partitions(ROWS_AT_A_TIME):
                    yield [as_column(list(cells)) for cells in zip(*rows, strict=True)]
            except sqlalchemy.exc.SQLAlchemyError as error:
                raise _query_error(error, show_values) from None

    return TypedTable(list(result.keys()), batches())


def _with_driver(url: str) -> str:
    """Return the URL with the driver that an extra installs, where it names none."""
    kind, rest = url.split("://", 1)
    return f"postgresql+psycopg://{rest}" if kind in ("postgres", "postgresql") else url


def _forbid_writing(engine: Any) -> Any:
    """Return a connection that cannot write, where the database knows such a one."""
    kind, file = engine.dialect.name, engine.url.database
    if kind == "sqlite":
        named = file and not file.startswith("file:") and file != ":memory:"
        if named and not Path(file).is_file():
            raise ValueError(f"database: no such file: {file}")
    statement = {"sqlite": "PRAGMA query_only = ON"}.get(kind)
    if kind in ("mysql", "mariadb"):
        statement = "SET SESSION TRANSACTION READ ONLY"
    options = {"postgresql_readonly": True} if kind == "postgresql" else {}
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(engine.connect()).execution_options(**options)
        if statement is not None:
            connection.exec_driver_sql(statement)
        opened.pop_all()
    return connection


def _duckdb(sql: str, path: str, show_values: bool) -> TypedTable:
    import duckdb

    try:
        # nothing is fetched from elsewhere to answer a query
        connection = duckdb.connect(
            path,
            read_only=path != ":memory:",
            config={"autoinstall_known_extensions": "false"},
        )
        statements = duckdb.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            raise _no_columns()
        relation = connection.sql(sql)
        if relation is None:
            raise _no_columns()
        reader = pa.RecordBatchReader.from_stream(relation)
    except duckdb.Error as error:
        raise _query_error(error, show_values) from None

    def batches() -> Iterator[list[Any]]:
        with connection:
            try:
                for batch in reader:
                    yield batch.columns
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise _query_error(error, show_values) from None

    return TypedTable(reader.schema.names, batches())


def _query_error(error: Exception, show_values: bool) -> ValueError:
    # SQLite's words, and DuckDB's for a file that another process writes
    if any(sign in str(error) for sign in ("database is locked", "Could not set lock on file")):
        return ValueError("database: another process holds it; try again when that is done")
    said = f": {error}" if show_values else "; show_values repeats what the database said"
    return ValueError(f"sql: the query failed with {type(error).__name__}{said}")


def _no_columns() -> ValueError:
    return ValueError(
        "sql: expected one statement that reads and returns rows, such as SELECT, got another"
    )
