"""Labelled data at hand: scikit-learn's digits, docstrings, and what a folder holds of three sets.

Nothing is downloaded. Every task keeps a part of its records for users' examples.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.models.texts.corpus import docstrings

SIDE = 32
# Of a task's records at most so many describe its learnware, and so many are a user's examples.
MOST, EXAMPLES = {"image": 900, "text": 240}, 100
SHORTEST, LONGEST, DOCSTRINGS = 60, 300, 200


@dataclass(frozen=True, eq=False)
class Material:
    """Records of one task, those of the developer and those of a user apart.

    Attributes:
        name: short, for a file.
        title: what is told apart.
        source: the data set.
        modality: ``"image"`` (n, 3, 32, 32) in [0, 1], or ``"text"``.
        licence: of the data, as Hugging Face names it.
        terms: the same as it is stated.
        names: what label 0, label 1 and so on mean.
        inputs: the developer's.
        labels: (n,) 0 … K − 1.
        user_inputs: a user's, none of them the developer's.
        user_labels: of those.
    """

    name: str
    title: str
    source: str
    modality: Literal["image", "text"]
    licence: str
    terms: str
    names: tuple[str, ...]
    inputs: Any
    labels: NDArray[np.int64]
    user_inputs: Any
    user_labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DataSet:
    """A whole data set, shuffled once.

    Attributes:
        source: its name.
        modality: as a ``Material``'s.
        licence: as a ``Material``'s.
        terms: likewise.
        names: of its classes.
        inputs: (n, C, 32, 32) uint8, or n texts.
        classes: (n,).
    """

    source: str
    modality: Literal["image", "text"]
    licence: str
    terms: str
    names: tuple[str, ...]
    inputs: Any
    classes: NDArray[np.int64]


PLANS: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    "digits": (
        ((0, 1), "plain"), ((3, 8), "plain"), ((4, 9), "plain"), (tuple(range(10)), "plain"),
        ((5, 6, 8), "inverted"), ((3, 5), "inverted"), ((2, 4, 6, 8), "inverted"),
        ((0, 6, 9), "turned"), ((1, 7), "turned"), ((1, 3, 5, 7, 9), "turned"),
        ((2, 3), "mirrored"), ((0, 4, 8), "mirrored"),
    ),
    "docstrings": (
        ((0, 1), "plain"), ((2, 3), "plain"), ((4, 5), "plain"), ((0, 2), "plain"),
        ((1, 4), "plain"), ((0, 3, 5), "plain"), ((1, 2, 4), "plain"), ((3, 5), "plain"),
    ),
    "mnist": (((3, 8), "plain"), ((1, 4, 7), "turned"), ((0, 2, 5, 6, 9), "inverted")),
    "cifar10": (((3, 5), "plain"), ((0, 1, 8, 9), "plain"), ((2, 4, 6, 7), "grey")),
    "agnews": (((0, 1), "plain"), ((2, 3), "plain"), ((0, 1, 2, 3), "plain")),
}  # fmt: skip
PACKAGES = ("numpy", "scipy", "matplotlib", "sqlalchemy", "rich", "asyncio")


def materials(folder: Path | None) -> Iterator[Material]:
    """Yield the tasks of every data set that is there, one data set in memory at a time."""
    readers: list[Callable[[], DataSet]] = [digits, docstring_set]
    if folder is not None:
        readers += [
            lambda read=read, path=folder / name: read(path)  # type: ignore[misc]
            for name, read in FILES.items()
            if (folder / name).is_file()
        ]
    for read in readers:
        data_set = read()
        for classes, transform in PLANS[data_set.source]:
            yield cut(data_set, classes, transform)


def cut(data_set: DataSet, classes: tuple[int, ...], transform: str) -> Material:
    """Return the task that tells some classes of a data set apart, seen through a transform."""
    # as many records of every class, those of a user first, so that none is in both
    few = EXAMPLES // len(classes)
    smallest = min(int((data_set.classes == number).sum()) for number in classes)
    share = min(MOST[data_set.modality] // len(classes), smallest - few)
    mine: list[int] = []
    theirs: list[int] = []
    for number in classes:
        rows = np.flatnonzero(data_set.classes == number)
        theirs += rows[:few].tolist()
        mine += rows[few : few + share].tolist()
    names = tuple(data_set.names[number] for number in classes)
    label = {number: at for at, number in enumerate(classes)}
    numbers = data_set.classes.tolist()
    parts = [
        (_seen(data_set, rows, transform), np.array([label[numbers[row]] for row in rows]))
        for rows in (mine, theirs)
    ]
    (inputs, labels), (user_inputs, user_labels) = parts
    told = f"{', '.join(names[:-1])} or {names[-1]}"
    return Material(
        name="-".join([data_set.source, *(name.replace(" ", "-") for name in names), transform]),
        title=f"{data_set.source}: {told}" + ("" if transform == "plain" else f", {transform}"),
        source=data_set.source,
        modality=data_set.modality,
        licence=data_set.licence,
        terms=data_set.terms,
        names=names,
        inputs=inputs,
        labels=labels,
        user_inputs=user_inputs,
        user_labels=user_labels,
    )


def digits() -> DataSet:
    """Return scikit-learn's 1,797 digits, enlarged as a specification enlarges small pictures.

    Raises:
        ValueError: scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "folder: the digits come with scikit-learn: pip install 'tacit-privacy[demo]'"
        ) from None
    from tacit.specifications.backbones.vision import pictures

    held = load_digits()
    names = tuple(str(number) for number in range(10))
    seen = np.rint(255.0 * pictures(held.images / 16.0, SIDE, 1).numpy()).astype(np.uint8)
    return _shuffled("digits", "image", ("cc-by-4.0", "CC BY 4.0 (UCI)"), names, seen, held.target)


