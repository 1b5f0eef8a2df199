"""Texts as averages of word vectors, fitted on public texts: quick to attack at all sizes."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import svds

Rows = npt.NDArray[np.float32]
# words on each side that a word is counted with, and the share at which a word counts half
WINDOW, HALF = 4, 1e-3


def words_of(text: str) -> list[str]:
    """Return the words of a text, in small letters."""
    return re.findall(r"[a-z0-9]+", text.lower())


class WordMeans:
    """Unit vectors of texts: means of word vectors, rare words weighed more.

    Args:
        texts: public ones.
        vocabulary: how many words have a fitted vector; another word has a random one of its own,
            as the pieces of a name have in an encoder of language.
        width: numbers of a vector.
    """

    def __init__(self, texts: Sequence[str], vocabulary: int = 4000, width: int = 128) -> None:
        held = [words_of(text) for text in texts]
        counts = Counter(word for words in held for word in words)
        self.words = [word for word, _ in counts.most_common(vocabulary)]
        self.places = {word: place for place, word in enumerate(self.words)}
        # fewer words than numbers span fewer directions
        total, self.width = sum(counts.values()), min(width, len(self.words) - 1)
        self._weights = {word: HALF / (HALF + counts[word] / total) for word in self.words}
        self._vectors = self._fitted(held, self.width)
        norms = np.linalg.norm(self._vectors, axis=1)
        self._scale = float(np.median(norms)) / math.sqrt(self.width)
        self._random: dict[str, Any] = {}

    def __call__(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts (n, d)."""
        held = [words_of(text) for text in texts]
        places = {word: n for n, word in enumerate(dict.fromkeys(chain.from_iterable(held)))}
        table = np.zeros((len(places), self.width))
        for row, word in zip(table, places, strict=True):
            row += self._weights.get(word, 1.0) * self._vector(word)
        # sums of the words of each text, as a product with the table of who has which
        inside = [places[word] for word in chain.from_iterable(held)]
        ends = np.cumsum([0, *map(len, held)])
        shape = (len(texts), len(places))
        found = sparse.csr_matrix((np.ones(len(inside)), inside, ends), shape) @ table
        norms = np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return (found / norms).astype(np.float32)

    def _vector(self, word: str) -> Any:
        if (place := self.places.get(word)) is not None:
            return self._vectors[place]
        if word not in self._random:
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            self._random[word] = self._scale * np.random.default_rng(seed).normal(size=self.width)
        return self._random[word]

    def _fitted(self, held: list[list[str]], width: int) -> Any:
        """Return singular vectors of positive pointwise information (Levy and Goldberg, 2014)."""
        pairs: Counter[tuple[int, int]] = Counter()
        for words in held:
            known = [self.places[word] for word in words if word in self.places]
            for start, one in enumerate(known):
                pairs.update((one, other) for other in known[start + 1 : start + 1 + WINDOW])
        rows, columns = np.array(list(pairs)).T
        shape = (len(self.words), len(self.words))
        near = sparse.csr_matrix((np.fromiter(pairs.values(), float), (rows, columns)), shape)
        both = sparse.coo_matrix(near + near.T)
        mass = np.asarray(both.sum(0)).ravel() + 1.0
        information = np.log(both.data * mass.sum() / (mass[both.row] * mass[both.col]))
        kept = sparse.csr_matrix((np.maximum(information, 0.0), (both.row, both.col)), shape)
        left, values, _ = svds(kept, width, random_state=0)
        return left * np.sqrt(values)
