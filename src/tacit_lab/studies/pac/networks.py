"""The classifiers of the paper's Section 6, trained once; their test logits are kept."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.compute import progress_bar
from tacit_lab.studies.pac import data
from tacit_lab.studies.places import CACHE

SMOKE = (2_000, 1_000)


@dataclass(frozen=True)
class NetworkRecipe:
    """All that decides the logits of a data set."""

    dataset: str
    network: str
    epochs: int
    batch: int
    rate: float
    weight_decay: float
    seed: int
    train: int


RECIPES = {
    "mnist": NetworkRecipe(
        "mnist", "conv 32, 64 with batch norm, 128 units, dropout 0.5", 2, 128, 1e-3, 0.0, 0, 60_000
    ),
    "cifar10": NetworkRecipe("cifar10", "conv 32, 64, 128 units", 8, 128, 1e-3, 0.0, 0, 50_000),
    "agnews": NetworkRecipe(
        "agnews", "mean of 300 embeddings, 256 units, dropout 0.3", 4, 64, 1e-3, 0.0, 0, 35_599
    ),
}
LOADERS: dict[str, Callable[[], data.Split]] = {
    "mnist": data.mnist,
    "cifar10": data.cifar10,
    "agnews": data.agnews,
}


@dataclass(frozen=True, eq=False)
class NetworkLogits:
    """Logits of the whole test set with their labels."""

    values: np.ndarray
    labels: np.ndarray
    recipe: NetworkRecipe

    @property
    def accuracy(self) -> float:
        """Share of rows whose largest logit is the label's."""
        return float((self.values.argmax(axis=1) == self.labels).mean())


def logits(dataset: str, *, fast: bool = False) -> NetworkLogits:
    """Return the test logits, from the cache where the same recipe was trained before.

    Raises:
        MissingDataError: the data is not there.
    """
    recipe = RECIPES[dataset]
    if fast:
        recipe = NetworkRecipe(**{**asdict(recipe), "epochs": 1, "train": SMOKE[0]})
    described = json.dumps(asdict(recipe), sort_keys=True)
    path = CACHE / f"{dataset}-{hashlib.sha256(described.encode()).hexdigest()[:12]}.npz"
    if not path.is_file():
        split = LOADERS[dataset]()
        values = _trained(recipe, split.head(*SMOKE) if fast else split)
        labels = split.test_labels[: len(values)]
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, logits=values, labels=labels, recipe=np.array(described))
        partial.replace(path)
    with np.load(path) as kept:
        return NetworkLogits(kept["logits"], kept["labels"], recipe)


def _trained(recipe: NetworkRecipe, split: data.Split) -> np.ndarray:
    import torch

    torch.manual_seed(recipe.seed)
    network = _network(recipe.dataset)
    inputs = torch.from_numpy(np.ascontiguousarray(split.train))
    labels = torch.from_numpy(split.train_labels)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay
    )
    batches = math.ceil(len(inputs) / recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=3 * recipe.rate, total_steps=recipe.epochs * batches
    )
    loss = torch.nn.CrossEntropyLoss()
    with progress_bar(
        recipe.epochs * batches, f"training on {recipe.dataset}", shown=True
    ) as advance:
        for _ in range(recipe.epochs):
            for rows in torch.randperm(len(inputs)).split(recipe.batch):
                optimiser.zero_grad()
                torch.autograd.backward(loss(network(inputs[rows]), labels[rows]))
                optimiser.step()
                schedule.step()
                advance(1)
    network.eval()
    with torch.no_grad():
        parts = torch.from_numpy(np.ascontiguousarray(split.test)).split(500)
        return torch.cat([network(part) for part in parts]).double().numpy()


def _network(dataset: str) -> Any:
    from torch import nn

    def block(before: int, after: int, *, norm: bool) -> list[Any]:
        layers: list[Any] = [nn.Conv2d(before, after, 3, padding=1)]
        return [*layers, *([nn.BatchNorm2d(after)] if norm else []), nn.ReLU(), nn.MaxPool2d(2)]

    if dataset == "agnews":
        return nn.Sequential(
            nn.EmbeddingBag(data.VOCABULARY, 300, mode="mean", padding_idx=0),
            nn.Linear(300, 256),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(256, 4),
        )
    norm = dataset == "mnist"
    channels, side = (1, 7) if norm else (3, 8)
    return nn.Sequential(
        *block(channels, 32, norm=norm),
        *block(32, 64, norm=norm),
        nn.Flatten(),
        nn.Linear(64 * side * side, 128),
        nn.ReLU(),
        *([nn.Dropout(0.5)] if norm else []),
        nn.Linear(128, 10),
    )
