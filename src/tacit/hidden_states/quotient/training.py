"""Training of a predictive quotient: the prediction after its own release noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.hidden_states.quotient.ball import Ball
from tacit.hidden_states.quotient.network import QuotientNetwork
from tacit.models.behaviours import Behaviours

LARGEST_BATCH, SMALLEST_BATCH, BATCHES_PER_PASS = 256, 32, 16
RATE, DECAY, LONGEST_STEP = 2e-3, 0.01, 1.0
HELD_OUT_SHARE = 0.1
ROWS_TOGETHER = 2048

# what the encoder reads of some prompts, (b, width)
Seen = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a quotient is trained.

    Attributes:
        depth: hidden layers of encoder and decoder each.
        hidden: units of each.
        penalty: β >= 0, nats of prediction that a nat of estimated information counts.
        adversary: γ >= 0, the same for a nat that Bayes' attacker gains within a batch.
        noisy: whether training sees the release noise; False is the control that does not.
        epochs: passes over the public prompts.
    """

    depth: int = 2
    hidden: int = 256
    penalty: float = 0.0
    adversary: float = 0.0
    noisy: bool = True
    epochs: int = 30


def train(
    network: QuotientNetwork,
    ball: Ball,
    seen: Seen,
    behaviours: Behaviours,
    recipe: Recipe,
    *,
    device: torch.device,
    source: np.random.Generator,
    advance: Callable[[int], None],
) -> float:
    """Minimise ``E KL(p(·|h) ‖ D(z)) + β Î(z) + γ Â(z)`` with fresh noise in every batch.

    ``seen`` gives what the encoder reads of some prompts. Î is Thm 19's log-det of the batch, Â
    what Bayes' attacker gains at naming a prompt of it, who knows the encoder: no critic is
    trained, for the law of the noise is known. A tenth of the prompts is held out; the network of
    the pass best on them is kept.

    Returns:
        The held-out value of the objective without penalties, nats of KL.
    """
    order = torch.from_numpy(source.permutation(len(behaviours)))
    apart = max(1, int(HELD_OUT_SHARE * len(order)))
    checked, learnt = order[:apart], order[apart:]
    noise = torch.Generator().manual_seed(int(source.integers(2**62)))
    fixed = _drawn(ball, len(checked), noise).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, len(learnt) // BATCHES_PER_PASS))
    steps = recipe.epochs * -(-len(learnt) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=steps + 1, pct_start=0.1
    )
    best, least = copy.deepcopy(network.state_dict()), math.inf
    for _ in range(recipe.epochs):
        for rows in torch.split(learnt[torch.from_numpy(source.permutation(len(learnt)))], batch):
            found = network.encode(seen(rows), ball.radius)
            added = _drawn(ball, len(rows), noise).to(device) if recipe.noisy else 0.0
            loss = divergence(network, ball, found + added, behaviours, rows)
            if recipe.penalty:
                loss = loss + recipe.penalty * batch_information(found, ball.noise_std)
            if recipe.adversary:
                loss = loss + recipe.adversary * batch_gain(found, found + added, ball.noise_std)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), LONGEST_STEP)
            optimizer.step()
            schedule.step()
        reached = _held_out(network, ball, seen, behaviours, checked, fixed, recipe)
        if reached < least:
            best, least = copy.deepcopy(network.state_dict()), reached
        advance(1)
    network.load_state_dict(best)
    return least


def divergence(
    network: QuotientNetwork, ball: Ball, released: Tensor, behaviours: Behaviours, rows: Tensor
) -> Tensor:
    """Return the mean ``KL(p_i ‖ D(z_i))`` of some rows, nats."""
    clean = behaviours.probabilities(rows).to(released.device)
    predicted = network.log_probabilities(released, ball)
    each: Tensor = (torch.special.xlogy(clean, clean) - clean * predicted).sum(dim=1)
    return each.mean()


def batch_information(found: Tensor, noise_std: float) -> Tensor:
    """Return ``½ logdet(I + Ĉov(q)/σ²)`` of a batch, nats: an estimate."""
    centred = (found - found.mean(dim=0)) / noise_std
    spread = centred.T @ centred / len(found)
    total: Tensor = torch.linalg.slogdet(torch.eye(len(spread), device=found.device) + spread)[1]
    return 0.5 * total


def batch_gain(found: Tensor, released: Tensor, noise_std: float) -> Tensor:
    """Return ``ln B + mean_i ln P(i | z_i)`` of Bayes' attacker among the B prompts of a batch."""
    squares = torch.cdist(released, found) ** 2 / (2.0 * noise_std**2)
    told: Tensor = (-squares).log_softmax(dim=1).diagonal()
    return math.log(len(found)) + told.mean()


@torch.no_grad()
def _held_out(
    network: QuotientNetwork,
    ball: Ball,
    seen: Seen,
    behaviours: Behaviours,
    rows: Tensor,
    noise: Tensor,
    recipe: Recipe,
) -> float:
    total = 0.0
    for start in range(0, len(rows), ROWS_TOGETHER):
        part = rows[start : start + ROWS_TOGETHER]
        found = network.encode(seen(part), ball.radius)
        if recipe.noisy:
            found = found + noise[start : start + ROWS_TOGETHER]
        total += len(part) * float(divergence(network, ball, found, behaviours, part))
    return total / len(rows)


def _drawn(ball: Ball, rows: int, noise: torch.Generator) -> Tensor:
    return ball.noise_std * torch.randn(rows, ball.dimension, generator=noise)
