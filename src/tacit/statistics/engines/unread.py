"""Parts of a parsed query that no reader looks at: one of them is refused, never passed over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlglot import exp

from tacit.statistics.engines.expressions import name_of, refused

ALONE, BINARY = frozenset({"this"}), frozenset({"this", "expression"})
# What readers look at of each kind of node that they take; of other kinds they refuse the node.
READ: dict[type[exp.Expression], frozenset[str] | set[str]] = {
    **dict.fromkeys((exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.Corr, exp.Nullif), BINARY),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is), BINARY),
    **dict.fromkeys((exp.Filter, exp.WithinGroup), BINARY),
    **dict.fromkeys((exp.PercentileCont, exp.PercentileDisc), BINARY),
    **dict.fromkeys((exp.Not, exp.Paren, exp.Neg, exp.Where, exp.From, exp.Boolean), ALONE),
    **dict.fromkeys((exp.Sum, exp.Avg, exp.Median), ALONE),
    **dict.fromkeys((exp.Variance, exp.Stddev, exp.StddevSamp), ALONE),
    exp.Like: {*BINARY, "negate"},
    exp.Between: {"this", "low", "high", "symmetric"},
    exp.In: {"this", "expressions", "query"},
    exp.Case: {"this", "ifs", "default"},
    exp.If: {"this", "true"},
    # how a parser that knows the engine divides: doubles are divided here
    exp.Div: {*BINARY, "typed", "safe"},
    exp.Quantile: {"this", "quantile"},
    # whole numbers of 64 bits
    exp.Count: {"this", "expressions", "big_int"},
    exp.Distinct: {"expressions"},
    # a literal of a date; its reader refuses every other
    exp.Cast: {"this", "to"},
    exp.Star: set(),
    exp.Null: set(),
    exp.Literal: {"this", "is_string"},
    exp.Column: {"this", "table", "db", "catalog"},
    exp.Identifier: {"this", "quoted"},
    exp.Alias: {"this", "alias"},
    exp.Join: {"this", "side", "kind", "method", "on", "using"},
}


def refuse_unread(nodes: Iterable[Any]) -> None:
    """Refuse what stands in a node that is read, and is not looked at.

    A parser says in such a part that a condition is denied, or that rows are left out.

    Raises:
        ValueError: the message names the construct and the part.
    """
    for node in nodes:
        known = READ.get(type(node))
        for part, held in node.args.items():
            if known is not None and held and part not in known:
                word = part.strip("_").upper().replace("_", " ")
                raise refused(f"{name_of(node)} with {word}", "it is read without such a part")
