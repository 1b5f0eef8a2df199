"""Nodes of a proof: what a mechanism is, in decimal strings, for a checker that shares no code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, TypeAlias

Node: TypeAlias = Mapping[str, Any]
# Significant digits of a claim.
CLAIM_DIGITS = 4


def decimal(value: float | int | str) -> str:
    """Return the shortest decimal that reads back as the same number."""
    if isinstance(value, float):
        return "Infinity" if math.isinf(value) else repr(float(value))
    return str(value)


def claim_up(value: float) -> str:
    """Return a bound as it is claimed: rounded up to four significant digits."""
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else "Infinity"
    exact = Decimal(repr(float(value)))
    step = Decimal(1).scaleb(exact.adjusted() - CLAIM_DIGITS + 1)
    short = exact if exact == exact.quantize(step) else exact.quantize(step, ROUND_CEILING)
    return str(short.normalize()).replace("E", "e")


def node(kind: str, **numbers: float | int | str) -> Node:
    """Return a node without others in it: every number as a decimal string."""
    return {"kind": kind, **{name: decimal(value) for name, value in numbers.items()}}


def composed(parts: Sequence[tuple[Node | None, int]]) -> Node | None:
    """Return the node of releases together; None where one of them has none."""
    flat: list[dict[str, Any]] = []
    for part, count in parts:
        if part is None:
            return None
        alone = part["kind"] != "composition"
        inner: Any = [{"count": "1", "of": part}] if alone else part["parts"]
        for one in inner:
            times = int(one["count"]) * count
            # the same release again is one with a larger count
            if flat and flat[-1]["of"] == one["of"]:
                times += int(flat.pop()["count"])
            flat.append({"count": str(times), "of": one["of"]})
    if len(flat) == 1 and flat[0]["count"] == "1":
        return dict(flat[0]["of"])
    return {"kind": "composition", "parts": flat}
