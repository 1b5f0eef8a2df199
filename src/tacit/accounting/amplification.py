"""What sampling every record with probability q does to a privacy curve."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import Array, choice, in_interval
from tacit.accounting.discretisation import EPS, Curve

if TYPE_CHECKING:
    from tacit.accounting.profile import PrivacyProfile

SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
ANY_NEIGHBOURS = "any that the parameters allow"
ADD_REMOVE = "add or remove one record"
REPLACE = "replace one record"
SAMPLED = "every record is sampled independently, and which were sampled stays secret"
THREE_WAYS = "the curve bounds every pair among the record, its replacement, and neither"


def subsample(
    profile: PrivacyProfile, sampling_rate: float, neighbours: str | None
) -> PrivacyProfile:
    """Do what `PrivacyProfile.poisson_subsample` says."""
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0)
    relation = _relation(profile.adjacency, neighbours)
    forward, backward = profile.forward, profile.backward
    if rate < 1.0 or (relation == "replace" and not profile.symmetric):
        forward, backward = subsampled_curves(forward, backward, rate, relation)
    replaced = relation == "replace"
    named = profile.adjacency != ANY_NEIGHBOURS
    return replace(
        profile,
        name=f"{profile.name}, sampled at rate {rate:g}",
        forward=forward,
        backward=backward,
        infinite_mass=min(rate * profile.infinite_mass * (1 + 4 * EPS), 1.0),
        source=f"{profile.source}; Balle, Barthe and Gaboardi (2018), Theorem 2",
        assumptions=(*profile.assumptions, SAMPLED, *((THREE_WAYS,) if replaced else ())),
        adjacency=profile.adjacency if named else REPLACE if replaced else ADD_REMOVE,
        renyi_curve=subsampled_renyi(profile.renyi_curve, rate),
        masses=None,
    )


def _relation(adjacency: str, neighbours: str | None) -> str:
    own = {REPLACE: "replace", ADD_REMOVE: "add-remove"}.get(adjacency)
    if neighbours is None:
        return own or "add-remove"
    relation = choice("neighbours", neighbours, ("add-remove", "replace"))
    if own is not None and own != relation:
        raise ValueError(
            f"neighbours: expected {own!r}, as the profile is for inputs that "
            f"{adjacency}, got {relation!r}"
        )
    return relation


def subsampled_curves(
    forward: Curve, backward: Curve, rate: float, neighbours: str
) -> tuple[Curve, Curve]:
    """Return both curves of the sampled pair; see `PrivacyProfile.poisson_subsample`.

    With γ = e^ε and R = (1 − q)Q + qP: H_γ(R‖Q) = q H_{1 + (γ − 1)/q}(P‖Q) where γ > 1 − q and
    1 − γ elsewhere; H_γ(Q‖R) = (1 − γ(1 − q)) H_{γq/(1 − γ(1 − q))}(Q‖P) where γ(1 − q) < 1 and 0
    elsewhere. Replacement takes q max(δ, δ')(ln(1 + (γ − 1)/q)) for γ >= 1 in both directions.
    """
    if rate == 0.0:
        return _nothing, _nothing
    if neighbours == "add-remove":
        return (
            lambda epsilon: _with_against_without(forward, rate, epsilon),
            lambda epsilon: _without_against_with(backward, rate, epsilon),
        )

    def worse(epsilon: Array) -> Array:
        return np.maximum(forward(epsilon), backward(epsilon))

    base = forward if forward is backward else worse

    def replaced(epsilon: Array) -> Array:
        above = _with_against_without(base, rate, np.abs(epsilon))
        # δ(−ε) = 1 − e^{−ε}(1 − δ(ε))
        low = np.minimum(epsilon, 0.0)
        below = -np.expm1(low) + np.exp(low) * above
        return np.minimum(np.where(epsilon < 0, below * (1 + 4 * EPS), above), 1.0)

    return replaced, replaced


def subsampled_renyi(curve: Curve | None, rate: float) -> Curve | None:
    """Joint convexity: exp((α − 1) D_α) <= (1 − q) + q exp((α − 1) D_α of the pair)."""
    if curve is None:
        return None

    def sampled(orders: Array) -> Array:
        exponents = (orders - 1) * curve(orders)
        with np.errstate(over="ignore", divide="ignore"):
            small = np.log1p(rate * np.expm1(np.minimum(exponents, 700.0)))
            large = np.logaddexp(np.log1p(-rate), np.log(rate) + exponents)
        value = np.where(exponents < 700.0, small, large) / (orders - 1)
        return np.asarray(value * (1 + 16 * EPS))

    return sampled


def _nothing(epsilon: Array) -> Array:
    return np.minimum(-np.expm1(np.minimum(epsilon, 0.0)) * (1 + 4 * EPS), 1.0)


def _with_against_without(forward: Curve, rate: float, epsilon: Array) -> Array:
    """H_γ(R‖Q) = q δ(ln(1 + (γ − 1)/q)), 1 − γ below ln(1 − q)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.expm1(np.minimum(epsilon, 600.0)) / rate
        inner = np.where(epsilon > 600.0, epsilon - np.log(rate), np.log1p(ratio))
        inner = np.where(ratio > -1, inner, -np.inf)
    # a smaller argument is a larger δ: log1p amplifies the rounding of its argument near −1
    slack = 8 * EPS * (np.abs(ratio) / np.maximum(1 + ratio, EPS) + np.abs(inner))
    inner = np.where(np.isfinite(inner), inner - np.minimum(slack, 1.0), inner)
    sampled = scaled_up(rate, forward(inner))
    alone = -np.expm1(np.minimum(epsilon, 0.0))
    return np.minimum(np.maximum(sampled, alone * (1 + 4 * EPS)), 1.0)


def _without_against_with(backward: Curve, rate: float, epsilon: Array) -> Array:
    """H_γ(Q‖R) = (1 − γ(1 − q)) δ'(ln(γq/(1 − γ(1 − q)))), 0 where γ(1 − q) >= 1."""
    bounded = np.minimum(epsilon, 600.0)
    # 1 − γ(1 − q) = q − (1 − q)(γ − 1)
    left = rate - (1 - rate) * np.expm1(bounded)
    left = left + 8 * EPS * (rate + np.abs(left))
    possible = left > 0
    log_left = np.log(np.where(possible, left, 1.0))
    inner = bounded + np.log(rate) - log_left
    inner = inner - 8 * EPS * (np.abs(inner) + np.abs(log_left) + 4)
    sampled = scaled_up(np.where(possible, left, 0.0), backward(inner))
    return np.minimum(np.where(possible, sampled, 0.0), 1.0)


def scaled_up(weight: float | Array, value: Array) -> Array:
    """weight · value, rounded up even where it underflows; 0 stays 0."""
    return np.asarray(weight * value * (1 + 4 * EPS) + np.where(value > 0, 4 * SMALLEST, 0.0))
