"""Columns in Arrow's layout, as DuckDB and data frames hand them over, read where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lazy_loader
import numpy as np
import numpy.typing as npt

nanoarrow: Any = lazy_loader.load("nanoarrow")


def batches(source: Any) -> Iterator[list[Any]]:
    """Yield the columns of some rows of whatever exports itself to Arrow, then of the next ones.

    Example:
        >>> import duckdb
        >>> parts = batches(duckdb.sql("SELECT 1 AS a, 'x' AS b"))
        >>> [column.to_pylist() for column in next(parts)]
        [[1], ['x']]
    """
    for batch in nanoarrow.ArrayStream(source):
        yield list(batch.iter_children())


def absent(column: Any) -> npt.NDArray[np.bool_]:
    """Return which cells hold nothing: (n,)."""
    view = nanoarrow.c_array(column).view()
    if view.storage_type == "na":
        return np.ones(view.length, dtype=bool)
    if not view.null_count:
        return np.zeros(view.length, dtype=bool)
    return ~_flags(view, 0)


def stored(column: Any) -> npt.NDArray[Any]:
    """Return the numbers or truth values in store for each cell, anything where it is absent: (n,).

    Days and moments are integers in the unit of their type.
    """
    view = nanoarrow.c_array(column).view()
    if view.storage_type == "bool":
        return _flags(view, 1)
    return np.asarray(view.buffer(1))[view.offset : view.offset + view.length]


def numbers(column: Any) -> npt.NDArray[Any]:
    """Return numbers as they are stored, NaN where there is none: (n,)."""
    found, missing = stored(column), absent(column)
    if not missing.any():
        return found
    kind = found.dtype if found.dtype.kind == "f" else np.float64
    return np.where(missing, np.array(np.nan, kind), found.astype(kind))


def _flags(view: Any, place: int) -> npt.NDArray[np.bool_]:
    """Return the bits of a buffer, the lowest of every byte first: (n,)."""
    held = np.asarray(view.buffer(place)).view(np.uint8)
    bits = np.unpackbits(held, count=view.offset + view.length, bitorder="little")
    return bits[view.offset :].astype(bool)
