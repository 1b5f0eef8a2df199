"""Cells of states near each other, or of prompts after which the model does nearly the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from tacit.hidden_states.codebook_behaviours import Behaviours, logarithms

ROWS_TOGETHER = 8192
ENTRIES_TOGETHER = 2**25
SEEDING_ROUNDS = 64
ROWS_PER_CELL_FIRST = 16
SKETCH_WIDTH = 256
FIRST_ROUNDS, FULL_ROUNDS = 8, 6
SETTLED = 1e-3

Advance = Callable[[int], None]


def nearest(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest centre of every row and the squared distance, ``(n,)`` both."""
    offset = 0.5 * (centres**2).sum(dim=1)
    size = max(1, min(ROWS_TOGETHER, ENTRIES_TOGETHER // len(centres)))
    found, distance = [], []
    for part in torch.split(rows, size):
        score = torch.addmm(offset, part, centres.T, beta=-1.0)
        best = score.max(dim=1)
        found.append(best.indices)
        distance.append(((part**2).sum(dim=1) - 2.0 * best.values).clamp_min(0.0))
    return torch.cat(found), torch.cat(distance)


def k_means(rows: Tensor, size: int, source: np.random.Generator, advance: Advance) -> Tensor:
    """Lloyd's algorithm from k-means++ seeds: on a part of the rows first, then on all of them."""
    part = rows
    if len(rows) > ROWS_PER_CELL_FIRST * size:
        chosen = source.choice(len(rows), ROWS_PER_CELL_FIRST * size, replace=False)
        part = rows[torch.from_numpy(chosen)]
    centres = seeds(part, size, source)
    advance(1)
    if part is not rows:
        centres = _lloyd(part, centres, FIRST_ROUNDS, advance)
    return _lloyd(rows, centres, FULL_ROUNDS, advance)


def seeds(rows: Tensor, size: int, source: np.random.Generator) -> Tensor:
    """k-means++ with several seeds a round: drawn in proportion to the distance so far."""
    chosen = [int(source.integers(len(rows)))]
    distance = ((rows - rows[chosen[0]]) ** 2).sum(dim=1).double().numpy()
    distance[chosen] = 0.0
    batch = max(1, -(-size // SEEDING_ROUNDS))
    while len(chosen) < size:
        wanted = min(batch, size - len(chosen))
        free = np.ones(len(rows), dtype=bool)
        free[chosen] = False
        weights = np.where(free, distance, 0.0)
        if np.count_nonzero(weights) < wanted:
            weights = free.astype(np.float64)
        new = source.choice(len(rows), wanted, replace=False, p=weights / weights.sum())
        chosen += [int(row) for row in new]
        closer = nearest(rows, rows[torch.from_numpy(new)])[1].double().numpy()
        distance = np.minimum(distance, closer)
    return rows[torch.tensor(chosen)].clone()


def _lloyd(rows: Tensor, centres: Tensor, rounds: int, advance: Advance) -> Tensor:
    before = float("inf")
    for left in range(rounds, 0, -1):
        cells, distance = nearest(rows, centres)
        cost = float(distance.double().mean())
        if before - cost <= SETTLED * cost:
            advance(left)
            return centres
        before = cost
        centres = _means(rows, cells, distance, centres)
        advance(1)
    return centres


def _means(rows: Tensor, cells: Tensor, distance: Tensor, centres: Tensor) -> Tensor:
    """Mean of every cell; an empty one takes the row that is farthest from its own centre."""
    means, counts = cell_means(rows, cells, centres)
    empty = (counts == 0).nonzero()[:, 0]
    if len(empty):
        means[empty] = rows[distance.topk(min(len(empty), len(rows))).indices[: len(empty)]]
    return means


def cell_means(rows: Tensor, cells: Tensor, otherwise: Tensor) -> tuple[Tensor, Tensor]:
    """Return (C, d) means of the rows of each cell, ``otherwise`` where there are none, counts."""
    counts = torch.bincount(cells, minlength=len(otherwise))
    sums = torch.zeros_like(otherwise).index_add_(0, cells, rows)
    full = counts > 0
    means = otherwise.clone()
    means[full] = sums[full] / counts[full, None]
    return means, counts


def kl_cells(
    behaviours: Behaviours,
    size: int,
    source: np.random.Generator,
    *,
    rounds: int,
    advance: Advance,
) -> tuple[Tensor, Tensor]:
    """Cluster by ``KL(p_i ‖ q_c)``, q_c the mean distribution of a cell.

    Cells start as k-means of √p in a random projection, where ``‖√p − √q‖²`` is at most KL; then
    each round assigns by KL, which means never raise.

    Returns:
        Cells (n,), and ln q, (C, V).
    """
    sketch = _sketch(behaviours, source)
    cells = nearest(sketch, k_means(sketch, size, source, advance))[0]
    table = mean_behaviours(behaviours, cells, size, None)
    quick = half_precision_is_faster()
    for left in range(rounds, 0, -1):
        moved = _closer(behaviours, table, cells, exactly=not quick)
        changed = float((moved != cells).float().mean())
        cells = moved
        table = mean_behaviours(behaviours, cells, size, table)
        advance(1)
        if changed <= SETTLED:
            advance(left - 1)
            break
    return cells, table


def _sketch(behaviours: Behaviours, source: np.random.Generator) -> Tensor:
    width = min(SKETCH_WIDTH, behaviours.vocabulary)
    shape = (behaviours.vocabulary, width)
    projection = torch.from_numpy(source.standard_normal(shape, dtype=np.float32) / width**0.5)
    return torch.cat(
        [behaviours.probabilities(part).sqrt() @ projection for part in _parts(len(behaviours))]
    )


def assign_behaviours(behaviours: Behaviours, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return the code of least ``KL(p_i ‖ q_c)`` for every row, and that divergence in nats."""
    cells, divergence = [], []
    for part in _parts(len(behaviours)):
        rows = behaviours.probabilities(part)
        best = (rows @ table.T).max(dim=1)
        cells.append(best.indices)
        divergence.append(torch.special.xlogy(rows, rows).sum(dim=1) - best.values)
    return torch.cat(cells), torch.cat(divergence).clamp_min(0.0)


def _closer(behaviours: Behaviours, table: Tensor, cells: Tensor, *, exactly: bool) -> Tensor:
    """Assign by KL; with products in half precision a row moves only where float32 agrees."""
    if exactly:
        return assign_behaviours(behaviours, table)[0]
    short, moved = table.T.bfloat16(), cells.clone()
    for part in _parts(len(behaviours)):
        rows = behaviours.probabilities(part)
        found = (rows.bfloat16() @ short).max(dim=1).indices
        gain = (rows * (table[found] - table[cells[part]])).sum(dim=1)
        moved[part] = torch.where(gain > 0, found, cells[part])
    return moved


@cache
def half_precision_is_faster() -> bool:
    """Time a product in bfloat16 beside the same one in float32."""
    rows = torch.ones(1024, 1024)
    short = rows.bfloat16()

    def seconds(factor: Tensor) -> float:
        start = time.perf_counter()
        torch.mm(factor, factor)
        return time.perf_counter() - start

    return min(seconds(short) for _ in range(4)) < min(seconds(rows) for _ in range(4))


def likeliest_codes(behaviours: Behaviours, table: Tensor, count: int) -> Tensor:
    """Return the ``count`` codes of least KL for every row, (n, count)."""
    return torch.cat(
        [
            (behaviours.probabilities(part) @ table.T).topk(count, dim=1).indices
            for part in _parts(len(behaviours))
        ]
    )


def mean_behaviours(
    behaviours: Behaviours, cells: Tensor, size: int, otherwise: Tensor | None
) -> Tensor:
    """Return the logarithm of the mean distribution of each cell, (C, V)."""
    sums = torch.zeros(size, behaviours.vocabulary)
    for part in _parts(len(behaviours)):
        sums.index_add_(0, cells[part], behaviours.probabilities(part))
    counts = torch.bincount(cells, minlength=size)
    overall = sums.sum(dim=0) / len(behaviours)
    table = logarithms(sums / counts.clamp_min(1)[:, None])
    empty = counts == 0
    table[empty] = logarithms(overall) if otherwise is None else otherwise[empty]
    return table


def _parts(count: int) -> list[slice]:
    return [slice(low, low + ROWS_TOGETHER) for low in range(0, count, ROWS_TOGETHER)]
