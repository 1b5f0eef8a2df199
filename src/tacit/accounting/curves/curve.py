"""A privacy curve δ(ε) as a function: continued to every real ε, joined by chords, inverted.

For two distributions P and Q and any real ε

    δ(ε) = H_{e^ε}(P‖Q) = sup_A P(A) − e^ε Q(A),    δ(−ε) = 1 − e^{−ε}(1 − δ'(ε)),

δ' the curve of (Q, P). A curve falls from 1 at −∞, and is convex in e^ε: it lies below the chord of
any two of its points, and chords of upper bounds are upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

# From an array of any real ε to upper bounds of δ there.
Curve: TypeAlias = Callable[[Array], Array]
Index: TypeAlias = npt.NDArray[np.intp]

# Powers of two that a search of ε spans; δ falls, so that δ(2^40) bounds all beyond.
LOWEST_EXPONENT, HIGHEST_EXPONENT = -1000, 40
LARGEST_LOSS = 2.0**HIGHEST_EXPONENT
# Where a curve is read no further out: twice the largest loss, so that none of a lattice is beyond.
FARTHEST = 2.0 * LARGEST_LOSS
# One look at 54 points in place of 1,040: a factor of 2^20 apart, halved afterwards.
COARSE_EXPONENTS = np.arange(LOWEST_EXPONENT, HIGHEST_EXPONENT + 1, 20)
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


def guard(name: str, curve: Curve) -> Curve:
    """Return the curve without warnings at the far ends, clipped to [0, 1], exactly where inside.

    It raises a ValueError where the curve is NaN.
    """

    def evaluate(epsilon: Array) -> Array:
        points = np.asarray(epsilon, dtype=np.float64)
        with np.errstate(all="ignore"):
            values = np.broadcast_to(np.asarray(curve(points), dtype=np.float64), points.shape)
        lost = np.isnan(values)
        if lost.any():
            raise ValueError(f"{name}: expected numbers, got NaN at epsilon {points[lost].flat[0]}")
        return np.clip(values, 0.0, 1.0)

    return evaluate


def two_sided(above: Curve, below: Curve, infinite: float | None = None) -> Curve:
    """Return the curve at every real ε, rounded up, from upper bounds at ε >= 0.

    Args:
        above: Upper bound of δ at finite ε >= 0.
        below: The same of δ', the curve of (Q, P).
        infinite: The limit of δ at ε = inf; None for the value far out, which is above it.
    """

    def curve(epsilon: Array) -> Array:
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

    return curve


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
    table = ChordTable(curve)

    def evaluate(epsilon: Array) -> Array:
        losses, inverse = np.unique(epsilon, return_inverse=True)
        if not losses.size:
            return epsilon
        return np.asarray((curve if losses.size <= DIRECT else table)(losses)[inverse])

    return evaluate


def smallest_epsilon(curve: Curve, target: float) -> float:
    """Return the smallest ε >= 0 where a curve is <= ``target``, as the upper end of its bracket.

    The curve was evaluated at what is returned and found to be within: the number is rounded up.
    """
    low, high = bracket(lambda points: curve(points) <= target, curve(COARSE_GRID) <= target)
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
    return high


def bracket(
    within: Callable[[Array], npt.NDArray[np.bool_]], inside: npt.NDArray[np.bool_]
) -> tuple[float, float]:
    """Return low < high, 0 or powers of two, low outside and high within: it is at most high.

    (inf, inf) where no point of the grid is within.

    Args:
        within: Whether each of some points is; all are beyond the first.
        inside: What it says of ``COARSE_GRID``.
    """
    if not inside.any():
        return math.inf, math.inf
    index = int(np.argmax(inside))
    if index <= 1:
        return 0.0, float(COARSE_GRID[index])
    # the 20 powers of two between two points of the coarse grid
    finer = 2.0 ** np.arange(COARSE_EXPONENTS[index - 2], COARSE_EXPONENTS[index - 1] + 1.0)
    index = int(np.argmax(np.concatenate([[False], within(finer[1:-1]), [True]])))
    return float(finer[index - 1]), float(finer[index])


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
