"""What a guarantee costs, how costs add, and which budgets can count them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from tacit._rounding import rounded_down, rounded_up
from tacit._validation import in_interval, non_negative, positive
from tacit.conversions import epsilon_from_renyi
from tacit.guarantees import ApproximateDP, Guarantee, InformationBound, RenyiDP

INFORMATION = "information"
APPROXIMATE_DP = "approximate-dp"
RENYI_DP = "renyi-dp"
UNADDED = "recorded"
VOID = "void"

Curve = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Charge:
    """The cost of one release, in the notion of its guarantee.

    ``notion`` is "information" (``nats``), "approximate-dp" (``epsilon``, ``delta``), "renyi-dp"
    (``orders``, ``epsilons``), "recorded" (kept, but of a kind that does not add up), or "void" (a
    reproducible release: it guarantees nothing). ``failure`` is 1 − confidence, 0 for a theorem.
    """

    notion: str
    nats: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    orders: tuple[float, ...] = ()
    epsilons: tuple[float, ...] = ()
    adjacency: str | None = None
    failure: float = 0.0

    def __str__(self) -> str:
        """Return the cost in words."""
        if self.notion == INFORMATION:
            return f"{shown(self.nats)} nats"
        if self.notion == APPROXIMATE_DP:
            return f"ε = {shown(self.epsilon)}, δ = {shown(self.delta)}"
        if self.notion == RENYI_DP:
            return f"a Rényi curve over {len(self.orders)} orders"
        return "everything (reproducible)" if self.notion == VOID else "nothing that adds up"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent on one secret: nats, or (ε, δ), or one of each.

    With both, they are two promises: ``nats`` counts the releases certified in information,
    (``epsilon``, ``delta``) those certified in differential privacy.
    """

    nats: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.nats is None and self.epsilon is None:
            raise ValueError("mi_budget: expected mi_budget (nats) or epsilon, got neither")
        if self.nats is not None:
            non_negative("mi_budget", self.nats)
        if self.epsilon is None:
            if self.delta is not None:
                raise ValueError("epsilon: expected a value beside delta, got None")
            return
        non_negative("epsilon", self.epsilon)
        in_interval("delta", self.delta, 0.0, 1.0, open_high=True)

    def covers(self, notion: str) -> bool:
        """Whether a cost in ``notion`` can be counted against this budget."""
        if notion == INFORMATION:
            return self.nats is not None
        return notion in (APPROXIMATE_DP, RENYI_DP) and self.epsilon is not None

    def __str__(self) -> str:
        """Return the budget in words."""
        parts = [] if self.nats is None else [f"{shown(self.nats, ROUND_FLOOR)} nats"]
        if self.epsilon is not None and self.delta is not None:
            epsilon, delta = shown(self.epsilon, ROUND_FLOOR), shown(self.delta, ROUND_FLOOR)
            parts.append(f"ε = {epsilon}, δ = {delta}")
        return " and ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the limits as a JSON-able dictionary."""
        return {"mi_budget": self.nats, "epsilon": self.epsilon, "delta": self.delta}


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The sum of every release that counts against one secret, each total rounded up.

    ``approximate`` and ``renyi`` are keyed by adjacency: costs under different adjacencies do not
    add. ``failure`` bounds, by the union bound, the probability that any statistical guarantee
    among them is wrong. ``void`` counts reproducible releases; with one, every total is infinite.
    ``unadded`` counts releases whose guarantees do not add up, ``open`` those reserved or drawn but
    never committed (they count in full).
    """

    nats: float = 0.0
    approximate: dict[str, tuple[float, float]] = field(default_factory=dict)
    renyi: dict[str, Curve] = field(default_factory=dict)
    failure: float = 0.0
    releases: int = 0
    open: int = 0
    unadded: int = 0
    void: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as a JSON-able dictionary; an infinite total is the text "infinity"."""
        return {
            "nats": _plain(self.nats),
            "approximate_dp": [
                {"adjacency": key, "epsilon": _plain(epsilon), "delta": _plain(delta)}
                for key, (epsilon, delta) in self.approximate.items()
            ],
            "renyi_dp": [
                {
                    "adjacency": key,
                    "orders": [_plain(order) for order in orders],
                    "epsilons": [_plain(value) for value in values],
                }
                for key, (orders, values) in self.renyi.items()
            ],
            "failure_probability": _plain(self.failure),
            "releases": self.releases,
            "open": self.open,
            "unadded": self.unadded,
            "void": self.void,
        }


