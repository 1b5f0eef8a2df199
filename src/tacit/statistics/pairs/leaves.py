"""First groups: median splits into leaves of a few hundred rows, nearest free rows in each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.pairs.pairing import Indices

LEAF_ROWS = 512
ROWS_TOGETHER = 2**15


def first_groups(
    features: Array, rows: Indices, group_size: int, report: Callable[[str, int, int], object]
) -> Indices:
    """Return (P, k) groups of the rows, whose number is a multiple of k.

    Args:
        features: (N, f) coordinates in which distances count.
        rows: those to group.
        group_size: k.
        report: told how many of the rows are grouped.
    """
    found: list[Indices] = []
    done = 0
    for leaf in _leaves(features, rows, group_size):
        found.append(leaf[_grouped(features[leaf], group_size)])
        done += leaf.size
        report("pairing", done, rows.size)
    return np.concatenate(found)


def _leaves(features: Array, rows: Indices, group_size: int) -> list[Indices]:
    """Split at the median of the widest coordinate until few enough are left together."""
    leaves, waiting = [], [rows]
    while waiting:
        piece = waiting.pop()
        if piece.size <= LEAF_ROWS + group_size:
            leaves.append(piece)
            continue
        middle = piece.size // (2 * group_size) * group_size
        order = np.argpartition(features[piece, _widest(features, piece)], middle)
        waiting += [piece[order[middle:]], piece[order[:middle]]]
    return leaves


def _widest(features: Array, rows: Indices) -> int:
    """Return the coordinate in which some rows vary most."""
    middle = features[rows[:ROWS_TOGETHER]].mean(axis=0)
    summed, squared = np.zeros_like(middle), np.zeros_like(middle)
    for start in range(0, rows.size, ROWS_TOGETHER):
        gaps = features[rows[start : start + ROWS_TOGETHER]] - middle
        summed += gaps.sum(axis=0)
        squared += np.einsum("ij,ij->j", gaps, gaps)
    return int(np.argmax(squared - summed**2 / rows.size))


def _grouped(features: Array, group_size: int) -> Indices:
    """Give the row that is farthest from all others its nearest free ones, and so on."""
    count = len(features)
    squared = squared_distances(features, features)
    np.fill_diagonal(squared, np.inf)
    hardest_first = np.argsort(-squared.min(axis=1), kind="stable").tolist()
    free = np.ones(count, dtype=bool)
    groups = np.empty((count // group_size, group_size), dtype=np.intp)
    wanted, number = group_size - 1, 0
    for row in hardest_first:
        if not free[row]:
            continue
        free[row] = False
        distances = np.where(free, squared[row], np.inf)
        nearest = (
            [int(distances.argmin())]
            if wanted == 1
            else np.argpartition(distances, wanted - 1)[:wanted]
        )
        free[nearest] = False
        groups[number, 0], groups[number, 1:] = row, nearest
        number += 1
    return groups


def squared_distances(first: Array, second: Array) -> Array:
    """Return ‖a − b‖² for all pairs of rows, (m, n), never negative."""
    left = np.einsum("ij,ij->i", first, first)
    right = np.einsum("ij,ij->i", second, second)
    squared: Array = left[:, None] + right[None, :] - 2.0 * (first @ second.T)
    return np.maximum(squared, 0.0, out=squared)
