"""Tables whose columns have types: Parquet, data frames, results of database queries."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from tacit._ground import arrow
from tacit._ground.lazy import install_with
from tacit.statistics.tables.columns import (
    MOMENTS,
    ColumnCells,
    of_arrow,
    of_objects,
    of_times,
    unreadable,
)
from tacit.statistics.tables.table import plain_text

ROWS_AT_A_TIME = 1 << 16
PARQUET = b"PAR1"
# What a statement that only reads begins with, after comments and brackets, each of which ends
# where it first can; writing behind WITH is refused by the connection.
READING = re.compile(r"(?is)\A(\s|\(|--[^\n]*\n|/\*.*?\*/)*+(select|with|values|table)\b")
# Modules of drivers, and the extras that install them.
DRIVERS = {"psycopg": "postgres"}
SQLITE, DUCKDB = b"SQLite format 3\x00", b"DUCK"


class TypedTable:
    """Batches of named columns; rows are counted from 1, as a database does.

    Attributes:
        names: of the columns.
        notes: what has to be said of how it was read.
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        names: Sequence[Any],
        batches: Iterable[list[ColumnCells]],
        opened: contextlib.ExitStack | None = None,
    ) -> None:
        self.names = tuple(plain_text(str(name)) for name in names)
        self._batches, self._opened = batches, opened

    def batches(self) -> Iterator[list[ColumnCells]]:
        """Yield the columns of some rows, then of the next ones."""
        yield from self._batches

    def place(self, row: int) -> str:
        """Return ``"row 7"`` for a row counted from 0."""
        return f"row {row + 1}"

    def close(self) -> None:
        """Stop reading."""
        if isinstance(self._batches, Generator):
            self._batches.close()
        if self._opened is not None:
            self._opened.close()


def typed_file(content: bytes, path: str | None, label: str) -> TypedTable | None:
    """Return the table of a Parquet file, None for a file of another kind.

    Args:
        content: of the file.
        path: where it stands as it is; None for nowhere.
        label: what it is called.

    Raises:
        ValueError: a file of that kind that is damaged.
    """
    if not content.startswith(PARQUET):
        return None
    from tacit._ground.parquet import ParquetError, ParquetFile

    with contextlib.ExitStack() as opened:
        if path is None:
            folder = opened.enter_context(tempfile.TemporaryDirectory())
            path = os.path.join(folder, "table.parquet")
            Path(path).write_bytes(content)
        try:
            file = opened.enter_context(ParquetFile(path))
            types = file.types()
        except ParquetError:
            raise _damage(label) from None
        kept = opened.pop_all()

    def batches() -> Iterator[list[ColumnCells]]:
        try:
            for batch in file.batches():
                yield list(map(of_arrow, batch, types))
        except ParquetError:
            raise _damage(label) from None

    return TypedTable(file.names, batches(), kept)


def frame(source: Any) -> TypedTable:
    """Return the table of a data frame that exports itself to Arrow; its index is left out."""
    kind = type(source).__name__
    if len(getattr(source, "shape", (0, 0))) != 2:
        raise ValueError(f"data: expected a data frame, got a {kind}; give it as a frame")
    module = type(source).__module__.partition(".")[0]
    if module == "pandas":
        # its own export makes columns of an index
        columns = [_of_pandas(source.iloc[:, place]) for place in range(source.shape[1])]
        return TypedTable(source.columns, [columns])
    if module == "polars":
        # what it exports has texts in views, objects by their addresses, integers of 128 bits
        return TypedTable(source.columns, [[_of_polars(one) for one in source]])
    if "duckdb" in module:
        from tacit._ground.parquet import readable

        source = readable(source)
    try:
        stream = arrow.nanoarrow.ArrayStream(source)
        kinds = stream.schema.fields
        odd = any(map(unreadable, kinds))
    except (RuntimeError, ValueError):
        raise ValueError(
            f"data: expected columns that Arrow can hold, got a {kind} with others"
        ) from None
    plain = (list(map(of_arrow, batch)) for batch in arrow.batches(stream))
    return TypedTable([one.name for one in kinds], _by_duckdb(source, kinds) if odd else plain)


