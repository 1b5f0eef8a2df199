"""Exact numbers as floats, rounded to the side that is safe."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

# Of a float64: the distance of 1 from the next number.
EPS = sys.float_info.epsilon
# The least float above 0, a subnormal one, and the largest that is finite.
SMALLEST, LARGEST = math.ulp(0.0), sys.float_info.max
# Beyond it double precision does not hold every integer.
LARGEST_EXACT = 2**53
# Units in the last place by which ln and exp are raised: more than any library is off by.
LOG_UNITS = 4.0


def rounded_up(exact: Fraction) -> float:
    """Return the smallest float that is at least ``exact``."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -LARGEST
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def rounded_down(exact: Fraction) -> float:
    """Return the largest float that is at most ``exact``."""
    return 0.0 - rounded_up(-exact)


def readings(value: float) -> tuple[Fraction, Fraction]:
    """Return a number as the double and as its shortest decimal, which files say, smaller first."""
    exact, written = Fraction(value), Fraction(repr(float(value)))
    return min(exact, written), max(exact, written)


def log_up(value: float) -> float:
    """Return an upper bound on ln ``value``, the last digits up; an integer may be of any size."""
    if isinstance(value, float) and math.isinf(value):
        return math.inf
    return _last_digits_up(math.log(value))


def exp_up(value: float) -> float:
    """Return an upper bound on exp ``value``, the last digits up; inf where no float is above."""
    try:
        return 1.0 if value == 0 else _last_digits_up(math.exp(value))
    except OverflowError:
        return math.inf


def _last_digits_up(value: float) -> float:
    """Raise a value >= 0 of the mathematical library by more than its error; 0 stays 0."""
    if value == 0:
        return 0.0
    return math.nextafter(value * (1.0 + LOG_UNITS * EPS), math.inf)
