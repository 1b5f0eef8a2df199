"""Exact decimals, balls that surely hold a real number, and how both are said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce

from flint import arb, ctx, fmpq, fmpz

# Bits of a ball: h = P − e^ε Q cancels to δ, and δ may be 1e-30.
PRECISION = 192
DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", re.ASCII)
LONGEST = 400

ctx.prec = PRECISION
ZERO, ONE, HALF = arb(0), arb(1), arb(fmpq(1, 2))


class RefusedFileError(Exception):
    """The file is not of the format, or asks for more than a checker gives: one sentence."""


def exact(text: str) -> fmpq:
    """Return the decimal that a string means, exactly."""
    if len(text) > LONGEST or not DECIMAL.fullmatch(text):
        raise RefusedFileError(f"expected a decimal number, got {text[:20]!r}")
    mantissa, _, power = text.lower().partition("e")
    whole, _, part = mantissa.partition(".")
    shift = int(power or 0) - len(part)
    digits = fmpz(int(whole + part))
    if shift >= 0:
        return fmpq(digits * fmpz(10) ** shift)
    return fmpq(digits, fmpz(10) ** -shift)


def half_square_tail(x: arb) -> arb:
    """Return P(N(0, 1) > x) = erfc(x/√2)/2."""
    return (x / arb(2).sqrt()).erfc() * HALF


def largest(balls: Iterable[arb]) -> arb:
    """Return a ball of the largest of several numbers."""
    return reduce(lambda one, other: one.max(other), balls)


def whole(ball: arb) -> int:
    """Return the whole number that a ball is."""
    found = ball.unique_fmpz()
    if found is None:
        raise RefusedFileError("a whole number that no ball holds")
    return int(found)


def integer_up(ball: arb, bits: int) -> int:
    """Return the least integer n with ball <= n/2^bits, surely."""
    return -integer_down(-ball, bits)


def integer_down(ball: arb, bits: int) -> int:
    """Return the largest integer n with n/2^bits <= ball, surely."""
    mantissa, exponent = ball.lower().man_exp()
    shift = int(exponent) + bits
    return int(mantissa) << shift if shift >= 0 else int(mantissa) >> -shift


def said(ball: arb, digits: int = 6) -> str:
    """Return a number in a few digits, to the nearest: for sentences alone."""
    return arb(ball.mid()).str(digits, radius=False) if ball.is_finite() else "Infinity"
