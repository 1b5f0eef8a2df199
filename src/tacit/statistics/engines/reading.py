"""How a SELECT is read: refused by the name of what is not answered, else a ``Selection``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from sqlglot import exp

from tacit.statistics.engines.aggregates import NO_AGGREGATE, Aggregates, sql_of
from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.expressions import (
    LARGEST_WHOLE,
    Ends,
    ExpressionReader,
    check_double,
    name_of,
    refused,
    spelled_as,
)
from tacit.statistics.engines.schema import (
    DECIMAL,
    FLOAT,
    NUMBERS,
    WHOLE,
    TableThere,
    TypedColumn,
)
from tacit.statistics.engines.selection import Asked, Key, Selection
from tacit.statistics.engines.unread import refuse_unread
from tacit.statistics.pools import EACH_KEY, key_word

READ = {"expressions", "from_", "joins", "where", "group", "kind"}
CLAUSES = {
    "with_": "WITH", "distinct": "SELECT DISTINCT", "having": "HAVING", "order": "ORDER BY",
    "limit": "LIMIT", "offset": "OFFSET", "qualify": "QUALIFY", "windows": "WINDOW",
    "laterals": "LATERAL", "sample": "TABLESAMPLE", "pivots": "PIVOT", "connect": "CONNECT BY",
    "into": "SELECT INTO", "locks": "FOR UPDATE", "sort": "SORT BY", "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY", "hint": "a hint", "match": "MATCH_RECOGNIZE",
    "prewhere": "PREWHERE", "operation_modifiers": "a modifier of SELECT",
}  # fmt: skip
TABLE_PARTS = {
    "sample": "TABLESAMPLE", "pivots": "PIVOT", "db": "a table of another schema",
    "joins": "a nested join", "when": "AT",
}  # fmt: skip
# The largest double.
LARGEST = 1.7976931348623157e308

Place: TypeAlias = tuple[str, TypedColumn]


def parse(text: str) -> exp.Select:
    """Return the one SELECT of a text.

    Raises:
        ValueError: it is none, or has a clause that is not answered, which is named.
    """
    import sqlglot

    check_text("sql", text)
    # what it says of a text that is none is said below
    logger, level = logging.getLogger("sqlglot"), logging.getLogger("sqlglot").level
    logger.setLevel(logging.CRITICAL)
    try:
        # a comment behind the last semicolon is a statement there
        none = (type(None), exp.Semicolon)
        parsed = sqlglot.parse(text, read="duckdb")
        statements = [one for one in parsed if not isinstance(one, none)]
    except sqlglot.errors.SqlglotError as error:
        where = (getattr(error, "errors", None) or [{}])[0]
        at = f" at line {where['line']}, column {where['col']}" if where.get("line") else ""
        raise ValueError(f"sql: expected a SELECT, got a text that is none{at}") from None
    except RecursionError:
        raise ValueError("sql: expected a shorter SELECT, got one too deep to read") from None
    finally:
        logger.setLevel(level)
    if len(statements) != 1:
        raise ValueError(f"sql: expected one statement, got {len(statements)}")
    root = statements[0]
    if not isinstance(root, exp.Select):
        raise refused(name_of(root), "one SELECT is")
    for name, held in root.args.items():
        if held and name not in READ:
            raise refused(CLAUSES.get(name, name.strip("_").upper()), "it is no sum over persons")
    refuse_unread(root.walk())
    if root.args.get("from_") is None:
        raise refused("SELECT without FROM", "a table is expected")
    return root


def check_text(argument: str, text: str) -> None:
    """Refuse what no engine takes as a text.

    Raises:
        ValueError: half a character (a surrogate), or a NUL.
    """
    if any("\ud800" <= one <= "\udfff" for one in text):
        raise ValueError(f"{argument}: expected a text, got half a character (a surrogate) in it")
    if "\0" in text:
        raise ValueError(f"{argument}: expected a text, got a NUL character in it")


def tables_of(root: exp.Select) -> dict[str, str]:
    """Return the tables that a SELECT reads, by the names that it gives them.

    Raises:
        ValueError: what it reads is no table.
    """
    found: dict[str, str] = {}
    nodes = (root.args["from_"].this, *(join.this for join in root.args.get("joins") or ()))
    for node in nodes:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise refused(name_of(node if not isinstance(node, exp.Table) else node.this),
                          "tables that were declared are read")  # fmt: skip
        for name, held in node.args.items():
            if held and name not in ("this", "alias"):
                raise refused(TABLE_PARTS.get(name, name.upper()), "tables are read whole")
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise refused("an alias with columns", "name the columns of the table")
        called = node.alias or node.name
        if called in found:
            raise ValueError(f"sql: expected a name for each table, got {called!r} twice")
        found[called] = node.name
    return found


def columns_named(root: exp.Select) -> tuple[str, ...]:
    """Return every name of a column that a SELECT says, for files whose columns have no list."""
    used = [one.name for one in root.find_all(exp.Column)]
    using = [
        one.name for join in root.args.get("joins") or () for one in join.args.get("using") or ()
    ]
    return tuple(dict.fromkeys((*used, *using)))


def select(
    root: exp.Select,
    tables: Mapping[str, TableThere],
    dialect: Dialect,
    bounds: Mapping[str, Ends],
    levels: Mapping[str, Sequence[str | float]],
) -> Selection:
    """Return what a SELECT asks.

    Args:
        root: as ``parse`` returns it.
        tables: by the names that it gives them.
        dialect: of the engine.
        bounds: declared (lowest, highest), by column.
        levels: declared values of the columns it groups by.

    Raises:
        ValueError: a construct that is not answered, which is named; a column that is not there,
            or without bounds.
    """
    reader = ExpressionReader(dialect, tables, bounds)
    origin, person = _origin(root, reader)
    where = root.args.get("where")
    keys = _keys(root, reader, levels)
    asked, numbers = _list(root, reader, keys)
    return Selection(
        asked=asked,
        keys=keys,
        numbers=numbers,
        persons=reader.exact(*person),
        origin=origin,
        condition="" if where is None else reader.condition(where.this),
        tables=tuple(dict.fromkeys(one.name for one in tables.values())),
        unit=person[1].name,
    )


def _origin(root: exp.Select, reader: ExpressionReader) -> tuple[str, tuple[str, TypedColumn]]:
    """Return what stands behind FROM, and the column that says whose a row of it is."""
    names = list(reader.tables)
    persons = {
        alias: (alias, column)
        for alias, table in reader.tables.items()
        if table.person is not None and (column := table.column(table.person)) is not None
    }
    if not persons:
        raise ValueError("person: expected a table of the query that has their column, got none")
    text = f"{reader.tables[names[0]].relation} AS {reader.dialect.named(names[0])}"
    before = [names[0]]
    for join, alias in zip(root.args.get("joins") or (), names[1:], strict=True):
        side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
        if join.args.get("method"):
            raise refused(f"{join.args['method']} JOIN", "say USING (column) or ON")
        if side in ("RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
            raise refused(f"{side or kind} JOIN", "JOIN and LEFT JOIN are")
        pairs = _pairs(join, alias, before, reader)
        keeps = any(
            left == persons.get(left[0]) and right == persons[alias] for left, right in pairs
        ) if alias in persons else True  # fmt: skip
        if alias in persons and any(one in persons for one in before) and not keeps:
            raise refused(
                "a join that loses the person",
                f"{alias} and {' and '.join(before)} are not joined by {persons[alias][1].name}",
            )
        if side == "LEFT" and any(
            one.table == alias for held in root.find_all(exp.Distinct)
            for one in held.find_all(exp.Column)
        ):  # fmt: skip
            raise refused(
                f"COUNT(DISTINCT) of {alias}, which a LEFT JOIN may not find",
                "count the persons of the table on the left",
            )
        met = " AND ".join(_equal(left, right, reader) for left, right in pairs) or "1 = 1"
        word = "LEFT JOIN" if side == "LEFT" else "JOIN"
        table = f"{reader.tables[alias].relation} AS {reader.dialect.named(alias)}"
        text += f" {word} {table} ON {met}"
        before.append(alias)
    return text, next(persons[alias] for alias in names if alias in persons)


def _pairs(
    join: exp.Join, alias: str, before: Sequence[str], reader: ExpressionReader
) -> list[tuple[Place, Place]]:
    """Return the columns that a join holds equal, of the tables before and of its own."""
    earlier = replace(reader, tables={one: reader.tables[one] for one in before})
    own = replace(reader, tables={alias: reader.tables[alias]})
    pairs = [
        (earlier.find(exp.column(one.name)), own.find(exp.column(one.name)))
        for one in join.args.get("using") or ()
    ]
    conditions = [] if join.args.get("on") is None else list(_conjuncts(join.args["on"]))
    for condition in conditions:
        left, right = condition.args.get("this"), condition.args.get("expression")
        columns = isinstance(left, exp.Column) and isinstance(right, exp.Column)
        if not isinstance(condition, exp.EQ) or not columns:
            raise refused(f"{name_of(condition)} in ON", "columns that are equal join tables")
        first, second = (reader.find(one) for one in condition.find_all(exp.Column))
        if first[0] == alias:
            first, second = second, first
        if first[0] == alias or second[0] != alias:
            raise refused("a condition on one table in ON", "columns that are equal join tables")
        pairs.append((first, second))
    return pairs


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return _conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]


def _equal(left: Place, right: Place, reader: ExpressionReader) -> str:
    """Return that two columns are equal; texts are compared where types differ, as none fails."""
    kinds = {place[1].kind for place in (left, right)}
    if FLOAT in kinds and len(kinds) > 1:
        raise ValueError(
            f"sql: expected columns of one kind in a join, got {left[1].kind} of {left[1].name} "
            f"and {right[1].kind}: 1 and 1.0 are other texts; store both as whole numbers"
        )
    same = left[1].declared.lower() == right[1].declared.lower()
    one, other = (reader.exact(*place, text=not same) for place in (left, right))
    return f"{one} = {other}"


def _grouped(root: exp.Select) -> list[exp.Column]:
    group = root.args.get("group")
    if group is None:
        return []
    for name, held in group.args.items():
        if held and name != "expressions":
            raise refused(f"GROUP BY {name.upper().replace('_', ' ')}", "columns group rows")
    for one in group.expressions:
        if not isinstance(one, exp.Column):
            raise refused(f"GROUP BY {name_of(one)}", "columns group rows")
    return list(group.expressions)


def _keys(
    root: exp.Select, reader: ExpressionReader, levels: Mapping[str, Sequence[str | float]]
) -> tuple[Key, ...]:
    """Return what rows are grouped by, each column once."""
    found: dict[str, tuple[Place, Key]] = {}
    for node in _grouped(root):
        key = read_key(node, reader, levels)
        place = reader.find(node)
        if found.setdefault(key.name, (place, key))[0] != place:
            raise ValueError(
                f"sql: the column {key.name!r} is of two tables: group by one of them in a query"
            )
    return tuple(key for _, key in found.values())


def read_key(
    node: exp.Column, reader: ExpressionReader, levels: Mapping[str, Sequence[str | float]]
) -> Key:
    """Return a column that rows are grouped by, with its declared values where there are some."""
    if reader.is_person(node):
        raise refused("grouping by person", "every group would tell of one")
    alias, column = reader.find(node)
    declared = next(
        (
            levels[name]
            for name in (f"{alias}.{column.name}", column.name, node.name)
            if name in levels
        ),
        None,
    )
    written = reader.written(alias, column)
    if declared is None:
        return _sought(alias, column, reader)
    if column.kind in NUMBERS and all(isinstance(one, (int, float)) for one in declared):
        if not all(math.isfinite(float(one)) for one in declared):
            raise ValueError(f"keys: expected finite numbers for {column.name}, got another")
        numbers = [Fraction(one) for one in declared]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"keys: expected different values for {column.name}, got one twice")
        if column.kind == WHOLE:
            # compared as whole numbers: doubles hold none beyond 2⁵³ exactly
            for one in numbers:
                if one.denominator > 1 or abs(one) > LARGEST_WHOLE:
                    raise ValueError(
                        f"keys: expected whole numbers for {column.name}, a column of whole "
                        f"numbers, got {float(one):g}"
                    )
            whole = tuple(int(one) for one in numbers)
            return Key(column.name, written, tuple(map(str, whole)), whole)
        for one in numbers:
            check_double(one, column)
        held = tuple(map(float, numbers))
        literals = tuple(map(reader.dialect.number, held))
        return Key(column.name, reader.cell(alias, column), literals, held)
    text = reader.dialect.read_text(written, column.kind)
    if text is None:
        raise ValueError(f"keys: expected values of {column.kind} for {column.name}, got texts")
    words = tuple(map(key_word, declared))
    for word in words:
        check_text("keys", word)
    spelled = [spelled_as(word, column, "keys") for word in words]
    if len(set(spelled)) < len(spelled):
        raise ValueError(f"keys: expected different values for {column.name}, got one twice")
    return Key(column.name, text, tuple(map(reader.dialect.quoted, spelled)), words)


def _sought(alias: str, column: TypedColumn, reader: ExpressionReader) -> Key:
    """Return a column whose values will be found: numbers that are finite, or texts."""
    dialect = reader.dialect
    if column.kind == WHOLE:
        # as they are: doubles hold none beyond 2⁵³ exactly
        return Key(column.name, reader.written(alias, column), ("0",), (), sought=True)
    if column.kind in (FLOAT, DECIMAL):
        cell = reader.cell(alias, column)
        # −0 is 0
        text = f"(CASE WHEN ABS({cell}) <= {dialect.number(LARGEST)} "
        text += f"THEN {cell} + {dialect.number(0.0)} END)"
        return Key(column.name, text, (dialect.number(0.0),), (), sought=True)
    held = dialect.read_text(reader.written(alias, column), column.kind)
    if held is None:
        raise refused(f"GROUP BY {column.name}", f"it holds {column.kind}")
    return Key(column.name, held, (dialect.quoted(EACH_KEY),), (), sought=True)


def _list(
    root: exp.Select, reader: ExpressionReader, keys: Sequence[Key]
) -> tuple[tuple[Asked, ...], dict[str, tuple[str, Ends | None]]]:
    """Return the numbers of the list, and the columns that they are computed of."""
    asked: list[Asked] = []
    aggregates = Aggregates(reader)
    names = {key.name for key in keys}
    for node in root.expressions:
        held = node.this if isinstance(node, exp.Alias) else node
        if isinstance(held, exp.Column) and not isinstance(held.this, exp.Star):
            if reader.is_person(held):
                raise refused("the column of the persons", "it names every one of them")
            if reader.find(held)[1].name not in names:
                raise refused("a plain column", f"{held.name} is not grouped by")
            continue
        text = sql_of(held)
        name = node.alias if isinstance(node, exp.Alias) else text
        asked.append(Asked(name, aggregates.read(held), text))
    if not asked:
        raise refused("SELECT without an aggregate", NO_AGGREGATE)
    if both := next((name for name in names if name in aggregates.numbers), None):
        raise ValueError(f"sql: expected {both} either in GROUP BY or in an aggregate, got both")
    if len({one.name for one in asked}) < len(asked):
        raise ValueError("sql: expected different names of numbers, got one twice: use AS")
    return tuple(asked), aggregates.numbers
