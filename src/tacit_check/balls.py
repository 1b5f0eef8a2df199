"""Balls that surely hold a real number, exact fractions beside them, and how both are said."""

from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeVar, cast

from flint import arb, ctx, fmpq

# Bits of a ball: h = P − e^ε Q cancels to δ, and δ may be 1e-30.
PRECISION = 192

ctx.prec = PRECISION
ZERO, ONE, HALF = arb(0), arb(1), arb(fmpq(1, 2))
# A number that is known exactly, or a ball that holds it.
Number = fmpq | arb
Some = TypeVar("Some", bound=Number)


class RefusedFileError(Exception):
    """The file is not of the format, or asks for more than a checker gives: one sentence."""


def require(fine: bool, sentence: str) -> None:
    """Refuse a file, in a sentence, of which something is not fine for certain."""
    if not fine:
        raise RefusedFileError(sentence)


def half_square_tail(x: arb) -> arb:
    """Return P(N(0, 1) > x) = erfc(x/√2)/2."""
    return (x / arb(2).sqrt()).erfc() * HALF


def largest(numbers: Iterable[Some]) -> Some:
    """Return the largest of several fractions, else a ball of the largest of several balls."""
    found: list[Any] = list(numbers)
    exact = all(isinstance(one, fmpq) for one in found)
    return cast(Some, max(found) if exact else reduce(arb.max, map(arb, found)))


def whole(ball: arb) -> int:
    """Return the whole number that a ball is."""
    found = ball.unique_fmpz()
    if found is None:
        raise RefusedFileError("a whole number that no ball holds")
    return int(found)


def floors(ball: arb) -> set[int]:
    """Return what the floor of a number may be that a ball holds: at both of its ends."""
    found = {whole(end.floor()) for end in (ball.lower(), ball.upper())}
    require(max(found) - min(found) <= 1, "a whole number that no ball holds")
    return found


def integer_up(ball: arb, bits: int) -> int:
    """Return the least integer n with ball <= n/2^bits, surely."""
    return -integer_down(-ball, bits)


def integer_down(ball: arb, bits: int) -> int:
    """Return the largest integer n with n/2^bits <= ball, surely."""
    mantissa, exponent = ball.lower().man_exp()
    shift = int(exponent) + bits
    return int(mantissa) << shift if shift >= 0 else int(mantissa) >> -shift


def rational_up(ball: arb) -> fmpq:
    """Return the upper end of a ball as an exact fraction."""
    require(ball.is_finite(), "a distance that no ball holds")
    return fmpq(ball.upper().fmpq())


def said(number: Number) -> str:
    """Return a number in six digits, to the nearest: for sentences alone."""
    ball = arb(number)
    return arb(ball.mid()).str(6, radius=False) if ball.is_finite() else "Infinity"
