"""Where the data is, and how it is read. What is missing is a sentence, not an error."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit_lab.studies.places import ROOT

TOKENS = 64
VOCABULARY = 30_000


class MissingDataError(Exception):
    """A file of an experiment is not there."""


class Split(NamedTuple):
    """Training and test inputs with labels 0 … C − 1."""

    train: npt.NDArray[Any]
    train_labels: npt.NDArray[np.int64]
    test: npt.NDArray[Any]
    test_labels: npt.NDArray[np.int64]

    def head(self, train: int, test: int) -> Split:
        """Return the first inputs of each, for a smoke test."""
        return Split(
            self.train[:train],
            self.train_labels[:train],
            self.test[:test],
            self.test_labels[:test],
        )


def find(name: str) -> Path:
    """Return a file in ``TACIT_DATA``, or in ``shared/data`` beside the checkout.

    Raises:
        MissingDataError: it is in neither.
    """
    beside = ROOT.parent / "shared" / "data"
    found = Path(os.environ.get("TACIT_DATA") or beside) / name
    if not found.is_file():
        raise MissingDataError(f"{name} is not there: put its folder in TACIT_DATA")
    return found


def rice() -> npt.NDArray[np.float64]:
    """Return the seven numeric columns, (3810, 7)."""
    return np.loadtxt(find("rice.csv"), delimiter=",", skiprows=1, usecols=range(7))


def mnist() -> Split:
    """Return images as float32 (n, 1, 28, 28), normalised as the paper does."""
    with np.load(find("mnist.npz")) as arrays:
        images = [arrays[f"x_{part}"] for part in ("train", "test")]
        labels = [arrays[f"y_{part}"].astype(np.int64) for part in ("train", "test")]
    train, test = (((x[:, None] / np.float32(255.0)) - 0.1307) / 0.3081 for x in images)
    return Split(train.astype(np.float32), labels[0], test.astype(np.float32), labels[1])


def cifar10() -> Split:
    """Return images as float32 (n, 3, 32, 32), mean and standard deviation one half."""
    from PIL import Image

    with np.load(find("cifar10.npz")) as arrays:
        packed, offsets = arrays["jpeg"].tobytes(), arrays["offsets"]
        labels, is_test = arrays["labels"].astype(np.int64), arrays["is_test"]
    images = np.stack(
        [
            np.asarray(Image.open(io.BytesIO(packed[offsets[i] : offsets[i + 1]])))
            for i in range(len(labels))
        ]
    )
    scaled = ((images / np.float32(255.0) - 0.5) / 0.5).transpose(0, 3, 1, 2).astype(np.float32)
    return Split(scaled[~is_test], labels[~is_test], scaled[is_test], labels[is_test])


def agnews() -> Split:
    """Return token numbers (n, 64), 0 for padding and words outside the 30,000 most frequent."""
    train, train_labels = _articles("ag_news_train_part.csv.gz")
    test, test_labels = _articles("ag_news_test.csv.gz")
    counts = Counter(word for words in train for word in words)
    numbers = {word: i + 1 for i, (word, _) in enumerate(counts.most_common(VOCABULARY - 1))}
    return Split(_tokens(train, numbers), train_labels, _tokens(test, numbers), test_labels)


def _articles(name: str) -> tuple[list[list[str]], npt.NDArray[np.int64]]:
    with gzip.open(find(name), "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [f"{row['title']} {row['description']}".lower().split()[:TOKENS] for row in rows]
    return texts, np.array([int(row["class"]) - 1 for row in rows], dtype=np.int64)


def _tokens(texts: list[list[str]], numbers: dict[str, int]) -> npt.NDArray[np.int64]:
    tokens = np.zeros((len(texts), TOKENS), dtype=np.int64)
    for row, words in zip(tokens, texts, strict=True):
        row[: len(words)] = [numbers.get(word, 0) for word in words]
    return tokens
