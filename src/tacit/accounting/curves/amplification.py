"""What sampling every record with probability q does to a privacy curve."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit._ground.checks import Array, choice, in_interval
from tacit._ground.numbers import EPS
from tacit.accounting.curves.discretisation import Curve

if TYPE_CHECKING:
    from tacit.accounting.curves.profile import PrivacyProfile

SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
ANY_NEIGHBOURS = "any that the parameters allow"
ADD_REMOVE = "add or remove one record"
REPLACE = "replace one record"
SAMPLED = "every record is sampled independently, and which were sampled stays secret"
THREE_WAYS = "the curve bounds every pair among the record, its replacement, and neither"
TWO_CURVES = (
    "the curve bounds the record against its replacement, and the second curve either of them "
    "against neither"
)
GOLDEN = (math.sqrt(5.0) - 1) / 2
SECTIONS, TABLE = 28, 2**13
LARGEST = 2.0**41


def subsample(
    profile: PrivacyProfile,
    sampling_rate: float,
    neighbours: str | None,
    without: PrivacyProfile | None = None,
) -> PrivacyProfile:
    """Do what `PrivacyProfile.poisson_subsample` says."""
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0)
    relation = _relation(profile.adjacency, neighbours)
    forward, backward = profile.forward, profile.backward
    if without is not None:
        _check_without(without, type(profile), relation)
        if 0.0 < rate < 1.0:
            forward = backward = replaced_curve(_worse(without), _worse(profile), rate)
    if (without is None or rate == 0.0) and (
        rate < 1.0 or (relation == "replace" and not profile.symmetric)
    ):
        forward, backward = subsampled_curves(forward, backward, rate, relation)
    replaced = relation == "replace"
    named = profile.adjacency != ANY_NEIGHBOURS
    bounded = (THREE_WAYS if without is None else TWO_CURVES,) if replaced else ()
    return replace(
        profile,
        name=f"{profile.name}, sampled at rate {rate:g}",
        forward=forward,
        backward=backward,
        infinite_mass=min(rate * profile.infinite_mass * (1 + 4 * EPS), 1.0),
        source=f"{profile.source}; Balle, Barthe and Gaboardi (2018), Theorem 2",
        assumptions=(*profile.assumptions, SAMPLED, *bounded),
        adjacency=profile.adjacency if named else REPLACE if replaced else ADD_REMOVE,
        renyi_curve=subsampled_renyi(profile.renyi_curve, rate),
        masses=None,
    )


def _check_without(without: PrivacyProfile, kind: type[PrivacyProfile], relation: str) -> None:
    if not isinstance(without, kind):
        raise ValueError(f"without: expected a PrivacyProfile, got {type(without).__name__}")
    if relation != "replace":
        raise ValueError(f"without: expected it with neighbours 'replace', got {relation!r}")
    if without.adjacency not in (ANY_NEIGHBOURS, ADD_REMOVE):
        raise ValueError(
            f"without: expected a profile of a record against none, got one for inputs that "
            f"{without.adjacency}"
        )


def _worse(profile: PrivacyProfile) -> Curve:
    """The larger of both directions, one call where they are equal."""
    forward, backward = profile.forward, profile.backward
    if forward is backward:
        return forward
    return lambda epsilon: np.maximum(forward(epsilon), backward(epsilon))


def replaced_curve(near: Curve, far: Curve, rate: float) -> Curve:
    """Return the curve of a replaced record on Poisson samples, equal in both directions.

    With γ = e^ε >= 1, a = (γ − 1)(1 − q)/q and laws A, B, N of the record, its replacement and
    neither, H_γ = q E_A max(1 − a N/A − γ B/A, 0), which for every s in [0, 1] is at most
    q[s δ_near(ln(a/s)) + (1 − s) δ_far(ln(γ/(1 − s)))]. The sum is convex in s; any s is sound.

    Args:
        near: Upper bound of the curves of (A, N) and (B, N).
        far: Upper bound of those of (A, B) and (B, A).
        rate: q in (0, 1).
    """

    rough_near, rough_far = _Rough(near), _Rough(far)

    def bound(first: Curve, second: Curve, share: Array, epsilon: Array) -> Array:
        # the two parts add up to at least 1
        rest = (1 - share) * (1 + 2 * EPS)
        left, right = at_shares(epsilon, rate, share, rest)
        value = scaled_up(share, first(left)) + scaled_up(rest, second(right))
        return np.asarray(value * (1 + 4 * EPS))

    def above(epsilon: Array) -> Array:
        best = _golden(lambda share: bound(rough_near, rough_far, share, epsilon), epsilon.shape)
        ends = (np.zeros(epsilon.shape), best, np.ones(epsilon.shape))
        found = [bound(near, far, share, epsilon) for share in ends]
        return scaled_up(rate, np.minimum(np.minimum(found[0], found[1]), found[2]))

    return mirrored(above)


class _Rough:
    """A curve read off a table in ln δ: good for a choice only, and cheap where it is not."""

    def __init__(self, curve: Curve):
        self._curve = curve

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        some = np.geomspace(1e-6, 2e3, TABLE)
        points = np.concatenate([-some[::-1], [0.0], some])
        return points, np.log(np.maximum(self._curve(points), 1e-300))

    def __call__(self, epsilon: Array) -> Array:
        return np.asarray(np.exp(np.interp(epsilon, *self._table)))


def _golden(value: Curve, shape: tuple[int, ...]) -> Array:
    """Return about where convex functions of [0, 1] are least, by golden sections."""
    low, high = np.zeros(shape), np.ones(shape)
    inner, outer = np.full(shape, 1 - GOLDEN), np.full(shape, GOLDEN)
    left, right = value(inner), value(outer)
    for _ in range(SECTIONS):
        falls = right < left
        low, high = np.where(falls, inner, low), np.where(falls, high, outer)
        fresh = np.where(falls, low + GOLDEN * (high - low), high - GOLDEN * (high - low))
        found = value(fresh)
        inner, outer = np.where(falls, outer, fresh), np.where(falls, fresh, inner)
        left, right = np.where(falls, right, found), np.where(falls, found, left)
    return (low + high) / 2


def at_shares(epsilon: Array, rate: float, near: Array, far: Array) -> tuple[Array, Array]:
    """ln(a/s) and ln(γ/(1 − s)), rounded down; a is that of `replaced_curve`."""
    size = np.abs(epsilon) + abs(math.log(rate)) + abs(math.log1p(-rate)) + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        left = log_rise(epsilon) + (math.log1p(-rate) - math.log(rate)) - np.log(near)
        right = epsilon - np.log(far)
        left -= 8 * EPS * (size + np.abs(left))
        right -= 8 * EPS * (size + np.abs(right))
    # inf − inf: nothing is left of the record, or of its weight, and the term is 0 or s
    return np.where(np.isnan(left), -np.inf, left), np.where(np.isnan(right), np.inf, right)


def log_rise(epsilon: Array) -> Array:
    """ln(e^ε − 1) for ε >= 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(epsilon + np.log(-np.expm1(-epsilon)))


def mirrored(above: Curve) -> Curve:
    """Extend a curve that is equal in both directions from ε >= 0 to every ε."""

    def curve(epsilon: Array) -> Array:
        # δ falls, so that δ(LARGEST) bounds it beyond
        value = above(np.minimum(np.abs(epsilon), LARGEST))
        # δ(−ε) = 1 − e^{−ε}(1 − δ(ε))
        low = np.minimum(epsilon, 0.0)
        below = (-np.expm1(low) + np.exp(low) * value) * (1 + 4 * EPS)
        return np.asarray(np.minimum(np.where(epsilon < 0, below, value), 1.0))

    return curve


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
    replaced = mirrored(lambda epsilon: _with_against_without(base, rate, epsilon))
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
