"""Beam search for the codewords, one of each stage, whose sum is nearest to a vector.

A stage codes what the stages before it left. The nearest sum cannot be found stage by stage, as the
best codeword of a stage depends on those after it, so that the B best sums so far are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tacit._ground.threads import one_thread
from tacit.compute import available_workers
from tacit.hidden_states.codebooks.certificates import Codes

Floats: TypeAlias = npt.NDArray[np.float32]

# scores of a block of rows that stay in the cache of a thread: 1 MB
SCORES_TOGETHER = 2**18
# products of codewords that are kept between calls: 256 MB
PRODUCTS_KEPT = 2**26


@dataclass(frozen=True, eq=False)
class Stages:
    """Codewords of every stage, and what a search reads of them.

    Attributes:
        codewords: of every stage, (C_j, r) of float32, entries of order 1.
    """

    codewords: tuple[Floats, ...]

    @cached_property
    def halves(self) -> tuple[Floats, ...]:
        """Return ½ ‖c‖² of the codewords of every stage."""
        return tuple(0.5 * np.einsum("cr,cr->c", table, table) for table in self.codewords)

    @cached_property
    def _known(self) -> dict[int, Floats]:
        return {}

    def products(self, stage: int) -> Floats:
        """Return ``−⟨c_j, c⟩`` of all codewords before a stage with its own, and a row of ones."""
        if stage in self._known:
            return self._known[stage]
        before, own = self.codewords[:stage], self.codewords[stage]
        ones = np.ones((1, len(own)), dtype=np.float32)
        found = np.concatenate([*(-(table @ own.T) for table in before), ones])
        # kept for further calls, unless they are too many
        if sum(len(table) for table in self.codewords) ** 2 <= 2 * PRODUCTS_KEPT:
            self._known[stage] = found
        return found

    def first(self, stage: int) -> Codes:
        """Return where the products of each stage before one start, and the row of ones."""
        return np.cumsum([0, *(len(table) for table in self.codewords[:stage])])


@dataclass(frozen=True, eq=False)
class Beams:
    """The B best sums of codewords so far of n rows, the best first.

    Attributes:
        codes: of every stage so far, (n, B, j).
        scores: ``⟨x, s⟩ − ½ ‖s‖²`` of each sum s, (n, B): the largest is the nearest.
    """

    codes: Codes
    scores: Floats

    @classmethod
    def empty(cls, rows: int) -> Beams:
        """Return the sum of no codewords."""
        return cls(np.empty((rows, 1, 0), dtype=np.int64), np.zeros((rows, 1), dtype=np.float32))


def extended(rows: Floats, stages: Stages, stage: int, beams: Beams, width: int) -> Beams:
    """Extend every sum by every codeword of a stage, and keep the ``width`` nearest sums.

    Args:
        rows: (n, r).
        stages: the codewords.
        stage: which of them, from 0.
        beams: sums of the stages before it.
        width: B, sums that are kept of each row.
    """
    count, before = beams.scores.shape
    size = len(stages.codewords[stage])
    kept = min(width, before * size)
    turned, half = np.ascontiguousarray(stages.codewords[stage].T), stages.halves[stage]
    products, first = stages.products(stage), stages.first(stage)
    codes = np.empty((count, kept, stage + 1), dtype=np.int64)
    scores = np.empty((count, kept), dtype=np.float32)
    step = max(1, SCORES_TOGETHER // (before * size))

    def search(start: int) -> None:
        part = slice(start, start + step)
        own = rows[part] @ turned
        own -= half
        total = _scores(own, products, first, beams.codes[part], beams.scores[part])
        found = _best(total, beams.codes[part], kept)
        codes[part], scores[part] = found.codes, found.scores

    # a block of rows is one thread's own, so that no product waits for another
    with one_thread(), ThreadPoolExecutor(available_workers()) as pool:
        for _ in pool.map(search, range(0, count, step)):
            pass
    return Beams(codes, scores)


def _scores(own: Floats, products: Floats, first: Codes, codes: Codes, scores: Floats) -> Floats:
    """Return the score of every extension of every sum, (n, B, C).

    ``‖x − s − c‖² = ‖x‖² − 2 (⟨x, s⟩ − ½‖s‖²) − 2 (⟨x, c⟩ − ½‖c‖² − ⟨s, c⟩)``.
    """
    count, before, stages = codes.shape
    if stages == 0:
        return own[:, None]
    # the products −⟨c_j, c⟩ are looked up and added in one pass, as a sparse row of ones times
    # their table: no residual is formed, and a row is multiplied by each codeword once
    places = np.empty((count * before, stages + 1), dtype=np.int32)
    places[:, :-1] = codes.reshape(-1, stages) + first[:-1]
    places[:, -1] = first[-1]
    weights = np.ones(places.shape, dtype=np.float32)
    weights[:, -1] = scores.reshape(-1)
    ends = np.arange(0, places.size + 1, stages + 1, dtype=np.int32)
    shape = (len(places), len(products))
    looked_up = sparse.csr_matrix((weights.reshape(-1), places.reshape(-1), ends), shape)
    total: Floats = (looked_up @ products).reshape(count, before, -1)
    total += own[:, None]
    return total


def _best(total: Floats, codes: Codes, kept: int) -> Beams:
    """Return the best of all extensions of one block of rows, (n, kept)."""
    count, _, size = total.shape
    flat, every = total.reshape(count, -1), np.arange(count)
    found = np.empty((count, kept, codes.shape[2] + 1), dtype=np.int64)
    best = np.empty((count, kept), dtype=np.float32)
    for place in range(kept):
        # a few maxima are found faster than a partition of all scores
        chosen = flat.argmax(axis=1)
        best[:, place] = flat[every, chosen]
        flat[every, chosen] = -np.inf
        parent, last = np.divmod(chosen, size)
        found[:, place, :-1] = codes[every, parent]
        found[:, place, -1] = last
    return Beams(found, best)


def nearest_sums(rows: Floats, stages: Stages, width: int) -> Codes:
    """Return the code of every row, one codeword of each stage, (n, m).

    Args:
        rows: (n, r).
        stages: the codewords.
        width: B >= 1, sums that are kept after each stage.

    Example:
        >>> tables = (np.float32([[0], [10]]), np.float32([[-1], [1]]))
        >>> nearest_sums(np.float32([[8.9], [1.2]]), Stages(tables), 2).tolist()
        [[1, 0], [0, 1]]

    Source: residual vector quantisation by multi-path search (Barnes, Rizvi and Nasrabadi, 1996).
    """
    beams = Beams.empty(len(rows))
    last = len(stages.codewords) - 1
    for stage in range(last + 1):
        # after the last stage the best sum alone is asked for
        beams = extended(rows, stages, stage, beams, 1 if stage == last else width)
    return beams.codes[:, 0]


def sums(codewords: Sequence[Floats], codes: Codes) -> Floats:
    """Return the sum of the codewords of every code (n, m), (n, r)."""
    total = np.zeros((len(codes), codewords[0].shape[1]), dtype=np.float32)
    for stage, table in enumerate(codewords):
        total += table[codes[:, stage]]
    return total