def _by_duckdb(source: Any, kinds: list[Any]) -> Iterator[list[ColumnCells]]:
    """Yield the columns of a frame with the texts of what no Python values are made of."""
    import duckdb

    from tacit._ground.parquet import SETTINGS, readable

    told = [one if one.type.name in ("DICTIONARY", "EXTENSION") else None for one in kinds]
    with duckdb.connect(":memory:", config=SETTINGS) as connection:
        try:
            for batch in arrow.batches(readable(connection.from_arrow(source))):
                yield list(map(of_arrow, batch, told))
        except (duckdb.Error, RuntimeError):
            raise ValueError("data: expected a frame that can be read twice, got another") from None


def _of_pandas(series: Any) -> ColumnCells:
    kind, missing = series.dtype, series.isna().to_numpy()
    letter, name = getattr(kind, "kind", "O"), type(kind).__name__
    if isinstance(kind, np.dtype) and letter in "biuf":
        return ColumnCells(series.to_numpy())
    zoned = name == "DatetimeTZDtype"
    if letter in "mM" and (zoned or isinstance(kind, np.dtype)):
        # moments with a zone are stored at UTC
        times = series.to_numpy(f"M8[{kind.unit}]") if zoned else series.to_numpy()
        return of_times(times, missing, zone=zoned)
    cells = zip(series.tolist(), missing.tolist(), strict=True)
    column = of_objects([None if nothing else cell for cell, nothing in cells])
    odd = f"what its type {kind} stands for" if name in ("PeriodDtype", "IntervalDtype") else None
    # a category stays one whatever its levels are
    return replace(column, coded=name == "CategoricalDtype", odd=odd)


def _of_polars(series: Any) -> ColumnCells:
    missing, kind = series.is_null(), str(series.dtype).partition("(")[0]
    if kind in ("Date", "Datetime", "Duration"):
        zoned = getattr(series.dtype, "time_zone", None) is not None
        return of_times(series.to_numpy(), missing.to_numpy(), zone=zoned)
    # integers beside what is missing would be doubles
    whole = kind.startswith(("Int", "UInt")) and "128" not in kind and not missing.any()
    if whole or kind.startswith("Float"):
        return ColumnCells(series.to_numpy())
    column = of_objects(series.to_list())
    odd = MOMENTS if kind == "Time" else None
    coded = kind in ("Categorical", "Enum")
    return replace(column, coded=coded, odd=odd, pointed=kind == "Decimal")


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
    path = Path(os.path.expanduser(location)).resolve()
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

    def batches() -> Iterator[list[ColumnCells]]:
        # closing rolls back: whatever the statement did, the database is as it was
        with connection:
            try:
                for rows in result.partitions(ROWS_AT_A_TIME):
                    yield [of_objects(cells) for cells in zip(*rows, strict=True)]
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

    from tacit._ground.parquet import readable

    try:
        # nothing is fetched from elsewhere to answer a query, and a view in a file, which reads
        # whatever its author named, reads no other file
        there = path != ":memory:"
        config = {"autoinstall_known_extensions": "false"}
        config |= {"enable_external_access": "false"} if there else {}
        connection = duckdb.connect(path, read_only=there, config=config)
        statements = duckdb.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            raise _no_columns()
        relation = connection.sql(sql)
        if relation is None:
            raise _no_columns()
        stream = arrow.nanoarrow.ArrayStream(readable(relation))
    except duckdb.Error as error:
        raise _query_error(error, show_values) from None

    def batches() -> Iterator[list[ColumnCells]]:
        with connection:
            try:
                for batch in arrow.batches(stream):
                    yield list(map(of_arrow, batch))
            except (duckdb.Error, RuntimeError) as error:
                raise _query_error(error, show_values) from None

    return TypedTable([one.name for one in stream.schema.fields], batches())


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
