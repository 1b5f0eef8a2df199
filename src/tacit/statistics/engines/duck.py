"""DuckDB, in this process: what runs a statement about files, data frames and its own files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tacit.statistics.engines.dialects import DUCKDB, Dialect

# Nothing is fetched from elsewhere to answer a query, no setting is changed by what it reads, and
# what a column of Python objects holds does not decide its type.
SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "false",
    "pandas_analyze_sample": "0",
}


@dataclass(eq=False)
class DuckDB:
    """A connection to DuckDB.

    Args:
        path: a file of DuckDB's, which is opened for reading; None for none.
    """

    path: str | None = None
    dialect: Dialect = DUCKDB
    _connection: Any = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """Its name and version."""
        import duckdb

        return f"DuckDB {duckdb.__version__}"

    @property
    def connection(self) -> Any:
        """The connection, opened when it is first asked for."""
        if self._connection is None:
            import duckdb

            try:
                self._connection = duckdb.connect(
                    self.path or ":memory:", read_only=self.path is not None, config=SETTINGS
                )
                self._connection.execute("SET enable_progress_bar = false")
            except duckdb.Error as error:
                raise failed(error) from None
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
            raise failed(error) from None
        return rows

    def close(self) -> None:
        """Let go of what is read."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def failed(error: Exception) -> ValueError:
    """Return what is said of an error, whose own words may hold a cell."""
    return ValueError(f"table: DuckDB refused to read it ({type(error).__name__})")
