"""One statement: clamp, to whole numbers, sum by person, clip every person, add up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tacit.statistics.bounded.contributions import Contributions
from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.people.blocks import Block, blocks_of
from tacit.statistics.people.vectors import (
    CLIP_SLACK,
    LARGEST_COORDINATE,
    LENGTH_SLACK,
    PersonMetric,
)
from tacit.statistics.queries.sums import Condition, Term


@dataclass(frozen=True)
class RowSource:
    """RowSource in an engine.

    Attributes:
        text: a SELECT whose column ``p`` says whose a row is, ``x3`` is the number at place 3, a
            double or NULL, and ``k4`` the category at place 4, compared with literals.
        keys: literals of the levels of a category, by its place and their codes.
    """

    text: str = field(repr=False)
    keys: Mapping[int, Mapping[float, str]]


@dataclass(frozen=True, eq=False)
class Statement:
    """The parts of the statement that persons are summed by.

    Attributes:
        rows: what is read.
        added: what a row can add.
        metric: in which persons are measured.
        dialect: of the engine.
    """

    rows: RowSource = field(repr=False)
    added: Contributions = field(repr=False)
    metric: PersonMetric = field(repr=False)
    dialect: Dialect

    @cached_property
    def blocks(self) -> list[Block]:
        """The groupings of the rows."""
        return blocks_of(self.added.query.terms, self.rows.keys)

    def totals(self, radius: int, norm: int) -> str:
        """Return the statement of (block, cell, clipped and whole sum of each measure)."""
        blocks, number = self.blocks, self.dialect.number
        width = max(len(block.measures) for block in blocks)
        # C (1 − 2⁻⁴⁸)/length, with the roundings of ``vectors.clipped``
        length = self.dialect.wide_double("q")
        long = f"SQRT({length})" if norm == 2 else length
        share = f"{number(radius * CLIP_SLACK)} / ({long} * {number(LENGTH_SLACK)})"
        factor = f"CASE WHEN q > {radius**norm} THEN {share} ELSE {number(1.0)} END"
        parts = []
        for place, block in enumerate(blocks):
            columns = []
            for measure in range(width):
                if measure < len(block.measures):
                    short = self.dialect.truncated.format(f"s.c{measure} * l.f")
                    columns += [f"SUM({short})", f"SUM(s.c{measure})"]
                else:
                    columns += ["0", "0"]
            parts.append(
                f"SELECT {place}, s.g, {', '.join(columns)} FROM s{place} s "
                "JOIN l ON s.p = l.p GROUP BY s.g"
            )
        factors = f"l AS {self.dialect.materialized}(SELECT p, {factor} AS f FROM q)"
        return f"WITH {self._persons(norm)},\n{factors}\n" + "\nUNION ALL ".join(parts)

    def beyond(self, radii: Sequence[int], norm: int) -> str:
        """Return the statement of how many persons are longer than each radius."""
        counts = [f"SUM(CASE WHEN q > {radius**norm} THEN 1 ELSE 0 END)" for radius in radii]
        return f"WITH {self._persons(norm)}\nSELECT {', '.join(counts)} FROM q"

    def _persons(self, norm: int) -> str:
        """Return tables of the persons: s0, s1, … of their sums, q of their lengths."""
        held = [f"r AS {self._once}({self._clamped()})"]
        measured = []
        for place, block in enumerate(self.blocks):
            held += self._block(place, block)
            size = " + ".join(self._size(f"c{one}", norm) for one in range(len(block.measures)))
            measured.append(f"SELECT p, SUM({size}) AS q FROM s{place} GROUP BY p")
        # a person's blocks lie side by side: squares, or sizes, add up
        together = " UNION ALL ".join(measured)
        if len(measured) > 1:
            together = f"SELECT p, SUM(q) AS q FROM ({together}) m GROUP BY p"
        held.append(f"q AS ({together})")
        return ",\n".join(held)

    @property
    def _once(self) -> str:
        return self.dialect.materialized if len(self.blocks) > 1 else ""

    def _clamped(self) -> str:
        """Return rows whose numbers are within their bounds."""
        added, number, columns = self.added, self.dialect.number, ["p"]
        for place in self._places():
            if place in self.rows.keys:
                columns.append(f"k{place}")
                continue
            low, high = float(added.lows[place]), float(added.highs[place])
            cases = f"WHEN x{place} < {number(low)} THEN {number(low)} " if low > -math.inf else ""
            if high < math.inf:
                cases += f"WHEN x{place} > {number(high)} THEN {number(high)} "
            held = f"CASE {cases}ELSE x{place} END" if cases else f"x{place}"
            columns.append(f"{held} AS x{place}")
        return f"SELECT {', '.join(columns)} FROM ({self.rows.text}) t WHERE p IS NOT NULL"

    def _places(self) -> list[int]:
        terms = self.added.query.terms
        return sorted({place for one in terms for place in (*one.columns, *one.factors)})

    def _block(self, place: int, block: Block) -> list[str]:
        """Return the tables of one grouping: its cells, sums in them, whole coordinates."""
        sums = [f"{self._sum(block, one)} AS s{one}" for one in range(len(block.measures))]
        if block.keys:
            names = ", ".join(f"v{key}" for key in block.keys)
            listed = ", ".join(
                f"({', '.join([*self._literals(block.keys, cell), str(number)])})"
                for number, cell in enumerate(block.cells)
            )
            cells = [f"b{place}({names}, g) AS (SELECT * FROM (VALUES {listed}) v({names}, g))"]
            met = " AND ".join(f"r.k{key} = b.v{key}" for key in block.keys)
            source, group = f"r JOIN b{place} b ON {met}", "r.p, b.g"
            columns = "r.p AS p, b.g AS g"
        else:
            cells, source, group, columns = [], "r", "r.p", "r.p AS p, 0 AS g"
        summed = f"SELECT {columns}, {', '.join(sums)} FROM {source} GROUP BY {group}"
        factors, joined = self._factors(place, block)
        scaled = ", ".join(
            f"{self._coordinate(f'a.s{one}', factors[one])} AS c{one}"
            for one in range(len(block.measures))
        )
        return [
            *cells,
            *joined,
            f"s{place} AS {self.dialect.materialized}(SELECT a.p AS p, a.g AS g, {scaled} "
            f"FROM ({summed}) a{f' JOIN w{place} w ON a.g = w.g' if joined else ''})",
        ]

    def _literals(self, keys: Sequence[int], cell: Sequence[float]) -> list[str]:
        """Return the levels of a cell as its rows are compared with them."""
        return [self.rows.keys[key][code] for key, code in zip(keys, cell, strict=True)]

    def _factors(self, place: int, block: Block) -> tuple[list[str], list[str]]:
        """Return what the sums of each measure are multiplied by, and the table it stands in."""
        held = self.metric.factors
        table = np.array([[held[one] if one >= 0 else 0.0 for one in row] for row in block.places])
        if (table == table[:1]).all():
            return [self.dialect.number(one) for one in table[0].tolist()], []
        rows = ", ".join(
            f"({cell}, {', '.join(map(self.dialect.number, row))})"
            for cell, row in enumerate(table.tolist())
        )
        names = ", ".join(f"f{one}" for one in range(len(block.measures)))
        weights = f"w{place}(g, {names}) AS (SELECT * FROM (VALUES {rows}) v(g, {names}))"
        return [f"w.f{one}" for one in range(len(block.measures))], [weights]

    def _coordinate(self, total: str, factor: str) -> str:
        """Return the whole coordinate of a sum, as ``PersonMetric.coordinates`` computes it."""
        most, dialect = self.dialect.number(LARGEST_COORDINATE), self.dialect
        scaled = f"{dialect.as_double(total)} * {factor}"
        least = dialect.number(-LARGEST_COORDINATE)
        return dialect.whole(f"LEAST(GREATEST({scaled}, {least}), {most})")

    def _size(self, coordinate: str, norm: int) -> str:
        """Return what a coordinate adds to the length."""
        if norm == 1:
            return f"CAST(ABS({coordinate}) AS {self.dialect.wide})"
        wide = f"CAST({coordinate} AS {self.dialect.squared})"
        return f"{wide} * {wide}"

    def _sum(self, block: Block, measure: int) -> str:
        """Return what the rows of a person and a cell add of a measure, a whole number."""
        one = block.measures[measure]
        there = [f"x{place} IS NOT NULL" for place in dict.fromkeys(one.factors)]
        conditions = [condition_met(condition, self.dialect) for condition in one.conditions]
        met = list(dict.fromkeys([*conditions, *there]))
        if not one.factors:
            counted = f"COUNT({_or_null('1', met)})" if met else "COUNT(*)"
            if one.once:
                counted = f"CASE WHEN {counted} > 0 THEN 1 ELSE 0 END"
            return counted
        # the term's own scale is that of any of its places: all cells of a measure share it
        place = next(cells[measure] for cells in block.places if cells[measure] >= 0)
        added = self._on_grid(one, place)
        # a number that is not held within anything is NULL where its column is: LEAST would not be
        plain = met == there and self._stays_within(one, place) and not self.dialect.raises
        return f"COALESCE(SUM({added if plain else _or_null(added, met)}), 0)"

    def _on_grid(self, one: Term, place: int) -> str:
        """Return what a row adds as a whole number, as ``Contributions.values`` computes it."""
        added, number = self.added, self.dialect.number
        exponent = int(added.exponents[place])
        moved = [f"(x{at} - {number(float(added.centres[at]))})" for at in one.factors]
        product = " * ".join(moved)
        if added.offsets[place] != 0.0:
            product = f"({product} - {number(float(added.offsets[place]))})"
        scaled = f"{product} * {number(2.0**-exponent)}"
        most, whole = self._most(place), self.dialect.whole(scaled)
        held = f"LEAST(GREATEST({whole}, {-most}), {most})"
        within = f"CAST({whole if self._stays_within(one, place) else held} AS INTEGER)"
        if not self.dialect.raises:
            return within
        # below half of 2^exponent a row adds 0, and its product might be too small for a double
        small = " OR ".join(
            f"ABS({own}) < {number(self._least(one, place, at))}" for at, own in enumerate(moved)
        )
        if added.offsets[place] != 0.0:
            # u² − w/2 with u² = 0
            zero = int(np.clip(np.rint(np.ldexp(-added.offsets[place], -exponent)), -most, most))
        else:
            zero = 0
        return f"CASE WHEN {small} THEN {zero} ELSE {within} END"

    def _most(self, place: int) -> int:
        """Return the largest whole number that a row may add."""
        return int(np.floor(np.ldexp(self.added.widths[place], -int(self.added.exponents[place]))))

    def _stays_within(self, one: Term, place: int) -> bool:
        """Whether one number within its bounds is never beyond, so that nothing need hold it."""
        added = self.added
        if len(one.factors) != 1 or added.offsets[place] != 0.0:
            return False
        (at,) = one.factors
        # a difference, a power of two and a rounding keep the order: the bounds are the farthest
        ends = np.array([added.lows[at], added.highs[at]]) - added.centres[at]
        whole = np.rint(np.ldexp(ends, -int(added.exponents[place])))
        return bool((np.abs(whole) <= self._most(place)).all())

    def _least(self, one: Term, place: int, factor: int) -> float:
        """Return a size of a factor below which the product is rounded as if it were 0."""
        added = self.added
        # |u v| < 2^(exponent − 4) of the grid, and of the offset's last bit, for |v| in its bounds
        step = math.ldexp(1.0, int(added.exponents[place]) - 60)
        others = [at for number, at in enumerate(one.factors) if number != factor]
        for at in others:
            step /= max(added.highs[at] - added.lows[at], 1e-100)
        if len(one.factors) == 2 and one.factors[0] == one.factors[1]:
            return math.sqrt(math.ldexp(1.0, int(added.exponents[place]) - 60))
        return float(step)


def _or_null(value: str, met: Sequence[str]) -> str:
    """Return a value of the rows that meet all conditions, NULL of others."""
    return f"CASE WHEN {' AND '.join(met)} THEN {value} END"


def condition_met(condition: Condition, dialect: Dialect) -> str:
    """Return a condition on a number that is there, in SQL."""
    name, number = f"x{condition.column}", dialect.number
    parts = [f"{name} IS NOT NULL"]
    if condition.low > -math.inf:
        parts.append(f"{name} >= {number(condition.low)}")
    if condition.high < math.inf:
        parts.append(f"{name} {'<=' if condition.closed else '<'} {number(condition.high)}")
    return " AND ".join(parts)
