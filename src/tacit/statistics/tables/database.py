"""The result of a query on a database, which is only read."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tacit._ground.lazy import install_with
from tacit.statistics.tables.typed import ROWS_AT_A_TIME, TypedTable, as_column

# What a statement that only reads begins with, after comments and brackets; writing behind WITH is
# refused by the connection.
READING = re.compile(r"(?is)\A(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with|values|table)\b")
# Modules of drivers, and the extras that install them.
DRIVERS = {"psycopg": "postgres"}
SQLITE, DUCKDB = b"SQLite format 3\x00", b"DUCK"


def queried(sql: str, database: str | os.PathLike[str] | None, *, show_values: bool) -> TypedTable:
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
        raise _nothing()
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
        raise _failed(error, show_values) from None
    try:
        connection = opened.enter_context(_read_only(engine))
        result = connection.execution_options(stream_results=True).exec_driver_sql(sql)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        opened.close()
        raise _failed(error, show_values) from None
    if not result.returns_rows:
        connection.close()
        raise _nothing()

    def batches() -> Iterator[list[Any]]:
        # closing rolls back: whatever the statement did, the database is as it was
        with connection:
            try:
                for rows in result.partitions(ROWS_AT_A_TIME):
                    yield [as_column(list(cells)) for cells in zip(*rows, strict=True)]
            except sqlalchemy.exc.SQLAlchemyError as error:
                raise _failed(error, show_values) from None

    return TypedTable(list(result.keys()), batches())


def _with_driver(url: str) -> str:
    """Return the URL with the driver that an extra installs, where it names none."""
    kind, rest = url.split("://", 1)
    return f"postgresql+psycopg://{rest}" if kind in ("postgres", "postgresql") else url


def _read_only(engine: Any) -> Any:
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
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ValueError(f"sql: a DuckDB query needs duckdb: {install_with('duckdb')}") from None
    try:
        # nothing is fetched from elsewhere to answer a query
        connection = duckdb.connect(
            path,
            read_only=path != ":memory:",
            config={"autoinstall_known_extensions": "false"},
        )
        statements = duckdb.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            raise _nothing()
        relation = connection.sql(sql)
        if relation is None:
            raise _nothing()
        reader = pa.RecordBatchReader.from_stream(relation)
    except duckdb.Error as error:
        raise _failed(error, show_values) from None

    def batches() -> Iterator[list[Any]]:
        with connection:
            try:
                for batch in reader:
                    yield batch.columns
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise _failed(error, show_values) from None

    return TypedTable(reader.schema.names, batches())


def _failed(error: Exception, show_values: bool) -> ValueError:
    # SQLite's words, and DuckDB's for a file that another process writes
    if any(sign in str(error) for sign in ("database is locked", "Could not set lock on file")):
        return ValueError("database: another process holds it; try again when that is done")
    said = f": {error}" if show_values else "; show_values repeats what the database said"
    return ValueError(f"sql: the query failed with {type(error).__name__}{said}")


def _nothing() -> ValueError:
    return ValueError(
        "sql: expected one statement that reads and returns rows, such as SELECT, got another"
    )
