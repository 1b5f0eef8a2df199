"""Parts of a query that no row can make fail: conditions, and numbers within declared bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, TypeAlias

from sqlglot import exp

from tacit._ground.numbers import LARGEST_EXACT
from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.schema import (
    DATE,
    DECIMAL,
    FLOAT,
    NUMBERS,
    TEXTS,
    TRUTH,
    UNTYPED,
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
# Characters of a product as it is written for an engine.
LONGEST = 2**18
# Places behind the point of the first digit of a number that is read.
LEAST_DIGIT = -300
# Whole numbers that are compared as such: of 126 bits, which every engine has a type for.
LARGEST_WHOLE = 2**126
LONG = 2**63
# What stands for all beyond 64 bits: no decimal is a third.
BELOW, ABOVE = -LONG - Fraction(1, 3), LONG - Fraction(1, 3)


NAMED: dict[type[exp.Expression], str] = {
    exp.Window: "a window function (OVER)", exp.Subquery: "a subquery", exp.Select: "a subquery",
    exp.Exists: "a subquery (EXISTS)", exp.Div: "division by a column",
    exp.IntDiv: "whole division (//)", exp.Mod: "a remainder (%)", exp.Star: "*",
    exp.Dot: "a name with dots", exp.RegexpLike: "a regular expression",
    exp.SimilarTo: "a regular expression (SIMILAR TO)", exp.Placeholder: "a placeholder",
    exp.Parameter: "a parameter", exp.Distinct: "DISTINCT", exp.Column: "a plain column",
    exp.Literal: "a literal", exp.Tuple: "a row of values", exp.Bracket: "[]",
    exp.Add: "+", exp.Sub: "−", exp.Mul: "*", exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">",
    exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.BitwiseAnd: "&", exp.BitwiseOr: "|",
    exp.BitwiseXor: "XOR", exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.Neg: "−", exp.RawString: "a text in $$", exp.ByteString: "a text of escapes (E'')",
    exp.DPipe: "||", exp.GroupingSets: "GROUPING SETS", exp.Lambda: "a function of its own (->)",
}  # fmt: skip


def refused(construct: str, why: str) -> ValueError:
    """Return the refusal of a construct by its name."""
    return ValueError(f"sql: {construct} is not answered: {why}")


def name_of(node: Any) -> str:
    """Return what a construct is called."""
    if isinstance(node, exp.Command):
        return str(node.this).upper()
    if isinstance(node, exp.IgnoreNulls):
        return name_of(node.this)
    if isinstance(node, exp.WithinGroup) and isinstance(node.this, (exp.Sum, exp.Avg, exp.Count)):
        return "WITHIN GROUP"
    if isinstance(node, exp.WithinGroup):
        return name_of(node.this)
    if isinstance(node, exp.Order):
        return "ORDER BY in an aggregate"
    if isinstance(node, exp.Div) and node.expression.find(exp.Column) is None:
        return "division by what is no number"
    if type(node) in NAMED:
        return NAMED[type(node)]
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name.upper()}"
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    if isinstance(node, exp.Func):
        # as DuckDB spells it
        word = node.sql(dialect="duckdb", comments=False).partition("(")[0]
        return word if word.isidentifier() else str(node.sql_name())
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

        A collation of a table's own might hold two texts equal. NaN is NULL, −0 is 0 and 1.0 is
        1.00: a cell of equal numbers is one.
        """
        held = self.written(alias, column)
        if column.kind == WHOLE and not text:
            return held
        if column.kind == FLOAT:
            held = f"{self.cell(alias, column)} + {self.dialect.number(0.0)}"
        if column.kind == DECIMAL:
            held = self.dialect.equal_decimal.format(held)
        plain = column.declared.lower() in ("varchar", "text", "string")
        held = held if plain else f"CAST({held} AS {self.dialect.text})"
        return f"({held}{self.dialect.bytewise})" if self.dialect.bytewise else held

    def held(self, alias: str, column: TypedColumn) -> str:
        """Return a column that is NULL where it holds nothing: no number, among numbers.

        A column of numbers is one by its declared type, or by its declared bounds.
        """
        named = (f"{alias}.{column.name}", column.name)
        read = column.kind == UNTYPED and any(name in self.bounds for name in named)
        if column.kind in (FLOAT, DECIMAL) or read:
            return self.cell(alias, column)
        return self.written(alias, column)

    # numbers

    def number(self, node: exp.Expression) -> tuple[str, Ends]:
        """Return a number of a row as a double or NULL, and within which bounds it is.

        Raises:
            ValueError: a construct that is not known, a column without bounds, or products that
                are too long in SQL.
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
        if isinstance(node, exp.Div) and _is_number(_bare(node.expression)):
            return self._share(node)
        if isinstance(node, exp.Case) and node.this is None:
            return self._cases(node)
        raise refused(name_of(node), "only columns, numbers, +, −, *, and CASE are computed")

    def ends_of(self, node: exp.Column) -> Ends:
        """Return the declared bounds of a column; infinite where they will be found.

        Raises:
            ValueError: none were declared.
        """
        alias, column = self.find(node)
        for name in (f"{alias}.{column.name}", column.name, node.name):
            if name in self.bounds:
                low, high = map(float, self.bounds[name])
                return low, high
        raise ValueError(
            f"bounds: expected (lowest, highest) of {column.name}, declared without looking at the "
            "table, or auto, got none"
        )

    def _column(self, node: exp.Column) -> tuple[str, Ends]:
        alias, column = self.find(node)
        low, high = self.ends_of(node)
        if not low > -math.inf:
            raise refused(
                f"an expression of {column.name}, whose bounds are found",
                "declare them, or aggregate the column itself",
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
            # u v with |u| < 1e-150 is 0: PostgreSQL refuses products that vanish; NULL stays NULL
            text = f"({self._not_tiny(left)} * {self._not_tiny(right)})"
            products = [a * b for a in one for b in other]
            return _not_too_long(text), _outwards(min(products), max(products))
        if isinstance(node, exp.Sub):
            return f"({left} - {right})", _outwards(one[0] - other[1], one[1] - other[0])
        return f"({left} + {right})", _outwards(one[0] + other[0], one[1] + other[1])

    def _not_tiny(self, text: str) -> str:
        small, zero = self.dialect.number(SMALLEST), self.dialect.number(0.0)
        return f"(CASE WHEN ABS({text}) < {small} THEN {zero} ELSE {text} END)"

    def _share(self, node: exp.Div) -> tuple[str, Ends]:
        text, ends = self.number(node.this)
        value = _finite(_bare(node.expression))
        if value == 0.0:
            raise refused("division by 0", "it fails")
        if abs(value) < SMALLEST:
            raise ValueError(f"sql: expected divisors of at least {SMALLEST:g}, got {value:g}")
        held = f"({self._not_tiny(text)} / {self.dialect.number(value)})"
        shares = [end / value for end in ends]
        return _not_too_long(held), _outwards(min(shares), max(shares))

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
        if (whole := self._whole(left, [right])) is not None:
            column, (value,) = whole
            return f"({compared(column, sign, value)})"
        side, (literal,) = self._sides(left, [right])
        return f"({side} {sign} {literal})"

    def _between(self, node: exp.Expression) -> str:
        if node.args.get("symmetric"):
            raise refused("BETWEEN SYMMETRIC", "BETWEEN takes the lower end first")
        ends = [node.args["low"], node.args["high"]]
        if (whole := self._whole(node.this, ends)) is not None:
            column, (least, most) = whole
            return f"({compared(column, '>=', least)} AND {compared(column, '<=', most)})"
        side, (low, high) = self._sides(node.this, ends)
        return f"({side} >= {low} AND {side} <= {high})"

    def _among(self, node: exp.Expression) -> str:
        if node.args.get("query") is not None or not node.expressions:
            raise refused("a subquery (IN)", "a set of literals is compared with")
        if (whole := self._whole(node.this, node.expressions)) is not None:
            column, values = whole
            return f"({' OR '.join(compared(column, '=', one) for one in values)})"
        side, literals = self._sides(node.this, node.expressions)
        return f"({side} IN ({', '.join(literals)}))"

    def _is(self, node: exp.Expression) -> str:
        column, told = _bare(node.this), node.expression
        if not isinstance(column, exp.Column) or not isinstance(told, (exp.Null, exp.Boolean)):
            why = "only IS NULL, IS TRUE and IS FALSE of a column are answered"
            raise refused(f"IS beside {name_of(column)}", why)
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
        column = _bare(node.this)
        if isinstance(column, exp.Column) and self.find(column)[1].kind == DATE:
            raise refused("LIKE beside dates", "compare them, or say BETWEEN")
        side, (literal,) = self._sides(node.this, [pattern])
        # NOT LIKE is one node of some versions of the parser, and NOT of a LIKE of others
        return f"({side} {'NOT LIKE' if node.args.get('negate') else 'LIKE'} {literal})"

    def _whole(
        self, node: exp.Expression, literals: Sequence[exp.Expression]
    ) -> tuple[str, list[Fraction]] | None:
        """Return a column of whole numbers and the numbers it is compared with; None for another.

        They are compared as whole numbers: doubles hold none beyond 2⁵³ exactly.
        """
        column, bare = _bare(node), [_bare(one) for one in literals]
        if not isinstance(column, exp.Column) or not all(_is_number(one) for one in bare):
            return None
        alias, known = self.find(column)
        if known.kind != WHOLE:
            return None
        values = [_exact(one) for one in bare]
        if any(abs(one) > LARGEST_WHOLE for one in values):
            raise ValueError("sql: expected whole numbers within ±2¹²⁶, got a larger one")
        if known.declared.lower() not in ("hugeint", "ubigint"):
            # no number of 64 bits lies beyond, and an engine need not compare it with one that does
            values = [min(max(one, BELOW), ABOVE) for one in values]
        return self.written(alias, known), values

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
            for one in bare:
                check_double(_exact(one), known)
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


def _exact(node: exp.Expression) -> Fraction:
    """Return a number as it was written."""
    sign, held = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(held, exp.Literal) or held.is_string:
        raise refused(name_of(held), "a number is expected there")
    try:
        value = Decimal(held.this)
    except InvalidOperation:
        value = Decimal("NaN")
    # a fraction of 1e-999999999 would have as many digits
    if not value.is_finite() or abs(value) > LARGEST or (value and value.adjusted() < LEAST_DIGIT):
        raise ValueError(
            f"sql: expected 0 or numbers between 1e{LEAST_DIGIT} and {LARGEST:g} in size, got "
            f"{held.this}"
        )
    return sign * Fraction(value)


def _not_too_long(text: str) -> str:
    """Refuse a product whose factors are too long: each is written twice, n of them 2ⁿ times."""
    if len(text) > LONGEST:
        raise ValueError(
            "sql: expected an expression of fewer products and divisions, got one of "
            f"{len(text):,} characters in SQL: store what is computed as a column"
        )
    return text


def _finite(node: exp.Expression) -> float:
    return float(_exact(node)) + 0.0


def check_double(value: Fraction | float, column: TypedColumn) -> None:
    """Refuse a whole number that cells which are compared as doubles are not told from.

    Raises:
        ValueError: it is one.
    """
    exact = Fraction(value)
    whole, large = exact.denominator == 1, abs(exact) >= LARGEST_EXACT
    if column.kind in (DECIMAL, UNTYPED) and whole and large:
        raise ValueError(
            f"sql: expected whole numbers within ±2⁵³ beside {column.name}, whose {column.kind} "
            f"are compared as doubles, got {exact}; store it as whole numbers"
        )


def compared(column: str, sign: str, value: Fraction) -> str:
    """Return a comparison of a column of whole numbers with a number, exactly.

    Raises:
        ValueError: the number is too large for any column.
    """
    if abs(value) > LARGEST_WHOLE:
        raise ValueError(f"sql: expected whole numbers within ±2¹²⁶, got {float(value):g}")
    low = math.floor(value)
    if value == low:
        return f"{column} {sign} {low}"
    if value == BELOW:
        return f"{column} {'=' if sign in ('>', '>=', '<>') else '<>'} {column}"
    # between two whole numbers: none is equal to it, and c > v is c > ⌊v⌋; NULL stays NULL
    return {"=": f"{column} <> {column}", "<>": f"{column} = {column}"}.get(
        sign, f"{column} {'>' if sign in ('>', '>=') else '<='} {low}"
    )


def _text_of(node: exp.Expression, column: TypedColumn) -> str:
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        # DATE '2024-01-31' is a literal that is written as a cast
        held = node.this
        dated = node.to.sql().upper() in ("DATE", "TIMESTAMP")
        if isinstance(held, exp.Literal) and held.is_string and dated and ISO.match(held.this):
            node = held
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise refused(f"{name_of(node)} in a condition", "a column is compared with literals")
    return spelled_as(str(node.this), column, "sql")


def spelled_as(text: str, column: TypedColumn, argument: str) -> str:
    """Return a text as cells of a column are spelled: a date, or a date and a time.

    Raises:
        ValueError: no date beside a column of dates.
    """
    if column.kind != DATE:
        return text
    try:
        moment = datetime.fromisoformat(text) if ISO.match(text) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(
            f"{argument}: expected a date such as 2024-01-31 beside {column.name}, got {text!r}"
        )
    day, time = moment.date().isoformat(), moment.time().isoformat("seconds")
    # a day is the beginning of it
    if column.declared.strip().lower() == "date" and time == "00:00:00":
        return day
    return f"{day} {time}"


def _outwards(low: float, high: float) -> Ends:
    """Return ends, each a unit further out than it was rounded.

    Raises:
        ValueError: they are too far for squares and products of doubles.
    """
    # not the contrary: an end that overflowed may be NaN
    if not (-LARGEST <= low <= high <= LARGEST):
        raise ValueError(
            f"bounds: expected those within which each step of a number stays within ±{LARGEST:g}, "
            "got wider ones: choose other units"
        )
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
