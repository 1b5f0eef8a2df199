"""Exact sums of what many releases state, per secret: all totals of one in one whole number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tacit.ledger.account import DEFAULT_ORDERS, Key, Total, amounts_of
from tacit.ledger.rows import row_charges

# A field holds the sum of so many releases: no ledger has 2^48 of them.
COUNT_BITS = 48
# What a field is wider than it needs to be, so that fields seldom have to be made wider.
SPARE_BITS = 64
# Statements that are kept as the number they add; each is worked out anew when it is not there.
MOST_KEPT = 20_000


class Stated(NamedTuple):
    """What a row says of its cost; ``orders`` are those that its secret's curves are counted at."""

    guarantees: str
    reproducible: bool
    committed: bool
    orders: tuple[float, ...] | None = None

    def amounts(self) -> Mapping[Key, Total]:
        """Return what it adds to the totals."""
        charges = row_charges({"guarantees": self.guarantees, "reproducible": self.reproducible})
        return amounts_of(charges, self.orders or DEFAULT_ORDERS, self.committed)


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
        self._kept: dict[Stated, int] = {}

    def add(self, secret: str, stated: Stated) -> None:
        """Add one release."""
        number = self._kept.get(stated)
        if number is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            # what follows may lay out all fields anew, and what is kept with them
            number = self._packed(stated.amounts())
            self._kept[stated] = number
        self.numbers[secret] = self.numbers.get(secret, 0) + number

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

    def _packed(self, amounts: Mapping[Key, Total]) -> int:
        """Return amounts as one number, after all fields were made as wide as it needs."""
        if not self._fits(amounts):
            held = {secret: self.of(secret) for secret in self.numbers}
            self._lay_out([amounts, *held.values()])
            self.numbers = {secret: self._number(totals) for secret, totals in held.items()}
        return self._number(amounts)

    def _number(self, amounts: Mapping[Key, Total]) -> int:
        number = 0
        for place, ((key, infinite), power) in enumerate(self.powers.items()):
            if (amount := amounts.get(key)) is not None:
                field = amount.infinite if infinite else amount.numerator << (power - amount.power)
                number += field << (place * self.width)
        return number

    def _fits(self, amounts: Mapping[Key, Total]) -> bool:
        """Whether 2^COUNT_BITS of such amounts fit; what was never seen is a field at the end."""
        for field, power, numerator in _fields(amounts):
            own = self.powers.get(field, power)
            if own < power or numerator.bit_length() + own - power + COUNT_BITS > self.width:
                return False
        for field, power, _ in _fields(amounts):
            self.powers.setdefault(field, power)
        return True

    def _lay_out(self, whole: Sequence[Mapping[Key, Total]]) -> None:
        """Make every field as precise and as wide as all of these need, and wider."""
        found = [field for amounts in whole for field in _fields(amounts)]
        for field, power, _ in found:
            if power > self.powers.get(field, -1):
                # a power of 0 is a count, and stays one
                self.powers[field] = power + SPARE_BITS if power else 0
        most = max(
            numerator.bit_length() + self.powers[own] - power for own, power, numerator in found
        )
        self.width = max(self.width, most + COUNT_BITS + SPARE_BITS)
        self._kept.clear()


def _fields(amounts: Mapping[Key, Total]) -> Iterator[tuple[tuple[Key, bool], int, int]]:
    """Return field, power and numerator of amounts; how many are infinite is a field of its own."""
    for key, amount in amounts.items():
        yield (key, False), amount.power, amount.numerator
        if amount.infinite:
            yield (key, True), 0, amount.infinite
