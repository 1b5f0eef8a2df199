"""What a release costs and what may be spent: costs, budgets, totals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from tacit._ground.checks import in_interval, non_negative, positive
from tacit._ground.numbers import rounded_up
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
)
from tacit.text import in_nats

INFORMATION = "information"
APPROXIMATE_DP = "approximate-dp"
RENYI_DP = "renyi-dp"
GAUSSIAN_DP = "gaussian-dp"
MAXIMAL_LEAKAGE = "maximal-leakage"
UNADDED = "recorded"
VOID = "void"
# What counts each type of guarantee; those of other types are recorded and add up with nothing.
NOTIONS: Mapping[type[Guarantee], str] = {
    InformationBound: INFORMATION,
    MaximalLeakage: MAXIMAL_LEAKAGE,
    ApproximateDP: APPROXIMATE_DP,
    RenyiDP: RENYI_DP,
    GaussianDP: GAUSSIAN_DP,
}
DROPPABLE = ("mi_budget", "epsilon", "mu", "leakage")

Curve = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Charge:
    """The cost of one release, in the notion of one of its guarantees.

    ``notion`` is "information" (``nats``), "approximate-dp" (``epsilon``, ``delta``), "renyi-dp"
    (``orders``, ``epsilons``), "gaussian-dp" (``mu``), "maximal-leakage" (``leakage``, nats),
    "recorded" (kept, but of a kind that does not add up), or "void" (a reproducible release: it
    guarantees nothing). ``failure`` is 1 − confidence, 0 for a theorem.
    """

    notion: str
    nats: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    mu: float = 0.0
    leakage: float = 0.0
    orders: tuple[float, ...] = ()
    epsilons: tuple[float, ...] = ()
    adjacency: str | None = None
    failure: float = 0.0

    def __str__(self) -> str:
        """Return the cost in words."""
        if self.notion == INFORMATION:
            return in_nats(shown(self.nats))
        if self.notion == APPROXIMATE_DP:
            return f"ε = {shown(self.epsilon)}, δ = {shown(self.delta)}"
        if self.notion == RENYI_DP:
            return f"a Rényi curve over {len(self.orders)} orders"
        if self.notion == GAUSSIAN_DP:
            return f"μ = {shown(self.mu)}"
        if self.notion == MAXIMAL_LEAKAGE:
            return f"{in_nats(shown(self.leakage))} of maximal leakage"
        return "everything (reproducible)" if self.notion == VOID else "nothing that adds up"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent on one secret: nats, (ε, δ), μ, nats of maximal leakage, or several.

    With several, they are several promises, each about the releases that state something in its
    kind; a release must fit all in which it states something. ``orders`` are the Rényi orders at
    which curves are counted against (``epsilon``, ``delta``), None for the ledger's own.
    """

    nats: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    leakage: float | None = None
    orders: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name, value in (("delta", self.delta), ("orders", self.orders)):
            if self.epsilon is None and value is not None:
                raise ValueError(f"epsilon: expected a value beside {name}, got None")
        if all(value is None for value in (self.nats, self.epsilon, self.mu, self.leakage)):
            raise ValueError(
                "mi_budget: expected mi_budget (nats), epsilon, mu or leakage (nats), got none"
            )
        if self.nats is not None:
            non_negative("mi_budget", self.nats)
        if self.mu is not None:
            non_negative("mu", self.mu)
        if self.leakage is not None:
            non_negative("leakage", self.leakage)
        if self.epsilon is None:
            return
        non_negative("epsilon", self.epsilon)
        in_interval("delta", self.delta, 0.0, 1.0, open_high=True)

    def __str__(self) -> str:
        """Return the budget in words."""
        parts = [] if self.nats is None else [in_nats(shown(self.nats, ROUND_FLOOR))]
        if self.epsilon is not None and self.delta is not None:
            epsilon, delta = shown(self.epsilon, ROUND_FLOOR), shown(self.delta, ROUND_FLOOR)
            at = "" if self.orders is None else f" (orders {_listed(self.orders)})"
            parts.append(f"ε = {epsilon}, δ = {delta}{at}")
        if self.mu is not None:
            parts.append(f"μ = {shown(self.mu, ROUND_FLOOR)}")
        if self.leakage is not None:
            parts.append(f"{in_nats(shown(self.leakage, ROUND_FLOOR))} of maximal leakage")
        return " and ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the limits as a JSON-able dictionary."""
        return {
            "mi_budget": self.nats,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mu": self.mu,
            "leakage": self.leakage,
            "orders": None if self.orders is None else list(self.orders),
        }


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The sum of every release that counts against one secret, each total rounded up.

    ``approximate``, ``renyi`` and ``gaussian`` (μ) are keyed by adjacency: costs under different
    adjacencies do not add. ``failure`` bounds, by the union bound, the probability that any
    statistical guarantee among them is wrong. ``void`` counts reproducible releases; with one,
    every total is infinite. ``leakage`` is in nats: releases together multiply a chance by at most
    e^leakage. ``unadded`` counts releases whose guarantees do not add up, ``open``
    those reserved or drawn but never committed (they count in full).
    """

    nats: float = 0.0
    leakage: float = 0.0
    approximate: dict[str, tuple[float, float]] = field(default_factory=dict)
    renyi: dict[str, Curve] = field(default_factory=dict)
    gaussian: dict[str, float] = field(default_factory=dict)
    failure: float = 0.0
    releases: int = 0
    open: int = 0
    unadded: int = 0
    void: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as a JSON-able dictionary; an infinite total is the text "infinity"."""
        return {
            "nats": _plain(self.nats),
            "leakage": _plain(self.leakage),
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
            "gaussian_dp": [
                {"adjacency": key, "mu": _plain(mu)} for key, mu in self.gaussian.items()
            ],
            "failure_probability": _plain(self.failure),
            "releases": self.releases,
            "open": self.open,
            "unadded": self.unadded,
            "void": self.void,
        }


