"""Rows that hold nothing in a column, where the rows are hidden: no one of them is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, array, plain
from tacit._ground.numbers import LARGEST, LARGEST_EXACT
from tacit.statistics.tables.table import DataTable

Places: TypeAlias = npt.NDArray[np.intp]


def plain_rows(pool: Any) -> npt.NDArray[Any]:
    """Return a pool as an array of numbers; what is masked, or None, is NaN.

    Raises:
        ValueError: another type of entries, or a number of dimensions that is not 1 or 2.
    """
    if np.ma.isMaskedArray(pool):
        pool = np.ma.filled(pool.astype(np.float64), np.nan)
    try:
        raw = np.asarray(plain(pool))
        if raw.dtype.kind == "O":
            raw = raw.astype(np.float64)
    except (TypeError, ValueError):
        raw = np.asarray(None)
    if raw.dtype.kind not in "fiub" or raw.ndim not in (1, 2):
        # says what it is
        return array("pool", pool, ndim=(1, 2))
    return raw


def as_numbers(pool: Any) -> Array:
    """Return rows (N, p) of doubles, NaN where there is nothing, none of them infinite."""
    raw = pool.rows if isinstance(pool, DataTable) else np.asarray(pool)
    rows = np.array(raw[:, None] if raw.ndim == 1 else raw, dtype=np.float64, order="C")
    if raw.dtype.kind in "iu":
        # 2⁵³ + 1 would be the double 2⁵³: what is beyond is beyond, so that no level meets it
        beyond = (raw > LARGEST_EXACT) | (raw < -LARGEST_EXACT)
        edge = beyond.reshape(rows.shape) & (np.abs(rows) == LARGEST_EXACT)
        rows[edge] = np.nextafter(rows[edge], np.copysign(np.inf, rows[edge]))
    # an infinite number lies beyond all bounds and thresholds, as the largest one does
    return np.clip(rows, -LARGEST, LARGEST, out=rows)


def read_places(columns: Sequence[str], read: Collection[str] | None) -> Places:
    """Return the places of the columns that are read; of all where it is not known."""
    held = [place for place, name in enumerate(columns) if read is None or name in read]
    return np.array(held, dtype=np.intp)


def nothing_there(
    width: int, bounds: Mapping[int, tuple[float, float]], levels: Mapping[int, Sequence[float]]
) -> Array:
    """Return the row (p,) that stands for one with nothing in a column: declared values alone.

    The middle of the bounds, which adds nothing about it; below all levels, so that no group has
    it; else 0.
    """
    row = np.zeros(width)
    for place, (low, high) in bounds.items():
        row[place] = 0.5 * low + 0.5 * high
    for place, held in levels.items():
        row[place] = min(held, default=0.0) - 1.0
    return row


def without_gaps(
    rows: Array, persons: Places | None, read: Places, nothing: Array | None, dropped: int
) -> tuple[Array, Places | None]:
    """Return rows without NaN, and their persons; each row by itself, whatever the others are.

    Args:
        rows: (N, p).
        persons: (N,) place of the person of every row, None where rows are hidden one by one.
        read: places of the columns that are read.
        nothing: (p,) what stands for a row with nothing in one of them, where the number of rows is
            public; None where such a row is left out.
        dropped: rows that were left out before, which stand among the others again.
    """
    gaps = np.asarray(np.isnan(rows[:, read]).any(axis=1))
    if nothing is not None:
        filled = np.where(gaps[:, None], nothing, rows)
        rows = np.concatenate([filled, np.tile(nothing, (dropped, 1))])
    elif gaps.any():
        rows = rows[~gaps]
        if persons is not None:
            persons = np.unique(persons[~gaps], return_inverse=True)[1].reshape(-1)
    # columns that are not read
    rows = np.nan_to_num(rows, nan=0.0)
    rows.flags.writeable = False
    return rows, persons
