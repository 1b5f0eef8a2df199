"""The account of one secret: exact totals of what counts, kept up with every release."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from tacit._ground.numbers import rounded_down, rounded_up
from tacit.documents import dumps, loads
from tacit.ledger.notions import (
    APPROXIMATE_DP,
    GAUSSIAN_DP,
    INFORMATION,
    MAXIMAL_LEAKAGE,
    RENYI_DP,
    UNADDED,
    VOID,
    Budget,
    Charge,
    Curve,
    Spending,
)

# fixed before any release, so that the best of them may be taken for a price: see filters.py
DEFAULT_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
RELEASES, OPEN, STATES, FAILURE, NATS = "releases", "open", "states", "failure", "nats"
EPSILON, DELTA, SQUARE, LEAKAGE = "epsilon", "delta", "mu²", "leakage"

Key = tuple[str, str]


class Total(NamedTuple):
    """An exact sum of non-negative floats: ``numerator / 2^power``, and how many infinite ones.

    Floats and their products are such fractions, and sums of them are sums of integers. The
    numerator is odd, or the power 0, so that equal sums are equal.
    """

    numerator: int = 0
    power: int = 0
    infinite: int = 0

    @classmethod
    def lowest(cls, numerator: int, power: int, infinite: int = 0) -> Total:
        """Return the sum in lowest terms."""
        if power and not numerator & 1:
            twos = min(power, (numerator & -numerator).bit_length() - 1) if numerator else power
            numerator, power = numerator >> twos, power - twos
        return cls(numerator, power, infinite)

    @property
    def finite(self) -> Fraction:
        """The sum of the finite ones."""
        return Fraction(self.numerator, 1 << self.power)

    def plus(self, other: Total, times: int) -> Total:
        """Return the sum with ``other`` added so many times, or taken away where it is negative."""
        power = max(self.power, other.power)
        mine = self.numerator << (power - self.power)
        added = other.numerator << (power - other.power)
        return Total.lowest(mine + times * added, power, self.infinite + times * other.infinite)

    @property
    def up(self) -> float:
        """The smallest float that is at least the sum."""
        return math.inf if self.infinite else rounded_up(self.finite)

    def above(self, limit: Fraction) -> bool:
        """Whether the sum is above ``limit``, exactly."""
        return self.infinite > 0 or self.finite > limit


ZERO, ONE = Total(), Total(1)


@dataclass(frozen=True)
class Account:
    """The budget in force on a secret and the exact totals of its releases that count.

    Every total is a sum over releases, so a release is added or taken back in constant time.
    ``orders`` are the Rényi orders at which curves are added.
    """

    budget: Budget | None = None
    orders: tuple[float, ...] = DEFAULT_ORDERS
    totals: Mapping[Key, Total] = field(default_factory=dict)

    def of(self, name: str, adjacency: str = "") -> Total:
        """Return one total."""
        return self.totals.get((name, adjacency), ZERO)

    def count(self, name: str, adjacency: str = "") -> int:
        """Return one count."""
        return self.of(name, adjacency).numerator

    def adjacencies(self, notion: str) -> dict[str, int]:
        """Return how many releases are certified in ``notion``, per adjacency."""
        return {key[1]: total.numerator for key, total in self.items(notion)}

    def statements(self) -> list[list[str]]:
        """Return the sets of notions in which some release states something."""
        return [key[1].split("+") for key, _ in self.items(STATES)]

    def items(self, name: str) -> Iterator[tuple[Key, Total]]:
        """Iterate over the totals of that name, sorted by adjacency."""
        return ((key, self.totals[key]) for key in sorted(self.totals) if key[0] == name)

    def added(self, charges: Sequence[Charge], *, committed: bool = False) -> Account:
        """Return the account with one release more."""
        return self._changed(amounts_of(tuple(charges), self.orders, committed), 1)

    def removed(self, charges: Sequence[Charge]) -> Account:
        """Return the account without a release that was never drawn."""
        return self._changed(amounts_of(tuple(charges), self.orders, False), -1)

    def with_all(self, totals: Mapping[Key, Total]) -> Account:
        """Return the account with the totals of other releases added."""
        return self._changed(totals, 1)

    def without(self, totals: Mapping[Key, Total]) -> Account:
        """Return the account without the totals of releases that it has."""
        return self._changed(totals, -1)

    def closed(self) -> Account:
        """Return the account with one release fewer that is not committed."""
        return self._changed({(OPEN, ""): ONE}, -1)

    def with_budget(self, budget: Budget | None) -> Account:
        """Return the account under another budget.

        Raises:
            ValueError: when it would change the orders after curves were added at others.
        """
        orders = None if budget is None else budget.orders
        if budget is not None and orders is None and self.orders != DEFAULT_ORDERS:
            # orders named once stay, and are said, when the limits beside them change
            stated = None if budget.epsilon is None else self.orders
            return replace(self, budget=replace(budget, orders=stated))
        if orders is None or orders == self.orders:
            return replace(self, budget=budget)
        if self.adjacencies(RENYI_DP):
            raise ValueError(
                "orders: expected the orders fixed before the first Rényi release, "
                f"{list(self.orders)}, got {list(orders)}"
            )
        return replace(self, budget=budget, orders=orders)

    def spending(self) -> Spending:
        """Return the totals, each rounded up."""
        void = self.count(STATES, VOID)
        return Spending(
            nats=math.inf if void else self.of(NATS).up,
            leakage=math.inf if void else self.of(LEAKAGE).up,
            approximate={
                adjacency: (self.of(EPSILON, adjacency).up, self.of(DELTA, adjacency).up)
                for adjacency in self.adjacencies(APPROXIMATE_DP)
            },
            renyi={adjacency: self.curve(adjacency) for adjacency in self.adjacencies(RENYI_DP)},
            gaussian={
                adjacency: root_up(self.of(SQUARE, adjacency))
                for adjacency in self.adjacencies(GAUSSIAN_DP)
            },
            failure=min(self.of(FAILURE).up, 1.0),
            releases=self.count(RELEASES),
            open=self.count(OPEN),
            unadded=self.count(STATES, UNADDED),
            void=void,
        )

    def curve(self, adjacency: str) -> Curve:
        """Return the Rényi curve spent under one adjacency, rounded up."""
        values = tuple(self.of(_order(order), adjacency).up for order in self.orders)
        return self.orders, values

    def totals_json(self) -> list[list[str]]:
        """Return name, adjacency and exact binary sum of every total, sorted."""
        return [[*key, _binary(self.totals[key])] for key in sorted(self.totals)]

    def to_json(self) -> str:
        """Return the account as canonical JSON, sums in exact binary."""
        budget = None if self.budget is None else self.budget.to_dict()
        content = {"budget": budget, "orders": list(self.orders), "totals": self.totals_json()}
        return dumps(content, sort_keys=True, ascii_only=True)

    def _changed(self, amounts: Mapping[Key, Total], times: int) -> Account:
        totals = dict(self.totals)
        for key, amount in amounts.items():
            total = totals.get(key, ZERO).plus(amount, times)
            if total.numerator < 0 or total.infinite < 0:
                raise ValueError("ledger: the totals contradict the releases recorded")
            totals[key] = total
        # what is zero is left out, so that an account is the same whatever was cancelled
        return replace(self, totals={key: total for key, total in totals.items() if total != ZERO})


@lru_cache(maxsize=1024)
def amounts_of(
    charges: tuple[Charge, ...], orders: tuple[float, ...], committed: bool
) -> Mapping[Key, Total]:
    """Return what one release adds to the totals; many releases state the same."""
    amounts: dict[Key, Total] = {(RELEASES, ""): ONE}
    if not committed:
        amounts[OPEN, ""] = ONE
    notions = {charge.notion for charge in charges}
    for charge in charges:
        key = charge.adjacency or ""
        failure = amounts.get((FAILURE, ""), ZERO)
        amounts[FAILURE, ""] = failure.plus(_total(charge.failure), 1)
        if charge.notion == INFORMATION:
            amounts[NATS, ""] = _total(charge.nats)
        elif charge.notion == MAXIMAL_LEAKAGE:
            amounts[LEAKAGE, ""] = _total(charge.leakage)
            if INFORMATION not in notions:
                # I(X; Y | past) is at most the maximal leakage, under every law
                amounts[NATS, ""] = _total(charge.leakage)
        elif charge.notion == APPROXIMATE_DP:
            amounts[APPROXIMATE_DP, key] = ONE
            amounts[EPSILON, key], amounts[DELTA, key] = map(_total, (charge.epsilon, charge.delta))
        elif charge.notion == GAUSSIAN_DP:
            amounts[GAUSSIAN_DP, key], amounts[SQUARE, key] = ONE, _square(charge.mu)
        if charge.notion == RENYI_DP or (
            # μ gives the curve α μ²/2, where nothing else is said about (ε, δ)
            charge.notion == GAUSSIAN_DP and not notions & {APPROXIMATE_DP, RENYI_DP}
        ):
            amounts[RENYI_DP, key] = ONE
            for order in orders:
                amounts[_order(order), key] = _at(charge, order)
    amounts[STATES, "+".join(sorted(notions - {UNADDED} or notions))] = ONE
    return amounts


def account_from_json(text: str) -> Account:
    """Rebuild the account that `Account.to_json` wrote.

    Raises:
        ValueError: when the text is anything else.
    """
    try:
        content = loads(text)
        budget = content["budget"]
        return Account(
            budget=None if budget is None else budget_from_dict(budget),
            orders=tuple(content["orders"]),
            totals={(name, kind): _unbinary(total) for name, kind, total in content["totals"]},
        )
    except (TypeError, KeyError, AttributeError, ValueError):
        raise ValueError(
            "ledger: the totals of a secret are not what this version writes"
        ) from None


def budget_from_dict(content: Mapping[str, Any]) -> Budget:
    """Rebuild the budget that `Budget.to_dict` wrote."""
    orders = content["orders"]
    return Budget(
        nats=content["mi_budget"],
        epsilon=content["epsilon"],
        delta=content["delta"],
        mu=content["mu"],
        leakage=content["leakage"],
        orders=None if orders is None else tuple(orders),
    )


def root_up(square: Total) -> float:
    """Return the smallest float whose square is at least ``square``."""
    if square.infinite:
        return math.inf
    guess = _root(square.finite)
    while guess < math.inf and Fraction(guess) ** 2 < square.finite:
        guess = math.nextafter(guess, math.inf)
    return guess


def root_down(square: Fraction) -> float:
    """Return the largest float whose square is at most ``square`` >= 0."""
    guess = _root(square)
    above = math.nextafter(guess, math.inf)
    return guess if math.isinf(above) or Fraction(above) ** 2 > square else above


def _root(square: Fraction) -> float:
    """Return a float at most the root, by at most one unit: an integer root of 128 bits."""
    if square == 0:
        return 0.0
    size = square.numerator.bit_length() - square.denominator.bit_length()
    shift = 64 - size // 2
    scaled = square * Fraction(4) ** shift
    root = Fraction(math.isqrt(scaled.numerator // scaled.denominator)) / Fraction(2) ** shift
    return rounded_down(root)


def _order(order: float) -> str:
    return f"order {order!r}"


def _at(charge: Charge, order: float) -> Total:
    """Return the curve at ``order``: at the next order it has, because D_α grows with α."""
    if charge.notion == GAUSSIAN_DP:
        square, (top, bottom) = _square(charge.mu), order.as_integer_ratio()
        # α μ²/2, of integers: the denominators are powers of two
        power = square.power + bottom.bit_length()
        return Total.lowest(square.numerator * top, power, square.infinite)
    above = [v for o, v in zip(charge.orders, charge.epsilons, strict=True) if o >= order]
    return _total(min(above, default=math.inf))


def _total(value: float) -> Total:
    if math.isinf(value):
        return Total(infinite=1)
    numerator, denominator = value.as_integer_ratio()
    return Total(numerator, denominator.bit_length() - 1)


def _square(mu: float) -> Total:
    root = _total(mu)
    # odd as the numerator of the root is
    return Total(root.numerator**2, 2 * root.power, root.infinite)


def _binary(total: Total) -> str:
    """Write a sum as hexadecimal digits, a power of two, and the infinite ones."""
    return f"{total.numerator:x}p-{total.power}+{total.infinite}"


def _unbinary(text: str) -> Total:
    digits, rest = text.split("p-")
    power, infinite = map(int, rest.split("+"))
    if power < 0:
        raise ValueError(f"power: expected at least 0, got {power}")
    return Total.lowest(int(digits, 16), power, infinite)
