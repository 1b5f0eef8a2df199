"""Records of image tasks, 3 × 32 × 32: developers' from training sets, users' from tests."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit_lab.studies.pac import data
from tacit_lab.studies.specifications.cache import CACHE, keep
from tacit_lab.studies.specifications.tasks import StudyTask

# Training images that are public: what a backbone may be trained on, and what whitens.
PUBLIC = 10_000
NOISE = 0.25


class LabelledPictures(NamedTuple):
    """Inputs of a task and their labels.

    Attributes:
        inputs: (n, 3, 32, 32) float32 in [0, 1], or n texts.
        labels: (n,) 0 … K − 1.
    """

    inputs: npt.NDArray[np.float32] | list[str]
    labels: npt.NDArray[np.int64]


@functools.cache
def images(source: str, part: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return pictures (n, C, 32, 32) and classes: ``"public"``, ``"private"`` or ``"users"``."""
    train, train_labels, test, test_labels = _bytes(source)
    if part == "users":
        return test, test_labels
    cut = slice(PUBLIC) if part == "public" else slice(PUBLIC, None)
    return train[cut], train_labels[cut]


@functools.cache
def _bytes(source: str) -> data.Split:
    """Return pictures as bytes, decoded once and kept."""
    path = CACHE / f"{source}.npz"
    if not path.is_file():
        made = data.mnist() if source == "mnist" else data.cifar10()
        shift, scale, edge = (0.1307, 0.3081, 2) if source == "mnist" else (0.5, 0.5, 0)
        pads = ((0, 0), (0, 0), (edge, edge), (edge, edge))
        train, test = (
            np.pad(np.rint((held * scale + shift) * 255).clip(0, 255).astype(np.uint8), pads)
            for held in (made.train, made.test)
        )
        keep(path, train=train, train_labels=made.train_labels,
             test=test, test_labels=made.test_labels)  # fmt: skip
    with np.load(path) as kept:
        return data.Split(**{name: kept[name] for name in data.Split._fields})


def records(task: StudyTask, count: int, part: str, rng: np.random.Generator) -> LabelledPictures:
    """Draw ``count`` records without replacement, as many of every label as may be."""
    pictures, classes = images(task.source, part)
    if task.transform.startswith("crossed"):
        return _crossed(task, pictures, classes, count, rng)
    rows, labels = _balanced(task, classes, count, rng)
    order = rng.permutation(len(rows))
    seen = _seen(pictures[rows[order]], task.transform, rng)
    return LabelledPictures(seen, labels[order])


def _balanced(
    task: StudyTask, classes: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    rows, labels = [], []
    for label, group in enumerate(task.groups):
        share = count // task.labels + (label < count % task.labels)
        of_group = np.flatnonzero(np.isin(classes, group))
        rows.append(rng.choice(of_group, min(share, len(of_group)), replace=False))
        labels.append(np.full(len(rows[-1]), label))
    return np.concatenate(rows), np.concatenate(labels)


def _crossed(
    task: StudyTask,
    pictures: npt.NDArray[np.uint8],
    classes: npt.NDArray[np.int64],
    count: int,
    rng: np.random.Generator,
) -> LabelledPictures:
    """Half of each class transformed: the label says whether class and transform agree."""
    rows, labels = _balanced(task, classes, count, rng)
    order = rng.permutation(len(rows))
    rows, labels = rows[order], labels[order]
    transformed = np.zeros(len(rows), dtype=bool)
    for label in range(task.labels):
        transformed[np.flatnonzero(labels == label)[::2]] = True
    plain = _seen(pictures[rows], "plain", rng)
    changed = _seen(pictures[rows], task.transform.removeprefix("crossed "), rng)
    inputs = np.where(transformed[:, None, None, None], changed, plain)
    return LabelledPictures(inputs, (labels ^ transformed).astype(np.int64))


def _seen(
    pictures: npt.NDArray[np.uint8], transform: str, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    seen = np.broadcast_to(pictures, (len(pictures), 3, 32, 32)).astype(np.float32)
    seen /= np.float32(255.0)
    if transform == "turned":
        seen = np.rot90(seen, axes=(2, 3))
    elif transform == "inverted":
        seen = 1 - seen
    elif transform == "mirrored":
        seen = seen[:, :, ::-1]
    elif transform == "noisy":
        noise = rng.normal(0.0, NOISE, (len(seen), 1, *seen.shape[2:])).astype(np.float32)
        seen = np.clip(seen + noise, 0, 1)
    elif transform == "grey":
        seen = np.repeat(seen.mean(axis=1, keepdims=True), 3, axis=1)
    elif transform == "blurred":
        padded = np.pad(seen, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
        shifts = [(i, j) for i in range(3) for j in range(3)]
        total = sum(padded[:, :, i : i + 32, j : j + 32] for i, j in shifts)
        seen = np.asarray(total / np.float32(9))
    return np.ascontiguousarray(seen, dtype=np.float32)
