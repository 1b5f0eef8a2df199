"""The two tasks: photographs by a head on fixed features, news by adapters of a small encoder."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit_lab.studies.loops.encoder import EncoderRecipe, NewsClassifier, NewsEncoder, fitted
from tacit_lab.studies.loops.wavelets import CELLS, PATHS, features
from tacit_lab.studies.loops.ways import LearningTask
from tacit_lab.studies.pac import data
from tacit_lab.studies.places import CACHE
from tacit_lab.studies.stores.encoder import words_of

DELTA, RANK, GROUPS = 1e-5, 8, 5
# what the encoder of news is trained on: none of it is news of that set
PUBLIC = ("wikitext2_train", "abc", "state_union")
SHORTEST = 6


@dataclass(frozen=True)
class TaskSizes:
    """How much of a task is used.

    Attributes:
        train: records that are protected.
        tuning: records that rates are chosen on.
        test: records that are reported.
        batch: records that a step expects.
        epochs: passes.
    """

    train: int
    tuning: int
    test: int
    batch: int
    epochs: int


def photographs(sizes: TaskSizes) -> LearningTask:
    """Return CIFAR-10 as wavelet features, with a group norm and a linear layer to learn.

    Raises:
        MissingDataError: the data is not there.
    """
    count = sizes.train + sizes.tuning

    def compute() -> dict[str, Tensor]:
        read = data.cifar10()
        # the scale of each path is of the tuning images, which are not protected
        parts = [features(read.train[:count]).float(), features(read.test[: sizes.test]).float()]
        scale = parts[0][sizes.train :].pow(2).mean((0, 2, 3), keepdim=True).sqrt()
        return {
            "learned": parts[0] / scale, "labels": torch.from_numpy(read.train_labels[:count]),
            "test": parts[1] / scale, "truth": torch.from_numpy(read.test_labels[: sizes.test]),
        }  # fmt: skip

    return _task(photograph_model, sizes, _once(f"photographs {sizes}", compute))


def photograph_model(seed: int) -> nn.Module:
    """Return a group norm over the paths and a linear layer."""
    torch.manual_seed(seed)
    head = nn.Linear(PATHS * CELLS**2, 10)
    nn.init.zeros_(head.weight)
    return nn.Sequential(nn.GroupNorm(GROUPS, PATHS), nn.Flatten(), head)


def news(sizes: TaskSizes, recipe: EncoderRecipe) -> LearningTask:
    """Return AG-News as words, with adapters of rank 8 and a head to learn.

    Raises:
        MissingDataError: the data is not there.
    """

    def compute() -> dict[str, Tensor]:
        reader, encoder = fitted(_public(recipe.texts), recipe)
        texts, labels = _articles("ag_news_train_part.csv.gz")
        test, truth = _articles("ag_news_test.csv.gz")
        count = sizes.train + sizes.tuning
        return {
            "learned": reader(texts[:count]), "labels": labels[:count],
            "test": reader(test[: sizes.test]), "truth": truth[: sizes.test],
            **encoder.state_dict(),
        }  # fmt: skip

    parts = _once(f"news {sizes} {recipe}", compute)
    encoder = NewsEncoder(recipe)
    encoder.load_state_dict({name: parts[name] for name in encoder.state_dict()})

    # centre and scale of what is read are of the tuning articles, which are not protected
    with torch.no_grad():
        known = encoder(parts["learned"][sizes.train :])

    def model(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return NewsClassifier(encoder, known, 4, RANK)

    return _task(model, sizes, parts)


def _task(
    model: Callable[[int], nn.Module], sizes: TaskSizes, parts: dict[str, Tensor]
) -> LearningTask:
    cut, learned, labels = sizes.train, parts["learned"], parts["labels"]
    return LearningTask(
        model=model, train=(learned[:cut], labels[:cut]), tuning=(learned[cut:], labels[cut:]),
        test=(parts["test"], parts["truth"]), batch=sizes.batch, epochs=sizes.epochs, delta=DELTA,
    )  # fmt: skip


def _once(recipe: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return tensors, from the cache where the same recipe was followed before."""
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    path = CACHE / f"private-loops-{digest}.pt"
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        torch.save(compute(), partial)
        partial.replace(path)
    held: dict[str, Tensor] = torch.load(path, weights_only=True)
    return held


def _public(count: int) -> list[str]:
    """Return lines of the public texts, in a random order."""
    held = []
    for name in PUBLIC:
        with gzip.open(data.find(f"text/{name}.txt.gz"), "rt", encoding="utf-8") as file:
            held += [line for line in file if len(words_of(line)) >= SHORTEST]
    order = np.random.default_rng(0).permutation(len(held))[:count]
    return [held[place] for place in order]


def _articles(name: str) -> tuple[list[str], Tensor]:
    with gzip.open(data.find(name), "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [f"{row['title']} {row['description']}" for row in rows]
    return texts, torch.tensor([int(row["class"]) - 1 for row in rows])
