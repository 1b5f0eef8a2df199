"""Arrow columns as arrays, by their buffers: Arrow's own ways there import pandas, for a second."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit._ground.checks import Array

Mask: TypeAlias = npt.NDArray[np.bool_]


def doubles(column: Any) -> Array:
    """Return a column of doubles, NaN where it has none."""
    numbers: Array = _copied(column, np.float64)
    numbers[_null(column)] = np.nan
    return numbers


def integers(column: Any) -> npt.NDArray[np.int64]:
    """Return a column of integers; what is null is anything."""
    numbers: npt.NDArray[np.int64] = _copied(column.cast(pa.int64()), np.int64)
    return numbers


def mask(flags: Any) -> Mask:
    """Return a column of flags, none where it is null."""
    found: Mask = _copied(flags.cast(pa.uint8()), np.uint8).astype(bool) & ~_null(flags)
    return found


def flags(found: Mask) -> Any:
    """Return truth values as an Arrow column."""
    content = pa.py_buffer(found.astype(np.uint8))
    return pa.Array.from_buffers(pa.uint8(), len(found), [None, content]).cast(pa.bool_())


def _copied(column: Any, kind: Any) -> Any:
    """Return what a column has in store for each row, (n,)."""
    if not len(column):
        return np.empty(0, dtype=kind)
    start = column.offset * np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], kind, len(column), start).copy()


def _null(column: Any) -> Mask:
    return mask(column.is_null()) if column.null_count else np.zeros(len(column), dtype=bool)
