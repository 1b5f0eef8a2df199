"""Encoder and decoder of a predictive quotient, trained on the prediction after release noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from tacit.hidden_states.quotient.ball import Ball
from tacit.hidden_states.quotient.methods import Recipe
from tacit.models.behaviours import Behaviours

# a batch is a sixteenth of the prompts, within these
LARGEST_BATCH, SMALLEST_BATCH, BATCHES_PER_PASS = 256, 32, 16
RATE, DECAY, LONGEST_STEP = 2e-3, 0.01, 1.0
# of the prompts, to keep the pass that is best on what was not learnt
HELD_OUT_SHARE = 0.1
ROWS_TOGETHER = 2048
# what a coordinate may be, in deviations of the public states, before the encoder sees it
FARTHEST = 1e4
# a coordinate that never moves is divided by this, and stays what it is
SPREAD_FLOOR = 1e-6

# what the encoder reads of some prompts, (b, width)
Seen = Callable[[Tensor], Tensor]


class QuotientNetwork(nn.Module):
    """``z = clip_R(q(h)) + σ η`` and the logits that are read off z.

    Args:
        width: numbers that are read of a prompt: d of its state, or V of its prediction.
        dimension: k, numbers in a quotient.
        vocabulary: V, tokens.
        depth: hidden layers of encoder and decoder each; 0 for linear maps.
        hidden: units of each.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int, dimension: int, vocabulary: int, depth: int, hidden: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.encoder = _layers(width, dimension, depth, hidden)
        self.decoder = _layers(dimension, vocabulary, depth, hidden)
        self.dimension, self.depth, self.hidden = dimension, depth, hidden

    def encode(self, rows: Tensor, radius: float) -> Tensor:
        """Return q(rows) clipped to the ball in floating point, (n, k); gradients flow through."""
        seen = ((rows - self.mean) / self.scale).clamp(-FARTHEST, FARTHEST)
        # k entries of unit variance have length √k: scaled by R/√k they fill the ball
        raw: Tensor = self.encoder(seen) * (radius / math.sqrt(self.dimension))
        length: Tensor = raw.norm(dim=1, keepdim=True).clamp_min(torch.finfo(raw.dtype).tiny)
        clipped: Tensor = raw * (radius / length).clamp_max(1.0)
        return clipped

    def log_probabilities(self, released: Tensor, ball: Ball) -> Tensor:
        """Return ln p(next | z), (n, V)."""
        # the deviation of an entry that fills the ball, and of its noise
        size = math.sqrt(ball.noise_std**2 + ball.radius**2 / ball.dimension)
        logits: Tensor = self.decoder(released / size)
        return logits.log_softmax(dim=1)

    def fit_scale(self, count: int, blocks: Iterable[Tensor]) -> None:
        """Take mean and deviation of what is read after ``count`` public prompts, in blocks."""
        # sums in float64, block by block: the rows of a vocabulary do not fit at once
        total = torch.zeros(len(self.mean), dtype=torch.float64)
        squares = torch.zeros_like(total)
        for block in blocks:
            rows = block.double().cpu()
            total += rows.sum(dim=0)
            squares += rows.square().sum(dim=0)
        mean = total / count
        self.mean = mean.float()
        spread = (squares / count - mean.square()).clamp_min(0.0).sqrt()
        self.scale = spread.float().clamp_min(SPREAD_FLOOR)


def _layers(inputs: int, outputs: int, depth: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(*_stack(inputs, outputs, depth, hidden))


def _stack(inputs: int, outputs: int, depth: int, hidden: int) -> Iterator[nn.Module]:
    width = inputs
    for _ in range(depth):
        yield nn.Linear(width, hidden)
        yield nn.GELU()
        width = hidden
    yield nn.Linear(width, outputs)


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
    # a tenth is held out, and always read with the same noise, so that passes compare
    order = torch.from_numpy(source.permutation(len(behaviours)))
    apart = max(1, int(HELD_OUT_SHARE * len(order)))
    checked, learnt = order[:apart], order[apart:]
    noise = torch.Generator().manual_seed(int(source.integers(2**62)))
    fixed = _drawn(ball, len(checked), noise).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, len(learnt) // BATCHES_PER_PASS))
    steps = recipe.epochs * -(-len(learnt) // batch)
    # the rate rises until step total/10 − 1, which the schedule divides by: not 0 of ten steps
    total = steps + 2 if steps == 9 else steps + 1
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=total, pct_start=0.1
    )
    best, least = copy.deepcopy(network.state_dict()), math.inf
    for _ in range(recipe.epochs):
        for rows in torch.split(learnt[torch.from_numpy(source.permutation(len(learnt)))], batch):
            # D reads q + ση with η fresh in every batch, as it will be released
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
    # KL(p ‖ D) = Σ p ln p − Σ p ln D, and 0 ln 0 = 0
    clean = behaviours.probabilities(rows).to(released.device)
    predicted = network.log_probabilities(released, ball)
    each: Tensor = (torch.special.xlogy(clean, clean) - clean * predicted).sum(dim=1)
    return each.mean()


def batch_information(found: Tensor, noise_std: float) -> Tensor:
    """Return ``½ logdet(I + Ĉov(q)/σ²)`` of a batch, nats: an estimate."""
    # Λ̂/σ², whose log-determinant with I is finite however few rows there are
    centred = (found - found.mean(dim=0)) / noise_std
    spread = centred.T @ centred / len(found)
    total: Tensor = torch.linalg.slogdet(torch.eye(len(spread), device=found.device) + spread)[1]
    return 0.5 * total


def batch_gain(found: Tensor, released: Tensor, noise_std: float) -> Tensor:
    """Return ``ln B + mean_i ln P(i | z_i)`` of Bayes' attacker among the B prompts of a batch."""
    # P(i | z) ∝ exp(−‖z − q_i‖²/2σ²) for equally likely prompts
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
