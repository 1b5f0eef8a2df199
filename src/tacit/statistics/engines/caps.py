"""Caps on a person's rows and groups, as the engine that holds the rows applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.statistics.caps import Caps
from tacit.statistics.engines.dialects import Dialect


@dataclass(frozen=True)
class CapStatement:
    """What reads the rows that stay: see ``Caps``.

    Attributes:
        caps: how many.
        dialect: of the engine.
    """

    caps: Caps
    dialect: Dialect

    def text(self, rows: str, numbers: Sequence[str], keys: Mapping[str, str]) -> str:
        """Return a SELECT of the rows that stay.

        Args:
            rows: a SELECT whose ``p`` says whose a row is.
            numbers: names in it of the columns that are computed of, in their order.
            keys: names of those that are grouped by, and what says that a row is in a group.
        """
        columns = ", ".join(["p", *numbers, *keys])
        text = f"SELECT {columns} FROM ({rows}) c0 WHERE p IS NOT NULL"
        if self.caps.groups is not None:
            inside = f"CASE WHEN {' AND '.join(keys.values())} THEN 1 ELSE 0 END"
            order = ", ".join(keys)
            text = self._first(text, columns, inside, order, "DENSE_RANK", self.caps.groups)
        if self.caps.rows is not None:
            # −0 is 0, and nothing comes last, in every engine; what is in no group is nothing
            zero = self.dialect.number(0.0)
            held = [(f"{one} IS NOT NULL", f"{one} + {zero}") for one in numbers]
            held += [(met, f"CASE WHEN {met} THEN {one} END") for one, met in keys.items()]
            order = ", ".join(f"CASE WHEN {met} THEN 0 ELSE 1 END, {value}" for met, value in held)
            text = self._first(text, columns, "1", order or "p", "ROW_NUMBER", self.caps.rows)
        return text

    def _first(self, rows: str, columns: str, inside: str, order: str, rank: str, most: int) -> str:
        """Return the first of each person by the digests of their numbers, and what is outside."""
        dialect = self.dialect
        held = f"CONCAT(CAST(p AS {dialect.text}), ' ', CAST(n AS {dialect.text}))"
        return (
            f"SELECT {columns} FROM (SELECT {columns}, i, {rank}() OVER (PARTITION BY p, i "
            f"ORDER BY MD5({held}){dialect.bytewise}, n) AS m FROM (SELECT {columns}, i, {rank}() "
            f"OVER (PARTITION BY p, i ORDER BY {order}) AS n FROM (SELECT {columns}, {inside} AS i "
            f"FROM ({rows}) c1) c2) c3) c4 WHERE m <= {most} OR i = 0"
        )
