"""What sampling every record with probability q does to a privacy curve.

With laws P with the record, Q without it and R = (1 − q)Q + qP on a sample: the hockey-stick curves
of (R, Q) and (Q, R), those of a replaced record, and the Rényi divergence, from the curves of
(P, Q) and (Q, P). A curve falls, so an argument that is rounded down gives a bound rounded up.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS, SMALLEST
from tacit.accounting.curves.curve import LARGEST_LOG, TINY, Curve, mirror
from tacit.guarantees.adjacency import Adjacency

# A golden section keeps .618 of an interval: 28 of them leave 1.4e-6, where a convex function is
# flat to 2e-12.
GOLDEN, SECTIONS = (math.sqrt(5.0) - 1) / 2, 28
# Points of a table of ln δ on either side of ε = 0, evenly in ln |ε| between these.
TABLE, TABLE_FROM, TABLE_TO = 2**13, 1e-6, 2e3
# e^ε of more is not needed beside the 1 that is taken off it, and (e^600)/q is a float.
MODERATE = 600.0
# Units in the last place: of a product; of an argument that is a sum of logarithms; of a logarithm
# of two exponentials; and of 1 − s. The first is for one rounding, the second and third for up to
# seven, the last for half a unit.
PRODUCT_UNITS, ARGUMENT_UNITS, RENYI_UNITS, SHARE_UNITS = 4, 8, 16, 2


def larger(forward: Curve, backward: Curve) -> Curve:
    """Return the larger of two curves, rounded up as they are, one call where they are the same."""
    if forward is backward:
        return forward
    return lambda epsilon: np.maximum(forward(epsilon), backward(epsilon))


def replaced_curve(near: Curve, far: Curve, rate: float) -> Curve:
    """Return the curve of a replaced record on Poisson samples, rounded up, equal both ways.

    With γ = e^ε >= 1, a = (γ − 1)(1 − q)/q and laws A, B, N of the record, its replacement and
    neither, H_γ = q E_A max(1 − a N/A − γ B/A, 0), which for every s in [0, 1] is at most
    q[s δ_near(ln(a/s)) + (1 − s) δ_far(ln(γ/(1 − s)))]. The sum is convex in s; any s is sound.

    Args:
        near: Upper bound of the curves of (A, N) and (B, N).
        far: Upper bound of those of (A, B) and (B, A).
        rate: q in (0, 1).
    """

    # s is chosen on tables, δ is computed at the s chosen and at both ends, and the least is taken
    rough_near, rough_far = _Rough(near), _Rough(far)

    def bound(first: Curve, second: Curve, share: Array, epsilon: Array) -> Array:
        # any s is sound whose two parts add up to at least 1
        rest = (1 - share) * (1 + SHARE_UNITS * EPS)
        left, right = at_shares(epsilon, rate, share, rest)
        value = scaled_up(share, first(left)) + scaled_up(rest, second(right))
        return np.asarray(value * (1 + PRODUCT_UNITS * EPS))

    def above(epsilon: Array) -> Array:
        best = _golden(lambda share: bound(rough_near, rough_far, share, epsilon), epsilon.shape)
        ends = (np.zeros(epsilon.shape), best, np.ones(epsilon.shape))
        found = [bound(near, far, share, epsilon) for share in ends]
        return scaled_up(rate, np.minimum(np.minimum(found[0], found[1]), found[2]))

    return mirror(above)


class _Rough:
    """A curve read off a table in ln δ: good for a choice only, and cheap where it is not."""

    def __init__(self, curve: Curve):
        self._curve = curve

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Points and ln δ there, good for a choice only."""
        some = np.geomspace(TABLE_FROM, TABLE_TO, TABLE)
        points = np.concatenate([-some[::-1], [0.0], some])
        return points, np.log(np.maximum(self._curve(points), TINY))

    def __call__(self, epsilon: Array) -> Array:
        """Return about δ, good for a choice only: ln δ is nearly straight between the points."""
        return np.asarray(np.exp(np.interp(epsilon, *self._table)))


def _golden(value: Curve, shape: tuple[int, ...]) -> Array:
    """Return about where convex functions of [0, 1] are least, good for a choice only."""
    low, high = np.zeros(shape), np.ones(shape)
    inner, outer = np.full(shape, 1 - GOLDEN), np.full(shape, GOLDEN)
    left, right = value(inner), value(outer)
    for _ in range(SECTIONS):
        # the minimum is right of the inner point where the outer one is lower
        falls = right < left
        low, high = np.where(falls, inner, low), np.where(falls, high, outer)
        # one of the two points is kept: only one value is computed in a round
        fresh = np.where(falls, low + GOLDEN * (high - low), high - GOLDEN * (high - low))
        found = value(fresh)
        inner, outer = np.where(falls, outer, fresh), np.where(falls, fresh, inner)
        left, right = np.where(falls, right, found), np.where(falls, found, left)
    return (low + high) / 2


def at_shares(epsilon: Array, rate: float, near: Array, far: Array) -> tuple[Array, Array]:
    """ln(a/s) and ln(γ/(1 − s)), rounded down; a is that of `replaced_curve`."""
    # rounded down by a few units of every term of the sums
    size = np.abs(epsilon) + abs(math.log(rate)) + abs(math.log1p(-rate)) + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        left = log_rise(epsilon) + (math.log1p(-rate) - math.log(rate)) - np.log(near)
        right = epsilon - np.log(far)
        left -= ARGUMENT_UNITS * EPS * (size + np.abs(left))
        right -= ARGUMENT_UNITS * EPS * (size + np.abs(right))
    # inf − inf: nothing is left of the record, or of its weight, and the term is 0 or s
    return np.where(np.isnan(left), -np.inf, left), np.where(np.isnan(right), np.inf, right)


