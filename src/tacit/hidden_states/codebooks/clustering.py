"""Cells of states near each other, or of prompts after which the model does nearly the same.

A row between two cells may be given either where their scores round to the same number, or where
another machine rounds them otherwise. That changes no certificate, which counts codes whatever
makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tacit._ground.threads import one_thread
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.models.behaviours import Behaviours, logarithms
from tacit.runs.precision import half_precision_is_native

# rows, scores and probabilities that are held at once
ROWS_TOGETHER, ENTRIES_TOGETHER, PREDICTIONS_TOGETHER = 8192, 2**25, 2**26
# scores of a thread that stay in its cache, 1 MB, and rows whose predictions it reads at once
ENTRIES_A_THREAD, ROWS_A_THREAD = 2**18, 512
# k-means++ draws its seeds in so many rounds, not one by one
SEEDING_ROUNDS = 64
# centres settle on so many rows a cell before all rows are looked at
ROWS_PER_CELL_FIRST = 16
# directions of a random projection that keeps squared distances of √p to about 1/√256
SKETCH_WIDTH = 256
FIRST_ROUNDS, FULL_ROUNDS = 8, 6
# a round that lowers the cost, or moves rows, by less is the last one
SETTLED = 1e-3
# Relative lead of a token that was raised to the likeliest: above float32 rounding of logarithms.
HAIR = 1e-3

Advance = Callable[[int], None]
# rows, cells that are left -> place of the best of those cells for each of the rows
Closest = Callable[[Tensor, Tensor], Tensor]


def nearest(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest centre of every row and the squared distance, ``(n,)`` both."""
    # ‖h − c‖² = ‖h‖² − 2 (⟨h, c⟩ − ½ ‖c‖²): the largest score is the nearest centre
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
    # Lloyd's rounds are linear in the rows, and the first few only place the centres
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
    if not np.isfinite(distance).all():
        raise ValueError(
            "states: expected squared distances that are finite in float32, got larger ones; "
            "divide the states by a constant"
        )
    distance[chosen] = 0.0
    batch = max(1, -(-size // SEEDING_ROUNDS))
    while len(chosen) < size:
        wanted = min(batch, size - len(chosen))
        free = np.ones(len(rows), dtype=bool)
        free[chosen] = False
        # in proportion to the squared distance from the seeds so far
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
        # the mean squared distance, which no round raises
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
    # an empty cell is worth most where a row is farthest from every centre
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
    # one cell at a time, smallest first: its rows may make another one large enough
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


def kl_cells(
    behaviours: Behaviours,
    size: int,
    source: np.random.Generator,
    *,
    rounds: int,
    advance: Advance,
    decision_cost: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Cluster by ``KL(p_i ‖ q_c) + λ·1[argmax p_i ≠ argmax q_c]``, λ the decision cost.

    Cells start as k-means of √p in a random projection, where ``‖√p − √q‖²`` is at most KL, beside
    a projected ``√(λ/2) e_argmax``, where another token is λ away; then each round assigns by the
    cost itself, which the table of a round never raises.

    Returns:
        Cells (n,), and ln q, (C, V).
    """
    # ‖√p − √q‖² ≤ KL(p ‖ q): k-means of projected roots is a start for clustering by KL
    sketch = _sketch(behaviours, source, decision_cost)
    cells = nearest(sketch, k_means(sketch, size, source, advance))[0]
    table = cell_behaviours(behaviours, cells, size, None, decision_cost)
    quick = half_precision_is_native()
    for left in range(rounds, 0, -1):
        moved = _closer(behaviours, table, cells, decision_cost, exactly=not quick)
        changed = float((moved != cells).float().mean())
        cells = moved
        table = cell_behaviours(behaviours, cells, size, table, decision_cost)
        advance(1)
        if changed <= SETTLED:
            advance(left - 1)
            break
    return cells, table


def _sketch(behaviours: Behaviours, source: np.random.Generator, decision_cost: float) -> Tensor:
    width = min(SKETCH_WIDTH, behaviours.vocabulary)
    shape = (behaviours.vocabulary, width)
    projection = _projection(shape, source)
    decided = (0.5 * decision_cost) ** 0.5 * _projection(shape, source) if decision_cost else None
    tokens, parts = behaviours.argmax(), []
    for part in _parts(behaviours):
        rows = behaviours.probabilities(part).sqrt() @ projection
        parts.append(rows if decided is None else torch.cat([rows, decided[tokens[part]]], dim=1))
    return torch.cat(parts)


def _projection(shape: tuple[int, int], source: np.random.Generator) -> Tensor:
    return torch.from_numpy(source.standard_normal(shape, dtype=np.float32) / shape[1] ** 0.5)


def assign_behaviours(
    behaviours: Behaviours, table: Tensor, decision_cost: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the code of least cost for every row, and that cost in nats.

    It is ``KL(p_i ‖ q_c) + λ·1[argmax p_i ≠ argmax q_c]``, λ the decision cost.
    """
    cells, costs = [], []
    decisions, tokens = table.argmax(dim=1), behaviours.argmax()
    for part in _parts(behaviours):
        rows = behaviours.probabilities(part)
        best = _scores(rows, tokens[part], table, decisions, decision_cost).max(dim=1)
        cells.append(best.indices)
        costs.append(torch.special.xlogy(rows, rows).sum(dim=1) + decision_cost - best.values)
    return torch.cat(cells), torch.cat(costs).clamp_min(0.0)


def scores_of(
    behaviours: Behaviours, table: Tensor, decision_cost: float
) -> Callable[[Tensor], Tensor]:
    """Return what scores every code for some rows, the code of least cost highest."""
    decisions, tokens = table.argmax(dim=1), behaviours.argmax()

    def scored(rows: Tensor) -> Tensor:
        chances = behaviours.probabilities(rows)
        return _scores(chances, tokens[rows], table, decisions, decision_cost)

    return scored


def _scores(
    rows: Tensor, tokens: Tensor, table: Tensor, decisions: Tensor, decision_cost: float
) -> Tensor:
    """Return ``Σ p ln q + λ·1[argmax p = argmax q]`` of every row and code, (n, C)."""
    scores = rows @ table.T
    if decision_cost:
        scores += decision_cost * (tokens[:, None] == decisions[None])
    return scores


def _closer(
    behaviours: Behaviours, table: Tensor, cells: Tensor, decision_cost: float, *, exactly: bool
) -> Tensor:
    """Assign by cost; with products in half precision a row moves only where float32 agrees."""
    if exactly:
        return assign_behaviours(behaviours, table, decision_cost)[0]
    decisions, tokens = table.argmax(dim=1), behaviours.argmax()
    short, moved = table.bfloat16(), cells.clone()
    for part in _parts(behaviours):
        rows, own, token = behaviours.probabilities(part), cells[part], tokens[part]
        scores = _scores(rows.bfloat16(), token, short, decisions, decision_cost)
        found = scores.max(dim=1).indices
        # Σ p (ln q_new − ln q_old) in float32: what the move saves in KL
        gain = (rows * (table[found] - table[own])).sum(dim=1)
        if decision_cost:
            agrees = (decisions[found] == token).float() - (decisions[own] == token).float()
            gain += decision_cost * agrees
        moved[part] = torch.where(gain > 0, found, own)
    return moved


def likeliest_codes(
    behaviours: Behaviours, table: Tensor, count: int, decision_cost: float = 0.0
) -> Tensor:
    """Return the ``count`` codes of least cost for every row, (n, count)."""
    decisions, tokens = table.argmax(dim=1), behaviours.argmax()
    parts = []
    for part in _parts(behaviours):
        rows = behaviours.probabilities(part)
        scores = _scores(rows, tokens[part], table, decisions, decision_cost)
        parts.append(scores.topk(count, dim=1).indices)
    return torch.cat(parts)


def cell_behaviours(
    behaviours: Behaviours,
    cells: Tensor,
    size: int,
    otherwise: Tensor | None,
    decision_cost: float = 0.0,
) -> Tensor:
    """Return ln q of least mean cost for each cell, (C, V).

    That is the mean distribution, or where its likeliest token is not the cell's commonest and λ
    makes that dearer, the distribution nearest to the mean among those that decide so.
    """
    # argmin_q Σ_i KL(p_i ‖ q) is the mean of the p_i (Banerjee et al., 2005)
    sums = torch.zeros(size, behaviours.vocabulary)
    for part in _parts(behaviours):
        sums.index_add_(0, cells[part], behaviours.probabilities(part))
    counts = torch.bincount(cells, minlength=size)
    overall = sums.sum(dim=0) / len(behaviours)
    means = sums / counts.clamp_min(1)[:, None]
    if decision_cost:
        means = _deciding(means, cells, behaviours.argmax(), counts, decision_cost)
    table = logarithms(means)
    empty = counts == 0
    table[empty] = logarithms(overall) if otherwise is None else otherwise[empty]
    return table


def _deciding(
    means: Tensor, cells: Tensor, tokens: Tensor, counts: Tensor, decision_cost: float
) -> Tensor:
    """Tilt the means of cells where the likeliest token changes more decisions than it is worth."""
    size, vocabulary = means.shape
    pairs, votes = torch.unique(cells * vocabulary + tokens, return_counts=True)
    order = votes.argsort(stable=True)
    commonest, most = torch.full((size,), -1), torch.zeros(size)
    # Later pairs overwrite earlier ones, so that the commonest token of a cell is written last.
    commonest[pairs[order] // vocabulary] = pairs[order] % vocabulary
    most[pairs[order] // vocabulary] = votes[order].float()
    likeliest = means.argmax(dim=1)
    rows = ((counts > 0) & (commonest != likeliest)).nonzero()[:, 0]
    if not len(rows):
        return means
    # votes for the mean's own token, and what raising the commonest costs in KL and saves in λ
    kept = torch.bincount(cells, (tokens == likeliest[cells]).float(), minlength=size)
    tilted = _raised(means[rows], commonest[rows])
    distance = torch.special.xlogy(means[rows], means[rows] / tilted).sum(dim=1)
    saved = decision_cost * (most - kept)[rows] / counts[rows]
    worth = distance < saved
    means[rows[worth]] = tilted[worth]
    return means


def _raised(rows: Tensor, tokens: Tensor) -> Tensor:
    """Return q of least ``KL(p ‖ q)`` in which a given token is the likeliest, by a hair.

    Tokens likelier than it are pooled with it: all of them get their mean probability.
    """
    # pool-adjacent-violators: the token and all above it share their mean, in order of size
    own = rows.gather(1, tokens[:, None])
    others = rows.scatter(1, tokens[:, None], -1.0)
    top, places = others.sort(dim=1, descending=True)
    pooled = (own + top.cumsum(dim=1)) / torch.arange(2, rows.shape[1] + 2)
    # Take one more while it lies above the mean of those taken before it.
    before = torch.cat([own, pooled[:, :-1]], dim=1)
    taken = (top > before).cumprod(dim=1).bool()
    last = taken.sum(dim=1, keepdim=True) - 1
    level = torch.where(last >= 0, pooled.gather(1, last.clamp_min(0)), own)
    raised = rows.clone()
    raised.scatter_(1, places, torch.where(taken, level, top.clamp_min(0.0)))
    raised.scatter_(1, tokens[:, None], level * (1.0 + HAIR))
    return raised / raised.sum(dim=1, keepdim=True)


def _parts(behaviours: Behaviours) -> list[slice]:
    size = max(1, min(ROWS_TOGETHER, PREDICTIONS_TOGETHER // behaviours.vocabulary))
    return [slice(low, low + size) for low in range(0, len(behaviours), size)]


def nearest_cells(rows: Tensor, centres: Tensor) -> Codes:
    """Return the nearest centre of every row, (n,): the largest ``⟨h, c⟩ − ½ ‖c‖²``.

    A block of rows is one thread's own, so that no product waits for another.
    """
    # argmin ‖h − c‖² = argmax ⟨h, c⟩ − ½ ‖c‖², one product and no square of h
    offset = (0.5 * (centres**2).sum(dim=1)).numpy()
    vectors, turned = rows.numpy(), np.ascontiguousarray(centres.numpy().T)
    codes = np.empty(len(rows), dtype=np.int64)
    step = max(1, ENTRIES_A_THREAD // len(centres))

    def code(start: int) -> None:
        scores = vectors[start : start + step] @ turned
        scores -= offset
        codes[start : start + step] = scores.argmax(axis=1)

    with one_thread(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for _ in pool.map(code, range(0, len(rows), step)):
            pass
    return codes


def cheapest_cells(behaviours: Behaviours, table: Tensor, decision_cost: float = 0.0) -> Codes:
    """Return the row q of the table of least ``KL(p ‖ q) + λ·1[argmax p ≠ argmax q]``, (n,).

    That is the one of largest ``Σ p ln q + λ·1[argmax p = argmax q]``, λ the decision cost.
    """
    turned = table.T
    tokens, decisions = None, None
    if decision_cost:
        tokens, decisions = behaviours.argmax(), table.argmax(dim=1)

    def scores(part: slice) -> Tensor:
        found = behaviours.probabilities(part) @ turned
        if tokens is not None and decisions is not None:
            found += decision_cost * (tokens[part, None] == decisions[None])
        return found

    codes = np.empty(len(behaviours), dtype=np.int64)
    step = max(1, ROWS_A_THREAD * torch.get_num_threads())
    for start in range(0, len(behaviours), step):
        part = slice(start, start + step)
        codes[part] = scores(part).numpy().argmax(axis=1)
    return codes
