"""Unit vectors in memory, searched exactly by their inner product with a query."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit._ground.threads import one_thread
from tacit.compute import available_workers

Vectors = NDArray[np.float32]

BLOCK_BYTES = 64 << 20
# Rows that are ranked again in float64: float32 may swap neighbours.
SPARE = 16
# Removed rows are kept as zeros until they are this many, and a quarter of all.
MOST_REMOVED = 1024
# Of so small a share of the rows each is compared by itself.
SMALL = 16


@dataclass(frozen=True)
class FoundRow:
    """One row that a search found.

    Attributes:
        id: of the row.
        similarity: ⟨row, query⟩ in float64.
    """

    id: str
    similarity: float


class VectorStore:
    """Rows of one width under names, in blocks that never move, so that searches need no lock."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.block_rows = max(64, BLOCK_BYTES // (4 * width))
        self._blocks: list[Vectors] = []
        self._ids: list[str | None] = []
        self._row_of: dict[str, int] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, ids: Sequence[str | None], rows: Vectors) -> VectorStore:
        """Return a store of rows that are there, each under its name; without one it is removed."""
        made = cls(rows.shape[1])
        made._ids = list(ids)
        made._row_of = {name: at for at, name in enumerate(ids) if name is not None}
        for start in range(0, len(rows), made.block_rows):
            part = rows[start : start + made.block_rows]
            if len(part) < made.block_rows:
                # the last block has room for those to come
                part, held = np.zeros((made.block_rows, made.width), dtype=np.float32), part
                part[: len(held)] = held
            made._blocks.append(part)
        return made

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def rows(self) -> int:
        """Rows in use, removed ones among them."""
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in use."""
        return 4 * self.width * self.rows

    def add(self, identifier: str, row: Vectors) -> int:
        """Store a row under a name, in place of the one that has it; return where it is."""
        with self._lock:
            self._forget(identifier)
            at = len(self._ids)
            block, place = divmod(at, self.block_rows)
            if block == len(self._blocks):
                # what is not written yet takes no memory
                self._blocks.append(np.zeros((self.block_rows, self.width), dtype=np.float32))
            self._blocks[block][place] = row
            self._ids.append(identifier)
            self._row_of[identifier] = at
            return at

    def remove(self, identifier: str) -> None:
        """Remove the row of a name, if there is one."""
        with self._lock:
            self._forget(identifier)

    @property
    def sparse(self) -> bool:
        """Whether so much was removed that the rows should be stored anew."""
        removed = self.rows - len(self)
        return removed > MOST_REMOVED and 4 * removed > self.rows

    def ids(self, start: int, stop: int) -> list[str | None]:
        """Return the names of consecutive rows, None of those that were removed."""
        return self._ids[start:stop]

    def row_of(self, identifier: str) -> Vectors | None:
        """Return the row of a name, None where there is none."""
        at = self._row_of.get(identifier)
        return None if at is None else self._row(at)

    def compacted(self) -> VectorStore:
        """Return a store of the same names without the rows that were removed."""
        fresh = VectorStore(self.width)
        for at, identifier in enumerate(self._ids):
            if identifier is not None:
                fresh.add(identifier, self._row(at))
        return fresh

    def block(self, number: int) -> Vectors:
        """Return the rows in use of a block."""
        return self._blocks[number][: max(0, self.rows - number * self.block_rows)]

    def exact(
        self, queries: Vectors, count: int, allowed: set[str] | None = None
    ) -> list[list[FoundRow]]:
        """Return the rows of the largest inner products with each query, the largest first.

        Args:
            queries: unit vectors (q, width).
            count: how many for each.
            allowed: names that alone may be found.
        """
        rows = self.rows
        removed = rows - len(self)
        places = None if allowed is None else self._places(allowed)
        if places is not None and SMALL * len(places) < rows:
            return [self.ranked(query, places, count) for query in queries]
        scores = np.empty((rows, len(queries)), dtype=np.float32)

        def score(start: int) -> None:
            block = self._blocks[start // self.block_rows][: rows - start]
            np.matmul(block, queries.T, out=scores[start : start + len(block)])

        starts = range(0, rows, self.block_rows)
        # a product of one query waits for memory: BLAS's own threads spin for each other there
        with one_thread():
            if len(starts) == 1:
                score(0)
            else:
                with ThreadPoolExecutor(available_workers()) as pool:
                    list(pool.map(score, starts))
        if places is not None:
            others = np.ones(rows, dtype=bool)
            others[places] = False
            scores[others] = -np.inf
        best = [_largest(scores[:, i], count + SPARE + removed) for i in range(len(queries))]
        if places is not None:
            best = [np.intersect1d(found, places) for found in best]
        return [self.ranked(query, best[i], count) for i, query in enumerate(queries)]

    def ranked(self, query: Vectors, places: NDArray[np.int64], count: int) -> list[FoundRow]:
        """Return the best of some rows, ranked in float64."""
        exact = np.asarray(query, dtype=np.float64)
        exact /= max(float(np.linalg.norm(exact)), 0.5)
        scores = self._scores(exact, places)
        found = []
        for best in np.argsort(-scores, kind="stable"):
            name = self._ids[places[best]]
            if name is not None:
                found.append(FoundRow(name, float(np.clip(scores[best], -1.0, 1.0))))
            if len(found) == count:
                break
        return found

    def rows_between(self, start: int, stop: int) -> Vectors:
        """Return a copy of consecutive rows."""
        return np.stack([self._row(at) for at in range(start, stop)])

    def _scores(self, query: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the inner products of rows with a query, a block's rows at a time."""
        scores = np.empty(len(places))
        part = max(1, (8 << 20) // (8 * self.width))
        for start in range(0, len(places), part):
            held = np.stack([self._row(int(at)) for at in places[start : start + part]])
            exact = held.astype(np.float64)
            # unit vectors in float32 are of length 1 up to rounding
            lengths = np.maximum(np.linalg.norm(exact, axis=1), 0.5)
            # a row's number does not depend on its neighbours, as a matrix product's would
            scores[start : start + part] = np.einsum("ij,j->i", exact, query) / lengths
        return scores

    def _row(self, at: int) -> Vectors:
        block, place = divmod(at, self.block_rows)
        row: Vectors = self._blocks[block][place]
        return row

    def _places(self, names: set[str]) -> NDArray[np.int64]:
        held = [self._row_of.get(name) for name in names]
        return np.array(sorted(at for at in held if at is not None), dtype=np.int64)

    def _forget(self, identifier: str) -> None:
        at = self._row_of.pop(identifier, None)
        if at is not None:
            self._ids[at] = None
            # a withdrawn content leaves the memory too
            self._row(at)[:] = 0.0


def _largest(scores: Vectors, count: int) -> NDArray[np.int64]:
    if count >= len(scores):
        return np.arange(len(scores))
    return np.asarray(np.argpartition(-scores, count)[:count], dtype=np.int64)
