"""The stages of fitting a codebook: check, cluster, choose what stands for each cell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import choice, integer, non_negative
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
)
from tacit.hidden_states.codebooks.least_cells import without_small
from tacit.hidden_states.codebooks.training import Upper, train_codewords, try_codewords
from tacit.linalg import sqrt_psd
from tacit.models.behaviours import Behaviours, as_states, logarithms

METRICS = ("euclidean", "fisher", "behaviour", "argmax")
CODEWORDS = ("centroid", "medoid", "trained")
TRIES = 8


@dataclass(frozen=True, eq=False)
class Plan:
    """What was asked for, checked."""

    states: Tensor
    size: int
    metric: str
    behaviours: Behaviours | None
    root: Tensor | None
    upper: Upper | None
    decision_cost: float
    least_cell: int

    @classmethod
    def check(
        cls,
        states: Any,
        size: int | None,
        metric: str,
        codewords: str,
        behaviours: Any,
        fisher: Any,
        upper: Upper | None,
        decision_cost: float,
        least_cell: int,
    ) -> Plan:
        """Check that every argument fits the metric."""
        rows = as_states("states", states)
        choice("metric", metric, METRICS)
        choice("codewords", codewords, CODEWORDS)
        known = None if behaviours is None else Behaviours.of(behaviours)
        if known is None and (metric in ("behaviour", "argmax") or codewords == "trained"):
            raise ValueError(f"behaviours: expected with metric {metric!r} and {codewords!r}")
        if known is not None and len(known) != len(rows):
            raise ValueError(f"behaviours: expected {len(rows)} rows, got {len(known)}")
        if (fisher is not None) != (metric == "fisher"):
            raise ValueError("fisher: expected with metric 'fisher' and with no other")
        if (upper is not None) != (codewords == "trained"):
            raise ValueError("continuation: expected with codewords 'trained' and with no others")
        if upper is not None and not 2 <= len(upper) <= len(rows):
            raise ValueError(f"continuation: expected 2 … {len(rows)} prompts, got {len(upper)}")
        if metric == "argmax":
            assert known is not None
            if size not in (None, known.vocabulary):
                raise ValueError(f"size: expected {known.vocabulary} with argmax, got {size}")
            count = known.vocabulary
        else:
            count = integer("size", size, minimum=1, maximum=len(rows))
        cost = non_negative("decision_cost", decision_cost)
        if cost and metric != "behaviour":
            raise ValueError(f"decision_cost: expected 0 with metric {metric!r}, got {cost:g}")
        least = integer("least_cell", least_cell, minimum=1)
        if len(rows) < least:
            raise ValueError(
                f"states: expected at least {least}, the least cell, got {len(rows)} rows"
            )
        root = None if fisher is None else _fisher_root(fisher, rows.shape[1])
        return cls(rows, count, metric, known, root, upper, cost, least)


@dataclass(frozen=True)
class Effort:
    """Rounds and passes of each stage."""

    epochs: int
    rounds: int
    joint_rounds: int
    predictor_epochs: int

    @classmethod
    def check(cls, epochs: int, rounds: int, joint_rounds: int, predictor_epochs: int) -> Effort:
        """Return the four as integers >= 0."""
        return cls(
            integer("epochs", epochs, minimum=0),
            integer("rounds", rounds, minimum=0),
            integer("joint_rounds", joint_rounds, minimum=0),
            integer("predictor_epochs", predictor_epochs, minimum=0),
        )

    def steps(self, codewords: str) -> int:
        """Steps of the progress bar."""
        trained = (1 + self.joint_rounds) * self.epochs if codewords == "trained" else 0
        return 1 + FIRST_ROUNDS + FULL_ROUNDS + self.rounds + trained + self.predictor_epochs


@dataclass(frozen=True, eq=False)
class Fitted:
    """Cells of the calibration prompts and what stands for each."""

    cells: Tensor
    codewords: Tensor
    table: Tensor | None
    centres: Tensor | None


def fit_cells(
    plan: Plan, effort: Effort, codewords: str, source: np.random.Generator, advance: Advance
) -> Fitted:
    """Cluster, take the mean state and behaviour of every cell, and choose the codewords."""
    found = _clustered(plan, effort.rounds, source, advance)
    if codewords == "medoid":
        return replace(found, codewords=_medoids(plan.states, found.cells, found.codewords))
    if codewords == "trained":
        for again in range(1 + effort.joint_rounds):
            found = _trained(plan, found, again, effort.epochs, source, advance)
    return found


def _clustered(plan: Plan, rounds: int, source: np.random.Generator, advance: Advance) -> Fitted:
    if plan.metric == "argmax":
        return _by_token(plan)
    if plan.metric == "behaviour":
        return _by_behaviour(plan, rounds, source, advance)
    mapped = plan.states if plan.root is None else plan.states @ plan.root
    centres, cells = cells_of_states(mapped, plan.size, plan.least_cell, source, advance)
    known, size = plan.behaviours, len(centres)
    table = None if known is None else cell_behaviours(known, cells, size, None)
    return Fitted(cells, _means(plan, cells, size), table, centres)


def cells_of_states(
    rows: Tensor, size: int, least: int, source: np.random.Generator, advance: Advance
) -> tuple[Tensor, Tensor]:
    """Return centres (C', d) and the cells (n,) that they are the means of, C' <= C.

    Where ``least`` is above 1, every centre is the mean of at least so many rows.
    """
    centres = k_means(rows, size, source, advance)
    cells = nearest(rows, centres)[0]
    if least == 1:
        return centres, cells
    cells, kept = without_small(
        cells, size, least, lambda part, left: nearest(rows[part], centres[left])[0]
    )
    return cell_means(rows, cells, centres[kept])[0], cells


def _by_behaviour(plan: Plan, rounds: int, source: np.random.Generator, advance: Advance) -> Fitted:
    known, cost = plan.behaviours, plan.decision_cost
    assert known is not None
    cells, table = kl_cells(
        known, plan.size, source, rounds=rounds, advance=advance, decision_cost=cost
    )
    if plan.least_cell > 1:
        scored = scores_of(known, table, cost)
        cells, kept = without_small(
            cells,
            plan.size,
            plan.least_cell,
            lambda part, left: scored(part)[:, left].argmax(dim=1),
        )
        table = cell_behaviours(known, cells, len(kept), None, cost)
    return Fitted(cells, _means(plan, cells, len(table)), table, None)


def _by_token(plan: Plan) -> Fitted:
    """A cell for every token; one with too few prompts is read as one without any."""
    assert plan.behaviours is not None
    cells = plan.behaviours.argmax()
    table = cell_behaviours(plan.behaviours, cells, plan.size, None)
    small = torch.bincount(cells, minlength=plan.size) < plan.least_cell
    means = _means(plan, cells, plan.size)
    means[small] = plan.states.mean(dim=0)
    if plan.least_cell > 1:
        everyone = torch.zeros(len(cells), dtype=torch.int64)
        table[small] = cell_behaviours(plan.behaviours, everyone, 1, None)
    return Fitted(cells, means, _naming_their_token(table, small), None)


def _means(plan: Plan, cells: Tensor, size: int) -> Tensor:
    """Mean state of every cell, of all prompts for an empty one, (C, d)."""
    overall = plan.states.mean(dim=0).expand(size, -1)
    return cell_means(plan.states, cells, overall)[0]


def _trained(
    plan: Plan,
    found: Fitted,
    again: int,
    epochs: int,
    source: np.random.Generator,
    advance: Advance,
) -> Fitted:
    """Train codewords; from the second time on, cells are assigned by trial first."""
    assert plan.upper is not None
    assert plan.behaviours is not None
    assert found.table is not None
    seen = len(plan.upper)
    known = plan.behaviours.select(torch.arange(seen))
    cells = found.cells
    if again:
        cost, tries = plan.decision_cost, min(TRIES, len(found.codewords))
        candidates = likeliest_codes(known, found.table, tries, cost)
        moved = try_codewords(plan.upper, known, found.codewords, candidates, cost)
        cells = torch.cat([moved, cells[seen:]])
    learnt = train_codewords(
        plan.upper,
        known,
        cells[:seen],
        found.codewords,
        epochs=epochs,
        source=source,
        advance=advance,
        decision_cost=plan.decision_cost,
        least_cell=plan.least_cell,
    )
    return replace(found, codewords=learnt, cells=cells)


def _medoids(states: Tensor, cells: Tensor, means: Tensor) -> Tensor:
    """The state of every cell that is nearest to its mean; the mean of an empty one."""
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
    root = sqrt_psd(values)
    if root.shape != (width, width):
        raise ValueError(f"fisher: expected shape {(width, width)}, got {root.shape}")
    return torch.from_numpy(root.astype(np.float32))
