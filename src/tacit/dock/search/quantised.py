"""One bit a number, compared by FAISS, and the candidates ranked again exactly."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.dock.search.vectors import SPARE, Found, Vectors, VectorStore

# Public and fixed: it spreads what a few numbers of a vector hold over all of them.
ROTATION = 0
QUERY_BITS = 4
TRAINED = 4096
FIRST = 128
LEAST_DEPTH, MOST_DEPTH = 512, 8192
# An estimate of a unit vector's cosine errs by 0.76/√d (RaBitQ, Theorem 3.2, with one bit); what
# is estimated further below the best than this many such errors is not looked at.
ERROR, ERRORS = 0.8, 2.6


def is_available() -> bool:
    """Whether FAISS is installed, with this kind of index."""
    if importlib.util.find_spec("faiss") is None:
        return False
    import faiss

    return hasattr(faiss, "IndexRaBitQ")


class Quantised:
    """Bits of the rows of a store: an eighth of a byte for each number of 4 bytes.

    Args:
        vectors: whose rows are quantised; those added later are taken over before a search.

    Attributes:
        depth: how many candidates the next search ranks again at first: what the last needed.

    Source: Gao and Long (2024), RaBitQ, as FAISS has it.
    """

    def __init__(self, vectors: VectorStore) -> None:
        import faiss

        self._faiss: Any = faiss
        self.vectors = vectors
        self._width = 1 << (vectors.width - 1).bit_length()
        signs = np.random.default_rng(ROTATION).integers(0, 2, self._width)
        self._signs = (2.0 * signs - 1.0).astype(np.float32)
        half = (self._width.bit_length() - 1) // 2
        self._halves = hadamard(self._width >> half), hadamard(1 << half)
        self._index: Any = None
        self._rows, self.depth = 0, LEAST_DEPTH
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return 0 if self._index is None else self._rows * int(self._index.code_size)

    def search(self, query: Vectors, count: int) -> list[Found]:
        """Return the rows of the largest inner products with a query, each of them exact.

        Args:
            query: a unit vector.
            count: how many.
        """
        self._take_over()
        # searches are many at a time: threads of one would wait for those of another
        self._faiss.omp_set_num_threads(1)
        turned, rows = self.rotated(query[np.newaxis]), self._rows
        slack = ERRORS * ERROR / np.sqrt(self.vectors.width)
        removed = self.vectors.rows - len(self.vectors)
        depth = max(self.depth, 4 * count) + removed
        while True:
            depth = min(depth, rows)
            estimates, found = self._index.search(turned, depth)
            estimate, places = estimates[0], found[0].astype(np.int64)
            first = self._inner_products(query, places[: FIRST + count])
            bar = np.sort(first)[-min(count, len(first))] - slack
            needed = int(np.searchsorted(-estimate, -bar))
            if needed < depth or depth >= min(rows, MOST_DEPTH + removed):
                break
            depth *= 4
        # the next query is likely to need as many
        self.depth = int(np.clip(1.5 * needed, LEAST_DEPTH, MOST_DEPTH))
        # rows in the order of the memory are read faster
        others = np.sort(places[FIRST + count : needed])
        rest = self._inner_products(query, others)
        places = np.concatenate([places[: FIRST + count], others])
        scores = np.concatenate([first, rest])
        best = np.argsort(-scores)[: count + removed + SPARE]
        return self.vectors.ranked(query, places[best], count)

    def rotated(self, rows: Vectors) -> Vectors:
        """Return rows times random signs and the Hadamard matrix, which keeps inner products."""
        left, right = self._halves
        padded = np.zeros((len(rows), self._width), dtype=np.float32)
        padded[:, : rows.shape[1]] = rows
        folded = (padded * self._signs).reshape(len(rows), len(left), len(right))
        # H_(ab) = H_a ⊗ H_b
        turned = np.matmul(np.matmul(left, folded), right).reshape(len(rows), self._width)
        return np.ascontiguousarray(turned)

    def _take_over(self) -> None:
        if self._rows == self.vectors.rows:
            return
        with self._lock:
            end = self.vectors.rows
            if self._index is None:
                metric = self._faiss.METRIC_INNER_PRODUCT
                self._index = self._faiss.IndexRaBitQ(self._width, metric)
                self._index.qb = QUERY_BITS
                sample = self.vectors.rows_between(0, min(end, TRAINED))
                self._index.train(self.rotated(sample))
            for start in range(self._rows, end, TRAINED):
                stop = min(start + TRAINED, end)
                self._index.add(self.rotated(self.vectors.rows_between(start, stop)))
            self._rows = end

    def _inner_products(self, query: Vectors, places: NDArray[np.int64]) -> Vectors:
        """Return exact inner products without copying the rows together."""
        found = np.empty(len(places), dtype=np.float32)
        pointer, vectors = self._faiss.swig_ptr, self.vectors
        given = np.ascontiguousarray(query)
        for number in np.unique(places // vectors.block_rows):
            mine = np.flatnonzero(places // vectors.block_rows == number)
            inside = np.ascontiguousarray(places[mine] % vectors.block_rows)
            part = np.empty(len(mine), dtype=np.float32)
            self._faiss.fvec_inner_products_by_idx(
                pointer(part),
                pointer(given),
                pointer(vectors.block(int(number))),
                pointer(inside),
                vectors.width,
                1,
                len(mine),
            )
            found[mine] = part
        return found


def hadamard(size: int) -> Vectors:
    """Return the orthogonal Hadamard matrix of a power of two."""
    found: Any = np.ones((1, 1))
    while len(found) < size:
        found = np.block([[found, found], [found, -found]]) / np.float32(np.sqrt(2.0))
    return np.asarray(found, dtype=np.float32)
