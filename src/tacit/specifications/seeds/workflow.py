"""Learnwares for an empty dock, and tasks of users to search it by, from the data at hand."""

from __future__ import annotations

import functools
import os
import pydoc_data.topics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit._ground.reprs import shown
from tacit.specifications.seeds.card import card
from tacit.specifications.seeds.material import SIDE, Material, materials
from tacit.specifications.seeds.models import accuracy, stored, trained
from tacit.specifications.specification import Specification

if TYPE_CHECKING:
    from tacit.specifications.engine.mechanism import Public

EPSILON, RANK, PUBLIC_RECORDS = 8.0, 1, 200


@dataclass(frozen=True, eq=False)
class SeedLearnware:
    """A real learnware, ready to be submitted.

    Attributes:
        name: short, for a file.
        specification: its file.
        card: Markdown with a YAML head.
        model: safetensors file of the weights.
        release: JSON of the release that made the specification, where there is one.
    """

    name: str
    specification: bytes
    card: str
    model: bytes
    release: str | None = None


@dataclass(frozen=True, eq=False)
class ExampleTask:
    """What a user might look for.

    Attributes:
        name: that of the learnware trained for it.
        title: in words.
        specification: of a user's hundred records, made without noise.
    """

    name: str
    title: str
    specification: bytes


def seed_learnwares(folder: str | os.PathLike[str] | None = None) -> Iterator[SeedLearnware]:
    """Yield about twenty learnwares, more where the folder holds MNIST, CIFAR-10 or AG News.

    Twelve tasks of scikit-learn's digits and eight of docstrings, each with a model trained for it
    and a specification that is (8, 10⁻⁵)-differentially private for replacing one record. Nothing
    is downloaded.

    Args:
        folder: with ``mnist.npz``, ``cifar10.npz``, ``ag_news_test.csv.gz``, any of them, or None.

    Raises:
        ValueError: the folder is none, or scikit-learn is missing.
    """
    for material in materials(_folder(folder)):
        network = trained(material)
        made = _described("model", material, EPSILON)
        yield SeedLearnware(
            name=material.name,
            specification=made.to_bytes(),
            card=card(material, made, accuracy(network, material)),
            model=stored(network),
        )


def example_tasks(folder: str | os.PathLike[str] | None = None) -> Iterator[ExampleTask]:
    """Yield a user's task for every learnware of ``seed_learnwares``, from records it has not.

    Args:
        folder: as there.

    Raises:
        ValueError: as there.
    """
    for material in materials(_folder(folder)):
        made = _described("task", material, None)
        yield ExampleTask(material.name, material.title, made.to_bytes())


def _folder(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    if not isinstance(folder, (str, os.PathLike)) or not Path(folder).is_dir():
        raise ValueError(f"folder: expected a folder or None, got {shown(folder)}")
    return Path(folder)


def _described(kind: Any, material: Material, epsilon: float | None) -> Specification:
    from tacit.specifications.engine.mechanism import described

    mine = kind == "model"
    inputs = material.inputs if mine else material.user_inputs
    labels = material.labels if mine else material.user_labels
    shared = shared_by(material.modality)
    return described(kind, shared, inputs, labels, len(material.names), [epsilon])[0]


@functools.cache
def shared_by(modality: str) -> Public:
    """Return backbone, scales and clip, from records that are public and the same everywhere."""
    from tacit.specifications.engine.backbones import small_backbone, vision_backbone
    from tacit.specifications.engine.mechanism import public

    labels = np.arange(PUBLIC_RECORDS) % 5
    if modality == "image":
        return public(vision_backbone(), _pictures(), labels, rank=RANK)
    return public(small_backbone(), _topics(), labels, rank=RANK)


def _pictures() -> NDArray[np.float32]:
    """Return random fields of several coarsenesses and contrasts, (200, 3, 32, 32) in [0, 1]."""
    rng = np.random.Generator(np.random.PCG64(0))
    fields = []
    for number in range(PUBLIC_RECORDS):
        step = (2, 4, 8, 16)[number % 4]
        coarse = rng.random((3 if number % 3 else 1, SIDE // step, SIDE // step)) ** 2
        fields.append(np.broadcast_to(np.kron(coarse, np.ones((1, step, step))), (3, SIDE, SIDE)))
    return np.stack(fields).astype(np.float32)


def _topics() -> list[str]:
    """Return paragraphs of Python's own documentation of its topics."""
    text = "\n\n".join(held for _, held in sorted(pydoc_data.topics.topics.items()))
    kept = [" ".join(part.split()) for part in text.split("\n\n") if len(part) > 80]
    return kept[: 7 * PUBLIC_RECORDS : 7]
