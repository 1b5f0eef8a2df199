"""Spark: runs a statement about the tables and views of a session that is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.statistics.engines.dialects import SPARK, Dialect
from tacit.statistics.engines.schema import TableThere, TypedColumn, check_names, kind_of


@dataclass(frozen=True, eq=False)
class Spark:
    """A session of Spark, whose tables and views a statement names.

    Args:
        session: of pyspark, a ``SparkSession``.
    """

    session: Any = field(repr=False)
    dialect: Dialect = SPARK

    @property
    def label(self) -> str:
        """Its name and version."""
        return f"Spark {self.session.version}"

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement.

        Raises:
            ValueError: it fails.
        """
        try:
            return [tuple(row) for row in self.session.sql(statement).collect()]
        except Exception as error:
            # py4j and pyspark have errors of many kinds, whose words may hold a cell
            raise ValueError(f"table: Spark could not read it ({type(error).__name__})") from None

    def table(
        self, name: str, source: Any, person: str | None, wanted: Sequence[str]
    ) -> TableThere:
        """Return a table, a view or a data frame of Spark's.

        Args:
            name: by which statements name it.
            source: its name there, or the data frame.
            person: its column of persons; None for a public table.
            wanted: not needed: its columns are known.

        Raises:
            ValueError: there is none of the name.
        """
        from pyspark.errors import PySparkException

        if isinstance(source, str):
            relation = ".".join(map(self.dialect.named, source.split(".")))
            try:
                frame = self.session.table(source)
                types = frame.dtypes
            except PySparkException:
                raise ValueError(f"table: Spark has no table {source!r}") from None
        else:
            relation = self.dialect.named(f"tacit_{name}")
            source.createOrReplaceTempView(f"tacit_{name}")
            types = source.dtypes
        check_names(name, [key for key, _ in types])
        columns = {key: TypedColumn(key, kind, kind_of(kind)) for key, kind in types}
        return TableThere(name, relation, columns, person)
