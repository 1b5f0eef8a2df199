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
# deviations by which a vector near a query is above the score of its code
ABOVE = 3.0


class CodeRanking:
    """Scores of n codes against a query: ⟨q, x̂⟩, or 2⟨q, x̂⟩ − ‖x̂‖² for the distance.

    ``⟨q, x̂⟩ = Σ_j ⟨q, c_j⟩`` where parts lie side by side or add up: one look-up a part and row.
    A shortlist is of those that may be nearest: by the cosine, codes that say little stand higher.

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
        self._squares: Any = 0.0
        self._hidden: Any = 0.0
        if metric == "euclidean":
            self._squares = _squares(codec, codes)
        if metric == "cosine":
            self._hidden = hidden(_squares(codec, codes), codec.width)
        self._twice = np.float32(2.0 if metric == "euclidean" else 1.0)

    def scores(self, query: npt.NDArray[np.float32]) -> Scores:
        """Return the score of every row for a query (d,), (n,)."""
        if self._parts is None:
            found = self._decoded @ query
        else:
            found = 0.0
            for (start, part), places in zip(self._parts, self._places, strict=True):
                table = part @ query[start : start + part.shape[1]]
                found = found + np.take(table, places)
        scores: Scores = self._twice * found - self._squares
        return scores

    def nearest(self, query: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.intp]:
        """Return the rows of the highest scores, in no order."""
        return largest(self.scores(query) + self._hidden, count)


def hidden(squares: Scores, width: int) -> Scores:
    """Return by how much a unit vector near the query is above ⟨q, x̂⟩, from ‖x̂‖² of its code.

    A code leaves x − x̂ of length √(1 − ‖x̂‖²), as x̂ is a mean of unit vectors. In any direction
    that is ``√(1 − ‖x̂‖²)/√d`` in deviation, and the nearest are those some deviations above.
    """
    found: Scores = (ABOVE / width**0.5) * np.sqrt(np.maximum(1.0 - squares, 0.0))
    return found.astype(np.float32)


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
