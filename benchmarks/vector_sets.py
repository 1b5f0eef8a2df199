"""Five sets of real vectors: texts in two ways, digits, images, states of a language model."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import svds

PUBLIC, STORE, QUERIES = 8_000, 8_000, 300
WIDTH, VOCABULARY, WINDOW = 256, 8_000, 4


@dataclass(frozen=True, eq=False)
class VectorSet:
    """Public vectors to fit on, a store, and queries that are in neither."""

    public: Any
    store: Any
    queries: Any

    def nearest(self, count: int) -> Any:
        """Return the nearest of the store for every query, exactly."""
        squares = (self.store**2).sum(1) - 2.0 * self.queries @ self.store.T
        return np.argsort(squares, axis=1)[:, :count]


def divided(rows: Any) -> VectorSet:
    """Return rows in a random order, cut into the three parts."""
    order = np.random.default_rng(0).permutation(len(rows))
    rows = np.ascontiguousarray(rows[order], dtype=np.float32)
    held = min(STORE, (len(rows) - QUERIES) // 2)
    return VectorSet(rows[:held], rows[held : 2 * held], rows[2 * held : 2 * held + QUERIES])


def counts(texts: list[list[str]]) -> tuple[Any, list[str]]:
    """Return how often every word is in every text, and the words."""
    common = [word for word, _ in Counter(w for t in texts for w in t).most_common(VOCABULARY)]
    place = {word: number for number, word in enumerate(common)}
    pairs = [(row, place[w]) for row, text in enumerate(texts) for w in text if w in place]
    rows, columns = np.array(pairs).T
    shape = (len(texts), len(common))
    return sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape), common


def news(folder: str) -> list[list[str]]:
    """Return the words of articles."""
    with gzip.open(Path(folder) / "ag_news_train_part.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[: PUBLIC + STORE + QUERIES]
    return [re.findall(r"[a-z]+", (r["title"] + " " + r["description"]).lower()) for r in rows]


def normed(rows: Any) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def tf_idf(folder: str) -> VectorSet:
    """Articles by tf-idf and its singular vectors."""
    table, _ = counts(news(folder))
    rarity = np.log(table.shape[0] / (1.0 + np.asarray((table > 0).sum(0)).ravel()))
    weighted = sparse.csr_matrix(table.log1p() @ sparse.diags(rarity.astype(np.float32)))
    weighted = sparse.diags(1.0 / np.maximum(sparse.linalg.norm(weighted, axis=1), 1e-9)) @ weighted
    left, values, _ = svds(weighted, WIDTH, random_state=0)
    return divided(normed(left * values))


def word_means(folder: str) -> VectorSet:
    """Articles by weighted means of word vectors, singular vectors of pointwise information."""
    texts = news(folder)
    table, words = counts(texts)
    place = {word: number for number, word in enumerate(words)}
    pairs: Counter[tuple[int, int]] = Counter()
    for text in texts[:PUBLIC]:
        known = [place[w] for w in text if w in place]
        for start, one in enumerate(known):
            pairs.update((one, other) for other in known[start + 1 : start + 1 + WINDOW])
    rows, columns = np.array(list(pairs)).T
    near = sparse.csr_matrix(
        (np.fromiter(pairs.values(), float), (rows, columns)), (len(words),) * 2
    )
    near = sparse.coo_matrix(near + near.T)
    mass = np.asarray(near.sum(0)).ravel() + 1.0
    information = np.log(near.data * mass.sum() / (mass[near.row] * mass[near.col]))
    kept = sparse.csr_matrix((np.maximum(information, 0.0), (near.row, near.col)), near.shape)
    left, values, _ = svds(kept, WIDTH, random_state=0)
    frequency = np.asarray(table.sum(0)).ravel() / table.sum()
    weights = sparse.diags(1e-3 / (1e-3 + frequency))
    return divided(normed(table @ weights @ (left * np.sqrt(values))))


def digits(folder: str) -> VectorSet:
    """Pixels of written digits, without the white border."""
    with np.load(Path(folder) / "mnist.npz") as held:
        rows = held["x_train"][: PUBLIC + STORE + QUERIES, 4:24, 4:24].astype(np.float32)
    return divided(rows.reshape(len(rows), -1) / 255.0)


def images(folder: str) -> VectorSet:
    """Photographs of 8 × 8 pixels in three colours."""
    from PIL import Image

    with np.load(Path(folder) / "cifar10.npz") as held:
        content, offsets = held["jpeg"].tobytes(), held["offsets"]
    rows = [
        np.asarray(Image.open(io.BytesIO(content[offsets[i] : offsets[i + 1]])), np.float32)
        .reshape(8, 4, 8, 4, 3).mean((1, 3)).ravel()
        for i in range(PUBLIC + STORE + QUERIES)
    ]  # fmt: skip
    return divided(np.stack(rows) / 255.0)


def states(folder: str) -> VectorSet:
    """States of a layer of the small language model, after windows of books."""
    from tacit.models import load

    model = load("tacit/small")
    tokens = np.array(list(_windows(folder, model)))
    import torch

    rows = [model.states(torch.from_numpy(part), 2) for part in np.array_split(tokens, 32)]
    return divided(torch.cat(rows).numpy())


def _windows(folder: str, model: Any, length: int = 8) -> Iterator[list[int]]:
    """Yield windows of tokens that do not overlap."""
    given = 0
    for path in sorted((Path(folder) / "text").glob("*.txt.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            tokens = model.encode(file.read(200_000))
        for start in range(0, len(tokens) - length, length):
            yield tokens[start : start + length]
            given += 1
            if given == PUBLIC + STORE + QUERIES:
                return


SETS: dict[str, Callable[[str], VectorSet]] = {
    "tf-idf": tf_idf,
    "word means": word_means,
    "digits": digits,
    "images": images,
    "states": states,
}
