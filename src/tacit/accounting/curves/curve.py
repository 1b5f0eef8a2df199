"""A privacy curve δ(ε) as a function: at every real ε, joined by chords, inverted, on samples.

For two distributions P and Q and any real ε

    δ(ε) = H_{e^ε}(P‖Q) = sup_A P(A) − e^ε Q(A),    δ(−ε) = 1 − e^{−ε}(1 − δ'(ε)),

δ' the curve of (Q, P). A curve falls from 1 at −∞, and is convex in e^ε: it lies below the chord of
any two of its points, and chords of upper bounds are upper bounds. As it falls, an argument that is
rounded down gives a bound rounded up. P has a record that Q lacks; on a sample that takes it with
probability q the law is R = (1 − q)Q + qP.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS, SMALLEST
from tacit.guarantees.adjacency import Adjacency

# From an array of any real ε to upper bounds of δ there.
Curve: TypeAlias = Callable[[Array], Array]
Index: TypeAlias = npt.NDArray[np.intp]

# Powers of two that a search of ε spans; δ falls, so that δ(2^40) bounds all beyond.
LOWEST_EXPONENT, HIGHEST_EXPONENT = -1000, 40
LARGEST_LOSS = 2.0**HIGHEST_EXPONENT
# Where a curve is read no further out: twice the largest loss, so that none of a lattice is beyond.
FARTHEST = 2.0 * LARGEST_LOSS
# One look at 54 points in place of 1,040: a factor of 2^20 apart, halved afterwards.
COARSE_STEP = 20
COARSE_EXPONENTS = np.arange(LOWEST_EXPONENT, HIGHEST_EXPONENT + 1, COARSE_STEP)
COARSE_GRID = np.concatenate([[0.0], 2.0**COARSE_EXPONENTS])
# Curves are evaluated at many points for the price of few: eight parts of a bracket at a time, and
# places near where a straight ln δ would cross, from a tenth of the bracket to the last digits.
SEARCH_PARTS = 8
# Units in the last place at which a search ends: the curve's own rounding decides beyond.
SEARCH_UNITS = 4
NEAR_GUESS = np.array([-1e-1, -1e-2, -1e-4, -1e-7, 0.0, 1e-7, 1e-4, 1e-2, 1e-1])

# e^700 is a float, and beside e^−700 of a δ nothing else counts.
LARGEST_LOG = 700.0
# Below any denominator that is not zero, above the numbers that lose their digits.
TINY = 1e-300
# Up to so many points a curve is computed point by point, more are read off a table.
DIRECT = 256
# A chord may lie so much above the curve, relative to it, and so much of the largest δ.
CHORD_EXCESS, CHORD_FLOOR = 5e-5, 1e-18
# Twice so many chords are looked at before any is cut, into so many parts at most at once.
FIRST_CHORDS, MOST_PARTS = 32, 8
# Rounds of cutting: eight parts at a time reach the shortest chord in 10.
MOST_ROUNDS = 40
# A chord that is shorter than this, relative to its ε, is not cut: its ends differ by rounding.
SHORTEST = 1e-9
# What a chord is raised by at its ends, relative to the curve, and not in its middle: a chord that
# rounding bends down would be dropped from a convex minorant, with all masses between.
BOW = 1e-9
# Units in the last place: of two exponentials and four products in a chord, of one product. What
# a right end far below the left one cancels is a few units of the left end: less than the bow.
CHORD_UNITS, MIRROR_UNITS = 8, 4
# A golden section keeps .618 of an interval: 28 of them leave 1.4e-6, where a convex function is
# flat to 2e-12.
GOLDEN, SECTIONS = (math.sqrt(5.0) - 1) / 2, 28
# Points of a table of ln δ on either side of ε = 0, evenly in ln |ε| between these.
TABLE, TABLE_FROM, TABLE_TO = 2**13, 1e-6, 2e3
# e^ε of more is not needed beside the 1 that is taken off it, and (e^600)/q is a float.
MODERATE = 600.0
# 1 beside more is less than half a unit in the last place.
LARGE_RATIO = 2.0**60
# Units in the last place: of a product; of an argument that is a sum of logarithms; of a logarithm
# of two exponentials; and of 1 − s. The first is for one rounding, the second and third for up to
# seven, the last for half a unit.
PRODUCT_UNITS, ARGUMENT_UNITS, RENYI_UNITS, SHARE_UNITS = 4, 8, 16, 2


def guard(name: str, curve: Curve) -> Curve:
    """Return the curve without warnings at the far ends, clipped to [0, 1], exactly where inside.

    It raises a ValueError where the curve is NaN.
    """

    return partial(_guarded, name, curve)


def guarded(curve: Curve) -> Curve:
    """Return exactly the curve inside of one that ``guard`` returned; any other as it is."""
    if isinstance(curve, partial) and curve.func is _guarded:
        return curve.args[1]  # type: ignore[no-any-return]
    return curve


def _guarded(name: str, curve: Curve, epsilon: Array) -> Array:
    """The curve of `guard`, exactly where it is inside."""
    points = np.asarray(epsilon, dtype=np.float64)
    with np.errstate(all="ignore"):
        values = np.broadcast_to(np.asarray(curve(points), dtype=np.float64), points.shape)
    lost = np.isnan(values)
    if lost.any():
        raise ValueError(f"{name}: expected numbers, got NaN at epsilon {points[lost].flat[0]}")
    return np.clip(values, 0.0, 1.0)


def two_sided(above: Curve, below: Curve, infinite: float | None = None) -> Curve:
    """Return the curve at every real ε, rounded up, from upper bounds at ε >= 0.

    Args:
        above: Upper bound of δ at finite ε >= 0.
        below: The same of δ', the curve of (Q, P).
        infinite: The limit of δ at ε = inf; None for the value far out, which is above it.
    """

    return partial(_two_sided, above, below, infinite)


def _two_sided(above: Curve, below: Curve, infinite: float | None, epsilon: Array) -> Array:
    """The curve of `two_sided`, rounded up."""
    points = np.asarray(epsilon, dtype=np.float64)
    # nothing is asked of a curve beyond 2^41: δ falls, and is bounded by its value there
    finite = np.minimum(np.abs(points), FARTHEST)
    value = np.ones(points.shape)
    right = points >= 0
    if right.any():
        value[right] = above(finite[right])
    if not right.all():
        losses = -finite[~right]
        # δ(−ε) = 1 − e^{−ε}(1 − δ'(ε)) as a sum of two positive terms: nothing cancels near 1
        left = -np.expm1(losses) + np.exp(losses) * below(-losses)
        value[~right] = left * (1 + MIRROR_UNITS * EPS)
    if infinite is not None:
        value[points == math.inf] = infinite
    return np.minimum(value, 1.0)


def mirror(above: Curve) -> Curve:
    """Return the curve at every real ε, rounded up, of a pair that is equal in both directions."""
    return two_sided(above, above)


def share_of(point: Array, low: Array, high: Array) -> Array:
    """Return how far e^point is from e^low towards e^high, to rounding, in [0, 1]."""
    gap = np.minimum(high - low, LARGEST_LOG)
    # both over e^low, so that neither overflows
    ratio = np.expm1(np.minimum(point - low, gap)) / np.maximum(np.expm1(gap), TINY)
    # on chords longer than 700 the 1 beside e^gap is nothing: e^{point − high}
    share = np.where(high - low < LARGEST_LOG, ratio, np.exp(np.minimum(point - high, 0.0)))
    return np.clip(share, 0.0, 1.0)


def chords(points: Array, values: Array, epsilon: Array) -> tuple[Array, Array, Index]:
    """Return chords in e^ε through dots at each ε, to rounding, its share of one, its right end.

    What the chord rounds is at most ``CHORD_UNITS`` last places of its left end.

    Args:
        points: Increasing ε >= 0 of the dots, shape (k,).
        values: Upper bounds of δ there.
        epsilon: Any ε; what is outside has the value of the nearer dot.
    """
    right = np.clip(np.searchsorted(points, epsilon), 1, points.size - 1)
    share = share_of(epsilon, points[right - 1], points[right])
    return values[right - 1] + share * (values[right] - values[right - 1]), share, right


class ChordTable:
    """Upper bounds of a privacy curve at many ε >= 0 from few evaluations.

    Chords are cut into as many parts as bring them to 5e-5 of the curve above it, by the square of
    their length.

    Args:
        curve: Upper bounds at increasing ε >= 0.
    """

    def __init__(self, curve: Curve):
        self._curve = curve
        self._points = np.zeros(1)
        self._values = np.zeros(1)

    def __call__(self, epsilon: Array) -> Array:
        """Return δ at increasing ε >= 0, shape (n,), rounded up."""
        if epsilon[-1] > self._points[-1]:
            self._fill(float(epsilon[-1]))
        joined, _, right = chords(self._points, self._values, epsilon)
        low, high = self._points[right - 1], self._points[right]
        place = np.clip((epsilon - low) / np.maximum(high - low, TINY), 0.0, 1.0)
        # from −1 to 1 along the chord; the bow is largest at both ends and keeps all chords convex
        bow = BOW * self._values[right] * np.square(2 * place - 1)
        return np.asarray(joined * (1 + CHORD_UNITS * EPS) + bow)

    def _fill(self, last: float) -> None:
        points = np.linspace(0.0, last, 2 * FIRST_CHORDS + 1)
        values = self._curve(points)
        pending = np.ones(points.size - 1, dtype=np.bool_)
        for _ in range(MOST_ROUNDS):
            # a few at a time: the excess is the square of the length on short chords only
            parts = np.where(pending, _parts(points, values), 1)
            if (parts == 1).all():
                break
            # each chord is followed by its own even parts; only the new points are computed
            owner = np.repeat(np.arange(parts.size), parts)
            inner = np.arange(owner.size) - np.repeat(np.cumsum(parts) - parts, parts)
            starts = points[owner] + np.diff(points)[owner] * inner / parts[owner]
            merged = np.append(starts, points[-1])
            at = np.empty(merged.shape)
            old = np.append(inner == 0, True)
            at[old], at[~old] = values, self._curve(merged[~old])
            # what was short enough once is not looked at again
            pending = parts[owner] > 1
            points, values = merged, at
        self._points, self._values = points, values


def _parts(points: Array, values: Array) -> Index:
    """Return how many parts each chord needs: good for a choice only, more are never wrong."""
    middle = points[1:-1]
    # how far each point lies below the chord of its two neighbours, in units of what is allowed
    share = share_of(middle, points[:-2], points[2:])
    across = (values[:-2] + share * (values[2:] - values[:-2])) * (1 + CHORD_UNITS * EPS)
    here = values[1:-1]
    allowed = CHORD_EXCESS * here + (CHORD_FLOOR * values.max() + TINY)
    excess = np.maximum(across - here, 0.0) / allowed
    gaps = np.diff(points)
    # a chord of length g lies (g²/8) f'' above, the one across a point (g₁ g₂/2) f'': so f''/8 is
    bend = excess / (4 * gaps[:-1] * gaps[1:])
    largest = np.maximum(np.append(bend, 0.0), np.append(0.0, bend))
    # (g/parts)² f''/8 = 1
    wanted = np.where(gaps > SHORTEST * points[1:], gaps * np.sqrt(largest), 0.0)
    parts: Index = np.ceil(np.clip(wanted, 1.0, MOST_PARTS)).astype(np.intp)
    return parts


def curve_pair(
    forward: Curve, backward: Curve | None = None, infinite: float = 0.0
) -> tuple[Curve, Curve]:
    """Return the curves of (P, Q) and (Q, P) at any real ε, rounded up, from bounds at ε >= 0.

    Up to 256 points are computed one by one, more are read off a `ChordTable`.

    Args:
        forward: Upper bound of H_{e^ε}(P‖Q) at increasing ε >= 0.
        backward: The same for (Q, P); None when they are equal.
        infinite: The limit of both at ε = inf.
    """
    ahead = _tabulate(forward)
    if backward is None:
        curve = two_sided(ahead, ahead, infinite)
        return curve, curve
    back = _tabulate(backward)
    return two_sided(ahead, back, infinite), two_sided(back, ahead, infinite)


def _tabulate(curve: Curve) -> Curve:
    """Return the curve at points in any order, rounded up, each computed once or read off."""
    return partial(_tabulated, curve, ChordTable(curve))


def _tabulated(curve: Curve, table: Curve, epsilon: Array) -> Array:
    """The curve of `_tabulate`, rounded up."""
    losses, inverse = np.unique(epsilon, return_inverse=True)
    if not losses.size:
        return epsilon
    return np.asarray((curve if losses.size <= DIRECT else table)(losses)[inverse])


def smallest_epsilon(curve: Curve, target: float) -> float:
    """Return the smallest ε >= 0 where a curve is <= ``target``, as the upper end of its bracket.

    The curve was evaluated at what is returned and found to be within: the number is rounded up.
    """
    low, high = (float(end[0]) for end in brackets(curve, curve(COARSE_GRID), np.array([target])))
    if not 0 < high < math.inf:
        return high
    values = curve(np.array([low, high]))
    # down to four units in the last place: beyond, the curve's own rounding decides
    while high - low > SEARCH_UNITS * EPS * high:
        points = _probes(low, high, values, target)
        found = curve(points)
        # the last of the bracket is within
        index = int(np.argmax(np.append(found <= target, True)))
        ends = np.concatenate([[low], points, [high]])
        values = np.concatenate([values[:1], found, values[1:]])[index : index + 2]
        low, high = float(ends[index]), float(ends[index + 1])
        # no float between: a curve that falls at once from 0 on
        if not low < low + (high - low) / 2 < high:
            break
    return high


def brackets(curve: Curve, coarse: Array, targets: Array) -> tuple[Array, Array]:
    """Return low < high, 0 or powers of two: above each target at low, at most it at high.

    (inf, inf) where no point of the grid is within a target. One evaluation serves all targets.

    Args:
        curve: A curve that falls.
        coarse: Its values on ``COARSE_GRID``.
        targets: Shape (k,).
    """
    within = coarse <= targets[:, None]
    index = within.argmax(axis=1)
    # the first two points of the grid, 0 and the least power of two, have nothing between
    low, high = np.zeros(targets.shape), COARSE_GRID[index]
    far = np.flatnonzero(index > 1)
    if far.size:
        # the 20 powers of two between two points of the coarse grid
        first = COARSE_EXPONENTS[index[far] - 2]
        finer = 2.0 ** (first[:, None] + np.arange(COARSE_STEP + 1.0))
        values = curve(finer[:, 1:-1].ravel()).reshape(far.size, -1)
        inside = np.append(values <= targets[far, None], np.ones((far.size, 1), dtype=bool), axis=1)
        place, row = inside.argmax(axis=1), np.arange(far.size)
        low[far], high[far] = finer[row, place], finer[row, place + 1]
    some = within.any(axis=1)
    return np.where(some, low, math.inf), np.where(some, high, math.inf)


def _probes(low: float, high: float, values: Array, target: float) -> Array:
    """Return points inside a bracket, good for a choice only: even parts, more near a guess."""
    points = np.linspace(low, high, SEARCH_PARTS + 1)
    if target > 0 and values[1] > 0:
        # where the straight line of ln δ between both ends is at ln target
        fall = math.log(values[0]) - math.log(values[1])
        share = (math.log(values[0]) - math.log(target)) / fall if fall > 0 else 0.5
        points = np.concatenate([points, low + (high - low) * (share + NEAR_GUESS)])
    points = np.unique(points)
    inside = points[(points > low) & (points < high)]
    return inside if inside.size else np.array([low + (high - low) / 2])


# one object for the same two, so that a composition knows what occurs in it several times
@lru_cache(maxsize=32)
def larger(forward: Curve, backward: Curve) -> Curve:
    """Return the larger of two curves, rounded up as they are, one call where they are the same."""
    if forward is backward:
        return forward
    return partial(_larger, forward, backward)


def _larger(forward: Curve, backward: Curve, epsilon: Array) -> Array:
    """The larger of two curves at each ε, rounded up as they are."""
    return np.maximum(forward(epsilon), backward(epsilon))


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
    return mirror(partial(_replaced, (near, far), (_Rough(near), _Rough(far)), rate))


def _replaced(
    exact: tuple[Curve, Curve], rough: tuple[Curve, Curve], rate: float, epsilon: Array
) -> Array:
    """The curve of `replaced_curve` at ε >= 0, rounded up."""
    # s is chosen on tables, δ is computed at the s chosen and at both ends, and the least is taken
    best = _golden(lambda share: _at_share(rough, rate, share, epsilon), epsilon.shape)
    ends = (np.zeros(epsilon.shape), best, np.ones(epsilon.shape))
    found = [_at_share(exact, rate, share, epsilon) for share in ends]
    return scaled_up(rate, np.minimum(np.minimum(found[0], found[1]), found[2]))


def _at_share(curves: tuple[Curve, Curve], rate: float, share: Array, epsilon: Array) -> Array:
    """The sum of `replaced_curve` at a share s, rounded up where its two curves are."""
    # any s is sound whose two parts add up to at least 1
    rest = (1 - share) * (1 + SHARE_UNITS * EPS)
    left, right = at_shares(epsilon, rate, share, rest)
    value = scaled_up(share, curves[0](left)) + scaled_up(rest, curves[1](right))
    return np.asarray(value * (1 + PRODUCT_UNITS * EPS))


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
            partial(_with_against_without, forward, rate),
            partial(_without_against_with, backward, rate),
        )
    base = larger(forward, backward)
    replaced = mirror(partial(_with_against_without, base, rate))
    return replaced, replaced


def subsampled_renyi(curve: Curve | None, rate: float) -> Curve | None:
    """exp((α − 1) D_α) <= (1 − q) + q exp((α − 1) D_α of the pair), rounded up: joint convexity."""
    if curve is None:
        return None
    # of nothing that is sampled nothing is told, where the divergence of the pair is infinite too
    return np.zeros_like if rate == 0.0 else partial(_subsampled_renyi, curve, rate)


def _subsampled_renyi(curve: Curve, rate: float, orders: Array) -> Array:
    """The divergence of `subsampled_renyi` at orders > 1, rounded up."""
    exponents = (orders - 1) * curve(orders)
    with np.errstate(over="ignore", divide="ignore"):
        # ln(1 + q (e^x − 1)) keeps a small D; ln(1 − q + q e^x) where e^x is no float
        small = np.log1p(rate * np.expm1(np.minimum(exponents, LARGEST_LOG)))
        large = np.logaddexp(np.log1p(-rate), np.log(rate) + exponents)
    value = np.where(exponents < LARGEST_LOG, small, large) / (orders - 1)
    return np.asarray(value * (1 + RENYI_UNITS * EPS))


def _with_against_without(forward: Curve, rate: float, epsilon: Array) -> Array:
    """H_γ(R‖Q) = q δ(ln(1 + (γ − 1)/q)), 1 − γ below ln(1 − q), rounded up."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # ln(1 + (e^ε − 1)/q), −inf where γ <= 1 − q; ln((e^ε − 1)/q), which is smaller, where the 1
        # is nothing beside a quotient that may be no float
        ratio = np.expm1(np.minimum(epsilon, MODERATE)) / rate
        large = ratio > LARGE_RATIO
        moderate = np.where(large, 1.0, ratio)
        inner = np.where(large, log_rise(epsilon) - np.log(rate), np.log1p(moderate))
        inner = np.where(moderate > -1, inner, -np.inf)
    # a smaller argument is a larger δ: log1p amplifies the rounding of its argument near −1
    amplified = np.abs(moderate) / np.maximum(1 + moderate, EPS)
    slack = ARGUMENT_UNITS * EPS * (amplified + np.abs(inner))
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
