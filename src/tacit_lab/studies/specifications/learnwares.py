"""Learnwares: a scratch model for every task, trained by a seed, resumed from the cache."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tacit.compute import progress_bar
from tacit_lab.studies.specifications import corpora, pictures
from tacit_lab.studies.specifications.cache import CACHE
from tacit_lab.studies.specifications.pictures import LabelledPictures
from tacit_lab.studies.specifications.tasks import StudyTask

WORDS, WIDTH = 1 << 14, 32


@dataclass(frozen=True)
class LearnwareRecipe:
    """All that decides a scratch model beside its task."""

    records: int = 2000
    epochs: int = 8
    batch: int = 50
    rate: float = 4e-3
    channels: int = 16
    seed: int = 0


def records(task: StudyTask, count: int, part: str, seed: int) -> LabelledPictures:
    """Draw records of a task: other seeds, other records; developers' and users' never meet."""
    rng = np.random.default_rng([seed, zlib.crc32(task.name.encode())])
    drawn = corpora if task.source in ("agnews", "paragraphs") else pictures
    return drawn.records(task, count, part, rng)


def model(task: StudyTask, recipe: LearnwareRecipe | None = None) -> nn.Module:
    """Return the scratch model of a task, from the cache where it was trained before."""
    chosen = recipe or LearnwareRecipe()
    described = json.dumps([asdict(chosen), asdict(task)], sort_keys=True)
    path = CACHE / f"model-{hashlib.sha256(described.encode()).hexdigest()[:16]}.safetensors"
    network = _network(task, chosen)
    if path.is_file():
        network.load_state_dict(load_file(path))
    else:
        _train(network, records(task, chosen.records, "private", chosen.seed), chosen)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        save_file(network.state_dict(), partial)
        partial.replace(path)
    return network.eval()


def models(tasks: list[StudyTask], recipe: LearnwareRecipe | None = None) -> list[nn.Module]:
    """Return the scratch models of several tasks."""
    found = []
    with progress_bar(len(tasks), "training learnwares", shown=True) as advance:
        for task in tasks:
            found.append(model(task, recipe))
            advance(1)
    return found


def trained_from(task: StudyTask, examples: LabelledPictures, seed: int) -> nn.Module:
    """Return a scratch model trained from a user's few examples alone."""
    recipe = LearnwareRecipe(records=len(examples.labels), epochs=40, batch=20, seed=seed)
    network = _network(task, recipe)
    _train(network, examples, recipe)
    return network.eval()


def logits(network: nn.Module, inputs: Any) -> npt.NDArray[np.float32]:
    """Return what a scratch model says of inputs (n, K)."""
    prepared = tensors(inputs)
    with torch.no_grad():
        return torch.cat([network(part) for part in prepared.split(250)]).numpy()


def tensors(inputs: Any) -> Tensor:
    """Return images as they are, and texts as numbers of hashed words."""
    if isinstance(inputs, np.ndarray):
        return torch.from_numpy(inputs)
    numbers = np.zeros((len(inputs), 64), dtype=np.int64)
    for row, text in zip(numbers, inputs, strict=True):
        words = [zlib.crc32(word.encode()) % (WORDS - 1) + 1 for word in text.lower().split()]
        row[: len(words)] = words[:64]
    return torch.from_numpy(numbers)


def _network(task: StudyTask, recipe: LearnwareRecipe) -> nn.Module:
    torch.manual_seed(recipe.seed)
    if task.source in ("agnews", "paragraphs"):
        return nn.Sequential(
            nn.EmbeddingBag(WORDS, WIDTH, mode="mean", padding_idx=0), nn.Linear(WIDTH, task.labels)
        )
    width = recipe.channels
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * width, task.labels),
    )  # fmt: skip


def _train(network: nn.Module, examples: LabelledPictures, recipe: LearnwareRecipe) -> None:
    torch.manual_seed(recipe.seed)
    inputs, labels = tensors(examples.inputs), torch.from_numpy(examples.labels)
    rate = recipe.rate if inputs.is_floating_point() else 5 * recipe.rate
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01)
    steps = recipe.epochs * -(-len(inputs) // recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=steps)
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(inputs)).split(recipe.batch):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
