"""The first stage: every code is scored by sums of a table for each part of a code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.hidden_states import Codec
from tacit.hidden_states.codebooks.certificates import Codes

Scores = npt.NDArray[np.float32]

# codes that are decoded at once
ROWS_TOGETHER = 8192
# codes by which it is tried whether parts add up to the vector that stands for a code
TRIED = 16
# of the norm of what stands for a code: one of nothing has no direction
SMALLEST_NORM = 1e-6


class CodeRanking:
    """Scores of n codes against a query: ⟨q, x̂⟩, or 2⟨q, x̂⟩ − ‖x̂‖² for the distance.

    ``⟨q, x̂⟩ = Σ_j ⟨q, c_j⟩`` where parts lie side by side or add up: one look-up a part and row.
    By the cosine a shortlist is of the nearest directions, ``⟨q, x̂⟩/‖x̂‖``: x̂ is a mean of unit
    vectors, shorter the less its code says, and ⟨q, x̂⟩ alone would put such codes last.

    Args:
        codec: the codebook.
        metric: what nearness is.
        codes: (n, m).
    """

    def __init__(self, codec: Codec, metric: str, codes: Codes) -> None:
        self._parts = _parts(codec)
        self._places = [np.ascontiguousarray(column) for column in codes.T.astype(np.intp)]
        self._decoded: Any = None
        if self._parts is None:
            # codes whose parts do not add up are scored by the vectors that stand for them
            self._decoded = _decoded(codec, codes)
        self._metric = metric
        self._squares = np.zeros(0, np.float32) if metric == "dot" else _squares(codec, codes)

    def scores(
        self, query: npt.NDArray[np.float32], among: npt.NDArray[np.intp] | None = None
    ) -> Scores:
        """Return the score of every row for a query (d,), (n,), or of those among which it is."""
        rows: Any = slice(None) if among is None else among
        if self._parts is None:
            found = self._decoded[rows] @ query
        else:
            found = 0.0
            for (start, part), places in zip(self._parts, self._places, strict=True):
                table = part @ query[start : start + part.shape[1]]
                found = found + np.take(table, places[rows])
        if self._metric == "euclidean":
            found = np.float32(2.0) * found - self._squares[rows]
        scores: Scores = found
        return scores

    def nearest(
        self,
        query: npt.NDArray[np.float32],
        count: int,
        among: npt.NDArray[np.intp] | None = None,
    ) -> npt.NDArray[np.intp]:
        """Return the rows that are nearest by their codes, in no order."""
        scores = self.scores(query, among)
        if self._metric == "cosine":
            squares = self._squares if among is None else self._squares[among]
            scores /= np.sqrt(np.maximum(squares, np.float32(SMALLEST_NORM**2)))
        chosen = largest(scores, count)
        return chosen if among is None else among[chosen]


def largest(scores: Scores, count: int) -> npt.NDArray[np.intp]:
    """Return where the ``count`` highest numbers stand, in no order."""
    if count >= len(scores):
        return np.arange(len(scores))
    return np.argpartition(scores, len(scores) - count)[len(scores) - count :]


def _parts(codec: Codec) -> Sequence[tuple[int, npt.NDArray[np.float32]]] | None:
    """Return (first number, centroids) of every part, None where their sum is not what decodes."""
    tables = [np.ascontiguousarray(part.numpy(), np.float32) for part in codec.centroids]
    widths = [table.shape[1] for table in tables]
    # parts of a vector stand side by side, stages of one are summed
    starts = [0] * len(widths) if codec.summed else np.cumsum([0, *widths[:-1]]).tolist()
    if any(start + width > codec.width for start, width in zip(starts, widths, strict=True)):
        return None
    # a few codes are decoded both ways: what decodes otherwise is not scored by tables
    tried = np.stack([np.arange(TRIED) * 7919 % size for size in codec.sizes], axis=1)
    summed = np.zeros((TRIED, codec.width), np.float32)
    for start, table, column in zip(starts, tables, tried.T, strict=True):
        summed[:, start : start + table.shape[1]] += table[column]
    if not np.allclose(codec.decode(tried).numpy(), summed, rtol=1e-4, atol=1e-5):
        return None
    return list(zip(starts, tables, strict=True))


def _decoded(codec: Codec, codes: Codes) -> npt.NDArray[np.float32]:
    found = np.empty((len(codes), codec.width), np.float32)
    for start in range(0, len(codes), ROWS_TOGETHER):
        part = codes[start : start + ROWS_TOGETHER]
        found[start : start + len(part)] = codec.decode(part).numpy()
    return found


def _squares(codec: Codec, codes: Codes) -> Scores:
    """Return ‖x̂‖² of every row, (n,)."""
    found = np.empty(len(codes), np.float32)
    for start in range(0, len(codes), ROWS_TOGETHER):
        rows = codec.decode(codes[start : start + ROWS_TOGETHER]).numpy()
        found[start : start + len(rows)] = np.einsum("ij,ij->i", rows, rows)
    return found