def charge_of(guarantee: Guarantee, *, reproducible: bool = False) -> Charge:
    """Return what ``guarantee`` costs; a reproducible release guarantees nothing and costs all.

    Example:
        >>> bound = InformationBound(
        ...     nats=0.01, secret="rows drawn", evidence="theorem", assumptions=(), source="example"
        ... )
        >>> str(charge_of(bound)), str(charge_of(bound, reproducible=True))
        ('0.01 nats', 'everything (reproducible)')
    """
    if not isinstance(guarantee, Guarantee):
        raise ValueError(f"guarantee: expected a tacit guarantee, got {type(guarantee).__name__}")
    if reproducible:
        return Charge(notion=VOID, nats=math.inf, epsilon=math.inf, delta=1.0, failure=1.0)
    failure = 0.0
    if guarantee.confidence is not None:
        failure = rounded_up(1 - Fraction(guarantee.confidence))
    if isinstance(guarantee, InformationBound):
        return Charge(notion=INFORMATION, nats=guarantee.nats, failure=failure)
    if isinstance(guarantee, ApproximateDP):
        return Charge(
            notion=APPROXIMATE_DP,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            adjacency=guarantee.adjacency,
            failure=failure,
        )
    if isinstance(guarantee, RenyiDP):
        return Charge(
            notion=RENYI_DP,
            orders=tuple(float(order) for order in guarantee.orders),
            epsilons=tuple(float(value) for value in guarantee.epsilons),
            adjacency=guarantee.adjacency,
            failure=failure,
        )
    return Charge(notion=UNADDED, failure=failure)


def total(charges: Sequence[Charge], *, open_count: int = 0) -> Spending:
    """Add the charges up, each total rounded up."""
    void = sum(charge.notion == VOID for charge in charges)
    keys = {c.adjacency or "" for c in charges if c.notion == APPROXIMATE_DP}
    curves = {c.adjacency or "" for c in charges if c.notion == RENYI_DP}
    approximate = {
        key: (
            exact_sum(c.epsilon for c in _of(charges, APPROXIMATE_DP, key)),
            exact_sum(c.delta for c in _of(charges, APPROXIMATE_DP, key)),
        )
        for key in sorted(keys)
    }
    return Spending(
        nats=exact_sum(c.nats for c in charges if c.notion in (INFORMATION, VOID)),
        approximate=approximate,
        renyi={key: add_curves(_of(charges, RENYI_DP, key)) for key in sorted(curves)},
        failure=min(exact_sum(c.failure for c in charges), 1.0),
        releases=len(charges),
        open=open_count,
        unadded=sum(charge.notion == UNADDED for charge in charges),
        void=void,
    )


def obstacle(budget: Budget, charges: Sequence[Charge]) -> str | None:
    """Say why the charges cannot be counted together against ``budget``; None when they can."""
    notions = {charge.notion for charge in charges} - {VOID}
    for notion in sorted(notions):
        if not budget.covers(notion):
            return f"a guarantee of kind {notion!r} cannot be compared with a budget of {budget}"
    if {APPROXIMATE_DP, RENYI_DP} <= notions:
        return "(ε, δ) and Rényi guarantees are not added up under one budget"
    kinds = {c.adjacency for c in charges if c.notion in (APPROXIMATE_DP, RENYI_DP)}
    if len(kinds) > 1:
        listed = ", ".join(repr(kind) for kind in sorted(str(kind) for kind in kinds))
        return f"guarantees under different adjacencies ({listed}) do not add up"
    return None


