"""Exact numbers as floats, rounded to the side that is safe."""

from __future__ import annotations

import math
import sys
from fractions import Fraction


def rounded_up(exact: Fraction) -> float:
    """Return the smallest float that is at least ``exact``."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def rounded_down(exact: Fraction) -> float:
    """Return the largest float that is at most ``exact``."""
    return 0.0 - rounded_up(-exact)
