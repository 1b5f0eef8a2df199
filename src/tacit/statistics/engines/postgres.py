"""PostgreSQL: runs a statement about its own tables, in a transaction that only reads."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from tacit._ground.lazy import install_with
from tacit.statistics.engines.dialects import POSTGRES, Dialect
from tacit.statistics.engines.schema import TableThere, TypedColumn, kind_of

# Dates as ISO has them, every digit of a number, and no text of a query that ends at a backslash.
SETTINGS = (
    "SET DateStyle = 'ISO'", "SET extra_float_digits = 3", "SET standard_conforming_strings = on",
)  # fmt: skip


class PostgreSQL:
    """A database, connected to when it is first asked.

    Args:
        url: ``postgresql://user@host/name``.
    """

    dialect: Dialect = POSTGRES

    def __init__(self, url: str) -> None:
        kind, _, rest = url.partition("://")
        if kind not in ("postgres", "postgresql", "postgresql+psycopg") or not rest:
            raise ValueError("database: expected a URL such as postgresql://host/name, got another")
        self._url = f"postgresql+psycopg://{rest}"
        self._opened = contextlib.ExitStack()
        self._connection: Any = None
        self._version = ""

    @property
    def label(self) -> str:
        """Its name and version."""
        self._connect()
        return f"PostgreSQL {self._version}"

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement.

        Raises:
            ValueError: it fails.
        """
        import sqlalchemy

        connection = self._connect()
        try:
            # the driver reads % as the beginning of a parameter
            found = connection.exec_driver_sql(statement.replace("%", "%%")).fetchall()
        except sqlalchemy.exc.SQLAlchemyError as error:
            connection.rollback()
            raise _failed(error) from None
        return [tuple(row) for row in found]

    def table(
        self, name: str, source: Any, person: str | None, wanted: Sequence[str]
    ) -> TableThere:
        """Return a table or a view of the database.

        Args:
            name: by which statements name it.
            source: its name there, with its schema before a dot where it needs one.
            person: its column of persons; None for a public table.
            wanted: not needed: its columns are known.

        Raises:
            ValueError: there is none of the name.
        """
        import sqlalchemy

        schema, _, own = str(source).rpartition(".")
        try:
            listed = sqlalchemy.inspect(self._connect()).get_columns(own, schema or None)
        except sqlalchemy.exc.NoSuchTableError:
            raise ValueError(f"table: the database has no table {own!r}") from None
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise _failed(error) from None
        columns = {}
        for one in listed:
            kind = one["type"]
            while hasattr(kind, "data_type"):
                # a domain holds what its type does
                kind = kind.data_type
            declared = f"{kind} WITH TIME ZONE" if getattr(kind, "timezone", False) else str(kind)
            columns[one["name"]] = TypedColumn(one["name"], declared, kind_of(declared))
        relation = ".".join(map(self.dialect.named, filter(None, (schema, own))))
        return TableThere(name, relation, columns, person)

    def close(self) -> None:
        """Let go of the connection."""
        self._opened.close()
        self._connection = None

    def _connect(self) -> Any:
        if self._connection is not None:
            return self._connection
        import sqlalchemy

        try:
            engine = sqlalchemy.create_engine(self._url, poolclass=sqlalchemy.NullPool)
            # all statements see one state of the tables
            connection = self._opened.enter_context(engine.connect()).execution_options(
                postgresql_readonly=True, isolation_level="REPEATABLE READ"
            )
            for setting in SETTINGS:
                connection.exec_driver_sql(setting)
            version = connection.exec_driver_sql("SHOW server_version").scalar_one()
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("psycopg"):
                raise
            raise ValueError(
                f"database: it needs the driver psycopg: {install_with('postgres')}"
            ) from None
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise _failed(error) from None
        self._connection, self._version = connection, str(version).split()[0]
        return connection


def _failed(error: Exception) -> ValueError:
    """Return what is said of an error, whose own words may hold a cell."""
    return ValueError(f"database: PostgreSQL could not read it ({type(error).__name__})")
