"""Learnwares for an empty dock, and tasks of users to search it by, from the data at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tacit._ground.reprs import shown
from tacit.documents import dumps
from tacit.specifications.methods import Description, ReplacedRecord
from tacit.specifications.seeds.material import Material, materials
from tacit.specifications.seeds.models import WIDTH, WORDS, accuracy, stored, trained
from tacit.specifications.specification import Specification

if TYPE_CHECKING:
    from tacit.releases import Release
    from tacit.specifications.release import CertifiedSpecification

# Of a seed's specification, at δ = 1e-5.
EPSILON = 2.0
BACKBONES = {"image": "tacit/vision", "text": "tacit/small"}


@dataclass(frozen=True, eq=False)
class SeedLearnware:
    """A real learnware, ready to be submitted.

    Attributes:
        name: short, for a file.
        specification: its file.
        card: Markdown with a YAML head.
        model: safetensors file of the weights.
        release: JSON of the release that made the specification.
    """

    name: str
    specification: bytes
    card: str
    model: bytes
    release: str


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
    and a specification that is (2, 10⁻⁵)-differentially private for replacing one record. Nothing
    is downloaded.

    Args:
        folder: with ``mnist.npz``, ``cifar10.npz``, ``ag_news_test.csv.gz``, any of them, or None.

    Raises:
        ValueError: the folder is none, or scikit-learn is missing.
    """
    for material in materials(_folder(folder)):
        # a real model of the developer's own records
        network = trained(material)
        made = _describe("model", material, ReplacedRecord(epsilon=EPSILON))
        specification = made.details.specification
        yield SeedLearnware(
            name=material.name,
            specification=specification.to_bytes(),
            card=card(material, specification, accuracy(network, material)),
            model=stored(network),
            release=dumps(made.published(), indent=2),
        )


def example_tasks(folder: str | os.PathLike[str] | None = None) -> Iterator[ExampleTask]:
    """Yield a user's task for every learnware of ``seed_learnwares``, from records it has not.

    Args:
        folder: as there.

    Raises:
        ValueError: as there.
    """
    for material in materials(_folder(folder)):
        made = _describe("task", material, None).details.specification
        yield ExampleTask(material.name, material.title, made.to_bytes())


def _folder(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    if (
        not isinstance(folder, (str, os.PathLike))
        or not os.fspath(folder)
        or not Path(folder).is_dir()
    ):
        raise ValueError(f"folder: expected a folder or None, got {shown(folder)}")
    return Path(folder)


def _describe(
    kind: Literal["model", "task"], material: Material, promise: ReplacedRecord | None
) -> Release[CertifiedSpecification]:
    from tacit.specifications.workflow import specify

    mine = kind == "model"
    inputs = material.inputs if mine else material.user_inputs
    places = material.labels if mine else material.user_labels
    return specify(
        [material.names[place] for place in places.tolist()],
        inputs,
        promise,
        about=Description(kind=kind, classes=material.names, title=material.title),
        backbone=BACKBONES[material.modality],
    )


def card(material: Material, specification: Specification, accuracy: float) -> str:
    """Return Markdown that begins with YAML between two lines of three dashes.

    Every value of the head is JSON, which is YAML too, so that no name of a class can end it.

    Args:
        material: what the model was trained on.
        specification: of the model's task.
        accuracy: share of a user's records that the model names right.
    """
    head = {
        "name": material.name,
        "title": material.title,
        "task": "classification",
        "modality": material.modality,
        "data": material.source,
        "labels": list(material.names),
        "license": material.licence,
        "records": len(material.labels),
        "accuracy": round(accuracy, 3),
        "tags": [material.modality, material.source, f"{len(material.names)} labels"],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    told = [f"- {held.describe()}" for held in specification.guarantees]
    promise = "\n".join(told) or "Nothing is certified of this specification."
    return f"""---
{chr(10).join(lines)}
---

# {material.title}

{_reads(material)} Of {len(material.user_labels)} records that neither the model nor its
specification has seen, {100 * accuracy:.0f}% are named right. It is an example that fills an empty
dock, trained in a second on public data ({material.source}: {material.terms}).

## What the specification tells

{promise}

The guarantee is of the specification. The model itself is trained without noise and promises
nothing about the records it was trained on.
"""


def _reads(material: Material) -> str:
    labels = len(material.names)
    if material.modality == "image":
        return (
            "A network from pictures (n, 3, 32, 32) in [0, 1]: the mean of squares of four by "
            f"four, a hidden layer of 32 units with ReLU, {labels} logits in the order of the "
            "labels. Its weights are `2.*` and `4.*`."
        )
    return (
        f"A network from texts: how often each CRC-32 of a lower-case word modulo {WORDS} occurs, "
        f"as a share of the words, a hidden layer of {WIDTH} units with ReLU, {labels} logits in "
        "the order of the labels. Its weights are `0.*` and `2.*`."
    )
