"""Aggregates of a SELECT: what each of them is of the rows of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from tacit.statistics.engines.expressions import Ends, ExpressionReader, name_of, refused
from tacit.statistics.queries.counts import Count, Present, RowCount
from tacit.statistics.queries.moments import Correlation, Mean, StandardDeviation, Sum, Variance
from tacit.statistics.queries.quantiles import Median, Quantiles
from tacit.statistics.queries.ratios import Ratio
from tacit.statistics.queries.statistic import Statistic

ONE_NUMBER: dict[type[exp.Expression], Any] = {
    exp.Avg: Mean, exp.Sum: Sum, exp.Variance: Variance, exp.Stddev: StandardDeviation,
    exp.StddevSamp: StandardDeviation,
}  # fmt: skip
PERCENTILES = (exp.PercentileCont, exp.PercentileDisc)
NO_AGGREGATE = (
    "COUNT, SUM, AVG, VARIANCE, STDDEV, CORR, MEDIAN, QUANTILE_CONT and ratios of SUM and COUNT "
    "are answered"
)


@dataclass(frozen=True)
class Aggregates:
    """Aggregates as statistics, and the columns that they are computed of.

    Attributes:
        reader: of expressions.
        numbers: text and bounds of the columns of what was read, by name; None where a column only
            says whether a row counts.
    """

    reader: ExpressionReader
    numbers: dict[str, tuple[str, Ends | None]] = field(default_factory=dict)

    def read(self, node: exp.Expression) -> Statistic:
        """Return what an aggregate is of rows, whose columns are added to those there are."""
        if isinstance(node, exp.Paren):
            return self.read(node.this)
        if isinstance(node, exp.Filter):
            met = self.reader.condition(node.expression.this)
            name = f"({sql_of(node.expression.this)})"
            one = self.reader.dialect.number(1.0)
            self._keep(name, f"(CASE WHEN {met} THEN {one} END)", None)
            return Present(self.read(node.this), name)
        if isinstance(node, exp.Count):
            return self._count(node)
        if isinstance(node, exp.Corr):
            pair = [self._number(one) for one in (node.this, node.expression)]
            if pair[0] == pair[1]:
                raise refused("CORR of a column with itself", "it is 1")
            return Present(Present(Correlation(tuple(pair)), pair[0]), pair[1])
        if isinstance(node, (exp.Median, exp.Quantile, exp.WithinGroup, *PERCENTILES)):
            return self._quantile(node)
        if isinstance(node, exp.Div):
            return self._ratio(node)
        kind = ONE_NUMBER.get(type(node))
        if kind is None:
            raise refused(name_of(node), NO_AGGREGATE)
        if isinstance(node.this, exp.Distinct):
            raise refused(f"{name_of(node)}(DISTINCT)", "only COUNT(DISTINCT person) is")
        name = self._number(node.this)
        return Present(kind((name,)), name)

    def _quantile(self, node: exp.Expression) -> Statistic:
        """Return a quantile of persons, each weighing one: MEDIAN(x), QUANTILE_CONT(x, 0.9)."""
        held, level = node.this, node.args.get("quantile") or node.expression
        if isinstance(node, exp.WithinGroup):
            # PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)
            order = node.expression.expressions
            if not isinstance(held, PERCENTILES) or len(order) != 1 or order[0].args.get("desc"):
                raise refused(name_of(node), "PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x) is")
            held, level = order[0].this, held.this
        if isinstance(held, exp.Distinct):
            raise refused(f"{name_of(node)}(DISTINCT)", "each person weighs one")
        if isinstance(node, exp.Median):
            name = self._number(held)
            return Present(Median((name,)), name)
        if (
            not isinstance(level, exp.Literal)
            or level.is_string
            or not 0.0 <= float(level.this) <= 1.0
        ):
            raise refused(f"{name_of(node)} without one level in [0, 1]", "write 0.9")
        name = self._number(held)
        return Present(Quantiles((float(level.this),), columns=(name,)), name)

    def _ratio(self, node: exp.Div) -> Statistic:
        """Return the ratio of two sums or counts; NULLIF(…, 0) below is what it is without."""
        below = node.expression.unnest()
        if isinstance(below, exp.Nullif) and below.expression == exp.Literal.number(0):
            below = below.this
        parts = node.this.unnest(), below.unnest()
        for one in parts:
            held = one.this if isinstance(one, exp.Filter) else one
            if not isinstance(held, (exp.Sum, exp.Count)):
                raise refused(
                    f"a ratio of {name_of(held)}", "SUM and COUNT are divided by one another"
                )
        above, divisor = (self.read(one) for one in parts)
        return Ratio(above, divisor)

    def _number(self, node: exp.Expression) -> str:
        """Return the name of the column of a number."""
        if isinstance(node, exp.Column):
            # the statement itself takes it within its bounds
            name, text = self.reader.find(node)[1].name, self.reader.cell(*self.reader.find(node))
            ends = self.reader.ends_of(node)
        else:
            text, ends = self.reader.number(node)
            name = sql_of(node)
        if not ends[0] < ends[1]:
            raise refused("an aggregate of a constant", f"{name} is the same for every row")
        self._keep(name, text, ends)
        return name

    def _keep(self, name: str, text: str, ends: Ends | None) -> None:
        """Add a column that numbers are computed of, by a name that no other has.

        Raises:
            ValueError: another has it.
        """
        known = self.numbers.setdefault(name, (text, ends))
        if known[0] != text:
            raise ValueError(f"sql: the column {name} is of two tables: one of them in a query")

    def _count(self, node: exp.Count) -> Statistic:
        """Return the count of rows, of rows that hold something, or of persons."""
        if node.args.get("expressions"):
            raise refused("COUNT of several columns", "count one, or *")
        held = node.this
        if held is None or isinstance(held, exp.Star):
            return RowCount()
        if isinstance(held, exp.Distinct):
            if len(held.expressions) == 1 and self.reader.is_person(held.expressions[0]):
                return Count()
            raise refused("COUNT(DISTINCT)", "persons are counted so, and nothing else")
        if isinstance(held, exp.Literal):
            return RowCount()
        one = self.reader.dialect.number(1.0)
        if isinstance(held, exp.Column):
            alias, column = self.reader.find(held)
            text = f"(CASE WHEN {self.reader.held(alias, column)} IS NOT NULL THEN {one} END)"
            name = f"({column.name} IS NOT NULL)"
        elif isinstance(held, exp.Case) and held.this is None and held.args.get("default") is None:
            if any(not isinstance(part.args["true"], exp.Literal) for part in held.args["ifs"]):
                raise refused("COUNT of CASE without a literal", "write THEN 1")
            met = [self.reader.condition(part.this) for part in held.args["ifs"]]
            text, name = f"(CASE WHEN {' OR '.join(met)} THEN {one} END)", sql_of(held)
        else:
            raise refused(f"COUNT of {name_of(held)}", "count a column, or *")
        self._keep(name, text, None)
        return Present(RowCount(), name)


def sql_of(node: exp.Expression) -> str:
    """Return a part of a query as it is named."""
    return node.sql(dialect="duckdb", comments=False)
