"""Heads of two layers on frozen features, low-rank updates of both, as one batched model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tacit_lab.studies.adapters.features import Features

MOMENTUM = 0.9


class TwoLayerTask(NamedTuple):
    """What the heads are trained on: records and, last, the canary.

    Attributes:
        rows: (n + 1, 512) features.
        labels: (n + 1,) classes.
        batch: records a step.
        rate: of descent with momentum 0.9 on the mean of a batch.
    """

    rows: Tensor
    labels: Tensor
    batch: int
    rate: float


class TwoLayerHeads:
    """M heads ``W2 + B2 A2`` on ``relu(W1 + B1 A1)``, A drawn once for each head and frozen.

    Args:
        frozen: features and the head that was trained with them.
        task: the records.
        inside: (M,) whether a head sees the canary.
        rank: rows of A1 and A2, with independent N(0, 1/r) entries.
        source: of A and the order of the records.
    """

    def __init__(
        self,
        frozen: Features,
        task: TwoLayerTask,
        inside: Tensor,
        rank: int,
        source: torch.Generator,
    ) -> None:
        self.task, self.inside, self.source = task, inside, source
        self.biases = torch.from_numpy(frozen.first_bias), torch.from_numpy(frozen.last_bias)
        self.weights = torch.from_numpy(frozen.first), torch.from_numpy(frozen.last)
        count = len(inside)
        self.down = tuple(
            torch.randn(count, rank, w.shape[1], generator=source) / rank**0.5 for w in self.weights
        )
        self.up = tuple(torch.zeros(count, w.shape[0], rank) for w in self.weights)
        self.velocity = tuple(torch.zeros_like(b) for b in self.up)
        self.base = task.rows @ self.weights[0].T + self.biases[0]
        self.low = task.rows @ self.down[0].mT
        self.order = torch.empty(count, 0, dtype=torch.long)

    def train(self, steps: int) -> None:
        """Take some steps more."""
        for _ in range(steps):
            rows = self._next_rows()
            low = self.low.gather(1, rows[..., None].expand(-1, -1, self.low.shape[2]))
            self._step(self.base[rows], low, self.task.labels[rows])

    def logits(self, rows: Tensor) -> Tensor:
        """Return (M, Z, 10) of features (Z, 512)."""
        base = rows @ self.weights[0].T + self.biases[0]
        return self._forward(base, rows @ self.down[0].mT)[2]

    def _forward(self, base: Tensor, low: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.relu(base + low @ self.up[0].mT)
        inner = hidden @ self.down[1].mT
        outputs = hidden @ self.weights[1].T + self.biases[1] + inner @ self.up[1].mT
        return hidden, inner, outputs

    def _step(self, base: Tensor, low: Tensor, labels: Tensor) -> None:
        hidden, inner, outputs = self._forward(base, low)
        errors = outputs.softmax(dim=-1)
        errors.scatter_add_(
            2, labels[..., None], -torch.ones_like(labels[..., None], dtype=torch.float)
        )
        errors /= self.task.batch
        back = errors @ self.weights[1] + (errors @ self.up[1]) @ self.down[1]
        gradients = (back * (hidden > 0)).mT @ low, errors.mT @ inner
        for weights, velocity, gradient in zip(self.up, self.velocity, gradients, strict=True):
            velocity.mul_(MOMENTUM).add_(gradient)
            weights.sub_(self.task.rate * velocity)

    def _next_rows(self) -> Tensor:
        """Return (M, b) records: every head goes through its own order of its own records."""
        while self.order.shape[1] < self.task.batch:
            chance = torch.rand(len(self.inside), len(self.task.rows), generator=self.source)
            # The canary of a head that does not see it comes last, and is cut off with one of the
            # records where it does.
            chance[:, -1] = torch.where(self.inside, chance[:, -1], 2.0)
            self.order = torch.cat([self.order, chance.argsort(dim=1)[:, :-1]], dim=1)
        rows, self.order = self.order.split(
            [self.task.batch, self.order.shape[1] - self.task.batch], dim=1
        )
        return rows


def losses(logits: Tensor, labels: Tensor) -> np.ndarray:
    """Return cross-entropies (M, Z) in double precision."""
    of_label = labels.expand(len(logits), -1)[..., None]
    found: np.ndarray = -logits.double().log_softmax(dim=-1).gather(2, of_label)[..., 0].numpy()
    return np.maximum(found, 0.0)
