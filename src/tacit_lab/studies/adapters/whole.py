"""Whole small convolutional networks with low-rank updates in every layer, one per process."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tacit.compute import parallel_map

MOMENTUM = 0.9


class WholePlan(NamedTuple):
    """What every network is trained on.

    Attributes:
        start: parameters to begin with.
        images: (n + 1, 3, 32, 32), the canary last.
        labels: (n + 1,).
        others: (Z, 3, 32, 32) of the population, no network is trained on them.
        other_labels: (Z,).
        rank: rows of A in every layer; None leaves gradients as they are.
        steps: of descent with momentum 0.9.
        batch: images a step.
        rate: of the mean of a batch.
    """

    start: dict[str, Tensor]
    images: Tensor
    labels: Tensor
    others: Tensor
    other_labels: Tensor
    rank: int | None
    steps: int
    batch: int
    rate: float


def network() -> nn.Sequential:
    """Return three convolutions and two linear layers, 22,778 parameters."""
    layers: list[nn.Module] = []
    for before, after in ((3, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


def pretrained(images: Tensor, labels: Tensor, *, epochs: int, seed: int) -> dict[str, Tensor]:
    """Return parameters trained on public images."""
    torch.manual_seed(seed)
    model = network()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(100):
            optimiser.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(images[rows]), labels[rows]))
            optimiser.step()
    return model.state_dict()


def trained(plan: WholePlan, memberships: Any, *, seed: int, workers: int | None) -> dict[str, Any]:
    """Train one network per process and return the losses of the canary and the population."""
    found = parallel_map(
        lambda inside, rng: _one(plan, bool(inside), rng),
        list(memberships),
        seed=seed,
        workers=workers,
        description="whole networks",
    )
    return {
        "losses": np.array([row[0] for row in found]),
        "population_losses": np.array([row[1] for row in found]),
        "accuracy": np.array([row[2] for row in found]),
    }


def canary_label(plan: WholePlan, rng: np.random.Generator) -> int:
    """Return the class that a reference network gives the canary least."""
    model = _fitted(plan, inside=False, rng=rng)
    with torch.no_grad():
        return int(model(plan.images[-1:])[0].argmin())


def _one(plan: WholePlan, inside: bool, rng: np.random.Generator) -> tuple[float, Any, float]:
    model = _fitted(plan, inside=inside, rng=rng)
    with torch.no_grad():
        canary = _losses(model(plan.images[-1:]), plan.labels[-1:])
        logits = model(plan.others)
    right = (logits.argmax(dim=1) == plan.other_labels).double().mean()
    return float(canary[0]), _losses(logits, plan.other_labels), float(right)


def _losses(logits: Tensor, labels: Tensor) -> np.ndarray:
    found = nn.functional.cross_entropy(logits.double(), labels, reduction="none").numpy()
    return np.maximum(found, 0.0)


def _fitted(plan: WholePlan, *, inside: bool, rng: np.random.Generator) -> nn.Sequential:
    """Train with every layer's gradient projected to the right by its own ``AᵀA``."""
    source = torch.Generator().manual_seed(int(rng.integers(2**62)))
    model = network()
    model.load_state_dict(plan.start)
    weights = [p for p in model.parameters() if p.ndim > 1]
    down = [
        None if plan.rank is None
        else torch.randn(plan.rank, w[0].numel(), generator=source) / plan.rank**0.5
        for w in weights
    ]  # fmt: skip
    velocity = [torch.zeros_like(w) for w in weights]
    count, order = len(plan.images) - (not inside), torch.empty(0, dtype=torch.long)
    for _ in range(plan.steps):
        if len(order) < plan.batch:
            order = torch.cat([order, torch.randperm(count, generator=source)])
        rows, order = order[: plan.batch], order[plan.batch :]
        loss = nn.functional.cross_entropy(model(plan.images[rows]), plan.labels[rows])
        for weight, gradient, a, kept in zip(
            weights, torch.autograd.grad(loss, weights), down, velocity, strict=True
        ):
            flat = gradient.flatten(1)
            seen = flat if a is None else flat @ a.T @ a
            kept.mul_(MOMENTUM).add_(seen.view_as(weight))
            weight.data.sub_(plan.rate * kept)
    return model