def exceeds(budget: Budget, charges: Sequence[Charge]) -> bool:
    """Whether the exact sum of the charges (each a binary fraction) is above the budget."""
    if any(charge.notion == VOID for charge in charges):
        return True
    if budget.nats is not None and _above((c.nats for c in charges), budget.nats):
        return True
    if budget.epsilon is None or budget.delta is None:
        return False
    pairs = [c for c in charges if c.notion == APPROXIMATE_DP]
    if _above((c.epsilon for c in pairs), budget.epsilon):
        return True
    if _above((c.delta for c in pairs), budget.delta):
        return True
    curves = [c for c in charges if c.notion == RENYI_DP]
    return bool(curves) and curve_epsilon(add_curves(curves), budget.delta) > budget.epsilon


def curve_epsilon(curve: Curve, delta: float) -> float:
    """Return ε at ``delta`` of a Rényi curve; infinite at δ = 0."""
    orders, values = curve
    if delta <= 0 or all(math.isinf(value) for value in values):
        return math.inf
    return float(epsilon_from_renyi(orders, values, delta))


def add_curves(charges: Sequence[Charge]) -> Curve:
    """Add Rényi curves per order.

    D_α is non-decreasing in α, so a curve that lacks an order is bounded there by its value at the
    next order it has, and by infinity above its last.
    """
    orders = sorted({order for charge in charges for order in charge.orders})
    values = tuple(exact_sum(_at(charge, order) for charge in charges) for order in orders)
    return tuple(orders), values


def exact_sum(values: Iterable[float]) -> float:
    """Return the smallest float that is at least the exact sum of non-negative ``values``.

    Example:
        >>> exact_sum([0.1, 0.2]) >= 0.1 + 0.2, exact_sum([0.1]) == 0.1
        (True, True)
    """
    numbers = list(values)
    if any(math.isinf(number) for number in numbers):
        return math.inf
    return rounded_up(sum((Fraction(number) for number in numbers), Fraction(0)))


def shown(value: float, rounding: str = ROUND_CEILING) -> str:
    """Return ``value`` with six significant digits, rounded against us: costs up, limits down.

    Example:
        >>> shown(0.12345601), shown(0.15), shown(0.12345699, ROUND_FLOOR)
        ('0.123457', '0.15', '0.123456')
    """
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    exact = Decimal(repr(value))
    step = Decimal(1).scaleb(exact.adjusted() - 5)
    return f"{float(exact.quantize(step, rounding=rounding)):.6g}"


def left(limit: float, spent: float) -> float:
    """Return ``limit`` − ``spent`` rounded down, and 0 when nothing is left."""
    if spent >= limit:
        return 0.0
    return rounded_down(Fraction(limit) - Fraction(spent))


def limits(nats: Any, epsilon: Any, delta: Any) -> Budget:
    """Check the limits given and return the budget; δ is 0 beside an ε given alone."""
    if epsilon is not None and delta is None:
        delta = 0.0
    return Budget(
        nats=None if nats is None else positive("mi_budget", nats),
        epsilon=None if epsilon is None else positive("epsilon", epsilon),
        delta=None if delta is None else non_negative("delta", delta),
    )


def _at(charge: Charge, order: float) -> float:
    above = [v for o, v in zip(charge.orders, charge.epsilons, strict=True) if o >= order]
    return min(above, default=math.inf)


def _of(charges: Sequence[Charge], notion: str, adjacency: str) -> list[Charge]:
    return [c for c in charges if c.notion == notion and (c.adjacency or "") == adjacency]


def _above(values: Iterable[float], limit: float) -> bool:
    numbers = list(values)
    if any(math.isinf(number) for number in numbers):
        return True
    return sum((Fraction(number) for number in numbers), Fraction(0)) > Fraction(limit)


def _plain(value: float) -> float | str:
    return "infinity" if math.isinf(value) else value
