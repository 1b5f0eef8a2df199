"""Codewords learnt through the frozen upper layers, and codes read off a state alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tacit.models.behaviours import Behaviours

LARGEST_BATCH, SMALLEST_BATCH, BATCHES_PER_PASS = 512, 32, 16
HELD_OUT_SHARE = 0.1
# Nats by which the likeliest token has to lead before training leaves a decision alone.
MARGIN = 0.1
CODEWORD_RATE, PREDICTOR_RATE = 0.15, 2e-3
HIDDEN = 512
STATES_TOGETHER = 1024


class Upper(Protocol):
    """The rest of a forward pass for n prompts, such as a ``Continuation``."""

    def __len__(self) -> int: ...

    def logits(self, states: Tensor) -> Tensor:
        """Predict the next token of every prompt, (n, V)."""

    def select(self, index: Any) -> Any:
        """Return the same for some of the prompts."""


def train_codewords(
    upper: Upper,
    behaviours: Behaviours,
    cells: Tensor,
    codewords: Tensor,
    *,
    epochs: int,
    source: np.random.Generator,
    advance: Callable[[int], None],
    decision_cost: float = 0.0,
    least_cell: int = 1,
) -> Tensor:
    """Minimise the mean cost over the codewords, ``r_i = softmax(upper_i(codeword[cell_i]))``.

    The cost is ``KL(p_i ‖ r_i) + λ·1[argmax p_i ≠ argmax r_i]``, λ the decision cost; descent has
    ``λ max(0, 0.1 + max_{t ≠ argmax p_i} ln r_i(t) − ln r_i(argmax p_i))`` in its place. A tenth of
    the prompts is held out; the codewords of the epoch best on them are returned, the start
    included. A codeword stays as it is where fewer than ``least_cell`` prompts would train it.

    Returns:
        (C, d).
    """
    order = torch.from_numpy(source.permutation(len(cells)))
    apart = max(1, int(HELD_OUT_SHARE * len(order)))
    checked, learnt = order[:apart], order[apart:]
    enough = torch.bincount(cells[learnt], minlength=len(codewords)) >= least_cell
    scale = codewords.std(dim=0).clamp_min(1e-6) * enough[:, None]
    # the others would move nothing
    learnt = learnt[enough[cells[learnt]]]
    if not len(learnt):
        advance(epochs)
        return codewords.clone()
    shift = torch.zeros_like(codewords, requires_grad=True)
    optimizer = torch.optim.Adam([shift], lr=CODEWORD_RATE, betas=(0.9, 0.99))
    batch = _batch(len(learnt))
    steps = max(1, epochs * -(-len(learnt) // batch))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best = codewords
    least = mean_cost(upper, behaviours, codewords[cells], checked, decision_cost)
    for _ in range(epochs):
        for rows in torch.split(learnt[torch.from_numpy(source.permutation(len(learnt)))], batch):
            own = cells[rows]
            states = codewords[own] + scale[own] * shift[own]
            loss = _costs(upper, behaviours, rows, states, decision_cost, _shortfall).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        moved = (codewords + scale * shift).detach()
        reached = mean_cost(upper, behaviours, moved[cells], checked, decision_cost)
        if reached < least:
            best, least = moved, reached
        advance(1)
    return best.clone()


def _batch(count: int) -> int:
    return min(LARGEST_BATCH, max(SMALLEST_BATCH, count // BATCHES_PER_PASS))


def _costs(
    upper: Upper,
    behaviours: Behaviours,
    rows: Tensor,
    states: Tensor,
    decision_cost: float,
    of_decision: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return ``−Σ p_i ln r_i + λ·of_decision(ln r_i, argmax p_i)`` per row.

    That is KL(p_i ‖ r_i) beside what no codeword changes, the entropy of p_i.
    """
    clean = behaviours.probabilities(rows)
    predicted = torch.log_softmax(upper.select(rows).logits(states).float(), dim=1)
    cost: Tensor = -(clean * predicted).sum(dim=1)
    if decision_cost:
        cost = cost + decision_cost * of_decision(predicted, clean.argmax(dim=1))
    return cost


