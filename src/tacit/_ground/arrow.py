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


def view(column: Any) -> Any:
    """Return what is in store for a column: its buffers, and from where on they are its own."""
    return nanoarrow.c_array(column).view()


def absent(column: Any) -> npt.NDArray[np.bool_]:
    """Return which cells hold nothing: (n,)."""
    held = view(column)
    if held.storage_type == "na":
        return np.ones(held.length, dtype=bool)
    if not held.null_count:
        return np.zeros(held.length, dtype=bool)
    return ~_flags(held, 0)


def stored(column: Any) -> npt.NDArray[Any]:
    """Return the numbers or truth values in store for each cell, anything where it is absent: (n,).

    Days and moments are integers in the unit of their type.
    """
    held = view(column)
    if held.storage_type == "bool":
        return _flags(held, 1)
    return np.asarray(held.buffer(1))[held.offset : held.offset + held.length]


def numbers(column: Any) -> npt.NDArray[Any]:
    """Return numbers as they are stored, NaN where there is none: (n,)."""
    found, missing = stored(column), absent(column)
    if not missing.any():
        return found
    kind = found.dtype if found.dtype.kind == "f" else np.float64
    return np.where(missing, np.array(np.nan, kind), found.astype(kind))


def _flags(found: Any, place: int) -> npt.NDArray[np.bool_]:
    """Return the bits of a buffer, the lowest of every byte first: (n,)."""
    held = np.asarray(found.buffer(place)).view(np.uint8)
    bits = np.unpackbits(held, count=found.offset + found.length, bitorder="little")
    return bits[found.offset :].astype(bool)
