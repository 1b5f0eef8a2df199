"""Quadrature of many integrals at once, and privacy curves by chords between computed points."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

Index: TypeAlias = npt.NDArray[np.intp]
Integrand: TypeAlias = Callable[[Index, Array], Array]
Curve: TypeAlias = Callable[[Array], Array]

RELATIVE_SLACK = 4e-10
SMALLEST = 1e-300
NEGLECTED = 1e-35  # more than the mass outside every range of integration
CHANGE = 1e-12
TINY = 1e-18  # of the sum of its group: a panel that needs no halving
PANEL_POINTS = 10
MAX_ROUNDS = 40
MOST_PANELS = 2_000_000
LARGEST_LOSS = 2.0**41  # δ falls, so that δ(2^41) bounds it beyond
CHUNK = 200_000
DIRECT = 256
CHORD_EXCESS = 5e-5
BOW = 1e-9  # of the curve
CHORD_SLACK = 1e-18  # of the largest δ
FIRST_CHORDS = 32
MOST_PARTS = 8
SHORTEST = 1e-9  # of the loss: a chord that is not cut
NODES, WEIGHTS = np.polynomial.legendre.leggauss(PANEL_POINTS)


def integrate(
    integrand: Integrand, edges: Array, groups: Index | None = None, noise: float = 0.0
) -> Array:
    """Return integrals of non-negative functions summed by group, their changes at halving added.

    Args:
        integrand: Called with row numbers, shape (p,), and points, shape (p, n); returns (p, n).
        edges: Increasing panel edges of each row, shape (rows, panels + 1); empty panels allowed.
        groups: Group of each row, shape (rows,), every group used; each row its own where None.
        noise: Rounding error of the integrand, below which a panel is not halved.

    Returns:
        Upper estimates, shape (groups,): Gauss-Legendre on panels halved until they stop changing
        beside the sum of their group.

    Raises:
        ValueError: Too many panels still change.
    """
    group_of: Index = np.arange(edges.shape[0]) if groups is None else groups
    count = int(group_of.max()) + 1
    rows: Index = np.repeat(np.arange(edges.shape[0]), edges.shape[1] - 1)
    start, stop = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    kept = stop > start
    rows, start, stop = rows[kept], start[kept], stop[kept]
    coarse = _panels(integrand, rows, start, stop)
    scale = np.bincount(group_of[rows], coarse, count)
    small = coarse <= TINY * scale[group_of[rows]]
    total = np.zeros(count) + np.bincount(group_of[rows[small]], 2 * coarse[small], count)
    rows, start, stop, coarse = rows[~small], start[~small], stop[~small], coarse[~small]
    for _ in range(MAX_ROUNDS):
        if not rows.size:
            return total
        if rows.size > MOST_PANELS:
            break
        middle = (start + stop) / 2
        left = _panels(integrand, rows, start, middle)
        right = _panels(integrand, rows, middle, stop)
        change = np.abs(left + right - coarse)
        scale = np.maximum(scale, total + np.bincount(group_of[rows], left + right, count))
        settled = CHANGE * scale[group_of[rows]] + SMALLEST + noise * (stop - start)
        done = change <= settled
        total += np.bincount(group_of[rows[done]], (left + right + change)[done], count)
        again = ~done
        rows = np.concatenate([rows[again], rows[again]])
        start, stop = (
            np.concatenate([start[again], middle[again]]),
            np.concatenate([middle[again], stop[again]]),
        )
        coarse = np.concatenate([left[again], right[again]])
    raise ValueError(f"quadrature: expected convergence, {rows.size} panels still change")


def _panels(integrand: Integrand, rows: Index, start: Array, stop: Array) -> Array:
    values = np.empty(rows.size)
    size = max(CHUNK // PANEL_POINTS, 1)
    for low in range(0, rows.size, size):
        part = slice(low, low + size)
        half = ((stop - start) / 2)[part, None]
        points = start[part, None] + half * (NODES + 1)
        values[part] = half[:, 0] * (integrand(rows[part], points) @ WEIGHTS)
    return values


def curve_pair(
    forward: Curve, backward: Curve | None = None, infinite: float = 0.0
) -> tuple[Curve, Curve]:
    """Return the curves of (P, Q) and (Q, P) at any real ε from upper bounds at finite ε >= 0.

    δ(−ε) = 1 − e^{−ε}(1 − δ'(ε)), with δ' the curve of the other direction. Up to 256 points are
    computed one by one, more are read off a `ChordTable`.

    Args:
        forward: Upper bound of H_{e^ε}(P‖Q) at increasing ε >= 0.
        backward: The same for (Q, P); None when they are equal.
        infinite: The limit of both at ε = inf.
    """
    ahead = _read_off(forward)
    if backward is None:
        curve = _two_sided(ahead, ahead, infinite)
        return curve, curve
    back = _read_off(backward)
    return _two_sided(ahead, back, infinite), _two_sided(back, ahead, infinite)


def _read_off(curve: Curve) -> Curve:
    table = ChordTable(curve)

    def evaluate(epsilon: Array) -> Array:
        losses, inverse = np.unique(np.minimum(epsilon, LARGEST_LOSS), return_inverse=True)
        if not losses.size:
            return epsilon
        return np.asarray((curve if losses.size <= DIRECT else table)(losses)[inverse])

    return evaluate


def _two_sided(above: Curve, below: Curve, infinite: float) -> Curve:
    def curve(epsilon: Array) -> Array:
        points = np.asarray(epsilon, dtype=np.float64)
        value = np.where(points > 0, infinite, 1.0)
        right = (points >= 0) & np.isfinite(points)
        value[right] = above(points[right])
        left = (points < 0) & np.isfinite(points)
        losses = points[left]
        value[left] = (-np.expm1(losses) + np.exp(losses) * below(-losses)) * (1 + 4 * EPS)
        return np.minimum(value, 1.0)

    return curve


class ChordTable:
    """Upper bounds of a privacy curve at many ε >= 0 from few evaluations.

    A privacy curve is convex in e^ε, so a chord between upper bounds is an upper bound. Chords are
    cut into as many parts as bring them to 5e-5 of the curve above it, by the square of their
    length.
    """

    def __init__(self, curve: Callable[[Array], Array]):
        self._curve = curve
        self._points = np.zeros(1)
        self._values = np.zeros(1)

    def __call__(self, epsilon: Array) -> Array:
        """Return upper bounds at increasing points, shape (n,)."""
        if epsilon[-1] > self._points[-1]:
            self._fill(float(epsilon[-1]))
        right = np.clip(np.searchsorted(self._points, epsilon), 1, self._points.size - 1)
        low, high = self._points[right - 1], self._points[right]
        ends = self._values[right - 1], self._values[right]
        # a bow keeps rounding from bending the chord down, which costs a convex minorant dear
        place = 2 * np.clip((epsilon - low) / np.maximum(high - low, SMALLEST), 0.0, 1.0) - 1
        return _chord(epsilon, low, high, *ends) + BOW * ends[1] * np.square(place)

    def _fill(self, last: float) -> None:
        points = np.linspace(0.0, last, 2 * FIRST_CHORDS + 1)
        values = self._curve(points)
        pending = np.ones(points.size - 1, dtype=np.bool_)
        for _ in range(MAX_ROUNDS):
            # a few at a time: the excess is the square of the length on short chords only
            parts = np.where(pending, _parts(points, values), 1)
            if (parts == 1).all():
                break
            owner = np.repeat(np.arange(parts.size), parts)
            inner = np.arange(owner.size) - np.repeat(np.cumsum(parts) - parts, parts)
            starts = points[owner] + np.diff(points)[owner] * inner / parts[owner]
            merged = np.append(starts, points[-1])
            at = np.empty(merged.shape)
            old = np.append(inner == 0, True)
            at[old], at[~old] = values, self._curve(merged[~old])
            pending = parts[owner] > 1
            points, values = merged, at
        self._points, self._values = points, values


def _parts(points: Array, values: Array) -> Index:
    """How many parts each chord needs, from how far its ends lie below the chords across them."""
    middle = points[1:-1]
    chord = _chord(middle, points[:-2], points[2:], values[:-2], values[2:])
    here = values[1:-1]
    slack = CHORD_SLACK * values.max() + SMALLEST
    excess = np.maximum(chord - here, 0.0) / (CHORD_EXCESS * here + slack)
    gaps = np.diff(points)
    # a chord of length g lies (g²/8) f'' above, and the one across a point (g₁ g₂/2) f''
    bend = excess / (4 * gaps[:-1] * gaps[1:])
    largest = np.maximum(np.append(bend, 0.0), np.append(0.0, bend))
    wanted = np.where(gaps > SHORTEST * points[1:], gaps * np.sqrt(largest), 0.0)
    parts: Index = np.ceil(np.clip(wanted, 1.0, MOST_PARTS)).astype(np.intp)
    return parts


def _chord(point: Array, low: Array, high: Array, at_low: Array, at_high: Array) -> Array:
    """Linear interpolation in e^ε."""
    gap = np.minimum(high - low, 700.0)
    ratio = np.expm1(np.minimum(point - low, gap)) / np.maximum(np.expm1(gap), SMALLEST)
    share = np.where(high - low < 700.0, ratio, np.exp(np.minimum(point - high, 0.0)))
    return np.asarray((at_low + np.clip(share, 0.0, 1.0) * (at_high - at_low)) * (1 + 8 * EPS))


def rounded_up(value: Array) -> Array:
    """Return δ in [0, 1] with the slack of the quadrature added."""
    return np.minimum(value * (1 + RELATIVE_SLACK) + NEGLECTED, 1.0)
