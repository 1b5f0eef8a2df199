"""Keys that nobody declared, weighed by one statement in the engine that holds the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tacit._ground.checks import RandomSource, generator
from tacit.statistics.engines.contributors import InEngine, SqlEngine
from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.selection import Selection
from tacit.statistics.people.keys import weight_of
from tacit.statistics.people.ranges import EDGES
from tacit.statistics.tables.table import plain_text


@dataclass(frozen=True)
class KeyStatement:
    """The statement that weighs the keys of a column.

    Attributes:
        rows: a SELECT whose ``p`` says whose a row is, and whose ``column`` is its key.
        column: such as ``k3``.
        dialect: of the engine.
        salt: hexadecimal digits that choose among the keys of a person of many.
    """

    rows: str = field(repr=False)
    column: str
    dialect: Dialect
    salt: str = field(repr=False)

    def weights(
        self, found: Collection[str | float], most: int, table: Sequence[int] | None = None
    ) -> str:
        """Return the statement of (key, weight), of the keys that were not found.

        Every person's keys are counted once. Of c keys that a person has, the first
        k = min(c, ``most``) in the order of a salted digest have the weight ⌊U/√k⌋ each: which
        these are depends on that person's keys alone, whatever the digest is. A ``table`` has other
        weights for 1, 2, … keys.
        """
        dialect = self.dialect
        once = (
            f"SELECT DISTINCT p, {self.column} AS k FROM ({self.rows}) t "
            f"WHERE p IS NOT NULL AND {self.column} IS NOT NULL"
        )
        tables = [f"d AS ({once})"]
        left = "d"
        if found:
            listed = ", ".join(f"({dialect.literal(one)})" for one in found)
            tables.append(f"f(k) AS (SELECT * FROM (VALUES {listed}) v(k))")
            tables.append(
                "e AS (SELECT d.p, d.k FROM d LEFT JOIN f ON d.k = f.k WHERE f.k IS NULL)"
            )
            left = "e"
        text = f"CONCAT('{self.salt}', CAST(p AS {dialect.text}), ' ', CAST(k AS {dialect.text}))"
        order = f"MD5({text}){dialect.bytewise}, k"
        table = table or [weight_of(size) for size in range(1, most + 1)]
        listed = ", ".join(f"({size}, {weight})" for size, weight in enumerate(table, 1))
        tables += [
            f"o AS (SELECT k, ROW_NUMBER() OVER (PARTITION BY p ORDER BY {order}) AS n, "
            f"COUNT(*) OVER (PARTITION BY p) AS c FROM {left})",
            f"u(c, w) AS (SELECT * FROM (VALUES {listed}) v(c, w))",
        ]
        together = ",\n".join(tables)
        return (
            f"WITH {together}\nSELECT o.k, SUM(u.w) FROM o "
            f"JOIN u ON u.c = LEAST(o.c, {most}) WHERE o.n <= {most} GROUP BY o.k"
        )


@dataclass(frozen=True, eq=False)
class KeysInEngine:
    """The keys of a column whose rows are in an engine; secret.

    Attributes:
        where: the engine.
        selection: what is asked of the rows.
        statement: weighs the keys.
    """

    where: SqlEngine = field(repr=False)
    selection: Selection = field(repr=False)
    statement: KeyStatement = field(repr=False)
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(where: SqlEngine, selection: Selection, rng: RandomSource) -> KeysInEngine:
        """Return the keys of the column of a selection whose values nobody declared."""
        place = len(selection.numbers) + [key.sought for key in selection.keys].index(True)
        salt = generator(rng).bytes(16).hex()
        statement = KeyStatement(selection.rows().text, f"k{place}", where.dialect, salt)
        return KeysInEngine(where, selection, statement)

    def weigh(self, found: Collection[Any], most: int) -> tuple[list[Any], list[int]]:
        """Return the keys that were not found, rising, and the weight of each.

        A text that is told otherwise than it stands in the table is no key.
        """
        asked = (tuple(found), most)
        if asked not in self._known:
            rows = self.where.run(self.statement.weights(found, most))
            self._known[asked] = sorted((key, int(total)) for key, total in rows if _is_plain(key))
        known = self._known[asked]
        return [key for key, _ in known], [total for _, total in known]

    def explained(self, most: int) -> str:
        """Return the statement of the first round, but for the salt."""
        return replace(self.statement, salt="").weights((), most)

    def among(self, keys: Collection[str | float]) -> Callable[[Any], InEngine]:
        """Return what persons add in the groups of some keys, given what a row can add."""
        selection = self.selection.with_keys(tuple(keys), self.where.dialect)
        return lambda added: InEngine(self.where, selection.rows(), added)


def parts_in_engine(
    where: SqlEngine, selection: Selection
) -> Callable[[int, Sequence[int]], Mapping[int, int]]:
    """Return what weighs the parts of a column's log scale, given its place and the weights.

    A number's part is found by comparisons with powers of two, which are exact in every engine.
    """
    dialect, rows, known = where.dialect, selection.rows().text, dict[int, dict[int, int]]()
    places = list(range(len(EDGES), 0, -1))

    def weigh(place: int, table: Sequence[int]) -> Mapping[int, int]:
        if place not in known:
            value = f"y.x{place}"
            above, below = (
                [
                    f"WHEN {value} {sign} {dialect.number(factor * float(EDGES[part - 1]))} "
                    f"THEN {factor * part}"
                    for part in places
                ]
                for sign, factor in ((">=", 1), ("<=", -1))
            )
            cases = f"CASE WHEN {value} IS NULL THEN NULL {' '.join(above + below)} ELSE 0 END"
            own = f"SELECT y.p AS p, {cases} AS b FROM ({rows}) y"
            asked = KeyStatement(own, "b", dialect, "").weights((), len(table), table)
            known[place] = {int(part): int(total) for part, total in where.run(asked)}
        return known[place]

    return weigh


def _is_plain(key: str | float) -> bool:
    """Return whether a key can be told as it is: a number, or a text of printed characters."""
    if not isinstance(key, str):
        return True
    return bool(key) and key == plain_text(key) and key.isprintable()
