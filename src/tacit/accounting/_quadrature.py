"""Quadrature of many integrals at once, and privacy curves by chords between computed points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._validation import Array

Index: TypeAlias = npt.NDArray[np.intp]
Integrand: TypeAlias = Callable[[Index, Array], Array]

EPS = float(np.finfo(np.float64).eps)
RELATIVE_SLACK = 4e-10
SMALLEST = 1e-300
NEGLECTED = 1e-35  # more than the mass outside every range of integration
CHANGE = 1e-12
PANEL_POINTS = 12
MAX_ROUNDS = 40
CHUNK = 200_000
DIRECT = 256
CHORD_EXCESS = 1e-5
NODES, WEIGHTS = np.polynomial.legendre.leggauss(PANEL_POINTS)


def integrate(integrand: Integrand, edges: Array) -> Array:
    """Return the integral of a non-negative function for each row, its change at halving added.

    Args:
        integrand: Called with row numbers, shape (p,), and points, shape (p, n); returns (p, n).
        edges: Increasing panel edges of each row, shape (rows, panels + 1); empty panels allowed.

    Returns:
        Upper estimates, shape (rows,): Gauss-Legendre on panels halved until they stop changing.

    Raises:
        ValueError: A panel still changes after 40 halvings.
    """
    count = edges.shape[0]
    rows: Index = np.repeat(np.arange(count), edges.shape[1] - 1)
    start, stop = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    kept = stop > start
    rows, start, stop = rows[kept], start[kept], stop[kept]
    coarse = _panels(integrand, rows, start, stop)
    scale = np.bincount(rows, coarse, count)
    total = np.zeros(count)
    for _ in range(MAX_ROUNDS):
        if not rows.size:
            return total
        middle = (start + stop) / 2
        left = _panels(integrand, rows, start, middle)
        right = _panels(integrand, rows, middle, stop)
        change = np.abs(left + right - coarse)
        scale = np.maximum(scale, total + np.bincount(rows, left + right, count))
        done = change <= CHANGE * scale[rows] + SMALLEST
        total += np.bincount(rows[done], (left + right + change)[done], count)
        again = ~done
        rows = np.concatenate([rows[again], rows[again]])
        start, stop = (
            np.concatenate([start[again], middle[again]]),
            np.concatenate([middle[again], stop[again]]),
        )
        coarse = np.concatenate([left[again], right[again]])
    raise ValueError(f"quadrature: {rows.size} panels still change after {MAX_ROUNDS} halvings")


def _panels(integrand: Integrand, rows: Index, start: Array, stop: Array) -> Array:
    values = np.empty(rows.size)
    size = max(CHUNK // PANEL_POINTS, 1)
    for low in range(0, rows.size, size):
        part = slice(low, low + size)
        half = ((stop - start) / 2)[part, None]
        points = start[part, None] + half * (NODES + 1)
        values[part] = half[:, 0] * (integrand(rows[part], points) @ WEIGHTS)
    return values


def symmetric_curve(
    positive: Callable[[Array], Array], infinite: float = 0.0
) -> Callable[[Array], Array]:
    """Return the curve at any real ε of a pair whose two directions are equal.

    δ(−ε) = 1 − e^{−ε}(1 − δ(ε)), from upper bounds at finite ε >= 0 and the limit ``infinite``.
    """

    def curve(epsilon: Array) -> Array:
        points = np.asarray(epsilon, dtype=np.float64)
        above = np.full(points.shape, infinite)
        finite = np.isfinite(points)
        above[finite] = chorded(positive, np.abs(points[finite]))
        low = np.minimum(points, 0.0)
        below = (-np.expm1(low) + np.exp(low) * above) * (1 + 4 * EPS)
        return np.minimum(np.where(points < 0, below, above), 1.0)

    return curve


def chorded(curve: Callable[[Array], Array], epsilon: Array) -> Array:
    """Return upper bounds of a privacy curve at many points from few evaluations.

    A curve is convex in e^ε, so its chords lie above it. Chords are halved until they are at most
    a part in 1e5 above the curve in their middle; up to 256 points are evaluated one by one.

    Args:
        curve: Upper bound of a privacy curve, vectorised.
        epsilon: Points, shape (n,).

    Returns:
        Upper bounds, shape (n,).
    """
    points, inverse = np.unique(epsilon, return_inverse=True)
    if not points.size:
        return epsilon
    if points.size <= DIRECT:
        return curve(points)[inverse]
    last = points.size - 1
    known = np.unique(np.linspace(0, last, 65).astype(np.intp))
    values = np.full(points.size, np.nan)
    values[known] = curve(points[known])
    start, stop = known[:-1], known[1:]
    while True:
        inner = stop - start > 1
        start, stop = start[inner], stop[inner]
        if not start.size:
            break
        middle = (start + stop) // 2
        values[middle] = curve(points[middle])
        chord = _chord(points[middle], points[start], points[stop], values[start], values[stop])
        far = chord - values[middle] > CHORD_EXCESS * values[middle] + 1e-18
        start, middle, stop = start[far], middle[far], stop[far]
        start, stop = np.concatenate([start, middle]), np.concatenate([middle, stop])
    known = np.flatnonzero(~np.isnan(values))
    right = np.clip(np.searchsorted(known, np.arange(points.size)), 1, known.size - 1)
    low, high = known[right - 1], known[right]
    filled = _chord(points, points[low], points[high], values[low], values[high])
    exact = np.isnan(values)
    return np.asarray(np.where(exact, filled, values)[inverse])


def _chord(point: Array, low: Array, high: Array, at_low: Array, at_high: Array) -> Array:
    """Linear interpolation in e^ε."""
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.expm1(point - low) / np.expm1(high - low)
    share: Any = np.where(high - low < 700.0, ratio, np.exp(np.minimum(point - high, 0.0)))
    return np.asarray((at_low + np.clip(share, 0.0, 1.0) * (at_high - at_low)) * (1 + 8 * EPS))


def rounded_up(value: Array) -> Array:
    """Return δ in [0, 1] with the slack of the quadrature added."""
    return np.minimum(value * (1 + RELATIVE_SLACK) + NEGLECTED, 1.0)
