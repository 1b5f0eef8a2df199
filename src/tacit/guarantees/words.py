"""Numbers as a reader sees them, rounded to the side that keeps the sentence true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

DIGITS = 3


def number_up(value: float) -> str:
    """Write ``value`` with three significant digits, rounded up."""
    return _number(value, ROUND_CEILING)


def number_down(value: float) -> str:
    """Write ``value`` with three significant digits, rounded down."""
    return _number(value, ROUND_FLOOR)


def percent_up(share: float) -> str:
    """Write ``share`` as a percentage with one decimal, rounded up (two digits below 1%)."""
    return _percent(share, ROUND_CEILING)


def percent_down(share: float) -> str:
    """Write ``share`` as a percentage, rounded down, never to 100% unless it is 1."""
    return _percent(share, ROUND_FLOOR)


def percent_nearest(share: float) -> str:
    """Write ``share`` as a percentage with one decimal, rounded to the nearest."""
    return _percent(share, ROUND_HALF_EVEN)


def _quantum(value: Decimal, digits: int) -> Decimal:
    return Decimal(1).scaleb(value.adjusted() - digits + 1)


def _number(value: float, rounding: str) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    exact = Decimal(repr(value))
    short = exact.quantize(_quantum(exact, DIGITS), rounding=rounding)
    if 1e-4 <= abs(value) < 1e6:
        return f"{short.normalize():f}"
    return f"{float(short):.{DIGITS}g}"


def _percent(share: float, rounding: str) -> str:
    exact = Decimal(repr(share)) * 100
    if exact == 0:
        return "0.0%"
    low, high = exact < 1, exact > 99 and rounding == ROUND_FLOOR
    gap = 100 - exact
    if low or (high and gap > 0):
        quantum = min(_quantum(exact, 2) if low else _quantum(gap, 1), Decimal("0.1"))
    else:
        quantum = Decimal("0.1")
    return f"{exact.quantize(quantum, rounding=rounding):f}%"
