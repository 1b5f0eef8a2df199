"""How the states of distinct prompts differ: second moments of differences, and lists of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, choice, generator, integer, matrix

PAIRS_PER_BLOCK = 4096


def spread_of_differences(states: Any) -> Array:
    """Second moment of the difference of two distinct prompts: ``E[δδᵀ] = 2 Cov(h)``.

    The mean runs over all n(n − 1) ordered pairs, at the cost of one covariance.

    Args:
        states: (n, d), n >= 2.

    Returns:
        (d, d), in squared units of the state.

    Raises:
        ValueError: fewer than two states.

    Example:
        >>> spread_of_differences([[0.0, 0.0], [2.0, 0.0]])
        array([[4., 0.],
               [0., 0.]])

    Source: hidden-state, App. S.2.
    """
    rows = _states(states)
    centred = rows - rows.mean(axis=0)
    spread: Array = 2.0 * (centred.T @ centred) / (len(rows) - 1)
    return spread


def spread_of_directions(
    states: Any, pairs: int = 20_000, *, rng: RandomSource = None
) -> tuple[Array, int]:
    """Second moment of unit differences, ``S_δ = E[δ̂ δ̂ᵀ]`` with ``δ̂ = δ/‖δ‖``.

    Args:
        states: (n, d), n >= 2.
        pairs: random pairs of distinct rows in the mean.
        rng: source of the pairs.

    Returns:
        (d, d) of trace 1, and how many pairs had equal states, which have no direction and are
        left out.

    Raises:
        ValueError: fewer than two states, or no two of the drawn pairs' states differ.

    Example:
        >>> spread_of_directions([[0.0, 0.0], [2.0, 0.0]], pairs=3, rng=0)
        (array([[1., 0.],
               [0., 0.]]), 0)

    Source: hidden-state, Sec. 3 and Prop. 7.
    """
    rows = _states(states)
    count = integer("pairs", pairs, minimum=1)
    source = generator(rng)
    total, used = np.zeros((rows.shape[1], rows.shape[1])), 0
    for start in range(0, count, PAIRS_PER_BLOCK):
        differences = _random_differences(rows, min(PAIRS_PER_BLOCK, count - start), source)
        lengths = np.linalg.norm(differences, axis=1)
        moved = lengths > 0
        unit = differences[moved] / lengths[moved, None]
        total += unit.T @ unit
        used += int(moved.sum())
    if used == 0:
        raise ValueError("states: expected some that differ, got equal ones in every pair drawn")
    return total / used, count - used


def adjacency_differences(
    states: ArrayLike, pairs: int, *, kind: str = "random", rng: RandomSource = None
) -> Array:
    """List differences of neighbouring states, for an adjacency set.

    Args:
        states: (n, d), n >= 2.
        pairs: differences wanted; with ``"nearest"`` at most n.
        kind: ``"random"`` pairs of distinct rows, or rows drawn at random each with its
            ``"nearest"`` other row.
        rng: source of the choice.

    Returns:
        (pairs, d).

    Raises:
        ValueError: a bad argument.

    Example:
        >>> states = [[0.0], [1.0], [5.0]]
        >>> sorted(adjacency_differences(states, 3, kind="nearest", rng=0).ravel().tolist())
        [-1.0, 1.0, 4.0]

    Source: hidden-state, App. S.5.
    """
    rows = _states(states)
    source = generator(rng)
    if choice("kind", kind, ("random", "nearest")) == "random":
        return _random_differences(rows, integer("pairs", pairs, minimum=1), source)
    count = integer("pairs", pairs, minimum=1, maximum=len(rows))
    chosen = source.choice(len(rows), count, replace=False)
    squares = (rows**2).sum(axis=1)
    block = max(1, PAIRS_PER_BLOCK * PAIRS_PER_BLOCK // len(rows))
    partners = []
    for start in range(0, count, block):
        index = chosen[start : start + block]
        distances = squares - 2.0 * rows[index] @ rows.T
        distances[np.arange(index.size), index] = np.inf
        partners.append(distances.argmin(axis=1))
    differences: Array = rows[chosen] - rows[np.concatenate(partners)]
    return differences


def _random_differences(rows: Array, count: int, source: np.random.Generator) -> Array:
    first = source.integers(len(rows), size=count)
    # a step of 1 … n − 1 reaches every other row equally often
    second = (first + source.integers(1, len(rows), size=count)) % len(rows)
    differences: Array = rows[first] - rows[second]
    return differences


def _states(states: Any) -> Array:
    rows = matrix("states", states)
    if len(rows) < 2:
        raise ValueError(f"states: expected at least 2 rows, got {len(rows)}")
    return rows
