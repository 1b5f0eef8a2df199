"""What released embeddings are still good for: finding neighbours, ranking by similarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tacit._ground.checks import Array, in_interval, integer, matrix
from tacit.attacks.intervals import mean_interval
from tacit.measured import Interval

QUERIES_TOGETHER = 256
# Similarities that differ by less are rounding: codes of one cell must tie.
DECIMALS = 9


@dataclass(frozen=True)
class EmbeddingUse:
    """How a store of released embeddings answers clean queries.

    Attributes:
        queries: m, asked.
        stored: N, embeddings in the store.
        neighbours: k.
        recall: mean share of the k nearest in the clean store that are among the k nearest in the
            released one, ties broken at random.
        rank_correlation: mean over queries of Spearman's correlation of the cosine similarities to
            all clean and to all released embeddings; 0 where the released ones are all alike.
    """

    queries: int
    stored: int
    neighbours: int
    recall: Interval
    rank_correlation: Interval


def measure_embeddings(
    clean: Any,
    released: Any,
    *,
    queries: Any = None,
    neighbours: int = 10,
    confidence: float = 0.95,
) -> EmbeddingUse:
    """Measure retrieval from released embeddings, by cosine similarity, against the clean ones.

    Args:
        clean: the embeddings, (N, d).
        released: what is stored instead of each, such as a decoded code, (N, d).
        queries: clean embeddings of other texts to search with, (m, d); every stored text in
            turn, itself left out, when left out.
        neighbours: k.
        confidence: of the intervals, which hold over the draw of the queries, the store given.

    Returns:
        Recall at k and rank correlation.

    Raises:
        ValueError: shapes that do not fit, a zero vector, or fewer than k others stored.

    Example:
        >>> rows = np.random.default_rng(0).standard_normal((50, 8))
        >>> measure_embeddings(rows, 3 * rows).recall.value
        1.0
        >>> measure_embeddings(rows, np.ones((50, 8))).rank_correlation.value
        0.0
    """
    store, told = _unit("clean", clean), _unit("released", released)
    if store.shape != told.shape:
        raise ValueError(f"released: expected shape {store.shape}, got {told.shape}")
    own = queries is None
    asked = store if own else _unit("queries", queries, columns=store.shape[1])
    others = len(store) - own
    if others < 2 or len(asked) < 2:
        raise ValueError(
            f"clean: expected at least 2 queries and 2 others to find, got {len(asked)} and "
            f"{others}"
        )
    size = integer("neighbours", neighbours, minimum=1, maximum=others)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    shares, ranks = np.empty(len(asked)), np.empty(len(asked))
    for start in range(0, len(asked), QUERIES_TOGETHER):
        rows = np.arange(start, min(start + QUERIES_TOGETHER, len(asked)))
        pair = [np.round(asked[rows] @ held.T, DECIMALS) for held in (store, told)]
        if own:
            pair = [_without(held, rows) for held in pair]
        shares[rows] = (_chosen(pair[0], size) * _chosen(pair[1], size)).sum(axis=1) / size
        ranks[rows] = _spearman(*pair)
    low, high = mean_interval(np.clip((1.0 + ranks) / 2.0, 0.0, 1.0), level)
    return EmbeddingUse(
        queries=len(asked),
        stored=len(store),
        neighbours=size,
        recall=_around(shares.mean(), *mean_interval(np.clip(shares, 0.0, 1.0), level), level),
        rank_correlation=_around(ranks.mean(), 2.0 * low - 1.0, 2.0 * high - 1.0, level),
    )


def _unit(name: str, value: Any, *, columns: int | None = None) -> Array:
    rows = matrix(name, value, columns=columns)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (lengths > 0).all():
        raise ValueError(f"{name}: expected embeddings, got a zero vector in row "
                         f"{int((lengths[:, 0] == 0).argmax())}")  # fmt: skip
    found: Array = rows / lengths
    return found


def _without(similarities: Array, rows: Any) -> Array:
    """Return similarities to all others but the query itself."""
    keep = np.ones(similarities.shape, dtype=bool)
    keep[np.arange(len(rows)), rows] = False
    return similarities[keep].reshape(len(rows), -1)


def _chosen(similarities: Array, size: int) -> Array:
    """Return the chance of each to be among the ``size`` most similar, ties broken at random."""
    least = np.partition(similarities, -size, axis=1)[:, -size, None]
    above, tied = similarities > least, similarities == least
    left = size - above.sum(axis=1, keepdims=True)
    chances: Array = above + tied * (left / tied.sum(axis=1, keepdims=True))
    return chances


def _spearman(first: Array, second: Array) -> Array:
    """Correlation of the mean ranks of two matrices, row by row."""
    ranks = [stats.rankdata(rows, axis=1) for rows in (first, second)]
    centred = [rows - rows.mean(axis=1, keepdims=True) for rows in ranks]
    scale = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
    product = (centred[0] * centred[1]).sum(axis=1)
    found: Array = np.where(scale > 0, product / np.where(scale > 0, scale, 1.0), 0.0)
    return found


def _around(value: Any, low: float, high: float, confidence: float) -> Interval:
    found = float(value)
    return Interval(found, min(low, found), max(high, found), confidence)
