"""One bit a number, compared by FAISS, and the candidates ranked again exactly."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit_dock.search.shared import SharedLock
from tacit_dock.search.vectors import SPARE, FoundRow, Vectors, VectorStore

# Public and fixed: it spreads what a few numbers of a vector hold over all of them.
ROTATION = 0
QUERY_BITS = 4
TRAINED = 4096
FIRST = 128
LEAST_DEPTH, MOST_DEPTH = 512, 8192
# An estimate of a unit vector's cosine errs by 0.76/√d (RaBitQ, Theorem 3.2, with one bit); what
# is estimated further below the best than this many such errors is not looked at.
ERROR, ERRORS = 0.8, 2.6
# Of so wide rows a quarter of the bits is compared first, unless that was in vain of late.
LEAST_WIDTH, SHORTER, SKIPPED = 2048, 4, 15
Bits: TypeAlias = NDArray[np.uint8]
Ranked: TypeAlias = tuple[NDArray[np.int64], Vectors]


def is_available() -> bool:
    """Whether FAISS is installed, with this kind of index."""
    if importlib.util.find_spec("faiss") is None:
        return False
    import faiss

    return hasattr(faiss, "IndexRaBitQ")


class Quantised:
    """Bits of the rows of a store: an eighth of a byte for each number of 4 bytes.

    A quarter of the bits is compared first. Where they leave few rows that may be among the best,
    these are ranked exactly; else all bits are compared.

    Args:
        vectors: whose rows are quantised; those added later are taken over before a search.

    Attributes:
        depth: how many candidates the next search by all bits ranks again at first: what the last
            needed.

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
        # of so short rows the bits are compared at once
        short = (self._width // SHORTER,) if self._width >= LEAST_WIDTH else ()
        self._widths = (self._width, *short)
        # none before the first row is taken over
        self._indexes: dict[int, Any] = {}
        self._rows, self.depth = 0, LEAST_DEPTH
        self._skipped = 0
        self._lock = SharedLock()

    @property
    def _long(self) -> Any:
        return self._indexes[self._width]

    @property
    def _short(self) -> Any:
        return self._indexes.get(self._width // SHORTER)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return self._rows * sum(int(one.code_size) for one in self._indexes.values())

    @property
    def form(self) -> dict[str, object]:
        """What the bits are read by: who wrote them, and how many bytes a row has of each kind."""
        sizes = {str(width): int(self._empty(width).code_size) for width in self._widths}
        return {
            "bits": f"faiss {self._faiss.__version__}, rotation {ROTATION}",
            "records": {"rows": 4 * self.vectors.width, **sizes},
        }

    def take(self, bits: Mapping[str, Bits], centres: Mapping[str, Vectors]) -> None:
        """Take over bits of the first rows that were made before, as `bits` and `centres` told.

        Raises:
            ValueError: a centre of another width, past whose end would be read.
        """
        if any(len(centres[str(width)]) != width for width in self._widths):
            raise ValueError("centres: expected as many numbers as bits of a row")
        made = {}
        for width in self._widths:
            index, name = self._empty(width), str(width)
            self._faiss.copy_array_to_vector(centres[name], index.center)
            index.is_trained = True
            index.add_sa_codes(bits[name])
            made[width], self._rows = index, len(bits[name])
        self._indexes = made

    def made(self) -> int:
        """Make the bits of all rows that have none, and return of how many there are."""
        self._take_over()
        return self._rows

    def bits(self, start: int, stop: int) -> dict[str, Bits]:
        """Return a copy of the bits of consecutive rows, by the name of their index."""
        found = {}
        with self._lock.reading():
            for width, index in self._indexes.items():
                size = int(index.code_size)
                codes = self._faiss.rev_swig_ptr(index.codes.data(), int(index.ntotal) * size)
                found[str(width)] = codes.reshape(-1, size)[start:stop].copy()
        return found

    def centres(self) -> dict[str, Vectors]:
        """Return what the bits are told about, by the name of their index."""
        vector = self._faiss.vector_to_array
        return {str(width): vector(index.center) for width, index in self._indexes.items()}

    def search(self, query: Vectors, count: int) -> list[FoundRow]:
        """Return the rows of the largest inner products with a query, each of them exact.

        Args:
            query: a unit vector.
            count: how many.
        """
        self._take_over()
        # searches are many at a time: threads of one would wait for those of another
        self._faiss.omp_set_num_threads(1)
        turned = self.rotated(query[np.newaxis])
        removed = self.vectors.rows - len(self.vectors)
        # codes move in memory when rows are added
        with self._lock.reading():
            found = self._by_few(query, turned, count, removed)
            places, scores = found or self._by_all(query, turned, count, removed)
        best = np.argsort(-scores)[: count + removed + SPARE]
        return self.vectors.ranked(query, places[best], count)

    def _by_few(self, query: Vectors, turned: Vectors, count: int, removed: int) -> Ranked | None:
        """Rank what a quarter of the bits leaves; None where that is too much to be worth it."""
        if self._short is None or self._skipped:
            self._skipped = max(0, self._skipped - 1)
            return None
        width = int(self._short.d)
        # ⟨x, q⟩ from a part of the turned numbers errs by 1/√width more
        slack = ERRORS * math.hypot(ERROR, 1.0) / math.sqrt(width)
        depth = min(self._rows, 4 * count + removed + LEAST_DEPTH)
        part = self._part(turned, width)
        kept, needed = self._candidates(self._short, query, part, (depth, count, slack))
        if needed >= depth and depth < self._rows:
            self._skipped = SKIPPED
            return None
        return kept

    def _by_all(self, query: Vectors, turned: Vectors, count: int, removed: int) -> Ranked:
        slack = ERRORS * ERROR / math.sqrt(self.vectors.width)
        depth = max(self.depth, 4 * count) + removed
        while True:
            depth = min(depth, self._rows)
            kept, needed = self._candidates(self._long, query, turned, (depth, count, slack))
            if needed < depth or depth >= min(self._rows, MOST_DEPTH + removed):
                break
            depth *= 4
        # the next query is likely to need as many
        self.depth = int(np.clip(1.5 * needed, LEAST_DEPTH, MOST_DEPTH))
        return kept

    def _candidates(
        self, index: Any, query: Vectors, turned: Vectors, asked: tuple[int, int, float]
    ) -> tuple[Ranked, int]:
        """Return the rows that may be among the best with exact products, and how many are."""
        depth, count, slack = asked
        estimates, found = index.search(turned, depth)
        estimate, places = estimates[0], found[0].astype(np.int64)
        first = self._inner_products(query, places[: FIRST + count])
        bar = np.sort(first)[-min(count, len(first))] - slack
        needed = int(np.searchsorted(-estimate, -bar))
        if needed >= depth and depth < self._rows and index is self._short:
            return (places[:0], first[:0]), needed
        # rows in the order of the memory are read faster
        others = np.sort(places[FIRST + count : needed])
        rest = self._inner_products(query, others)
        ranked = np.concatenate([places[: FIRST + count], others]), np.concatenate([first, rest])
        return ranked, needed

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
        with self._lock.writing():
            end = self.vectors.rows
            if not self._indexes:
                sample = self.rotated(self.vectors.rows_between(0, min(end, TRAINED)))
                self._indexes = {width: self._made(sample, width) for width in self._widths}
            for start in range(self._rows, end, TRAINED):
                stop = min(start + TRAINED, end)
                rows = self.rotated(self.vectors.rows_between(start, stop))
                for index in self._indexes.values():
                    index.add(self._part(rows, index.d))
            self._rows = end

    def _made(self, sample: Vectors, width: int) -> Any:
        index = self._empty(width)
        index.train(self._part(sample, width))
        return index

    def _empty(self, width: int) -> Any:
        index = self._faiss.IndexRaBitQ(width, self._faiss.METRIC_INNER_PRODUCT)
        index.qb = QUERY_BITS
        return index

    def _part(self, turned: Vectors, width: int) -> Vectors:
        """Return the first turned numbers at the length of all, √(d/d') times themselves."""
        if width == self._width:
            return turned
        scale = np.float32(math.sqrt(self._width / width))
        return np.ascontiguousarray(turned[:, :width]) * scale

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
