"""How numbers and bounds are said: measurements to the nearest, bounds to the safe side.

``percent`` and ``significant`` write so many digits, for tables; ``share_…`` and ``number_…`` as
many as a sentence needs to stay true.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

# Significant digits of a number in a sentence, and of the probability that a bound holds.
DIGITS, CHANCE_DIGITS = 4, 6
# From one to the other numbers are written out; beyond, with a power of ten.
PLAIN_FROM, PLAIN_TO = 1e-4, 1e6
# A value so large, or digits so many, beside its noise are cut to six digits.
LARGE, MOST_PLACES, CUT = 1e9, 9, 6


def percent(value: float, digits: int = 1) -> str:
    """Return a measurement in percent, rounded to nearest."""
    return _decimal(value, digits, ROUND_HALF_EVEN)


def percent_up(value: float, digits: int = 1) -> str:
    """Return a bound in percent, rounded up, never above 100%."""
    return _decimal(min(value, 1.0), digits, ROUND_CEILING)


def significant(value: float, digits: int = 3) -> str:
    """Return ``value`` with so many significant digits, in the shorter of the two notations."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞" if value > 0 else "−∞"
    if PLAIN_FROM <= abs(value) < PLAIN_TO:
        # digits after the point, by the place of the first one
        places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        return f"{value:,.{places}f}".replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa} × 10{superscript(int(exponent))}".replace("-", "−")


def significant_up(value: float, digits: int = 3) -> str:
    """Return a bound with so many significant digits, rounded up."""
    return significant(_up(value, digits), digits)


def _up(value: float, digits: int) -> float:
    if value <= 0 or not math.isfinite(value):
        return value
    # of the shortest decimal of the float, so that 0.1 stays 0.1
    exact = Decimal(repr(float(value)))
    return float(exact.quantize(_quantum(exact, digits), rounding=ROUND_CEILING))


def beside(value: float, spread: float) -> str:
    """Return ``value`` with the digits that noise of standard deviation ``spread`` leaves."""
    if spread <= 0 or not math.isfinite(spread) or abs(value) >= LARGE:
        return significant(value, CUT)
    # two digits of the noise
    places = 1 - math.floor(math.log10(spread))
    if places > MOST_PLACES:
        return significant(value, CUT)
    # adding zero leaves no minus before zero
    return f"{round(value, places) + 0.0:,.{max(places, 0)}f}".replace("-", "−")


def whole_beside(value: float, half: float) -> str:
    """Return ``value`` as an interval of half-width ``half`` leaves it: whole where both are.

    Example:
        >>> whole_beside(786.0, 1.0), whole_beside(786.25, 1.0)
        ('786', '786.2')
        >>> whole_beside(math.inf, math.inf), whole_beside(0.0, math.inf)
        ('no upper end', '0')
    """
    if math.isinf(value):
        return "no upper end" if value > 0.0 else "no lower end"
    if math.isinf(half):
        # it says nothing of the digits
        half = 0.5 * abs(value) or 1.0
    if float(value).is_integer() and float(half).is_integer() and abs(value) < LARGE:
        return f"{value:,.0f}".replace("-", "−")
    # of the half-width as it is written: 41.0 ± 1.0
    return beside(value, _up(half, 2))


def half_width(half: float) -> str:
    """Return a half-width in two digits, rounded up: whole where it is."""
    return f"{half:,.0f}" if half < PLAIN_TO and half.is_integer() else significant_up(half, 2)


def in_nats(number: str) -> str:
    """Return a written number with its unit.

    Example:
        >>> in_nats("1"), in_nats("0.5")
        ('1 nat', '0.5 nats')
    """
    return f"{number} {'nat' if number == '1' else 'nats'}"


def superscript(number: int) -> str:
    """Return an integer in superscript figures.

    Example:
        >>> superscript(-12)
        '⁻¹²'
    """
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _decimal(value: float, digits: int, rounding: str) -> str:
    # what is no share, of a file that says so, has a power of ten
    if not abs(value) < LARGE:
        return f"{significant(value)} × 100%" if math.isfinite(value) else f"{significant(value)}%"
    # repr is the shortest decimal that reads back as the same float: 0.55 prints as 55.0%
    scaled = Decimal(repr(value)) * 100
    return f"{scaled.quantize(Decimal(1).scaleb(-digits), rounding=rounding)}%"


def number_up(value: float, digits: int = DIGITS) -> str:
    """Write ``value`` with so many significant digits, rounded up."""
    return _number(value, digits, ROUND_CEILING)


def number_down(value: float, digits: int = DIGITS) -> str:
    """Write ``value`` with so many significant digits, rounded down."""
    return _number(value, digits, ROUND_FLOOR)


def chance_down(chance: float) -> str:
    """Write the probability with which a bound holds, six significant digits, rounded down.

    Example:
        >>> chance_down(0.999), chance_down(1.0 - 1e-7)
        ('0.999', '0.999999')
    """
    return number_down(chance, CHANCE_DIGITS)


def chance_up(chance: float) -> str:
    """Write a probability of failure with three significant digits, rounded up.

    Example:
        >>> chance_up(1e-8), chance_up(1.2341e-6)
        ('1e-08', '1.24e-06')
    """
    return f"{float(number_up(chance, 3)):.3g}"


def share_up(share: float) -> str:
    """Write ``share`` as a percentage of four significant digits, rounded up."""
    return _share(share, ROUND_CEILING)


def share_down(share: float) -> str:
    """Write ``share`` as a percentage, rounded down, never to 100% unless it is 1."""
    return _share(share, ROUND_FLOOR)


def share_nearest(share: float) -> str:
    """Write ``share`` as a percentage of four significant digits, rounded to the nearest."""
    return _share(share, ROUND_HALF_EVEN)


def _quantum(value: Decimal, digits: int) -> Decimal:
    return Decimal(1).scaleb(value.adjusted() - digits + 1)


def _number(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    exact = Decimal(repr(value))
    short = exact.quantize(_quantum(exact, digits), rounding=rounding)
    if PLAIN_FROM <= abs(value) < PLAIN_TO:
        return f"{short.normalize():f}"
    # 1e-5, not 1e-05; what was rounded to 1e-4 is written out
    mantissa, _, exponent = f"{float(short):.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def _share(share: float, rounding: str) -> str:
    # repr is the shortest decimal that reads back as the same float
    exact = Decimal(repr(share)) * 100
    if exact == 0:
        return "0%"
    quantum, gap = _quantum(exact, DIGITS), 100 - exact
    if rounding == ROUND_FLOOR and 0 < gap < 1:
        # near 100% as many digits as the rest needs
        quantum = min(quantum, _quantum(gap, 1))
    return f"{exact.quantize(quantum, rounding=rounding).normalize():f}%"
