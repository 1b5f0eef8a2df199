"""DuckDB, in this process: what runs a statement about files, data frames and its own files."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.statistics.engines.dialects import DUCKDB, Dialect
from tacit.statistics.engines.schema import (
    TEXT,
    UNTYPED,
    TableThere,
    TypedColumn,
    check_names,
    kind_of,
)

# A folder named year=2020 holds no column: one of that name in the file is its own.
OF_THE_FILE = "hive_partitioning = false"
# Nothing is fetched from elsewhere to answer a query, no setting is changed by what it reads, and
# what a column of Python objects holds does not decide its type.
SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "false",
    "pandas_analyze_sample": "0",
}
PARQUET, GZIP, DATABASE = b"PAR1", b"\x1f\x8b", b"DUCK"
FOREIGN = {
    b"ARROW1": "Arrow", b"SQLite format 3": "SQLite", b"PK\x03\x04": "a ZIP archive",
    b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "LZ4",
}  # fmt: skip
JSON_ENDS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
LINE = re.compile(r"CSV Error on Line: (\d+)")
# A header, and the largest record.
HEAD, LARGEST_LINE = 1 << 16, 1 << 24


@dataclass(eq=False)
class DuckDB:
    """A connection to DuckDB, opened when it is first used."""

    dialect: Dialect = DUCKDB
    _connection: Any = field(default=None, repr=False)
    _texts: list[tuple[str, str]] = field(default_factory=list, repr=False)

    @property
    def label(self) -> str:
        """Its name and version."""
        import duckdb

        return f"DuckDB {duckdb.__version__}"

    @property
    def connection(self) -> Any:
        """The connection."""
        if self._connection is None:
            import duckdb

            self._connection = duckdb.connect(":memory:", config=SETTINGS)
            self._connection.execute("SET enable_progress_bar = false")
        return self._connection

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement.

        Raises:
            ValueError: it fails.
        """
        import duckdb

        try:
            rows: list[tuple[Any, ...]] = self.connection.execute(statement).fetchall()
        except duckdb.Error as error:
            names = self._other_bytes(statement) if "UTF" in str(error) else []
            if names:
                raise ValueError(
                    f"table: expected texts in UTF-8 in {' and '.join(names)}, got other bytes"
                ) from None
            raise _failed(error) from None
        return rows

    def _other_bytes(self, statement: str) -> list[str]:
        """Return the columns of a statement that hold texts which are none."""
        import duckdb

        found = []
        for relation, name in self._texts:
            column = self.dialect.named(name)
            if column not in statement or relation not in statement:
                continue
            try:
                self.connection.execute(f"SELECT MAX({column}) FROM {relation}").fetchall()
            except duckdb.Error:
                found.append(name)
        return found

    def table(
        self, name: str, source: Any, person: str | None, wanted: Sequence[str]
    ) -> TableThere:
        """Return a table: a file of CSV, Parquet, JSON or DuckDB's own, or a data frame.

        Args:
            name: by which statements name it.
            source: the path, or the frame.
            person: its column of persons; None for a public table.
            wanted: names of columns, of a file of JSON, which has no list of them.

        Raises:
            ValueError: no such file, or one of another kind.
        """
        if not isinstance(source, (str, os.PathLike)):
            check_names(name, _names_of(source))
            held = f"frame_{name}"
            self.connection.register(held, source)
            return self._described(name, self.dialect.named(held), person)
        from tacit._ground.parquet import literal_path

        path = os.path.expanduser(source)
        head = _head(path, name)
        for magic, kind in FOREIGN.items():
            if head.startswith(magic):
                raise ValueError(
                    f"table: expected CSV, Parquet, JSON or a file of DuckDB for {name}, got {kind}"
                )
        quoted = self.dialect.quoted(literal_path(path))
        if head.startswith(PARQUET):
            return self._described(name, f"read_parquet({quoted}, {OF_THE_FILE})", person)
        if head[8:12] == DATABASE:
            catalog = self.dialect.named(f"file_{name}")
            self.run(f"ATTACH {self.dialect.quoted(path)} AS {catalog} (READ_ONLY)")
            # a view reads whatever files its author named
            held = (
                "SELECT database_name, table_name FROM duckdb_tables() WHERE schema_name = 'main'"
            )
            own = {table.lower() for there, table in self.run(held) if there == f"file_{name}"}
            if name.lower() not in own:
                raise ValueError(f"table: expected a table {name} in its file, got a view or none")
            return self._described(name, f"{catalog}.{self.dialect.named(name)}", person)
        if path.lower().endswith(JSON_ENDS):
            call = f"read_json({quoted}, {OF_THE_FILE}, columns = {{}})"
            return self._untyped(name, wanted, person, call)
        return self._csv(name, path, head, person)

    def close(self) -> None:
        """Let go of what is read."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _described(self, name: str, relation: str, person: str | None) -> TableThere:
        """Return a table whose columns have types."""
        found = self.run(f"DESCRIBE SELECT * FROM {relation}")
        columns = {row[0]: TypedColumn(row[0], row[1], kind_of(row[1])) for row in found}
        self._texts += [(relation, one.name) for one in columns.values() if one.kind == TEXT]
        return TableThere(name, relation, columns, person)

    def _untyped(
        self, name: str, columns: Sequence[str], person: str | None, call: str
    ) -> TableThere:
        """Return a table of texts: what a cell holds never decides what its column is."""
        listed = ", ".join(f"{self.dialect.quoted(one)}: 'VARCHAR'" for one in columns)
        held = {one: TypedColumn(one, "VARCHAR", UNTYPED) for one in columns}
        return TableThere(name, call.format(f"{{{listed}}}"), held, person)

    def _csv(self, name: str, path: str, head: bytes, person: str | None) -> TableThere:
        from tacit._ground.parquet import literal_path
        from tacit.statistics.tables.csv_text import BLANK_LINE, delimiter_of, fields_of
        from tacit.statistics.tables.table import plain_text

        packed = head.startswith(GZIP)
        if packed:
            with gzip.open(path) as stream:
                head = stream.read(HEAD)
        if b"\x00" in head:
            raise ValueError(f"table: expected CSV in UTF-8 for {name}, got another file")
        start, skipped = (3 if head.startswith(b"\xef\xbb\xbf") else 0), 0
        while (blank := BLANK_LINE.match(head, start)) and blank.end() < len(head):
            start, skipped = blank.end(), skipped + 1
        text = head[start:].decode("utf-8", "ignore")
        delimiter = delimiter_of(text, None, ".")
        names = [plain_text(one) for one in fields_of(text, delimiter)]
        if not names or not all(names):
            raise ValueError(f"table: expected a header of names in {name}, got another")
        check_names(name, names)
        call = (
            f"read_csv({self.dialect.quoted(literal_path(path))}, auto_detect = false, "
            f"header = true, skip = {skipped}, delim = {self.dialect.quoted(delimiter)}, "
            "quote = '\"', escape = '\"', strict_mode = true, null_padding = false, "
            f"nullstr = '', max_line_size = {LARGEST_LINE}, "
            f"compression = '{'gzip' if packed else 'none'}', {OF_THE_FILE}, columns = {{}})"
        )
        return self._untyped(name, names, person, call)


def _names_of(frame: Any) -> list[str]:
    """Return the names of a frame's columns, as many as it has; none where it lists none."""
    names: Any = getattr(frame, "column_names", None)
    if names is None:
        names = getattr(frame, "columns", ())
    return [one for one in names if isinstance(one, str)]


def _head(path: str, name: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise ValueError(f"table: cannot read {name}: {path} ({error.strerror})") from None


def _failed(error: Exception) -> ValueError:
    """Return what is said of an error: its own words may hold a cell, a line is told."""
    line = LINE.search(str(error))
    where = f", line {line[1]}" if line else ""
    return ValueError(f"table: DuckDB could not read it ({type(error).__name__}{where})")