@cache
def docstring_set() -> DataSet:
    """Return docstrings of six packages that every installation has; they are read once."""
    texts: list[str] = []
    classes: list[int] = []
    for number, name in enumerate(PACKAGES):
        found = _documented(name)
        texts += found
        classes += [number] * len(found)
    return _shuffled(
        "docstrings", "text", ("other", "of each package"), PACKAGES, texts, np.array(classes)
    )


def _documented(package: str) -> list[str]:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    found: dict[str, None] = {}
    for path in sorted(Path(spec.origin).parent.rglob("*.py")):
        if "tests" in path.parts:
            continue
        for text in docstrings(path.read_text(encoding="utf-8", errors="replace")):
            # no name of the package in its text, so that what is told apart is not that name
            words = " ".join(text.split()).replace(package, "package")[:LONGEST]
            if len(words) >= SHORTEST:
                found[words] = None
        if len(found) >= DOCSTRINGS:
            break
    return list(found)[:DOCSTRINGS]


def mnist(path: Path) -> DataSet:
    """Return the training images of ``mnist.npz`` (x_train, y_train)."""
    with np.load(path) as held:
        pictures, labels = held["x_train"][:12_000, None], held["y_train"][:12_000]
    padded = np.pad(pictures, ((0, 0), (0, 0), (2, 2), (2, 2)))
    names = tuple(str(number) for number in range(10))
    return _shuffled("mnist", "image", ("cc-by-sa-3.0", "CC BY-SA 3.0"), names, padded, labels)


def cifar10(path: Path) -> DataSet:
    """Return the first 12,000 images of ``cifar10.npz`` (jpeg, offsets, labels, class_names)."""
    from PIL import Image

    with np.load(path) as held:
        packed, offsets = held["jpeg"].tobytes(), held["offsets"]
        labels, names = held["labels"][:12_000], tuple(map(str, held["class_names"]))
    pictures = np.stack(
        [
            np.asarray(Image.open(io.BytesIO(packed[start:end])))
            for start, end in pairwise(offsets[: len(labels) + 1])
        ]
    )
    return _shuffled(
        "cifar10",
        "image",
        ("unknown", "none stated"),
        names,
        pictures.transpose(0, 3, 1, 2),
        labels,
    )


def agnews(path: Path) -> DataSet:
    """Return the news of a CSV file with columns class (1 … 4), title, description."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [f"{row['title']} {row['description']}".strip()[:LONGEST] for row in rows]
    classes = np.array([int(row["class"]) - 1 for row in rows])
    names = ("world", "sports", "business", "science")
    return _shuffled(
        "agnews", "text", ("other", "research and non-commercial use"), names, texts, classes
    )


FILES: dict[str, Callable[[Path], DataSet]] = {
    "mnist.npz": mnist,
    "cifar10.npz": cifar10,
    "ag_news_test.csv.gz": agnews,
}


def _shuffled(
    source: str,
    modality: Literal["image", "text"],
    licence: tuple[str, str],
    names: tuple[str, ...],
    inputs: Any,
    classes: NDArray[np.integer],
) -> DataSet:
    # one public order, the same on every machine
    order = np.random.default_rng(0).permutation(len(classes))
    shuffled = [inputs[row] for row in order] if isinstance(inputs, list) else inputs[order]
    return DataSet(
        source, modality, *licence, names, shuffled, np.asarray(classes, np.int64)[order]
    )


def _seen(data_set: DataSet, rows: list[int], transform: str) -> Any:
    if data_set.modality == "text":
        return [data_set.inputs[row] for row in rows]
    pictures = data_set.inputs[rows]
    seen = np.broadcast_to(pictures, (len(rows), 3, SIDE, SIDE)).astype(np.float32)
    seen /= np.float32(255.0)
    if transform == "turned":
        seen = np.rot90(seen, axes=(2, 3))
    elif transform == "inverted":
        seen = 1 - seen
    elif transform == "mirrored":
        seen = seen[:, :, ::-1]
    elif transform == "grey":
        seen = np.repeat(seen.mean(axis=1, keepdims=True), 3, axis=1)
    return np.ascontiguousarray(seen)
