"""Parquet files, read and written by DuckDB on one thread: names, metadata, batches of columns."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from typing import Any, Self

import duckdb
import nanoarrow
from nanoarrow.ipc import InputStream

from tacit._ground import arrow

# Nothing is fetched from elsewhere, and no thread outlives what asked for it.
SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": "1",
}
# What the writers of Arrow add to the metadata: the types of the columns, base64 of a message.
SCHEMA = "ARROW:schema"
# What it tells that is not in the columns: texts are a category, integers durations.
TOLD = ("DICTIONARY", "DURATION", "EXTENSION", "HALF_FLOAT")
# Types of which no Python values are made: their texts stand for them.
STRANGE = ("MAP(", "UNION(", "VARIANT")
# Numbers in a group of rows that is written.
GROUP = 1 << 22


class ParquetError(ValueError):
    """It is not whole, or no Parquet file."""


class ParquetFile:
    """A Parquet file, opened.

    Attributes:
        names: of its columns; DuckDB has others for those that differ by case alone.
        count: how many rows it has.
        metadata: texts in the file beside the rows.

    Raises:
        ParquetError: no such file, or not one that can be read.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/two.parquet"
        >>> _ = duckdb.execute(f"COPY (SELECT 1 AS a, 'x' AS b) TO '{path}'")
        >>> with ParquetFile(path) as file:
        ...     print(file.names, [column.to_pylist() for column in next(file.batches())])
        ('a', 'b') [[1], ['x']]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = quoted(literal_path(os.fspath(path)))
        self._connection = duckdb.connect(":memory:", config=SETTINGS)
        try:
            self._connection.execute("SET enable_progress_bar = false")
            whole = self._select("*")
            self._own = tuple(map(identifier, whole.columns))
            self.names = self._names()
            (self.count,) = self._told("num_rows", "parquet_file_metadata")[0]
            self.metadata = {
                key.decode(): value.decode()
                for key, value in self._told("key, value", "parquet_kv_metadata")
                if key is not None
            }
        except (duckdb.Error, UnicodeDecodeError):
            self.close()
            raise ParquetError("expected a Parquet file that can be read, got another") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def column(self, name: str) -> str:
        """Return what stands for a column in an expression."""
        return self._own[self.names.index(name)]

    def sql_types(self) -> dict[str, str]:
        """Return what DuckDB reads the columns as, by their names."""
        return dict(zip(self.names, map(str, self._select("*").types), strict=True))

    def types(self) -> list[Any]:
        """Return the types of Arrow's that the file tells and Parquet has not, None elsewhere."""
        message = self.metadata.get(SCHEMA)
        try:
            stream = InputStream.from_readable(io.BytesIO(base64.b64decode(message or "")))
            written = nanoarrow.ArrayStream(stream).schema.fields
        except (ValueError, RuntimeError):
            written = []
        told = {one.name: one for one in written if one.type.name in TOLD}
        return [told.get(name) for name in self.names]

    def batches(self, expressions: str | None = None) -> Iterator[list[Any]]:
        """Yield the columns of some rows in order, then of the next ones.

        Args:
            expressions: what is selected, in SQL; every column when None.

        Raises:
            ParquetError: the file breaks off.
        """
        try:
            yield from arrow.batches(readable(self._select(expressions or "*")))
        except (duckdb.Error, RuntimeError):
            raise ParquetError("expected a whole Parquet file, got another") from None

    def _select(self, expressions: str) -> Any:
        # a folder named year=2020 holds no column
        return self._connection.sql(
            f"SELECT {expressions} FROM read_parquet({self._path}, hive_partitioning = false)"
        )

    def _told(self, columns: str, function: str) -> list[tuple[Any, ...]]:
        found = self._connection.sql(f"SELECT {columns} FROM {function}({self._path})")
        rows: list[tuple[Any, ...]] = found.fetchall()
        return rows

    def _names(self) -> tuple[str, ...]:
        """Return the names of the columns as written: the children of the schema's root."""
        rows = iter(self._told("name, num_children", "parquet_schema")[1:])

        def skip(count: int) -> None:
            for _ in range(count):
                skip(next(rows)[1] or 0)

        names = []
        for name, children in rows:
            names.append(name)
            skip(children or 0)
        return tuple(names)


def write_parquet(
    path: str | os.PathLike[str], column: str, rows: Any, key: str, text: str
) -> None:
    """Write rows (n, d) as one column, of lists where d > 1, with a text in the metadata.

    Args:
        path: of the file, written over.
        column: its name.
        rows: numbers, which may stand in a file larger than memory.
        key: of the text.
        text: what stands beside the rows.
    """
    count, width = rows.shape
    entries = nanoarrow.c_array(rows.reshape(-1))
    entry = nanoarrow.Schema(entries.schema)
    kind = entry if width == 1 else nanoarrow.fixed_size_list(entry, width)
    if width > 1:
        entries = nanoarrow.c_array_from_buffers(kind, count, [None], children=[entries])
    table = nanoarrow.c_array_from_buffers(
        nanoarrow.struct({"rows": kind}), count, [None], children=[entries]
    )
    # a group of rows is what a reader decodes at once
    group = max(1, GROUP // width)
    with duckdb.connect(":memory:", config=SETTINGS) as connection:
        connection.from_arrow(_Source(table)).create_view("written")
        connection.execute(
            f"COPY (SELECT rows AS {identifier(column)} FROM written) TO {quoted(os.fspath(path))} "
            f"(FORMAT parquet, ROW_GROUP_SIZE {group}, "
            f"KV_METADATA {{{identifier(key)}: {quoted(text)}}})"
        )


def readable(relation: Any) -> Any:
    """Return a relation with the texts of what no Python values are made of, if it has any."""
    strange = [any(mark in str(kind) for mark in STRANGE) for kind in relation.types]
    if not any(strange):
        return relation
    columns = zip(map(identifier, relation.columns), strange, strict=True)
    return relation.project(
        ", ".join(f"{name}::VARCHAR AS {name}" if odd else name for name, odd in columns)
    )


class _Source:
    """An array as a table that can be read more than once."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested: Any = None) -> Any:
        return nanoarrow.c_array_stream(self._table).__arrow_c_stream__(requested)


def identifier(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def literal_path(path: str) -> str:
    """Return a path of which no character stands for several files."""
    return "".join(f"[{one}]" if one in "*?[" else one for one in path)
