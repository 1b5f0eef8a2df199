"""What persons weigh at the points of a number, by one statement where their rows are."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.statement import RowSource, condition_met
from tacit.statistics.people.quantiles import PERSON
from tacit.statistics.queries.chosen import POINTS, AskedQuantile
from tacit.statistics.queries.sums import Condition

# Shares of the width below it are 0: their points are the first, and no quotient vanishes.
LEAST_SHARE, SMALLEST = 2.0**-60, 1e-300


@dataclass(frozen=True, eq=False)
class QuantileStatement:
    """The statement of a number that is asked about, of all of its groups.

    Attributes:
        rows: what is read.
        dialect: of the engine.
        asked: the quantile.
    """

    rows: RowSource = field(repr=False)
    dialect: Dialect
    asked: AskedQuantile

    @property
    def _groups(self) -> list[Condition]:
        return [one for one in self.asked.conditions if one.column in self.rows.keys]

    @property
    def cell(self) -> tuple[int, ...]:
        """The group that is asked about, as the statement numbers it."""
        return tuple(list(self.rows.keys[one.column]).index(one.low) for one in self._groups)

    @cached_property
    def text(self) -> str:
        """Return the statement of (group, place, weight).

        The j-th smallest of a person's m numbers in a group has the weight
        ``⌊jW/m⌋ − ⌊(j − 1)W/m⌋``, as in ``person_weights``, and the place of its point is that of
        ``ChoicePoints.places``: whole numbers, whatever the engine.
        """
        groups, column = self._groups, self.asked.column
        listed, names = [], []
        for number, one in enumerate(groups):
            levels = self.rows.keys[one.column].values()
            cases = " ".join(
                f"WHEN k{one.column} = {literal} THEN {code}" for code, literal in enumerate(levels)
            )
            listed.append(f"CASE {cases} END AS g{number}")
            names.append(f"g{number}")
        others = [one for one in self.asked.conditions if one.column not in self.rows.keys]
        met = [
            "p IS NOT NULL",
            f"x{column} IS NOT NULL",
            *(condition_met(one, self.dialect) for one in others),
        ]
        place = self._place(f"x{column}")
        held = ", ".join(["p", f"x{column} AS x", f"{place} AS t", *listed])
        inner = f"SELECT {held} FROM ({self.rows.text}) y WHERE {' AND '.join(met)}"
        own = ", ".join(["p", *names])
        apart = " AND ".join(f"{name} IS NOT NULL" for name in names)
        grouped = ", ".join([*names, "t"])
        numbered = (
            f"SELECT {grouped}, ROW_NUMBER() OVER (PARTITION BY {own} ORDER BY x) AS n, "
            f"COUNT(*) OVER (PARTITION BY {own}) AS c FROM r WHERE {apart or 'p IS NOT NULL'}"
        )
        upto, before = (
            self.dialect.upper.format(f"({place} * {PERSON})", "c") for place in ("n", "(n - 1)")
        )
        return (
            f"WITH r AS ({inner}),\nn AS ({numbered})\n"
            f"SELECT {grouped}, SUM({upto} - {before}) FROM n GROUP BY {grouped}"
        )

    def _place(self, name: str) -> str:
        """Return the place of the point of a number, each operation rounded to nearest."""
        points, number = self.asked.points, self.dialect.number
        if points.listed:
            cases = " ".join(
                f"WHEN {name} <= {number(one)} THEN {place}"
                for place, one in enumerate(points.listed[:-1])
            )
            return f"CASE {cases} ELSE {points.last} END" if cases else "0"
        low, high = number(points.low), number(points.high)
        zero = number(0.0)
        # a half of what is smaller than this is no double in every engine
        inside = f"CASE WHEN ABS({name}) < {number(SMALLEST)} THEN {zero} ELSE {name} END"
        inside = f"LEAST(GREATEST({inside}, {low}), {high})"
        away = f"({number(0.5)} * {inside} - {number(0.5 * points.low)})"
        width = 0.5 * points.high - 0.5 * points.low
        share = f"{away} / {number(width)} * {number(float(POINTS))}"
        most = self.dialect.whole(f"LEAST({share}, {number(float(POINTS))})")
        least = number(max(width * LEAST_SHARE, SMALLEST))
        return f"CASE WHEN {away} < {least} THEN 0 ELSE {most} END"
