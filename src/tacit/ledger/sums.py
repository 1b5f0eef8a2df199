"""Exact sums of what many releases state, per secret: all totals of one in one whole number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tacit.ledger.account import DEFAULT_ORDERS, Key, Total, amounts_of
from tacit.ledger.rows import row_charges

# A field holds the sum of so many releases: no ledger has 2^48 of them.
COUNT_BITS = 48
# What a field is wider than it needs to be, so that fields seldom have to be made wider.
SPARE_BITS = 64
# Statements that are kept as the number they add; each is worked out anew when it is not there.
MOST_KEPT = 20_000


# What a row says of its cost: guarantees, whether it is reproducible, whether it is committed, and
# the orders that its secret's curves are counted at, None for the usual ones.
Statement = tuple[str, bool, bool, tuple[float, ...] | None]


def amounts(statement: Statement) -> Mapping[Key, Total]:
    """Return what a row adds to the totals."""
    guarantees, reproducible, committed, orders = statement
    charges = row_charges({"guarantees": guarantees, "reproducible": bool(reproducible)})
    return amounts_of(charges, orders or DEFAULT_ORDERS, committed)


class Sums:
    """The totals of every secret.

    Field i of a secret's number is the i-th key's numerator over 2^powers[key], at bit i × width:
    one addition of whole numbers adds every total at once, and no field reaches into the next.
    """

    def __init__(self) -> None:
        self.width = COUNT_BITS + SPARE_BITS
        # of every field: its place, in the order of the fields, and its power
        self.powers: dict[tuple[Key, bool], int] = {}
        self.numbers: dict[str, int] = {}
        self._kept: dict[Statement, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Send no more than the sums to another process."""
        return {**self.__dict__, "_kept": {}}

    def add(self, releases: Iterable[tuple[str, Statement]]) -> None:
        """Add releases about secrets, one by one."""
        kept = self._kept
        for secret, statement in releases:
            number = kept.get(statement)
            if number is None:
                if len(kept) >= MOST_KEPT:
                    kept.clear()
                # what follows may lay out all fields anew, and what is kept with them
                kept[statement] = number = self._packed(amounts(statement))
            numbers = self.numbers
            numbers[secret] = numbers.get(secret, 0) + number

    def join(self, other: Sums) -> None:
        """Add all that another has counted."""
        if not self.numbers:
            self.width, self.powers = other.width, dict(other.powers)
            self._kept.clear()
        alike = self.width == other.width and self.powers == other.powers
        alike = alike and list(self.powers) == list(other.powers)
        for secret, number in other.numbers.items():
            own = number if alike else self._packed(other.of(secret))
            self.numbers[secret] = self.numbers.get(secret, 0) + own

    def of(self, secret: str) -> dict[Key, Total]:
        """Return the totals of a secret, those that are zero left out."""
        number, mask, found = self.numbers.get(secret, 0), (1 << self.width) - 1, {}
        parts: dict[Key, list[int]] = {}
        for (key, infinite), power in self.powers.items():
            if field := number & mask:
                one = parts.setdefault(key, [0, 0, 0])
                if infinite:
                    one[2] = field
                else:
                    one[0], one[1] = field, power
            number >>= self.width
        for key, one in parts.items():
            found[key] = Total.lowest(*one)
        return found

    def _packed(self, totals: Mapping[Key, Total]) -> int:
        """Return totals as one number, after all fields were made as wide as it needs."""
        if not self._fits(totals):
            held = {secret: self.of(secret) for secret in self.numbers}
            self._lay_out([totals, *held.values()])
            self.numbers = {secret: self._number(own) for secret, own in held.items()}
        return self._number(totals)

    def _number(self, totals: Mapping[Key, Total]) -> int:
        number = 0
        for place, ((key, infinite), power) in enumerate(self.powers.items()):
            if (amount := totals.get(key)) is not None:
                field = amount.infinite if infinite else amount.numerator << (power - amount.power)
                number += field << (place * self.width)
        return number

    def _fits(self, totals: Mapping[Key, Total]) -> bool:
        """Whether 2^COUNT_BITS of such amounts fit; what was never seen is a field at the end."""
        for field, power, numerator in _fields(totals):
            own = self.powers.get(field, power)
            if own < power or numerator.bit_length() + own - power + COUNT_BITS > self.width:
                return False
        for field, power, _ in _fields(totals):
            self.powers.setdefault(field, power)
        return True

    def _lay_out(self, whole: Sequence[Mapping[Key, Total]]) -> None:
        """Make every field as precise and as wide as all of these need, and wider."""
        found = [field for totals in whole for field in _fields(totals)]
        for field, power, _ in found:
            if power > self.powers.get(field, -1):
                # a power of 0 is a count, and stays one
                self.powers[field] = power + SPARE_BITS if power else 0
        most = max(
            numerator.bit_length() + self.powers[own] - power for own, power, numerator in found
        )
        self.width = max(self.width, most + COUNT_BITS + SPARE_BITS)
        self._kept.clear()


def _fields(totals: Mapping[Key, Total]) -> Iterator[tuple[tuple[Key, bool], int, int]]:
    """Return field, power and numerator of totals; how many are infinite is a field of its own."""
    for key, amount in totals.items():
        yield (key, False), amount.power, amount.numerator
        if amount.infinite:
            yield (key, True), 0, amount.infinite