def log_rise(epsilon: Array) -> Array:
    """ln(e^ε − 1) for ε >= 0, to rounding: as ε + ln(1 − e^{−ε}), which does not overflow."""
    with np.errstate(divide="ignore"):
        return np.asarray(epsilon + np.log(-np.expm1(-epsilon)))


def subsampled_curves(
    forward: Curve, backward: Curve, rate: float, neighbours: Adjacency
) -> tuple[Curve, Curve]:
    """Return both curves of the sampled pair, rounded up; see `PrivacyProfile.poisson_subsample`.

    With γ = e^ε and R = (1 − q)Q + qP: H_γ(R‖Q) = q H_{1 + (γ − 1)/q}(P‖Q) where γ > 1 − q and
    1 − γ elsewhere; H_γ(Q‖R) = (1 − γ(1 − q)) H_{γq/(1 − γ(1 − q))}(Q‖P) where γ(1 − q) < 1 and 0
    elsewhere. Replacement takes q max(δ, δ')(ln(1 + (γ − 1)/q)) for γ >= 1 in both directions.
    """
    if rate == 0.0:
        # both are the same distribution: 1 − e^ε below 0, 0 above
        nothing = mirror(np.zeros_like)
        return nothing, nothing
    if neighbours is Adjacency.ADD_REMOVE:
        return (
            lambda epsilon: _with_against_without(forward, rate, epsilon),
            lambda epsilon: _without_against_with(backward, rate, epsilon),
        )
    base = larger(forward, backward)
    replaced = mirror(lambda epsilon: _with_against_without(base, rate, epsilon))
    return replaced, replaced


def subsampled_renyi(curve: Curve | None, rate: float) -> Curve | None:
    """exp((α − 1) D_α) <= (1 − q) + q exp((α − 1) D_α of the pair), rounded up: joint convexity."""
    if curve is None:
        return None

    def sampled(orders: Array) -> Array:
        exponents = (orders - 1) * curve(orders)
        with np.errstate(over="ignore", divide="ignore"):
            # ln(1 + q (e^x − 1)) keeps a small D; ln(1 − q + q e^x) where e^x is no float
            small = np.log1p(rate * np.expm1(np.minimum(exponents, LARGEST_LOG)))
            large = np.logaddexp(np.log1p(-rate), np.log(rate) + exponents)
        value = np.where(exponents < LARGEST_LOG, small, large) / (orders - 1)
        return np.asarray(value * (1 + RENYI_UNITS * EPS))

    return sampled


def _with_against_without(forward: Curve, rate: float, epsilon: Array) -> Array:
    """H_γ(R‖Q) = q δ(ln(1 + (γ − 1)/q)), 1 − γ below ln(1 − q), rounded up."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # ln(1 + (e^ε − 1)/q), ε − ln q where the 1 is nothing beside e^ε, −inf where γ <= 1 − q
        ratio = np.expm1(np.minimum(epsilon, MODERATE)) / rate
        inner = np.where(epsilon > MODERATE, epsilon - np.log(rate), np.log1p(ratio))
        inner = np.where(ratio > -1, inner, -np.inf)
    # a smaller argument is a larger δ: log1p amplifies the rounding of its argument near −1
    slack = ARGUMENT_UNITS * EPS * (np.abs(ratio) / np.maximum(1 + ratio, EPS) + np.abs(inner))
    inner = np.where(np.isfinite(inner), inner - np.minimum(slack, 1.0), inner)
    # no curve is below 1 − γ, where the event is everything
    sampled = scaled_up(rate, forward(inner))
    alone = -np.expm1(np.minimum(epsilon, 0.0))
    return np.minimum(np.maximum(sampled, alone * (1 + PRODUCT_UNITS * EPS)), 1.0)


def _without_against_with(backward: Curve, rate: float, epsilon: Array) -> Array:
    """H_γ(Q‖R) = (1 − γ(1 − q)) δ'(ln(γq/(1 − γ(1 − q)))), rounded up, 0 where γ(1 − q) >= 1."""
    bounded = np.minimum(epsilon, MODERATE)
    # 1 − γ(1 − q) = q − (1 − q)(γ − 1), which is exact near γ = 1; rounded up as a weight
    left = rate - (1 - rate) * np.expm1(bounded)
    left = left + ARGUMENT_UNITS * EPS * (rate + np.abs(left))
    # and the argument of δ' down
    possible = left > 0
    log_left = np.log(np.where(possible, left, 1.0))
    inner = bounded + np.log(rate) - log_left
    inner = inner - ARGUMENT_UNITS * EPS * (np.abs(inner) + np.abs(log_left) + 4)
    sampled = scaled_up(np.where(possible, left, 0.0), backward(inner))
    return np.minimum(np.where(possible, sampled, 0.0), 1.0)


def scaled_up(weight: float | Array, value: Array) -> Array:
    """weight · value, rounded up even where it underflows; 0 stays 0."""
    return np.asarray(
        weight * value * (1 + PRODUCT_UNITS * EPS)
        + np.where(value > 0, PRODUCT_UNITS * SMALLEST, 0.0)
    )
