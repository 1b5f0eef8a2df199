"""The encoder q(h) and the decoder z → logits of a predictive quotient, of any depth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from tacit.hidden_states.quotient.ball import Ball

# what a coordinate may be, in deviations of the public states, before the encoder sees it
FARTHEST = 1e4
SPREAD_FLOOR = 1e-6


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
        # entries of unit variance fill the ball
        raw: Tensor = self.encoder(seen) * (radius / math.sqrt(self.dimension))
        length: Tensor = raw.norm(dim=1, keepdim=True).clamp_min(torch.finfo(raw.dtype).tiny)
        clipped: Tensor = raw * (radius / length).clamp_max(1.0)
        return clipped

    def log_probabilities(self, released: Tensor, ball: Ball) -> Tensor:
        """Return ln p(next | z), (n, V)."""
        size = math.sqrt(ball.noise_std**2 + ball.radius**2 / ball.dimension)
        logits: Tensor = self.decoder(released / size)
        return logits.log_softmax(dim=1)

    def fit_scale(self, count: int, blocks: Iterable[Tensor]) -> None:
        """Take mean and deviation of what is read after ``count`` public prompts, in blocks."""
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
