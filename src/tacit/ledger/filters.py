"""Which release may still be made: privacy filters, sound for releases chosen adaptively.

Each compares exact totals with limits that are fixed before the releases they count:

* nats and (ε, δ) add (Rogers, Roth, Ullman and Vadhan 2016, for (ε, δ));
* nats of maximal leakage add, whatever the order in which releases are chosen: over the tree of
  releases, Σ over its paths of max_x Π P(yₜ|x, y_{<t}) is at most e^L where the factors along every
  path multiply to at most e^L, by induction from the leaves;
* μ² adds, and Σ μᵢ² <= μ² is μ-Gaussian differential privacy whatever the order in which
  mechanisms are chosen (Smith and Thakurta, arXiv 2210.17520);
* a Rényi curve is counted at orders α₁ … α_K fixed in advance, each converted at δ/K. A release is
  admitted while one order fits. With S_k the sum at α_k and L the privacy loss,
  exp((α_k − 1)(L − S_k)) is a supermartingale that starts at 1 (Feldman and Zrnic 2021), hence at
  the time the filter stops, (1 − e^{ε − L})₊ summed over the K events "order k fits" has mean at
  most K · δ/K.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from tacit._ground.numbers import rounded_down
from tacit.conversions import epsilon_from_renyi
from tacit.ledger.account import (
    DELTA,
    EPSILON,
    LEAKAGE,
    NATS,
    SQUARE,
    STATES,
    Account,
    Total,
    root_down,
)
from tacit.ledger.notions import (
    APPROXIMATE_DP,
    GAUSSIAN_DP,
    INFORMATION,
    MAXIMAL_LEAKAGE,
    RENYI_DP,
    VOID,
    Budget,
    Curve,
    shown,
)


def uncounted(budget: Budget, notions: Iterable[str]) -> str | None:
    """Say why no kind of the budget counts a release that states ``notions``; None if one does."""
    stated = set(notions) - {VOID}
    if not stated or stated & _covered(budget):
        return None
    kinds = " and ".join(repr(notion) for notion in sorted(stated))
    # (ε, δ) is not turned into μ or nats, and whoever keeps the other budget may add it
    remedy = "; a budget in ε and δ counts it" if APPROXIMATE_DP in stated else ""
    return f"a guarantee of kind {kinds} cannot be compared with a budget of {budget}{remedy}"


def unsummable(budget: Budget, account: Account) -> str | None:
    """Say why the releases of ``account`` cannot be counted together; None when they can."""
    for stated in account.statements():
        reason = uncounted(budget, stated)
        if reason is not None:
            return reason
    if budget.mu is not None:
        kinds = account.adjacencies(GAUSSIAN_DP)
        if len(kinds) > 1:
            return _different(kinds)
    if budget.epsilon is None:
        return None
    pairs, curves = (account.adjacencies(notion) for notion in (APPROXIMATE_DP, RENYI_DP))
    if pairs and curves:
        return "(ε, δ) and Rényi guarantees are not added up under one budget"
    if len({**pairs, **curves}) > 1:
        return _different({**pairs, **curves})
    return None


def exceeds(budget: Budget, account: Account) -> bool:
    """Whether the exact totals of ``account`` are above the budget."""
    if account.count(STATES, VOID):
        return True
    if budget.nats is not None and account.of(NATS).above(Fraction(budget.nats)):
        return True
    if budget.leakage is not None and account.of(LEAKAGE).above(Fraction(budget.leakage)):
        return True
    if budget.mu is not None:
        square = Fraction(budget.mu) ** 2
        if any(total.above(square) for _, total in account.items(SQUARE)):
            return True
    if budget.epsilon is None or budget.delta is None:
        return False
    for name, limit in ((EPSILON, budget.epsilon), (DELTA, budget.delta)):
        if any(total.above(Fraction(limit)) for _, total in account.items(name)):
            return True
    return any(
        curve_epsilon(account.curve(adjacency), budget.delta) > budget.epsilon
        for adjacency in account.adjacencies(RENYI_DP)
    )


def remaining(account: Account) -> Budget | None:
    """Return what is left of the budget, rounded down; None when there is none."""
    budget = account.budget
    if budget is None:
        return None
    if account.count(STATES, VOID) or unsummable(budget, account) is not None:
        kinds = ("nats", "epsilon", "delta", "mu", "leakage")
        zeros = {kind: 0.0 for kind in kinds if getattr(budget, kind) is not None}
        return Budget(**zeros, orders=budget.orders)
    nats = None if budget.nats is None else left(budget.nats, account.of(NATS).up)
    leakage = None if budget.leakage is None else left(budget.leakage, account.of(LEAKAGE).up)
    mu = budget.mu
    for _, total in account.items(SQUARE):
        mu = None if mu is None else _root_left(mu, total)
    epsilon, delta = budget.epsilon, budget.delta
    if epsilon is not None and delta is not None:
        for adjacency in account.adjacencies(RENYI_DP):
            epsilon = left(epsilon, curve_epsilon(account.curve(adjacency), delta))
        for adjacency in account.adjacencies(APPROXIMATE_DP):
            epsilon = left(epsilon, account.of(EPSILON, adjacency).up)
            delta = left(delta, account.of(DELTA, adjacency).up)
    return Budget(
        nats=nats, epsilon=epsilon, delta=delta, mu=mu, leakage=leakage, orders=budget.orders
    )


def curve_epsilon(curve: Curve, delta: float) -> float:
    """Return ε at ``delta`` of a curve at K orders fixed in advance; infinite at δ = 0.

    The least ε over the orders, each converted at δ/K: the union over K supermartingales.

    Example:
        >>> alone, beside = curve_epsilon(((8.0,), (1.0,)), 1e-6), curve_epsilon(
        ...     ((8.0, 64.0), (1.0, 8.0)), 1e-6
        ... )
        >>> round(alone, 4), round(beside - alone, 4)  # ln 2 / 7 for a second order
        (2.543, 0.099)
    """
    orders, values = curve
    share = rounded_down(Fraction(delta) / len(orders))
    if share <= 0:
        return math.inf
    return min(
        float(epsilon_from_renyi([order], [value], share))
        for order, value in zip(orders, values, strict=True)
    )


def curves_in_words(before: Account, after: Account) -> str:
    """Return ε of the curves spent and of those with what is asked, where a budget has one."""
    budget = after.budget
    if budget is None or budget.delta is None:
        return ""
    parts = []
    for adjacency in after.adjacencies(RENYI_DP):
        curves = before.adjacencies(RENYI_DP)
        # the conversion of an empty curve costs too, but nothing is spent before the first
        old = curve_epsilon(before.curve(adjacency), budget.delta) if adjacency in curves else 0.0
        new = curve_epsilon(after.curve(adjacency), budget.delta)
        at = f"δ = {shown(budget.delta)} ({adjacency})"
        parts.append(f", curves that give ε = {shown(old)} spent and {shown(new)} with it at {at}")
    return "".join(parts)


def check_orders(budget: Budget) -> None:
    """Refuse orders at which the conversion alone, of nothing spent, is above ε.

    Raises:
        ValueError: when every order is one.
    """
    if budget.orders is None or budget.epsilon is None or budget.delta is None:
        return
    least = curve_epsilon((budget.orders, (0.0,) * len(budget.orders)), budget.delta)
    if least > budget.epsilon:
        raise ValueError(
            f"orders: expected one at which a curve can fit {budget}, got orders whose conversion "
            f"alone gives ε = {shown(least)}"
        )


def left(limit: float, spent: float) -> float:
    """Return ``limit`` − ``spent`` rounded down, and 0 when nothing is left."""
    if spent >= limit:
        return 0.0
    return rounded_down(Fraction(limit) - Fraction(spent))


def _root_left(mu: float, spent: Total) -> float:
    if spent.infinite:
        return 0.0
    return root_down(max(Fraction(mu) ** 2 - spent.finite, Fraction(0)))


def _covered(budget: Budget) -> set[str]:
    """Return the notions that a kind of the budget counts.

    μ gives a curve, hence (ε, δ); maximal leakage bounds the information under every law.
    """
    covered: set[str] = set()
    if budget.nats is not None:
        covered |= {INFORMATION, MAXIMAL_LEAKAGE}
    if budget.leakage is not None:
        covered |= {MAXIMAL_LEAKAGE}
    if budget.epsilon is not None:
        covered |= {APPROXIMATE_DP, RENYI_DP, GAUSSIAN_DP}
    if budget.mu is not None:
        covered |= {GAUSSIAN_DP}
    return covered


def _different(kinds: dict[str, int]) -> str:
    listed = ", ".join(repr(kind) for kind in sorted(kinds))
    return (
        f"guarantees under different adjacencies ({listed}) do not add up; releases by one promise "
        "do, and each promise may have a secret of its own"
    )
