"""How residual codes are fitted: k-means of each stage on what the stages before it leave."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from tacit.hidden_states.codebooks.beam import Beams, Stages, extended, sums
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.clustering import Advance, nearest_cells
from tacit.hidden_states.codebooks.methods import ResidualFit
from tacit.hidden_states.codebooks.subspace import Floats, Subspace, principal_subspace, unit_of

# of rows in a unit near their largest entry: a few units in the last place of float32
ROUNDING = 2.0**-20
# rounds of k-means on at most so many rows a codeword; all rows make the last means
ROUNDS, ROWS_PER_CODEWORD = 16, 128
# of the way to a row, by which codewords are apart that share a cell
APART = 2.0**-6


def fit_stages(
    rows: Floats, how: ResidualFit, source: np.random.Generator, advance: Advance
) -> tuple[Subspace, tuple[Floats, ...]]:
    """Return the directions that are coded, and the codewords of every stage.

    A stage is fitted to what all sums that a search keeps leave of every row, as it will be given
    these. A codeword is a mean over at least ``least_cell`` different rows.
    """
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    unit = unit_of(rows, mean)
    space = principal_subspace(rows, mean, unit, how.stages * math.log2(max(how.size, 2)))
    points = space.coordinates(rows, unit)
    tables: tuple[Floats, ...] = ()
    beams = Beams.empty(len(points))
    for _ in range(how.stages):
        tables, beams = _with_stage(points, tables, beams, how, source)
        advance(1)
    return space, tuple(table * np.float32(unit) for table in tables)


def _with_stage(
    points: Floats,
    tables: tuple[Floats, ...],
    beams: Beams,
    how: ResidualFit,
    source: np.random.Generator,
) -> tuple[tuple[Floats, ...], Beams]:
    """Return one stage more and the sums with it, which are no farther from the rows than before.

    Codewords that serve all sums may not serve the best one, where the others are far off: then
    those of the best alone are taken, and where these do not help either, a codeword of zeros.
    """
    before = float(beams.scores[:, 0].mean(dtype=np.float64))
    for kept in dict.fromkeys((beams.scores.shape[1], 1)):
        # what each of the sums so far leaves of its row: x − s
        left = np.repeat(points, kept, axis=0)
        if tables:
            left -= sums(tables, beams.codes[:, :kept].reshape(len(left), len(tables)))
        if float(np.abs(left).max()) <= ROUNDING:
            # what rounding left says nothing of a row
            break
        owners = np.repeat(np.arange(len(points)), kept)
        more = *tables, fit_codewords(left, owners, how.size, how.least_cell, source)
        found = extended(points, Stages(more), len(tables), beams, how.beam)
        # ‖x − s‖² = ‖x‖² − 2 score: the mean score may not fall
        if float(found.scores[:, 0].mean(dtype=np.float64)) >= before:
            return more, found
    more = *tables, np.zeros((1, points.shape[1]), dtype=np.float32)
    return more, extended(points, Stages(more), len(tables), beams, how.beam)


def fit_codewords(
    rows: Floats, owners: Codes, size: int, least: int, source: np.random.Generator
) -> Floats:
    """Return the means of at most ``size`` cells of rows that are near each other.

    Args:
        rows: (n, r).
        owners: (n,), which vector each is of; a cell needs ``least`` different ones.
        size: C.
        least: vectors of a cell at least.
        source: of the start.
    """
    part, most = rows, ROWS_PER_CODEWORD * size
    if len(rows) > most:
        part = rows[np.sort(source.choice(len(rows), most, replace=False))]
    # from rows as they come: seeds far from all others would be cells of few rows, which are lost
    centres = part[source.choice(len(part), size, replace=False)].copy()
    enough = max(1, least * len(part) // len(rows))
    for left in range(ROUNDS - 1, -1, -1):
        cells = _nearest(part, centres)
        centres, counts = _means(part, cells, centres)
        if left:
            # the last round leaves every codeword a mean
            _split(part, cells, centres, counts, enough, source)
    cells, kept = without_few(rows, owners, _nearest(rows, centres), centres, least)
    return _means(rows, cells, centres[kept])[0]


def without_few(
    rows: Floats, owners: Codes, cells: Codes, centres: Floats, least: int
) -> tuple[Codes, Codes]:
    """Remove the cell of fewest vectors until all that are left have at least ``least``.

    The rows of a removed cell go to the nearest codeword that is left, so that cells only grow.

    Returns:
        The cells (n,), numbered from 0 without gaps, and the numbers they had.
    """
    found = cells.copy()
    held = [set(owners[cells == cell].tolist()) for cell in range(len(centres))]
    left = {cell: len(own) for cell, own in enumerate(held) if own}
    while len(left) > 1:
        fewest = min(left, key=left.__getitem__)
        if left[fewest] >= least:
            break
        del left[fewest]
        moved = np.flatnonzero(found == fewest)
        others = np.fromiter(left, dtype=np.int64)
        found[moved] = others[_nearest(rows[moved], centres[others])]
        for cell in np.unique(found[moved]).tolist():
            held[cell].update(owners[moved[found[moved] == cell]].tolist())
            left[cell] = len(held[cell])
    kept = np.fromiter(sorted(left), dtype=np.int64)
    number = np.full(len(centres), -1)
    number[kept] = np.arange(len(kept))
    return number[found], kept


def _nearest(rows: Floats, centres: Floats) -> Codes:
    return nearest_cells(torch.from_numpy(rows), torch.from_numpy(centres))


def _means(rows: Floats, cells: Codes, otherwise: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the mean of every cell, ``otherwise`` where there are no rows, and their counts."""
    shape = (len(otherwise), len(rows))
    counts = np.bincount(cells, minlength=len(otherwise))
    # sums over cells as a product with the table of who is where
    inside = sparse.csr_matrix(
        (np.ones(len(rows), dtype=np.float32), (cells, np.arange(len(rows)))), shape
    )
    means = np.asarray(inside @ rows, dtype=np.float32) / np.maximum(counts, 1)[:, None]
    return np.where(counts[:, None] > 0, means, otherwise).astype(np.float32), counts


def _split(
    rows: Floats,
    cells: Codes,
    centres: Floats,
    counts: npt.NDArray[np.int64],
    enough: int,
    source: np.random.Generator,
) -> None:
    """Put the codewords of too few rows beside those of the most, whose rows they will share."""
    few = np.flatnonzero(counts < enough)
    most = np.argsort(-counts, kind="stable")[: len(few)]
    # a cell is shared only where both halves may have enough
    most = most[counts[most] >= 2 * enough]
    order = source.permutation(len(rows))
    # the first row of every cell in a random order
    present, first = np.unique(cells[order], return_index=True)
    chosen = order[first[np.searchsorted(present, most)]]
    # a little to either side of the mean, towards a row: two halves, not a row and all others
    step = np.float32(APART) * (rows[chosen] - centres[most])
    centres[few[: len(most)]] = centres[most] + step
    centres[most] -= step