def notion_of(kind: type[Guarantee]) -> str:
    """Return the notion in which guarantees of a type are counted, before there is one.

    Example:
        >>> notion_of(GaussianDP), notion_of(InformationBound)
        ('gaussian-dp', 'information')
    """
    counted = (notion for held, notion in NOTIONS.items() if issubclass(kind, held))
    return next(counted, UNADDED)


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
        # a privacy profile is the usual mistake: it is spent as the guarantee it gives
        raise ValueError(
            f"guarantee: expected a tacit guarantee, got {type(guarantee).__name__}; a profile "
            "is spent as its guarantee(...), for releases fixed in advance"
        )
    if reproducible:
        return Charge(
            notion=VOID, nats=math.inf, leakage=math.inf, epsilon=math.inf, delta=1.0, failure=1.0
        )
    failure = 0.0
    if guarantee.confidence is not None:
        failure = rounded_up(1 - Fraction(guarantee.confidence))
    notion = notion_of(type(guarantee))
    if isinstance(guarantee, InformationBound):
        return Charge(notion=notion, nats=guarantee.nats, failure=failure)
    if isinstance(guarantee, MaximalLeakage):
        return Charge(notion=notion, leakage=guarantee.nats, failure=failure)
    if isinstance(guarantee, ApproximateDP):
        return Charge(
            notion=notion,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            adjacency=guarantee.adjacency,
            failure=failure,
        )
    if isinstance(guarantee, RenyiDP):
        return Charge(
            notion=notion,
            orders=guarantee.orders,
            epsilons=guarantee.epsilons,
            adjacency=guarantee.adjacency,
            failure=failure,
        )
    if isinstance(guarantee, GaussianDP):
        return Charge(
            notion=notion, mu=guarantee.mu, adjacency=guarantee.adjacency, failure=failure
        )
    return Charge(notion=notion, failure=failure)


def charges_of(guarantees: Sequence[Guarantee], *, reproducible: bool) -> tuple[Charge, ...]:
    """Return what one release costs in every notion that its guarantees state.

    Raises:
        ValueError: when two of them speak about the same budget, so that one would be chosen after
            the fact.
    """
    charges = [charge_of(guarantee, reproducible=reproducible) for guarantee in guarantees]
    if not charges:
        raise ValueError("guarantee: expected a tacit guarantee, got none")
    if reproducible:
        return (charges[0],)
    groups = [APPROXIMATE_DP if c.notion == RENYI_DP else c.notion for c in charges]
    for notion in (INFORMATION, APPROXIMATE_DP, GAUSSIAN_DP, MAXIMAL_LEAKAGE):
        if groups.count(notion) > 1:
            raise ValueError(
                f"guarantee: expected at most one statement that counts as {notion!r} about one "
                f"release, got {groups.count(notion)}"
            )
    return tuple(charges)


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


def limits(
    nats: Any = None,
    epsilon: Any = None,
    delta: Any = None,
    mu: Any = None,
    orders: Any = None,
    leakage: Any = None,
) -> Budget:
    """Check the limits given and return the budget; δ is 0 beside an ε given alone."""
    if epsilon is not None and delta is None:
        delta = 0.0
    return Budget(
        nats=None if nats is None else positive("mi_budget", nats),
        epsilon=None if epsilon is None else positive("epsilon", epsilon),
        delta=None if delta is None else non_negative("delta", delta),
        mu=None if mu is None else positive("mu", mu),
        leakage=None if leakage is None else positive("leakage", leakage),
        orders=None if orders is None else checked_orders(orders),
    )


def checked_orders(orders: Any) -> tuple[float, ...]:
    """Return Rényi orders as increasing finite floats > 1; one number stands for itself."""
    given = orders if isinstance(orders, (list, tuple)) else [orders]
    alphas = tuple(positive(f"orders[{i}]", order) for i, order in enumerate(given))
    if not alphas or alphas[0] <= 1 or list(alphas) != sorted(set(alphas)):
        raise ValueError(f"orders: expected increasing numbers > 1, got {orders!r}")
    return alphas


def merged(old: Budget | None, new: Budget) -> Budget:
    """Return ``old`` with the kinds that ``new`` limits replaced, the others kept."""
    if old is None:
        return new
    pair = old if new.epsilon is None else new
    return Budget(
        nats=old.nats if new.nats is None else new.nats,
        epsilon=pair.epsilon,
        delta=pair.delta,
        mu=old.mu if new.mu is None else new.mu,
        leakage=old.leakage if new.leakage is None else new.leakage,
        orders=pair.orders if pair.orders is not None else old.orders,
    )


def without(old: Budget | None, kinds: Sequence[str]) -> Budget | None:
    """Return ``old`` without the kinds named; None when nothing is left."""
    for kind in kinds:
        if kind not in DROPPABLE:
            raise ValueError(f"drop: expected one of {', '.join(DROPPABLE)}, got {kind!r}")
    kept: dict[str, Any] = {} if old is None else dict(vars(old))
    for kind in kinds:
        names = {"mi_budget": ("nats",), "epsilon": ("epsilon", "delta", "orders")}.get(
            kind, (kind,)
        )
        if kept.get(names[0]) is None:
            raise ValueError(f"drop: expected a budget that has {kind}, got {old or 'none'}")
        for name in names:
            kept[name] = None
    if all(kept.get(name) is None for name in ("nats", "epsilon", "mu", "leakage")):
        return None
    return Budget(**kept)


def _listed(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _plain(value: float) -> float | str:
    return "infinity" if math.isinf(value) else value
