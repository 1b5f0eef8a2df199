"""What a row adds: products of conditions on its columns and of its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array

# Terms that are asked for again and again, while errors are simulated.
REMEMBERED = 2**14


@dataclass(frozen=True, order=True)
class Condition:
    """``low <= x < high`` of one column, or ``<= high`` where ``closed``.

    Attributes:
        column: position of the column.
        low: lower end, which belongs to it.
        high: upper end.
        closed: whether the upper end belongs to it.
    """

    column: int
    low: float
    high: float
    closed: bool

    def holds(self, rows: Array) -> npt.NDArray[np.bool_]:
        """Return for every row whether it holds, (n,)."""
        values = rows[:, self.column]
        below = values <= self.high if self.closed else values < self.high
        return np.asarray((values >= self.low) & below)

    def excludes(self, other: Condition) -> bool:
        """Whether no row can meet both."""
        if self.column != other.column:
            return False
        first, second = (self, other) if self.low <= other.low else (other, self)
        if first.high < second.low:
            return True
        return first.high == second.low and not first.closed


def equals(column: int, value: float) -> Condition:
    """Return the condition that the column has this value."""
    return Condition(column, value, value, closed=True)


def at_most(column: int, value: float) -> Condition:
    """Return the condition that the column is at most this value."""
    return Condition(column, -math.inf, value, closed=True)


def between(column: int, low: float, high: float, *, last: bool) -> Condition:
    """Return the condition of one bin; the last bin has its upper end."""
    return Condition(column, low, high, closed=last)


@dataclass(frozen=True, order=True)
class Term:
    """``φ(x) = Π 1[condition] · Π (x_j − c_j)``: one number that a row adds to a sum.

    Attributes:
        conditions: all of which must hold, ascending.
        factors: columns whose numbers, less a centre c, are multiplied, ascending; at most two.
    """

    conditions: tuple[Condition, ...] = ()
    factors: tuple[int, ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash((self.conditions, self.factors))

    def __hash__(self) -> int:
        """Return a hash that is computed once: sums are looked up by their terms."""
        return self._hash

    @property
    def columns(self) -> tuple[int, ...]:
        """Positions of the columns that the conditions read."""
        return tuple(one.column for one in self.conditions)


def term(conditions: Sequence[Condition] = (), factors: Sequence[int] = ()) -> Term:
    """Return the term with conditions and factors in their order."""
    return _term(tuple(conditions), tuple(factors))


@lru_cache(REMEMBERED)
def _term(conditions: tuple[Condition, ...], factors: tuple[int, ...]) -> Term:
    return Term(tuple(sorted(set(conditions))), tuple(sorted(factors)))


def row_values(terms: Sequence[Term], rows: Array, centres: Array) -> Array:
    """Return φ of every row, (n, k), each entry a function of its own row.

    Args:
        terms: k terms.
        rows: (n, p).
        centres: (p,) what is taken from the columns.
    """
    held: dict[tuple[Condition, ...], npt.NDArray[np.bool_] | None] = {(): None}
    moved: dict[int, Array] = {}
    values = np.empty((len(rows), len(terms)))
    for place, one in enumerate(terms):
        if one.conditions not in held:
            held[one.conditions] = np.logical_and.reduce([c.holds(rows) for c in one.conditions])
        for column in one.factors:
            if column not in moved:
                moved[column] = rows[:, column] - centres[column]
        product = values[:, place]
        product[:] = 1.0
        with np.errstate(over="ignore"):
            for column in one.factors:
                product *= moved[column]
        inside = held[one.conditions]
        if inside is not None:
            # 0.0 instead of a product: what is outside adds nothing, whatever its number
            product[~inside] = 0.0
    return values
