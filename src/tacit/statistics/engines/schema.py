"""Tables as they were declared: whose rows they hold, and what kind of cells each column has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Kinds of columns, by their declared types and never by their cells. ``UNTYPED`` are texts of a
# file without types, which are numbers where they are read as such.
WHOLE, FLOAT, DECIMAL, TEXT, UNTYPED, DATE, TRUTH, OTHER = (
    "whole numbers", "numbers", "decimals", "texts", "texts or numbers", "dates", "truth values",
    "others",
)  # fmt: skip
NUMBERS = (WHOLE, FLOAT, DECIMAL, UNTYPED)
TEXTS = (TEXT, UNTYPED, DATE, TRUTH)
KINDS = {
    WHOLE: ("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint",
            "uinteger", "ubigint", "int", "long", "int2", "int4", "int8"),
    FLOAT: ("float", "double", "real", "double precision", "float4", "float8"),
    DECIMAL: ("decimal", "numeric"),
    TEXT: ("varchar", "text", "string", "character varying", "char", "character", "enum", "uuid",
           "bpchar"),
    DATE: ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "datetime",
           "timestamp without time zone"),
    TRUTH: ("boolean", "bool"),
}  # fmt: skip


def check_names(name: str, columns: Sequence[str]) -> None:
    """Refuse a table of which two columns have one name: SQL does not see capitals.

    Raises:
        ValueError: two have.
    """
    seen: set[str] = set()
    for one in map(str, columns):
        if one.lower() in seen:
            raise ValueError(
                f"table: expected columns of different names in {name}, whatever their capitals, "
                f"got {one!r} twice"
            )
        seen.add(one.lower())


def kind_of(declared: str) -> str:
    """Return the kind of a type's name, such as ``DECIMAL(18,3)``."""
    # how texts are ordered is not what they are
    word, _, rest = declared.strip().lower().partition(" collate ")[0].partition("(")
    # VARCHAR(10)[] is an array, TIMESTAMP(3) WITH TIME ZONE has one
    word = f"{word.strip()} {rest.rpartition(')')[2].strip()}".strip()
    return next((kind for kind, words in KINDS.items() if word in words), OTHER)


@dataclass(frozen=True)
class TypedColumn:
    """A column of a table in an engine.

    Attributes:
        name: as the table spells it.
        declared: its type there.
        kind: of its cells.
    """

    name: str
    declared: str
    kind: str


@dataclass(frozen=True)
class TableThere:
    """A table in an engine.

    Attributes:
        name: by which statements name it.
        relation: what stands behind FROM.
        columns: by their names.
        person: the column that says whose a row is; None where the table is public.
    """

    name: str
    relation: str = field(repr=False)
    columns: Mapping[str, TypedColumn] = field(repr=False)
    person: str | None

    def column(self, name: str) -> TypedColumn | None:
        """Return the column of a name, whatever its capitals where only one has it."""
        if name in self.columns:
            return self.columns[name]
        like = [one for key, one in self.columns.items() if key.lower() == name.lower()]
        return like[0] if len(like) == 1 else None
