"""Features of CIFAR-10 from a network trained on one half of it, for heads on the other half."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tacit.compute import progress_bar
from tacit_lab.studies.pac import data
from tacit_lab.studies.places import CACHE


@dataclass(frozen=True)
class FeatureRecipe:
    """All that decides the features."""

    network: str = "conv 32, 64, 64, 128, 128 with batch norm, 512 and 128 units"
    public: int = 25_000
    private: int = 25_000
    test: int = 10_000
    epochs: int = 8
    batch: int = 100
    rate: float = 6e-3
    seed: int = 0
    canaries: int = 16


class Features(NamedTuple):
    """What is frozen: the features (n, 512) in float32 and the head on top of them.

    Attributes:
        private: of the images that the network did not see.
        private_labels: their classes.
        test: of the test images.
        test_labels: their classes.
        canaries: of Gaussian images N(0, 1).
        first: (128, 512) weights of the head's hidden layer.
        first_bias: (128,).
        last: (10, 128).
        last_bias: (10,).
    """

    private: np.ndarray
    private_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    canaries: np.ndarray
    first: np.ndarray
    first_bias: np.ndarray
    last: np.ndarray
    last_bias: np.ndarray

    @property
    def accuracy(self) -> float:
        """Of the network itself on the test images."""
        hidden = np.maximum(self.test @ self.first.T + self.first_bias, 0.0)
        guesses = (hidden @ self.last.T + self.last_bias).argmax(axis=1)
        return float((guesses == self.test_labels).mean())


def features(recipe: FeatureRecipe | None = None) -> Features:
    """Return the features, from the cache where the same recipe was trained before.

    Raises:
        MissingDataError: the data is not there.
    """
    chosen = recipe or FeatureRecipe()
    described = json.dumps(asdict(chosen), sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()[:12]
    path = CACHE / f"cifar10-features-{digest}.npz"
    if not path.is_file():
        made = _made(chosen)
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **made._asdict())
        partial.replace(path)
    with np.load(path) as kept:
        return Features(**{name: kept[name] for name in Features._fields})


def _made(recipe: FeatureRecipe) -> Features:
    split = data.cifar10()
    body, first, last = _trained(recipe, split)
    source = torch.Generator().manual_seed(recipe.seed)
    gaussian = torch.randn((recipe.canaries, 3, 32, 32), generator=source)
    private = slice(recipe.public, recipe.public + recipe.private)
    return Features(
        private=_outputs(body, torch.from_numpy(split.train[private])),
        private_labels=split.train_labels[private],
        test=_outputs(body, torch.from_numpy(split.test[: recipe.test])),
        test_labels=split.test_labels[: recipe.test],
        canaries=_outputs(body, gaussian),
        first=first.weight.detach().numpy(),
        first_bias=first.bias.detach().numpy(),
        last=last.weight.detach().numpy(),
        last_bias=last.bias.detach().numpy(),
    )


def _trained(recipe: FeatureRecipe, split: data.Split) -> tuple[nn.Module, nn.Linear, nn.Linear]:
    """Return the network up to 512 features and the two layers on top, trained on public images."""
    torch.manual_seed(recipe.seed)
    body = nn.Sequential(
        *_block(3, 32), nn.MaxPool2d(2), *_block(32, 64), *_block(64, 64), nn.MaxPool2d(2),
        *_block(64, 128), *_block(128, 128), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(2048, 512), nn.ReLU(),
    )  # fmt: skip
    first, last = nn.Linear(512, 128), nn.Linear(128, 10)
    network = nn.Sequential(body, first, nn.ReLU(), last).to(
        memory_format=torch.channels_last  # type: ignore[call-overload]
    )
    inputs = torch.from_numpy(split.train[: recipe.public])
    labels = torch.from_numpy(split.train_labels[: recipe.public])
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
    steps = recipe.epochs * -(-len(inputs) // recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=recipe.rate, total_steps=steps)
    with progress_bar(steps, "training on public images", shown=True) as advance:
        for _ in range(recipe.epochs):
            for rows in torch.randperm(len(inputs)).split(recipe.batch):
                optimiser.zero_grad()
                logits = network(_moved(inputs[rows]))
                torch.autograd.backward(
                    nn.functional.cross_entropy(logits, labels[rows], label_smoothing=0.1)
                )
                optimiser.step()
                schedule.step()
                advance(1)
    network.eval()
    return body, first, last


def _block(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]


def _moved(images: Tensor) -> Tensor:
    """Shift every image by up to four pixels, one shift a batch, and mirror half of them."""
    down, right = torch.randint(0, 9, (2,)).tolist()
    padded = nn.functional.pad(images, (4, 4, 4, 4))
    cut = padded[:, :, down : down + 32, right : right + 32]
    mirrored = torch.rand(len(cut), 1, 1, 1) < 0.5
    moved = torch.where(mirrored, cut.flip(3), cut)
    return moved.contiguous(memory_format=torch.channels_last)


def _outputs(body: Any, images: Tensor) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = torch.cat([body(part) for part in images.split(500)]).numpy()
        return found
