"""What engines of SQL write differently: numbers, whole numbers and their parts, names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.statistics.engines.schema import DECIMAL, FLOAT, TEXTS, UNTYPED, WHOLE
from tacit.statistics.people.vectors import SPLIT


@dataclass(frozen=True)
class Dialect:
    """How an engine writes what the statement needs; all compute the same bits.

    Doubles are added, multiplied, divided and rooted by IEEE 754 everywhere, each result rounded to
    nearest; decimal literals, ``ROUND`` and ``1/0`` are not alike and are not used.

    Attributes:
        name: of the engine, as sqlglot knows it.
        double: the type of doubles.
        wide: the type of whole numbers of 127 bits.
        squared: the type of whole numbers of 44 bits whose products are ``wide``.
        nearest: of a double, the nearest 64-bit integer, ties to even.
        truncated: of a double, the integer towards 0: FLOOR would lengthen −½ to −1.
        upper: of a wide number, how often it holds 2⁴⁴.
        lower: of a wide number, what is left then.
        text: the type of texts.
        materialized: what a table that is named in a statement is computed once by.
        raises: whether a product of doubles that is too small to be one is an error.
        bytewise: what makes texts compare by their bytes.
        trying: what makes a text a number, or NULL.
        equal_decimal: of a decimal, what has one text for each number, and NULL for none.
    """

    name: str
    double: str
    wide: str
    squared: str
    nearest: str
    truncated: str
    upper: str
    lower: str
    text: str
    materialized: str = ""
    raises: bool = False
    bytewise: str = ""
    trying: str = "TRY_CAST({} AS DOUBLE)"
    equal_decimal: str = "{}"

    def number(self, value: float) -> str:
        """Return a double, from the shortest digits that are read as it."""
        if not math.isfinite(value):
            raise AssertionError("a statement holds finite numbers")
        return f"CAST('{float(value)!r}' AS {self.double})"

    def whole(self, value: str) -> str:
        """Return a double as the nearest integer."""
        return self.nearest.format(value)

    def as_double(self, value: str) -> str:
        """Return a whole number as the nearest double."""
        return f"CAST({value} AS {self.double})"

    def wide_double(self, value: str) -> str:
        """Return a wide whole number as a double: two parts to nearest, and their sum."""
        upper, lower = (
            self.as_double(f"CAST({part.format(value, 2**SPLIT)} AS BIGINT)")
            for part in (self.upper, self.lower)
        )
        return f"({upper} * {self.number(2.0**SPLIT)} + {lower})"

    def read_number(self, value: str, kind: str) -> str | None:
        """Return a cell as a double, NULL for NaN and for no number; None for no such kind."""
        nothing = f"CAST('NaN' AS {self.double})"
        if kind == WHOLE:
            return self.as_double(value)
        if kind == FLOAT:
            # NaN equals itself in every engine
            return f"NULLIF({self.as_double(value)}, {nothing})"
        if kind == UNTYPED and self.trying:
            return f"NULLIF({self.trying.format(value)}, {nothing})"
        if kind != DECIMAL:
            return None
        if not self.raises:
            return self.as_double(value)
        # too large or too small for a double is an error there, and NaN larger than any
        ends = f"WHEN {value} > 1e300 THEN 1e300 WHEN {value} < -1e300 THEN -1e300 "
        small = f"WHEN ABS({value}) < 1e-300 THEN 0 "
        held = f"CASE WHEN {value} = 'NaN' THEN NULL {ends}{small}ELSE {value} END"
        return self.as_double(held)

    def read_text(self, value: str, kind: str) -> str | None:
        """Return a cell as a text; None for no such kind."""
        if kind not in TEXTS:
            return None
        held = value if kind == UNTYPED else f"CAST({value} AS {self.text})"
        return f"{held}{self.bytewise}"

    def quoted(self, text: str) -> str:
        """Return a text as it stands in a statement."""
        from sqlglot import exp

        return exp.Literal.string(text).sql(dialect=self.name)

    def literal(self, value: str | float) -> str:
        """Return a text, a whole number or a double as it stands in a statement."""
        if isinstance(value, int):
            return str(value)
        return self.quoted(value) if isinstance(value, str) else self.number(value)

    def named(self, name: str) -> str:
        """Return the name of a column or a table as it stands in a statement, always quoted."""
        from sqlglot import exp

        return exp.to_identifier(name, quoted=True).sql(dialect=self.name)


DUCKDB = Dialect(
    name="duckdb",
    double="DOUBLE",
    wide="HUGEINT",
    squared="HUGEINT",
    nearest="CAST({} AS BIGINT)",
    truncated="CAST(TRUNC({}) AS BIGINT)",
    upper="({} // {})",
    lower="({} % {})",
    text="VARCHAR",
    materialized="MATERIALIZED ",
    bytewise=' COLLATE "C"',
)
POSTGRES = Dialect(
    name="postgres",
    double="DOUBLE PRECISION",
    wide="NUMERIC",
    squared="NUMERIC",
    nearest="CAST({} AS BIGINT)",
    truncated="CAST(TRUNC({}) AS BIGINT)",
    upper="DIV({}, {})",
    lower="MOD({}, {})",
    text="TEXT",
    materialized="MATERIALIZED ",
    raises=True,
    bytewise=' COLLATE "C"',
    trying="",
    equal_decimal="NULLIF(TRIM_SCALE({}), 'NaN')",
)
SPARK = Dialect(
    name="spark",
    double="DOUBLE",
    wide="DECIMAL(38, 0)",
    squared="DECIMAL(19, 0)",
    nearest="CAST(RINT({}) AS BIGINT)",
    truncated="CAST({} AS BIGINT)",
    upper="({} DIV {})",
    lower="({} % {})",
    text="STRING",
)
