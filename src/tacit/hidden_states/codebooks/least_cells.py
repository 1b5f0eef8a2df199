"""Cells of enough calibration prompts: what a codebook publishes is an average of many."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LEAST_CELL = 20

# rows, cells that are left -> place of the best of those cells for each of the rows
Closest = Callable[[Tensor, Tensor], Tensor]


def without_small(cells: Tensor, size: int, least: int, closest: Closest) -> tuple[Tensor, Tensor]:
    """Remove the smallest cell until every cell left has at least ``least`` rows.

    The rows of a removed cell go to the best of those left, so that cells only grow.

    Args:
        cells: (n,) the cell of every row.
        size: C, cells there are.
        least: rows that a cell needs, <= n.
        closest: which of some cells is best for some rows.

    Returns:
        The cells (n,), numbered from 0 without gaps, and the numbers they had, (C',).
    """
    found = cells.clone()
    counts = torch.bincount(found, minlength=size)
    left = counts > 0
    while int(left.sum()) > 1:
        smallest = int(torch.where(left, counts, len(found) + 1).argmin())
        if int(counts[smallest]) >= least:
            break
        left[smallest] = False
        rows, kept = (found == smallest).nonzero()[:, 0], left.nonzero()[:, 0]
        moved = kept[closest(rows, kept)]
        found[rows] = moved
        counts += torch.bincount(moved, minlength=size)
    kept = left.nonzero()[:, 0]
    number = torch.full((size,), -1)
    number[kept] = torch.arange(len(kept))
    return number[found], kept
