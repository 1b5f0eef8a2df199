"""Attributes of prompts: built in, or columns of a table beside them."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource, generator, integer, plain
from tacit._ground.frozen import read_only
from tacit.attacks.retrieval.bank import Indices

Labels = npt.NDArray[Any]

TOPIC_DIMENSIONS = 24
TOPIC_ROUNDS = 25
TOPIC_STARTS = 4


def label_tokens(prompts: Any, *, position: int = -1, absent: int | None = None) -> Indices:
    """Return the token of every prompt at a position, negative from the end.

    Args:
        prompts: tokens, (n, T), −1 before those of a shorter prompt, or a list of n prompts.
        position: −1 for the last token, 0 for the first.
        absent: the label of a prompt that is too short; None refuses it.

    Raises:
        ValueError: a prompt that is too short.

    Example:
        >>> label_tokens([[3, 4, 5], [6, 7, 8]], position=-2).tolist()
        [4, 7]
    """
    place = integer("position", position, minimum=-(2**31))
    rows = _rows(prompts)
    least = place + 1 if place >= 0 else -place
    if absent is None and min(row.size for row in rows) < least:
        raise ValueError(f"prompts: expected at least {least} tokens in each, got fewer")
    kept = [absent if row.size < least else int(row[place]) for row in rows]
    return np.array(kept, dtype=np.int64)


def label_digits(texts: Sequence[str]) -> Indices:
    """Return 1 for every text that holds a decimal digit, 0 for the others.

    Example:
        >>> label_digits(["in 1999", "none"]).tolist()
        [1, 0]
    """
    held = [any(letter.isdecimal() for letter in text) for text in _texts(texts)]
    return np.array(held, dtype=np.int64)


def label_names(texts: Sequence[str]) -> Indices:
    """Return 1 for every text with a capitalised word inside a sentence, 0 for the others.

    That is a word of at least two letters, the first a capital and the others small, that follows
    one blank after a small letter, a digit, a comma or a semicolon.

    Example:
        >>> label_names(["we met Ada there", "There. Then", "the API of x"]).tolist()
        [1, 0, 0]
    """
    return np.array([_has_name(text) for text in _texts(texts)], dtype=np.int64)


def _has_name(text: str) -> bool:
    for found in re.finditer(r"\b[^\W\d_]{2,}\b", text):
        word, before = found[0], text[: found.start()][-2:]
        inside = len(before) == 2 and before[1] == " "
        inside = inside and (before[0].islower() or before[0].isdecimal() or before[0] in ",;")
        if inside and word[0].isupper() and word[1:].islower():
            return True
    return False


@read_only
@dataclass(frozen=True, eq=False)
class Topics:
    """k clusters of prompts by the tokens in them.

    Counts of tokens are weighed by ``ln(n/documents with the token)``, scaled to length 1,
    projected on their leading singular directions, scaled again, and clustered by k-means.

    Attributes:
        weights: (V,).
        directions: (V, r).
        centres: (k, r).
    """

    weights: Array = field(repr=False)
    directions: Array = field(repr=False)
    centres: Array = field(repr=False)

    @classmethod
    def fit(cls, prompts: Any, clusters: int, *, rng: RandomSource = None) -> Topics:
        """Fit clusters on public prompts.

        Args:
            prompts: tokens, (n, T), padded with −1 or not, or a list of prompts; n > clusters.
            clusters: k >= 2.
            rng: source of the first centres.

        Raises:
            ValueError: too few prompts.

        Example:
            >>> prompts = [[1, 2, 1], [2, 1, 2], [7, 8, 8], [8, 7, 7]]
            >>> labels = Topics.fit(prompts, 2, rng=0).label(prompts)
            >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
            True
        """
        from scipy import sparse
        from scipy.sparse.linalg import svds

        rows = _rows(prompts)
        count = integer("clusters", clusters, minimum=2)
        if len(rows) <= count:
            raise ValueError(f"prompts: expected more than {count} prompts, got {len(rows)}")
        source = generator(rng)
        size = 1 + max(int(row.max()) for row in rows)
        counts = _counts(rows, size)
        present = np.asarray((counts > 0).sum(axis=0)).reshape(-1)
        weights = np.where(present > 0, np.log(len(rows) / np.maximum(present, 1)), 0.0)
        scaled = _scaled(counts, weights)
        rank = min(TOPIC_DIMENSIONS, min(scaled.shape) - 1)
        start = source.standard_normal(min(scaled.shape))
        _, _, right = svds(sparse.csr_matrix(scaled), k=rank, v0=start)
        directions = right.T
        return cls(weights, directions, _centres(_unit(scaled @ directions), count, source))

    def label(self, prompts: Any) -> Indices:
        """Return the cluster of every prompt, (n,)."""
        size = len(self.weights)
        known = [row[row < size] for row in _rows(prompts)]
        points = _unit(_scaled(_counts(known, size), self.weights) @ self.directions)
        return _nearest(points, self.centres)[0]


def read_labels(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, *, name: str = "path"
) -> dict[str, Labels]:
    """Read attributes from a CSV file with a header and one row for each prompt.

    Args:
        path: the file, in UTF-8.
        columns: names; every column when None.
        name: what messages call the file.

    Returns:
        Labels by column, each (n,) of text.

    Raises:
        ValueError: no such file or column, or a row with another number of cells.
    """
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "unreadable"
        raise ValueError(f"{name}: cannot read {place} ({reason})") from None
    # strict: a quote that is never closed would take all lines after it into one cell
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error:
        raise ValueError(f"{name}: {place}, line {reader.line_num}: no CSV is read there") from None
    if len(rows) < 2:
        raise ValueError(f"{name}: expected a header and at least one row in {place}")
    header = rows[0]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(
                f"{name}: expected {len(header)} cells in every row of {place}, got {len(row)} in "
                f"row {number}"
            )
    if len(set(header)) < len(header):
        raise ValueError(f"{name}: expected different names in the header of {place}, got repeated")
    wanted = header if columns is None else list(columns)
    for column in wanted:
        if column not in header:
            raise ValueError(
                f"columns: expected names of {len(header)} columns of {place}, got {column!r}"
            )
    return {column: np.array([row[header.index(column)] for row in rows[1:]]) for column in wanted}


def _rows(prompts: Any) -> list[Indices]:
    """Prompts as arrays of tokens, without the entries below 0 that pad them."""
    try:
        # rows of a tensor that is an array already need no conversion each
        rows = [np.asarray(plain(row)) for row in plain(prompts)]
    except (TypeError, ValueError):
        raise ValueError(f"prompts: expected tokens, got {type(prompts).__name__}") from None
    if not rows or any(row.ndim != 1 or row.dtype.kind not in "iu" for row in rows):
        raise ValueError(
            "prompts: expected rows of tokens, (n, T) or a list of them, got other values"
        )
    return [row[row >= 0].astype(np.int64) for row in rows]


def _texts(texts: Any) -> list[str]:
    try:
        found = [] if isinstance(texts, str) else list(texts)
    except TypeError:
        found = []
    if not found or not all(isinstance(text, str) for text in found):
        raise ValueError(f"texts: expected a list of texts, got {type(texts).__name__}")
    return found


def _counts(rows: list[Indices], size: int) -> Any:
    from scipy import sparse

    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    tokens = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    return sparse.csr_matrix((np.ones(len(tokens)), (owner, tokens)), shape=(len(rows), size))


def _scaled(counts: Any, weights: Array) -> Any:
    from scipy import sparse

    weighed = counts @ sparse.diags(weights)
    lengths = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).reshape(-1))
    return sparse.diags(1.0 / np.maximum(lengths, np.finfo(np.float64).tiny)) @ weighed


def _unit(points: Array) -> Array:
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    scaled: Array = points / np.maximum(lengths, np.finfo(np.float64).tiny)
    return scaled


def _centres(points: Array, count: int, source: np.random.Generator) -> Array:
    """The best of a few runs of k-means, each from k-means++ centres."""
    best: tuple[float, Array] | None = None
    for _ in range(TOPIC_STARTS):
        centres = points[[int(source.integers(len(points)))]]
        while len(centres) < count:
            far = _nearest(points, centres)[1]
            chances = far / far.sum() if far.sum() > 0 else None
            centres = np.vstack([centres, points[[source.choice(len(points), p=chances)]]])
        for _ in range(TOPIC_ROUNDS):
            cells = _nearest(points, centres)[0]
            for cell in np.unique(cells):
                centres[cell] = points[cells == cell].mean(axis=0)
        cost = float(_nearest(points, centres)[1].sum())
        if best is None or cost < best[0]:
            best = cost, centres
    assert best is not None
    return best[1]


def _nearest(points: Array, centres: Array) -> tuple[Indices, Array]:
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * points @ centres.T
    return squares.argmin(axis=1).astype(np.int64), np.maximum(squares.min(axis=1), 0.0)
