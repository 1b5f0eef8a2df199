"""Flags of every command that reads a table, and the reading."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from tacit.cli.completion import column, offered

if TYPE_CHECKING:
    from tacit.statistics import DataTable
    from tacit.statistics.tables.reading import Fingerprints

Data = Annotated[
    str | None,
    typer.Argument(
        help="Table: CSV with a header line or Parquet, compressed or not; - for standard input. "
        "Left out with --sql."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        autocompletion=column,
        help="Columns to use, separated by commas; when left out those that a query names, "
        "else all.",
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        autocompletion=offered("refuse", "drop", "drop-unreadable"),
        help="What to do with rows that hold nothing in a column used. refuse refuses the table, "
        "drop leaves the rows out. drop-unreadable also drops rows that hold no value of the "
        "column there; it is taken under --protect table when left out; refuse is taken "
        "elsewhere.",
    ),
]
Category = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=LEVEL,…]",
        help="Column to use as codes 0, 1, …, with its levels, or those that occur. May be "
        "repeated.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TextFlags:
    """How a CSV file is written."""

    panel: ClassVar[str] = "Data"

    encoding: Annotated[
        str | None, typer.Option(help="Encoding of a CSV file. Found when left out.")
    ] = None
    delimiter: Annotated[
        str | None,
        typer.Option(help="What separates the fields of a CSV file. Found when left out."),
    ] = None
    decimal: Annotated[str, typer.Option(help="Decimal mark of numbers in text: . or a comma.")] = (
        "."
    )

    def fingerprints(self, data: str) -> Fingerprints:
        """Return what names a table in a ledger."""
        from tacit.statistics.tables.reading import fingerprints

        return fingerprints(
            data, encoding=self.encoding, delimiter=self.delimiter, decimal=self.decimal
        )


@dataclass(frozen=True, kw_only=True)
class TableFlags(TextFlags):
    """Where a table is read from, and how."""

    sql: Annotated[
        str | None, typer.Option(help="Query whose result is the table, instead of a file.")
    ] = None
    database: Annotated[
        str | None,
        typer.Option(
            help="What --sql asks: an SQLite or DuckDB file or a database URL; DuckDB in memory "
            "when left out."
        ),
    ] = None
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Let refusals repeat cells and headers.")
    ] = False

    def read(
        self,
        data: str | None,
        columns: Sequence[str] | None = None,
        *,
        missing: str = "refuse",
        categories: Sequence[str] | None = None,
    ) -> DataTable:
        """Return the table that the flags name."""
        from tacit.statistics import read_query, read_table

        levels = _levels(categories)
        if self.sql is None:
            if self.database is not None:
                raise ValueError("--database: expected --sql beside it, got none")
            if data is None:
                raise ValueError("DATA: expected a table, or --sql, got neither")
            return read_table(
                data,
                columns,
                categories=levels,
                missing=missing,
                encoding=self.encoding,
                delimiter=self.delimiter,
                decimal=self.decimal,
                show_values=self.show_values,
            )
        for flag, given in (
            ("DATA", data),
            ("--encoding", self.encoding),
            ("--delimiter", self.delimiter),
        ):
            if given is not None:
                raise ValueError(f"{flag}: expected none beside --sql, got {given!r}")
        return read_query(
            self.sql,
            self.database,
            columns,
            categories=levels,
            missing=missing,
            decimal=self.decimal,
            show_values=self.show_values,
        )


@dataclass(frozen=True, kw_only=True)
class PoolFlags(TableFlags):
    """The same, and which columns are read as what."""

    columns: Columns = None
    missing: Missing = None
    category: Category = None

    def read_pool(
        self,
        data: str | None,
        query: str,
        target: str | None,
        levels: Mapping[str, Sequence[float | str]] | None,
        paired_by: str | None = None,
        person: str | None = None,
        sought: Sequence[str] = (),
    ) -> DataTable:
        """Return the table with the columns that a statistic needs.

        Args:
            data: the file.
            query: names the columns where ``--columns`` does not.
            target: a column that is read with those of ``--columns``.
            levels: declared; a column of words is coded by them.
            paired_by: a column along which rows are paired.
            person: a column of names of persons; rows that lack something are left out then, as
                whether they are there is what is hidden.
            sought: columns whose keys are found from the table.
        """
        names = self._names(query, target, paired_by, person, *sought)
        coded = self._coded(levels)
        if person is None:
            return self.read(data, names, missing=self.missing or "refuse", categories=coded)
        beside = [name for name in (person, *sought) if name and name not in self.coded]
        coded = [*(coded or ()), *dict.fromkeys(beside)]
        # where the table is hidden, bounds hold infinite numbers; where it is not there are none
        missing = "bounded" if self.missing == "bounded" else "drop-unreadable"
        return self.read(data, names, missing=missing, categories=coded)

    def _names(self, query: str, target: str | None, *beside: str | None) -> list[str] | None:
        """Return the columns to read: those named, else those of the query; None for all."""
        from tacit.statistics.queries.language import columns_read, keys_read
        from tacit.statistics.tables.reading import NO_COLUMN

        if self.columns is not None:
            names = split_names("--columns", self.columns)
            # what the query groups by is read whether it is named or not
            wanted: Sequence[str | None] = (target, *keys_read(query, target), *beside)
        else:
            read = columns_read(query, target)
            if read is None:
                return None
            names, wanted = list(read), beside
            if not names and not any(beside):
                return [*NO_COLUMN]
        return [*names, *dict.fromkeys(name for name in wanted if name and name not in names)]

    def _coded(self, levels: Mapping[str, Sequence[float | str]] | None) -> list[str] | None:
        """Return the columns to read as codes: of --category, and those whose levels are words."""
        found = list(self.category or ())
        for name, held in (levels or {}).items():
            if isinstance(held[0], str):
                if name in self.coded:
                    raise ValueError(f"--levels: the column {name!r} is named by --category too")
                line = io.StringIO()
                csv.writer(line, lineterminator="").writerow(held)
                found.append(f"{name}={line.getvalue()}")
        return found or None

    def refuse_absent(self, data: str | None, names: Sequence[str]) -> None:
        """Refuse columns that a query reads and a file does not have."""
        from tacit._ground.checks import did_you_mean
        from tacit.statistics.tables.reading import column_names

        if self.sql is not None or data in (None, "-"):
            # read once, and with what is read
            return
        held = column_names(
            data, encoding=self.encoding, delimiter=self.delimiter, decimal=self.decimal
        )
        for name in names:
            if name not in held:
                near = did_you_mean(name, held)
                raise ValueError(f"--query: the table has no column {name!r}{near}")

    @property
    def coded(self) -> set[str]:
        """Names of the columns of --category."""
        return {one.partition("=")[0].strip() for one in self.category or ()}


def split_names(flag: str, text: str) -> list[str]:
    """Return what a flag lists by commas; a name that holds one is quoted."""
    names = [name.strip() for name in next(csv.reader([text]), [])]
    if not names or not all(names):
        raise ValueError(f"{flag}: expected names separated by commas, got {text!r}")
    return names


def _levels(categories: Sequence[str] | None) -> dict[str, list[str] | None]:
    levels: dict[str, list[str] | None] = {}
    for text in categories or ():
        name, given, values = text.partition("=")
        if not name.strip():
            raise ValueError(f"--category: expected NAME or NAME=LEVEL,LEVEL, got {text!r}")
        if name.strip() in levels:
            raise ValueError(f"--category: the column {name.strip()!r} is named twice")
        levels[name.strip()] = split_names("--category", values) if given else None
    return levels
