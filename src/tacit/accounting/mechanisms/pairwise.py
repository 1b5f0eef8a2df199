"""E max(S, 0) for a sum of many equal terms whose sizes range over many powers of ten."""

from __future__ import annotations

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

# Of values as small as this the grid is even, of larger ones geometric: gains are weighed against
# densities, and e^{-7} of a density is little.
SMALL = 1e-3
# Points of a sum of a few terms, of more, and of many: of a pair of sums all pairs are looked at.
POINTS = ((4, 1024), (64, 512), (2**62, 256))


def expected_gain(values: Array, masses: Array, count: int) -> float:
    """Return E max(W_1 + … + W_n, 0), rounded up.

    The law of a half of the terms is added to that of the other half, pair of values by pair of
    values. Each sum is put on the two points of a grid beside it with its mean kept, which is
    larger in convex order, and max(·, 0) is convex. The last addition needs no grid.

    Args:
        values: (K,) of a term, ascending.
        masses: (K,) of the values, rounded up.
        count: n >= 2.
    """
    if values[-1] <= 0.0:
        return 0.0
    # what lies below cannot be made up for by all other terms, however far below
    lowest = -count * float(values[-1])
    below = int(np.searchsorted(values, lowest))
    if below:
        values = np.append(lowest, values[below:])
        masses = np.append(masses[:below].sum() * (1 + below * EPS), masses[below:])
    points = next(size for most, size in POINTS if count <= most)
    laws = {1: (values, masses)}

    def law(terms: int) -> tuple[Array, Array]:
        if terms not in laws:
            half = terms // 2
            laws[terms] = _added(law(terms - half), law(half), lowest, points)
        return laws[terms]

    half = count // 2
    return _positive(law(count - half), law(half))


def _added(
    one: tuple[Array, Array], other: tuple[Array, Array], lowest: float, points: int
) -> tuple[Array, Array]:
    """Return a law on a grid that is, in convex order, at least that of the sum of two."""
    (left, chances), (right, others) = one, other
    sums = np.add.outer(left, right)
    # raised by more than what adding, and the shares below, round
    sums += 8 * EPS * (np.add.outer(np.abs(left), np.abs(right)) + SMALL)
    np.maximum(sums, lowest, out=sums)
    sums, masses = sums.ravel(), np.multiply.outer(chances, others).ravel()
    first, last = np.arcsinh(np.array([sums.min(), sums.max()]) / SMALL)
    grid = SMALL * np.sinh(np.linspace(first, last, points))
    grid[0], grid[-1] = min(grid[0], sums.min()), max(grid[-1], sums.max())
    place = (np.arcsinh(sums / SMALL) - first) * ((points - 1) / (last - first))
    place = np.clip(place.astype(np.int64), 0, points - 2)
    # arcsinh may round over a point
    place -= (sums < grid[place]) & (place > 0)
    place += (sums >= grid[place + 1]) & (place < points - 2)
    share = np.clip((sums - grid[place]) / (grid[place + 1] - grid[place]), 0.0, 1.0)
    upper = masses * share
    spread = np.bincount(place, masses - upper, points)
    spread += np.bincount(place + 1, upper, points)
    return grid, np.asarray(spread * (1 + (sums.size + 16) * EPS), dtype=np.float64)


def _positive(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """E max(V + W, 0) of two independent laws, by sums from the top of the second down."""
    (left, chances), (right, others) = one, other

    def above(weights: Array) -> Array:
        return np.append(np.cumsum(weights[::-1])[::-1], 0.0)

    # Σ q, Σ q w and Σ q |w| over the w > −v
    at = np.searchsorted(right, -left, side="right")
    mass, gain, size = (
        above(weights)[at] for weights in (others, others * right, others * abs(right))
    )
    gains = np.maximum(left * mass + gain, 0.0)
    # where v and w are of two signs they cancel: the rounding of either is added
    rounding = (right.size + 16) * EPS * (np.abs(left) * mass + size)
    return float((chances * (gains + rounding)).sum()) * (1 + (left.size + 16) * EPS)
