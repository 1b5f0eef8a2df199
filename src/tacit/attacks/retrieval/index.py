"""Retrieval through a FAISS index: only the head of the ranking, its recall measured."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.lazy import install_with
from tacit._ground.values import Count, value
from tacit.attacks.retrieval.bank import Bank, Indices
from tacit.attacks.retrieval.ranks import BANK_ROWS, RankCounts
from tacit.attacks.retrieval.space import AttackSpace

HEAD = 100
QUERIES_CHECKED = 200
LEAST_TRAINING = 40


@value
class FaissIndex:
    """The first 100 candidates looked up in an index of FAISS, in place of all of them ranked.

    Args:
        kind: ``flat`` compares with every candidate in float32, ``ivf`` with those of the nearest
            lists of an inverted file.
        probes: Lists an inverted file searches, of √N; an eighth of them when None.

    Raises:
        ValueError: another kind, or probes beside ``flat``.

    Example:
        >>> FaissIndex(kind="ivf", probes=8)
        FaissIndex(kind='ivf', probes=8)
    """

    kind: Literal["flat", "ivf"]
    probes: Count | None = None

    def _together(self) -> None:
        if self.kind == "flat" and self.probes is not None:
            raise ValueError(f"probes: expected kind 'ivf' beside it, got {self.kind!r}")


def indexed(
    bank: Bank, queries: Array, truth: Indices, space: AttackSpace, by: FaissIndex
) -> tuple[RankCounts, float]:
    """Look the truth up among the first 100 of an index of the mapped bank.

    Args:
        bank: the candidates.
        queries: (n, d).
        truth: (n,).
        space: the coordinates; without bare directions.
        by: the index.

    Returns:
        The standing, a truth beyond the first 100 counted as last, and the share of up to 200
        queries whose nearest candidate, found by exhaustive search in float64, the index returns.

    Raises:
        ImportError: FAISS is not installed.
        ValueError: a bank too small for an inverted file, or one metric with bare directions.
    """
    try:
        import faiss
    except ModuleNotFoundError:
        raise ImportError(
            f"tacit.attacks.retrieval with an index needs faiss: {install_with('llm')}"
        ) from None
    if space.bare is not None:
        raise ValueError(
            "index: expected none for noise without full rank, whose bare directions decide first"
        )
    index: Any = faiss.IndexFlatL2(space.width)
    if by.kind == "ivf":
        index = _inverted(faiss, index, bank, space, by.probes)
    for start, stop in bank.spans(BANK_ROWS):
        index.add(_mapped(space, bank.rows(start, stop)))
    _, found = index.search(_mapped(space, queries), min(HEAD, bank.count))
    hit = found == truth[:, None]
    better = np.where(hit.any(axis=1), hit.argmax(axis=1), bank.count - 1).astype(np.int64)
    checked = np.arange(min(QUERIES_CHECKED, len(queries)))
    nearest = _nearest(bank, space.apply(queries[checked]), space)
    recall = float((found[checked, 0] == nearest).mean())
    return RankCounts(better, np.zeros_like(better), None), recall


def _inverted(faiss: Any, flat: Any, bank: Bank, space: AttackSpace, probes: int | None) -> Any:
    lists = max(1, math.isqrt(bank.count))
    if bank.count < LEAST_TRAINING * lists:
        raise ValueError(
            f"index: expected a bank of at least {LEAST_TRAINING**2} candidates for 'ivf', got "
            f"{bank.count}"
        )
    searched = max(1, lists // 8) if probes is None else probes
    index = faiss.IndexIVFFlat(flat, space.width, lists)
    chosen = np.linspace(0, bank.count - 1, min(bank.count, 64 * lists)).astype(np.int64)
    index.train(_mapped(space, bank.gather(chosen)))
    index.nprobe = min(lists, searched)
    return index


def _mapped(space: AttackSpace, rows: Array) -> Any:
    return np.ascontiguousarray(space.apply(rows), dtype=np.float32)


def _nearest(bank: Bank, rows: Array, space: AttackSpace) -> Indices:
    """Find each row's nearest candidate by exhaustive search in float64."""
    best = np.full(len(rows), np.inf)
    nearest = np.zeros(len(rows), dtype=np.int64)
    for start, stop in bank.spans(BANK_ROWS):
        block = space.apply(bank.rows(start, stop))
        distance = 0.5 * (block**2).sum(axis=1) - rows @ block.T
        first = distance.argmin(axis=1)
        value = distance[np.arange(len(rows)), first]
        nearer = value < best
        best[nearer], nearest[nearer] = value[nearer], start + first[nearer]
    return nearest
