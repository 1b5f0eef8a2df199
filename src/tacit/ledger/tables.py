"""The tables of a ledger and how one row is digested."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any

import sqlalchemy as sa

SCHEMA = "2"
BUDGET, RELEASE = "budget", "release"

metadata = sa.MetaData()


class ZeroOrOne(sa.Boolean):
    """Exactly 0 or 1 where the database has no booleans; what else is stored is read as it is."""

    cache_ok = True

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        """Leave what no ledger writes unlike any flag, so that its digest differs."""
        native = super().result_processor(dialect, coltype)  # type: ignore[no-untyped-call]
        if native is None:
            return None
        return as_flag


def as_flag(value: Any) -> Any:
    """Return 0 and 1 as a flag, and whatever else there is as it is."""
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


# "schema", and "head": the place and hash of the newest link of the chain
meta_table = sa.Table(
    "tacit_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# ``account`` holds the budget in force and the exact totals; the link at ``place`` seals it
secret_table = sa.Table(
    "tacit_secrets",
    metadata,
    sa.Column("secret", sa.Text, primary_key=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("budgeted", ZeroOrOne, nullable=False, index=True),
    sa.Column("place", sa.Integer, nullable=False),
)

# append-only: the newest row is the budget in force, the older ones its history
budget_table = sa.Table(
    "tacit_budgets",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("secret", sa.ForeignKey("tacit_secrets.secret"), nullable=False, index=True),
    sa.Column("nats", sa.Double),
    sa.Column("epsilon", sa.Double),
    sa.Column("delta", sa.Double),
    sa.Column("mu", sa.Double),
    sa.Column("leakage", sa.Double),
    sa.Column("orders", sa.Text),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
)

entry_table = sa.Table(
    "tacit_entries",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("secret", sa.ForeignKey("tacit_secrets.secret"), nullable=False, index=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("notion", sa.Text, nullable=False),
    sa.Column("nats", sa.Double, nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("mu", sa.Double, nullable=False),
    sa.Column("leakage", sa.Double, nullable=False),
    sa.Column("failure", sa.Double, nullable=False),
    sa.Column("guarantees", sa.Text, nullable=False),
    sa.Column("reproducible", ZeroOrOne, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("changed", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("record", sa.Text),
)

# append-only: one link for every row made or changed, each sealing the one before it
chain_table = sa.Table(
    "tacit_chain",
    metadata,
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("secret", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("row", sa.Text, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("ix_tacit_chain_row", "kind", "number"),
)

TABLE_OF = {BUDGET: budget_table, RELEASE: entry_table}
# what no ledger writes, such as a blob, is digested by its repr: it differs, and says so
_CANONICAL = json.JSONEncoder(sort_keys=True, default=repr)


def canonical(content: Any) -> str:
    """Return a value as canonical JSON."""
    return _CANONICAL.encode(content)


def digest(content: Any) -> str:
    """Return the SHA-256 of a value as canonical JSON."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def row_digest(row: Mapping[Any, Any]) -> str:
    """Return the digest of every column of a row."""
    return digest({str(name): value for name, value in row.items()})


# canonical JSON of a text
TEXT = json.encoder.encode_basestring_ascii
FLAGS = {0: "false", 1: "true"}


def _alone(kind: type[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def values(column: Sequence[Any]) -> Sequence[Any]:
        if {*map(type, column)} - {kind}:
            raise TypeError(f"expected {kind.__name__} alone")
        return column

    return values


# How canonical JSON writes a column as the driver gives it: numbers by their repr, the rest as the
# text that stands here. A value of another type is a TypeError.
_WRITTEN: Mapping[type[Any], tuple[str, Callable[[Sequence[Any]], Iterable[Any]]]] = {
    sa.Integer: ("%r", _alone(int)),
    sa.Double: ("%r", _alone(float)),
    sa.Text: ("%s", lambda column: map(TEXT, column)),
    ZeroOrOne: ("%s", lambda column: [FLAGS[index(value)] for value in column]),
}


class RowDigests:
    """Digests of a table's rows, their columns sorted by name, as the driver gives them.

    Written column by column, ordinary rows are digested in a quarter of the time of ``row_digest``,
    and to the same: any other value gives another digest, a TypeError or a KeyError.
    """

    def __init__(self, table: sa.Table) -> None:
        self.columns = sorted(table.c, key=lambda column: column.name)
        self.names = [column.name for column in self.columns]
        self._written = [_written(column) for column in self.columns]
        named = zip(self.names, self._written, strict=True)
        self._template = "{" + ", ".join(f"{TEXT(name)}: {how}" for name, (how, _) in named) + "}"

    def row(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return values of the driver as a row, its flags as flags; what stands behind is left."""
        flags = {c.name for c in self.columns if isinstance(c.type, ZeroOrOne)}
        whole = zip(self.names, values, strict=False)
        return {name: as_flag(value) if name in flags else value for name, value in whole}

    def __call__(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Return the digests of ordinary rows; what stands behind their columns is left."""
        columns = zip(self._written, zip(*rows, strict=True), strict=False)
        written = zip(*[write(column) for (_, write), column in columns], strict=True)
        template = self._template
        return [hashlib.sha256((template % values).encode()).hexdigest() for values in written]


def _written(column: sa.Column[Any]) -> tuple[str, Callable[[Sequence[Any]], Iterable[Any]]]:
    how, write = _WRITTEN[type(column.type)]
    if not column.nullable:
        return how, write

    def or_null(values: Sequence[Any]) -> Iterable[Any]:
        others = (how % value for value in write([one for one in values if one is not None]))
        return ["null" if value is None else next(others) for value in values]

    return "%s", or_null