def _changed(predicted: Tensor, tokens: Tensor) -> Tensor:
    """Return 1 where another token is the likeliest."""
    return (predicted.argmax(dim=1) != tokens).float()


def _shortfall(predicted: Tensor, tokens: Tensor) -> Tensor:
    """Return by how many nats a token misses the lead that ``MARGIN`` asks for."""
    own = predicted.gather(1, tokens[:, None])[:, 0]
    best = predicted.scatter(1, tokens[:, None], -torch.inf).max(dim=1).values
    return torch.relu(MARGIN + best - own)


@torch.no_grad()
def mean_cost(
    upper: Upper, behaviours: Behaviours, states: Tensor, rows: Tensor, decision_cost: float = 0.0
) -> float:
    """Return the mean cost of some rows, whose own states are among ``states``."""
    total = 0.0
    for part in torch.split(rows, STATES_TOGETHER):
        costs = _costs(upper, behaviours, part, states[part], decision_cost, _changed)
        clean = behaviours.probabilities(part)
        entropies = -torch.special.xlogy(clean, clean).sum(dim=1)
        total += float((costs - entropies).double().sum())
    return total / len(rows)


@torch.no_grad()
def try_codewords(
    upper: Upper,
    behaviours: Behaviours,
    codewords: Tensor,
    candidates: Tensor,
    decision_cost: float = 0.0,
) -> Tensor:
    """Run the candidates (n, m) of every prompt through the layers above; the cheapest code."""
    tries = candidates.shape[1]
    chosen = []
    for rows in torch.split(torch.arange(len(candidates)), max(1, STATES_TOGETHER // tries)):
        repeated = rows.repeat_interleave(tries)
        states = codewords[candidates[rows].flatten()]
        costs = _costs(upper, behaviours, repeated, states, decision_cost, _changed)
        best = costs.view(-1, tries).argmin(dim=1, keepdim=True)
        chosen.append(candidates[rows].gather(1, best)[:, 0])
    return torch.cat(chosen)


class Predictor(nn.Module):
    """Two layers that read the code off a state: the sender need not run the layers above."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int, size: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.layers = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU()
        )
        self.head = nn.Linear(hidden, size)

    def forward(self, states: Tensor) -> Tensor:
        """Return a score per code, (n, C)."""
        centred: Tensor = (states - self.mean) / self.scale
        scores: Tensor = self.head(self.layers(centred))
        return scores

    @torch.no_grad()
    def codes(self, states: Tensor) -> Tensor:
        """Return the code of highest score, (n,)."""
        parts: Sequence[Tensor] = torch.split(states, STATES_TOGETHER)
        return torch.cat([self(part).argmax(dim=1) for part in parts])


def train_predictor(
    states: Tensor,
    cells: Tensor,
    size: int,
    *,
    epochs: int,
    source: np.random.Generator,
    advance: Callable[[int], None],
) -> Predictor:
    """Minimise the cross-entropy of the code over public calibration states."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(source.integers(2**31)))
        predictor = Predictor(states.shape[1], size)
    predictor.mean = states.mean(dim=0)
    predictor.scale = states.std(dim=0, unbiased=False).clamp_min(1e-6)
    optimizer = torch.optim.AdamW(predictor.parameters(), lr=PREDICTOR_RATE, weight_decay=0.01)
    batch = _batch(len(states))
    steps = max(1, epochs * -(-len(states) // batch))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PREDICTOR_RATE, total_steps=steps + 1)
    for _ in range(epochs):
        order = torch.from_numpy(source.permutation(len(states)))
        for rows in torch.split(order, batch):
            loss = nn.functional.cross_entropy(predictor(states[rows]), cells[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        advance(1)
    return predictor.eval().requires_grad_(False)
