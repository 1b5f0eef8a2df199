"""The stages of fitting a codebook: check, cluster, choose what stands for each cell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import integer
from tacit.hidden_states.codebooks.clustering import (
    FIRST_ROUNDS,
    FULL_ROUNDS,
    Advance,
    cell_behaviours,
    cell_means,
    k_means,
    kl_cells,
    likeliest_codes,
    nearest,
    scores_of,
    without_small,
)
from tacit.hidden_states.codebooks.methods import CodebookFit
from tacit.hidden_states.codebooks.training import Upper, train_codewords, try_codewords
from tacit.linalg import sqrt_psd
from tacit.models.behaviours import Behaviours, as_states, logarithms

# codewords of least cost in the table that are run through the layers above, to find the cheapest
TRIES = 8


@dataclass(frozen=True, eq=False)
class CalibrationSet:
    """Public prompts, checked against what is asked of them.

    Attributes:
        states: (n, d).
        how: cells, codewords and effort.
        size: C at most; the vocabulary with ``"argmax"``.
        behaviours: what the model does next, where it is known.
        root: (d, d), a root of the Fisher information, with ``"fisher"``.
        upper: the layers above for the first of the prompts, with trained codewords.
    """

    states: Tensor
    how: CodebookFit
    size: int
    behaviours: Behaviours | None
    root: Tensor | None
    upper: Upper | None

    @classmethod
    def checked(
        cls, states: Any, how: CodebookFit, behaviours: Any, fisher: Any, upper: Upper | None
    ) -> Self:
        """Check that all that is given fits the metric."""
        rows = as_states("states", states)
        if not isinstance(how, CodebookFit):
            raise ValueError(f"how: expected a CodebookFit, got {type(how).__name__}")
        metric, codewords = how.metric, how.codewords
        known = None if behaviours is None else Behaviours.of(behaviours)
        if known is None and (metric in ("behaviour", "argmax") or codewords == "trained"):
            raise ValueError(f"behaviours: expected with metric {metric!r} and {codewords!r}")
        if known is not None and len(known) != len(rows):
            raise ValueError(f"behaviours: expected {len(rows)} rows, got {len(known)}")
        if (fisher is not None) != (metric == "fisher"):
            raise ValueError("fisher: expected a value exactly where metric is 'fisher'")
        if (upper is not None) != (codewords == "trained"):
            raise ValueError("continuation: expected with codewords 'trained' and with no others")
        if upper is not None and not 2 <= len(upper) <= len(rows):
            raise ValueError(f"continuation: expected 2 … {len(rows)} prompts, got {len(upper)}")
        if metric == "argmax":
            assert known is not None
            if how.size not in (None, known.vocabulary):
                raise ValueError(f"size: expected {known.vocabulary} with argmax, got {how.size}")
            count = known.vocabulary
        else:
            count = integer("size", how.size, minimum=1, maximum=len(rows))
        if len(rows) < how.least_cell:
            raise ValueError(
                f"states: expected at least {how.least_cell}, the least cell, got {len(rows)} rows"
            )
        root = None if fisher is None else _fisher_root(fisher, rows.shape[1])
        return cls(rows, how, count, known, root, upper)


def steps_of(how: CodebookFit) -> int:
    """Return the steps of the progress bar."""
    trained = (1 + how.joint_rounds) * how.epochs if how.codewords == "trained" else 0
    return 1 + FIRST_ROUNDS + FULL_ROUNDS + how.rounds + trained + how.predictor_epochs


@dataclass(frozen=True, eq=False)
class CellFit:
    """Cells of the calibration prompts and what stands for each."""

    cells: Tensor
    codewords: Tensor
    table: Tensor | None
    centres: Tensor | None


def fit_cells(public: CalibrationSet, source: np.random.Generator, advance: Advance) -> CellFit:
    """Cluster, take the mean state and behaviour of every cell, and choose the codewords."""
    found = _clustered(public, source, advance)
    if public.how.codewords == "medoid":
        return replace(found, codewords=_medoids(public.states, found.cells, found.codewords))
    if public.how.codewords == "trained":
        for again in range(1 + public.how.joint_rounds):
            found = _trained(public, found, again, source, advance)
    return found


def _clustered(public: CalibrationSet, source: np.random.Generator, advance: Advance) -> CellFit:
    if public.how.metric == "argmax":
        return _by_token(public)
    if public.how.metric == "behaviour":
        return _by_behaviour(public, source, advance)
    # by Fisher information, (h − c)ᵀF(h − c) = ‖F^½h − F^½c‖²
    mapped = public.states if public.root is None else public.states @ public.root
    least = public.how.least_cell
    centres, cells = cells_of_states(mapped, public.size, least, source, advance)
    known, size = public.behaviours, len(centres)
    table = None if known is None else cell_behaviours(known, cells, size, None)
    return CellFit(cells, _means(public, cells, size), table, centres)


def cells_of_states(
    rows: Tensor, size: int, least: int, source: np.random.Generator, advance: Advance
) -> tuple[Tensor, Tensor]:
    """Return centres (C', d) and the cells (n,) that they are the means of, C' <= C.

    Where ``least`` is above 1, every centre is the mean of at least so many rows.
    """
    # k-means, then without the cells that too few rows share, each centre again a mean
    centres = k_means(rows, size, source, advance)
    cells = nearest(rows, centres)[0]
    if least == 1:
        return centres, cells
    cells, kept = without_small(
        cells, size, least, lambda part, left: nearest(rows[part], centres[left])[0]
    )
    return cell_means(rows, cells, centres[kept])[0], cells


def _by_behaviour(public: CalibrationSet, source: np.random.Generator, advance: Advance) -> CellFit:
    known, how = public.behaviours, public.how
    cost = how.decision_cost
    assert known is not None
    cells, table = kl_cells(
        known, public.size, source, rounds=how.rounds, advance=advance, decision_cost=cost
    )
    if how.least_cell > 1:
        # every code is scored once; codes that are left are compared by their columns
        scored = scores_of(known, table, cost)
        cells, kept = without_small(
            cells,
            public.size,
            how.least_cell,
            lambda part, left: scored(part)[:, left].argmax(dim=1),
        )
        table = cell_behaviours(known, cells, len(kept), None, cost)
    return CellFit(cells, _means(public, cells, len(table)), table, None)


def _by_token(public: CalibrationSet) -> CellFit:
    """A cell for every token; one with too few prompts is read as one without any."""
    assert public.behaviours is not None
    cells = public.behaviours.argmax()
    table = cell_behaviours(public.behaviours, cells, public.size, None)
    # a token that is likeliest too rarely is read as the mean of all prompts
    small = torch.bincount(cells, minlength=public.size) < public.how.least_cell
    means = _means(public, cells, public.size)
    means[small] = public.states.mean(dim=0)
    if public.how.least_cell > 1:
        everyone = torch.zeros(len(cells), dtype=torch.int64)
        table[small] = cell_behaviours(public.behaviours, everyone, 1, None)
    return CellFit(cells, means, _naming_their_token(table, small), None)


def _means(public: CalibrationSet, cells: Tensor, size: int) -> Tensor:
    """Mean state of every cell, of all prompts for an empty one, (C, d)."""
    # an empty cell stands for everyone
    overall = public.states.mean(dim=0).expand(size, -1)
    return cell_means(public.states, cells, overall)[0]


def _trained(
    public: CalibrationSet,
    found: CellFit,
    again: int,
    source: np.random.Generator,
    advance: Advance,
) -> CellFit:
    """Train codewords; from the second time on, cells are assigned by trial first."""
    assert public.upper is not None
    assert public.behaviours is not None
    assert found.table is not None
    seen = len(public.upper)
    known = public.behaviours.select(torch.arange(seen))
    cells = found.cells
    if again:
        cost, tries = public.how.decision_cost, min(TRIES, len(found.codewords))
        candidates = likeliest_codes(known, found.table, tries, cost)
        # cells by what the layers above make of each codeword, for the prompts that are run
        moved = try_codewords(public.upper, known, found.codewords, candidates, cost)
        cells = torch.cat([moved, cells[seen:]])
    learnt = train_codewords(
        public.upper,
        known,
        cells[:seen],
        found.codewords,
        public.how,
        source=source,
        advance=advance,
    )
    return replace(found, codewords=learnt, cells=cells)


def _medoids(states: Tensor, cells: Tensor, means: Tensor) -> Tensor:
    """The state of every cell that is nearest to its mean; the mean of an empty one."""
    # min over a cell by sorting: the last row written is the nearest
    distance = ((states - means[cells]) ** 2).sum(dim=1)
    order = distance.argsort(descending=True)
    medoids = means.clone()
    # Later rows overwrite earlier ones, so that the nearest of a cell is written last.
    chosen = torch.full((len(means),), -1).scatter_reduce_(
        0, cells[order], torch.arange(len(order)), "amax"
    )
    full = chosen >= 0
    medoids[full] = states[order[chosen[full]]]
    return medoids


def _naming_their_token(table: Tensor, small: Tensor) -> Tensor:
    """A token that was likeliest too rarely gets half of the mass, so that its row says so."""
    rows = small.nonzero()[:, 0]
    # ½ p + ½ e_token: half of the mass at least is its own token's
    mixed = 0.5 * table[rows].exp()
    mixed[torch.arange(len(rows)), rows] += 0.5
    table[rows] = logarithms(mixed)
    return table


def _fisher_root(fisher: Any, width: int) -> Tensor:
    values = np.asarray(fisher.cpu() if isinstance(fisher, Tensor) else fisher)
    if values.ndim == 1:
        if values.shape != (width,) or values.dtype.kind not in "fiu" or not (values >= 0).all():
            raise ValueError(f"fisher: expected {width} numbers >= 0, got shape {values.shape}")
        values = np.diag(values)
    # F^½ symmetric, so that (h − c)ᵀF(h − c) is a squared distance of mapped states
    root = sqrt_psd(values)
    if root.shape != (width, width):
        raise ValueError(f"fisher: expected shape {(width, width)}, got {root.shape}")
    return torch.from_numpy(root.astype(np.float32))
