"""Quadrature of many integrals of non-negative functions at once, rounded up by what it changed.

This differs from a textbook's adaptive rule in: 1. all panels of all integrals are halved together,
so that one call of the integrand serves thousands of them; 2. a panel is weighed against the sum of
its group, an integral in several rows; 3. what halving changed is added and not averaged: for a
rule whose error falls with halving it is an upper bound of the error that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tacit._ground.checks import Array
from tacit.accounting.curves.curve import TINY, Index

# From rows (p,) and points (p, n) to values (p, n).
Integrand: TypeAlias = Callable[[Index, Array], Array]

# Relative, added to every δ that was integrated: more than the rounding of the sums (a panel adds
# 10 products, an integral 10⁴ panels: 1e-12) and of the integrands (1e-11 of `gaussian_square`).
RELATIVE_SLACK = 4e-10
# Added too: more than the mass outside ranges of integration that leave out e^-85; one that leaves
# out more says who adds it.
NEGLECTED = 1e-35
# A panel is settled when halving changes less than this of its group's sum.
CHANGE = 1e-12
# A panel of less than this of its group's sum is not halved: it is counted twice.
SMALL = 1e-18
# Gauss's rule of 10 points is exact for polynomials of degree 19; halving divides its error by 2²⁰.
PANEL_POINTS = 10
NODES, WEIGHTS = np.polynomial.legendre.leggauss(PANEL_POINTS)
# Where it ends in a refusal: halvings, and panels that still change.
MOST_ROUNDS, MOST_PANELS = 40, 2_000_000
# Values of the integrand computed at once, for the cache.
CHUNK = 200_000


def integrate(
    integrand: Integrand, edges: Array, groups: Index | None = None, noise: float = 0.0
) -> Array:
    """Return integrals of non-negative functions, summed by group, at most: changes are added.

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
    # edges may coincide; a peak between the nodes of a panel is not found: who calls has looked for
    # it (`scan_panels`)
    kept = stop > start
    rows, start, stop = rows[kept], start[kept], stop[kept]
    coarse = _panels(integrand, rows, start, stop)
    # panels that are nothing beside their group are not halved, and counted twice
    scale = np.bincount(group_of[rows], coarse, count)
    small = coarse <= SMALL * scale[group_of[rows]]
    total = np.zeros(count) + np.bincount(group_of[rows[small]], 2 * coarse[small], count)
    rows, start, stop, coarse = rows[~small], start[~small], stop[~small], coarse[~small]
    for _ in range(MOST_ROUNDS):
        if not rows.size:
            return total
        if rows.size > MOST_PANELS:
            break
        middle = (start + stop) / 2
        left = _panels(integrand, rows, start, middle)
        right = _panels(integrand, rows, middle, stop)
        change = np.abs(left + right - coarse)
        scale = np.maximum(scale, total + np.bincount(group_of[rows], left + right, count))
        # against the group's sum so far, the integrand's own rounding, and numbers without digits
        settled = CHANGE * scale[group_of[rows]] + TINY + noise * (stop - start)
        done = change <= settled
        # Gauss's error falls by 2²⁰ at a halving of a smooth integrand: what changed is far above
        # it; of kinks that is no bound
        total += np.bincount(group_of[rows[done]], (left + right + change)[done], count)
        # both halves of the others
        again = ~done
        rows = np.concatenate([rows[again], rows[again]])
        start, stop = (
            np.concatenate([start[again], middle[again]]),
            np.concatenate([middle[again], stop[again]]),
        )
        coarse = np.concatenate([left[again], right[again]])
    raise ValueError(f"quadrature: expected convergence, {rows.size} panels still change")


def _panels(integrand: Integrand, rows: Index, start: Array, stop: Array) -> Array:
    """Return the integral of each panel by Gauss's rule, to rounding; a few thousand at a time."""
    values = np.empty(rows.size)
    size = max(CHUNK // PANEL_POINTS, 1)
    for low in range(0, rows.size, size):
        part = slice(low, low + size)
        half = ((stop - start) / 2)[part, None]
        points = start[part, None] + half * (NODES + 1)
        values[part] = half[:, 0] * (integrand(rows[part], points) @ WEIGHTS)
    return values


def quadrature_up(value: Array) -> Array:
    """Return δ in [0, 1], rounded up by the slack of the quadrature."""
    return np.minimum(value * (1 + RELATIVE_SLACK) + NEGLECTED, 1.0)
