"""Exact vectors: checked, turned to what is coded, and compared with a query."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]
# of a norm whose square float32 holds with all its digits
SMALLEST_SQUARE = 1e-20


def checked_rows(name: str, values: Any, width: int, count: int | None) -> Rows:
    """Return finite vectors (n, d) as float32.

    Raises:
        ValueError: they are others; the message says at which position.
    """
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "fiu":
            raise ValueError
        with np.errstate(over="ignore"):
            rows: Rows = np.ascontiguousarray(given, dtype=np.float32)
    except ValueError:
        raise ValueError(
            f"{name}: expected real numbers of shape (n, d), got other values"
        ) from None
    if count == 0 and rows.size == 0:
        return rows.reshape(0, width)
    expected = f"({'n' if count is None else count}, {width})"
    if (
        rows.ndim != 2
        or rows.shape[1] != width
        or len(rows) != (len(rows) if count is None else count)
    ):
        raise ValueError(f"{name}: expected shape {expected}, got {given.shape}")
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name}[{int(bad.argmax())}]: expected numbers that are finite in float32"
        )
    return rows


def directed(name: str, rows: Rows, metric: str) -> Rows:
    """Return vectors as they are coded: of unit norm where the metric is the cosine."""
    if metric != "cosine":
        return rows
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    if not norms.all():
        place = int((norms == 0).argmax())
        raise ValueError(f"{name}[{place}]: expected a vector that is not 0, as cosine needs")
    directed: Rows = (rows / norms).astype(np.float32)
    return directed


def exact_scores(rows: Rows, query: Rows, metric: str) -> Rows:
    """Return cosine, dot product or minus the squared distance of exact vectors."""
    if metric == "euclidean":
        # the difference itself: ‖x‖² − 2⟨q, x⟩ + ‖q‖² would cancel near the query
        apart = rows - query
        found: Rows = -np.einsum("ij,ij->i", apart, apart)
        return found
    if metric == "dot":
        dots: Rows = rows @ query
        return dots
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
    odd = ~((squares > SMALLEST_SQUARE) & (squares < 1.0 / SMALLEST_SQUARE))
    if odd.any():
        # squares of these are not those of float32: they are turned to unit norm in float64
        rows, squares = rows.copy(), np.where(odd, np.float32(1.0), squares)
        rows[odd] = directed("vectors", rows[odd], metric)
    scores: Rows = (rows @ query) / np.sqrt(squares)
    return scores
