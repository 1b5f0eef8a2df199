"""Guarantees that the tests of the ledger spend."""

from __future__ import annotations

from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)

PROOF = {"evidence": "theorem", "assumptions": ("none",), "source": "test", "confidence": None}
ORDERS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def nats(amount: float, **changes: object) -> InformationBound:
    return InformationBound(nats=amount, secret="rows drawn", **{**PROOF, **changes})


def pair(epsilon: float, delta: float, adjacency: str = "add-remove") -> ApproximateDP:
    return ApproximateDP(epsilon=epsilon, delta=delta, adjacency=adjacency, **PROOF)


def gdp(mu: float, adjacency: str = "add-remove") -> GaussianDP:
    return GaussianDP(mu=mu, adjacency=adjacency, **PROOF)


def factor(amount: float) -> MaximalLeakage:
    return MaximalLeakage(factor=amount, secret="the prompt", **PROOF)


def gaussian_curve(sigma: float, orders: tuple[float, ...] = ORDERS) -> RenyiDP:
    values = tuple(order / (2 * sigma**2) for order in orders)
    return RenyiDP(orders=orders, epsilons=values, adjacency="add-remove", **PROOF)


def success(bound: float) -> SuccessBound:
    return SuccessBound(success=bound, prior=0.5, task="whether a row was drawn", **PROOF)
