"""Parts of a query that no row can make fail: conditions, and numbers within declared bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlglot import exp

from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.schema import (
    DATE,
    FLOAT,
    NUMBERS,
    TEXTS,
    TRUTH,
    WHOLE,
    TableThere,
    TypedColumn,
)

Ends: TypeAlias = tuple[float, float]

COMPARED: dict[type[exp.Expression], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
}  # fmt: skip
TURNED = {"=": "=", "<>": "<>", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?\Z")
# Products of smaller factors are taken as 0, so that none is too small for a double.
SMALLEST, LARGEST = 1e-150, 1e100


def refused(construct: str, why: str) -> ValueError:
    """Return the refusal of a construct by its name."""
    return ValueError(f"sql: {construct} is not answered: {why}")


def name_of(node: Any) -> str:
    """Return what a construct is called."""
    named: dict[type[exp.Expression], str] = {
        exp.Window: "a window function (OVER)",
        exp.Subquery: "a subquery",
        exp.Select: "a subquery",
        exp.Exists: "a subquery (EXISTS)",
        exp.Div: "division by a column",
        exp.IntDiv: "division by a column",
        exp.Mod: "division by a column (%)",
        exp.Star: "*",
        exp.Dot: "a name with dots",
        exp.RegexpLike: "a regular expression",
        exp.Placeholder: "a placeholder",
        exp.Parameter: "a parameter",
        exp.Distinct: "DISTINCT",
        exp.Column: "a plain column",
        exp.Literal: "a literal",
    }
    if type(node) in named:
        return named[type(node)]
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name.upper()}"
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    if isinstance(node, exp.Func):
        return str(node.sql_name())
    return str(node.key).upper()


@dataclass(frozen=True)
class ExpressionReader:
    """Writes the parts of a query for an engine, and refuses all that it does not know.

    Attributes:
        dialect: of the engine.
        tables: by the names that the query gives them.
        bounds: declared (lowest, highest) of columns, by name.
    """

    dialect: Dialect
    tables: Mapping[str, TableThere] = field(repr=False)
    bounds: Mapping[str, Ends]

    def find(self, node: exp.Column) -> tuple[str, TypedColumn]:
        """Return the table and the column that a name stands for.

        Raises:
            ValueError: it stands for none, or for several.
        """
        if node.args.get("db") is not None:
            raise refused("a name with three parts", "name a table of the query and its column")
        wanted = [node.table] if node.table else list(self.tables)
        if node.table and node.table not in self.tables:
            raise ValueError(f"sql: expected a table of the query, got {node.table!r}")
        found = [
            (alias, column)
            for alias in wanted
            if (column := self.tables[alias].column(node.name)) is not None
        ]
        if not found:
            raise ValueError(f"sql: no table of the query has a column {node.name!r}")
        persons = [one for one in found if self.tables[one[0]].person == one[1].name]
        if len(found) > 1 and len(persons) != len(found):
            listed = " and ".join(alias for alias, _ in found)
            raise ValueError(f"sql: the column {node.name!r} is in {listed}: name its table")
        return found[0]

    def is_person(self, node: exp.Expression) -> bool:
        """Whether a column says whose a row is."""
        if not isinstance(node, exp.Column):
            return False
        alias, column = self.find(node)
        return self.tables[alias].person == column.name

    def written(self, alias: str, column: TypedColumn) -> str:
        """Return a column as it stands in the statement."""
        return f"{self.dialect.named(alias)}.{self.dialect.named(column.name)}"

    def exact(self, alias: str, column: TypedColumn, *, text: bool = False) -> str:
        """Return a column whose cells are equal where they are the same: texts by their bytes.

        A collation of a table's own might hold two texts equal.
        """
        held = self.written(alias, column)
        if column.kind == WHOLE and not text:
            return held
        plain = column.declared.lower() in ("varchar", "text", "string")
        held = held if plain else f"CAST({held} AS {self.dialect.text})"
        return f"({held}{self.dialect.bytewise})" if self.dialect.bytewise else held

    def held(self, alias: str, column: TypedColumn) -> str:
        """Return a column that is NULL where it holds nothing: NaN is nothing among numbers."""
        text = self.written(alias, column)
        return self.cell(alias, column) if column.kind == FLOAT else text

    # numbers

    def number(self, node: exp.Expression) -> tuple[str, Ends]:
        """Return a number of a row as a double or NULL, and within which bounds it is.

        Raises:
            ValueError: a construct that is not known, or a column without bounds.
        """
        if isinstance(node, exp.Paren):
            return self.number(node.this)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Neg):
            text, (low, high) = self.number(node.this)
            return f"(-{text})", (-high, -low)
        if isinstance(node, exp.Literal) and not node.is_string:
            value = _finite(node)
            return self.dialect.number(value), (value, value)
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
            return self._arithmetic(node)
        if isinstance(node, exp.Div) and isinstance(node.expression, exp.Literal):
            return self._share(node)
        if isinstance(node, exp.Case) and node.this is None:
            return self._cases(node)
        raise refused(name_of(node), "only columns, numbers, +, −, *, and CASE are computed")

    def _column(self, node: exp.Column) -> tuple[str, Ends]:
        alias, column = self.find(node)
        for name in (f"{alias}.{column.name}", column.name, node.name):
            if name in self.bounds:
                low, high = self.bounds[name]
                break
        else:
            raise ValueError(
                f"bounds: expected (lowest, highest) of {column.name}, declared without looking "
                "at the table, got none"
            )
        text = self.cell(alias, column)
        ends = f"WHEN {text} < {self.dialect.number(low)} THEN {self.dialect.number(low)} "
        ends += f"WHEN {text} > {self.dialect.number(high)} THEN {self.dialect.number(high)} "
        return f"(CASE {ends}ELSE {text} END)", (low, high)

    def cell(self, alias: str, column: TypedColumn) -> str:
        """Return a column as doubles.

        Raises:
            ValueError: its type is none of numbers.
        """
        text = self.dialect.read_number(self.written(alias, column), column.kind)
        if text is None:
            raise ValueError(
                f"sql: expected numbers in {column.name}, got a column of {column.kind}"
            )
        return text

    def _arithmetic(self, node: exp.Binary) -> tuple[str, Ends]:
        (left, one), (right, other) = self.number(node.this), self.number(node.expression)
        if isinstance(node, exp.Mul):
            small = self.dialect.number(SMALLEST)
            # |u v| with |u| < 1e-150 is taken as 0: PostgreSQL refuses products that vanish
            tiny = f"ABS({left}) < {small} OR ABS({right}) < {small}"
            text = f"(CASE WHEN {tiny} THEN {self.dialect.number(0.0)} ELSE {left} * {right} END)"
            products = [a * b for a in one for b in other]
            return text, _outwards(min(products), max(products))
        if isinstance(node, exp.Sub):
            return f"({left} - {right})", _outwards(one[0] - other[1], one[1] - other[0])
        return f"({left} + {right})", _outwards(one[0] + other[0], one[1] + other[1])

    def _share(self, node: exp.Div) -> tuple[str, Ends]:
        text, ends = self.number(node.this)
        value = _finite(node.expression)
        if not SMALLEST <= value <= LARGEST:
            raise refused("division by 0", "it fails")
        small, zero = self.dialect.number(SMALLEST), self.dialect.number(0.0)
        shared = f"{text} / {self.dialect.number(value)}"
        held = f"(CASE WHEN ABS({text}) < {small} THEN {zero} ELSE {shared} END)"
        return held, _outwards(ends[0] / value, ends[1] / value)

    def _cases(self, node: exp.Case) -> tuple[str, Ends]:
        parts, ends = [], []
        for one in node.args["ifs"]:
            text, held = self.number(one.args["true"])
            parts.append(f"WHEN {self.condition(one.this)} THEN {text}")
            ends.append(held)
        otherwise = node.args.get("default")
        if otherwise is not None and not isinstance(otherwise, exp.Null):
            text, held = self.number(otherwise)
            parts.append(f"ELSE {text}")
            ends.append(held)
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        return f"(CASE {' '.join(parts)} END)", (low, high)

    # conditions

    def condition(self, node: exp.Expression) -> str:
        """Return a condition on a row, which no cell can make fail.

        Raises:
            ValueError: a construct that is not known.
        """
        if isinstance(node, exp.Paren):
            return f"({self.condition(node.this)})"
        if isinstance(node, (exp.And, exp.Or)):
            word = "AND" if isinstance(node, exp.And) else "OR"
            return f"({self.condition(node.this)} {word} {self.condition(node.expression)})"
        if isinstance(node, exp.Not):
            return f"(NOT {self.condition(node.this)})"
        if isinstance(node, exp.Boolean):
            return "(1 = 1)" if node.this else "(1 = 0)"
        if isinstance(node, exp.Column):
            alias, column = self.find(node)
            if column.kind == TRUTH:
                return self.written(alias, column)
            raise refused("a column as a condition", f"{column.name} holds {column.kind}")
        found = self._conditions().get(type(node))
        if found is None:
            raise refused(name_of(node), "only comparisons with literals are made in a condition")
        return found(node)

    def _conditions(self) -> dict[type[exp.Expression], Callable[[Any], str]]:
        return {
            **dict.fromkeys(COMPARED, self._comparison),
            exp.Between: self._between,
            exp.In: self._among,
            exp.Is: self._is,
            exp.Like: self._like,
        }

    def _comparison(self, node: exp.Expression) -> str:
        sign, left, right = COMPARED[type(node)], node.this, node.expression
        if isinstance(_bare(right), exp.Column) and not isinstance(_bare(left), exp.Column):
            sign, left, right = TURNED[sign], right, left
        side, (literal,) = self._sides(left, [right])
        return f"({side} {sign} {literal})"

    def _between(self, node: exp.Expression) -> str:
        if node.args.get("symmetric"):
            raise refused("BETWEEN SYMMETRIC", "BETWEEN takes the lower end first")
        side, (low, high) = self._sides(node.this, [node.args["low"], node.args["high"]])
        return f"({side} >= {low} AND {side} <= {high})"

    def _among(self, node: exp.Expression) -> str:
        if node.args.get("query") is not None or not node.expressions:
            raise refused("a subquery (IN)", "a set of literals is compared with")
        side, literals = self._sides(node.this, node.expressions)
        return f"({side} IN ({', '.join(literals)}))"

    def _is(self, node: exp.Expression) -> str:
        column, told = _bare(node.this), node.expression
        if not isinstance(column, exp.Column) or not isinstance(told, (exp.Null, exp.Boolean)):
            raise refused("IS", "only IS NULL, IS TRUE and IS FALSE of a column are answered")
        alias, known = self.find(column)
        written = self.written(alias, known)
        if isinstance(told, exp.Null):
            return f"({self.held(alias, known)} IS NULL)"
        if known.kind != TRUTH:
            raise refused("IS TRUE", f"{known.name} holds {known.kind}")
        return f"({written} IS {'TRUE' if told.this else 'FALSE'})"

    def _like(self, node: exp.Expression) -> str:
        pattern = node.expression
        plain = isinstance(pattern, exp.Literal) and pattern.is_string
        if not plain or "\\" in pattern.this:
            raise refused("LIKE", "only LIKE with a text without backslashes is answered")
        side, (literal,) = self._sides(node.this, [pattern])
        return f"({side} LIKE {literal})"

    def _sides(
        self, node: exp.Expression, literals: Sequence[exp.Expression]
    ) -> tuple[str, list[str]]:
        """Return a column and literals that it is compared with, as numbers or as texts."""
        column = _bare(node)
        if not isinstance(column, exp.Column):
            raise refused(f"{name_of(column)} in a condition", "a column is compared with literals")
        bare = [_bare(one) for one in literals]
        for one in bare:
            if isinstance(one, exp.Column):
                raise refused("a comparison of two columns", "compare a column with a literal")
        alias, known = self.find(column)
        if all(_is_number(one) for one in bare):
            if known.kind not in NUMBERS:
                raise refused(
                    f"a comparison of {known.kind} with a number", f"{known.name} holds no numbers"
                )
            return self.cell(alias, known), [self.dialect.number(_finite(one)) for one in bare]
        texts = [_text_of(one, known) for one in bare]
        side = self.dialect.read_text(self.written(alias, known), known.kind)
        if side is None or known.kind not in TEXTS:
            raise refused(
                f"a comparison of {known.kind} with a text", f"{known.name} holds no texts"
            )
        return side, [self.dialect.quoted(one) for one in texts]


def _bare(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_number(node: exp.Expression) -> bool:
    held = node.this if isinstance(node, exp.Neg) else node
    return isinstance(held, exp.Literal) and not held.is_string


def _finite(node: exp.Expression) -> float:
    sign, held = (-1.0, node.this) if isinstance(node, exp.Neg) else (1.0, node)
    if not isinstance(held, exp.Literal) or held.is_string:
        raise refused(name_of(held), "a number is expected there")
    try:
        value = sign * float(held.this)
    except ValueError:
        value = math.inf
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ValueError(f"sql: expected numbers within ±{LARGEST:g}, got {held.this}")
    if held.this.isdigit() and int(held.this) != int(abs(value)):
        # compared as doubles: another whole number would be met
        raise ValueError(f"sql: expected whole numbers that doubles hold, got {held.this}")
    return value + 0.0


def _text_of(node: exp.Expression, column: TypedColumn) -> str:
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        # DATE '2024-01-31' is a literal that is written as a cast
        held = node.this
        dated = node.to.sql().upper() in ("DATE", "TIMESTAMP")
        if isinstance(held, exp.Literal) and held.is_string and dated and ISO.match(held.this):
            return str(held.this)
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise refused(f"{name_of(node)} in a condition", "a column is compared with literals")
    if column.kind == DATE and not ISO.match(node.this):
        raise ValueError(
            f"sql: expected a date such as 2024-01-31 beside {column.name}, got {node.this!r}"
        )
    return str(node.this)


def _outwards(low: float, high: float) -> Ends:
    """Return ends, each a unit further out than it was rounded."""
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
