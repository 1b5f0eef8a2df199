"""What a statistic is computed of: rows, names of columns, and what the codes in them mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array, array
from tacit._ground.numbers import LARGEST_EXACT
from tacit._ground.reprs import shown
from tacit.statistics.draws import listed
from tacit.statistics.sums.query import columns_read
from tacit.statistics.tables.columns import declared_levels, ordered
from tacit.statistics.tables.header import NO_COLUMN
from tacit.statistics.tables.table import Category, Table
from tacit.statistics.tables.words import observed_words

SMALLEST_POOL = 4


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool that was checked, and owned.

    Attributes:
        rows: (N, p).
        columns: p names.
        categories: what the codes of a column mean, by its name.
        levels: categories of columns of numbers, as the caller declared them.
    """

    rows: Array
    columns: tuple[str, ...]
    categories: Mapping[str, Category]
    levels: Any


def check_dropped(pool: Any, protect: str, adjacency: str) -> None:
    """Refuse a table of which rows were dropped where the number of rows is taken as public."""
    if protect == "table" and adjacency == "replace" and isinstance(pool, Table) and pool.dropped:
        raise ValueError(
            "adjacency: expected 'add-remove' for a table of which rows were dropped, as a row "
            "that is replaced may be one of them, got 'replace'"
        )


def checked_pool(
    pool: Any,
    columns: Sequence[str] | None,
    protect: str,
    *,
    levels: Any = None,
    query: Any = None,
    target: str | None = None,
) -> Pool:
    """Return the rows, the names of the columns, and what the codes in them mean.

    Raises:
        ValueError: as ``prepare``.
    """
    known, levels = opened_pool(pool, columns, levels=levels, query=query, target=target)
    # how many rows a hidden table has is hidden too
    rows = _checked_rows(known, 1 if protect == "table" else SMALLEST_POOL)
    categories = known.categories if isinstance(known, Table) else {}
    own = frame_columns(known)
    if own is None or columns is None:
        labels = _column_names(own if columns is None else columns, rows.shape[1])
        return Pool(rows, labels, categories, levels)
    own_labels = _column_names(own, rows.shape[1])
    labels = _selected(columns, own_labels)
    rows = np.ascontiguousarray(rows[:, [own_labels.index(name) for name in labels]])
    rows.flags.writeable = False
    kept = {name: kind for name, kind in categories.items() if name in labels}
    return Pool(rows, labels, kept, levels)


def _selected(columns: Sequence[str], own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns asked for of those that have names."""
    wanted = listed(columns)
    if not all(isinstance(name, str) for name in wanted):
        raise ValueError(f"columns: expected names of columns, got {shown(columns)}")
    missing = [name for name in wanted if name not in own]
    if missing:
        raise ValueError(f"columns: expected some of {', '.join(own)}, got {missing[0]!r}")
    if not wanted or len(set(wanted)) != len(wanted):
        raise ValueError(f"columns: expected different names of columns, got {shown(columns)}")
    return tuple(wanted)


def _checked_rows(pool: Any, fewest: int) -> Array:
    _check_exact(pool)
    checked = array("pool", pool, ndim=(1, 2))
    # a copy: what the caller does to the pool later does not reach what is drawn
    rows = np.array(checked[:, None] if checked.ndim == 1 else checked, order="C")
    rows.flags.writeable = False
    if len(rows) < fewest:
        raise ValueError(f"pool: expected at least {fewest} rows, got {len(rows)}")
    return rows


def _check_exact(pool: Any) -> None:
    """Refuse an array of integers that double precision does not hold."""
    if not isinstance(pool, np.ndarray) or pool.dtype.kind not in "iu" or not pool.size:
        return
    if int(pool.max()) > LARGEST_EXACT or int(pool.min()) < -LARGEST_EXACT:
        raise ValueError(f"pool: expected integers within ±2⁵³ = {LARGEST_EXACT:,}, got others")


def _column_names(columns: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"x{index}" for index in range(width))
    if isinstance(columns, str) or not all(isinstance(name, str) for name in listed(columns)):
        raise ValueError(f"columns: expected {width} names, got {shown(columns)}")
    if len(columns) != width or len(set(columns)) != width:
        raise ValueError(f"columns: expected {width} different names, got {list(columns)}")
    return tuple(columns)


def opened_pool(
    pool: Any,
    columns: Sequence[str] | None = None,
    *,
    levels: Any = None,
    query: Any = None,
    target: str | None = None,
) -> tuple[Any, Any]:
    """Return a data frame as a ``Table``, any other pool as it is, and the levels left to declare.

    Levels in words are those of a column of texts: it is coded by them. Of a frame only the columns
    that the query reads are read, where it names them.

    Raises:
        ValueError: a frame that cannot be read, or words for a column that is none of texts.
    """
    words, numbers = _worded(levels)
    if hasattr(pool, "__arrow_c_stream__"):
        from tacit.statistics.tables.reading import read_table

        wanted = columns_read(query, target) if columns is None else listed(columns)
        wanted = NO_COLUMN if columns is None and wanted == () else wanted
        return read_table(pool, wanted, categories=words), numbers
    if hasattr(pool, "collect"):
        kind = type(pool).__name__
        raise ValueError(f"pool: expected a table, got a {kind}; collect() makes a frame of it")
    for name, declared in words.items():
        pool = _recoded(pool, name, declared)
    return pool, numbers


def _worded(levels: Any) -> tuple[dict[str, list[str]], Any]:
    """Return the levels that are words, by column, and the others; None for none."""
    if not isinstance(levels, Mapping):
        return {}, levels
    words = {
        name: list(held)
        for name, held in levels.items()
        if isinstance(held, (list, tuple)) and held and all(isinstance(one, str) for one in held)
    }
    return words, {name: held for name, held in levels.items() if name not in words} or None


def _recoded(pool: Any, name: str, declared: Sequence[str]) -> Table:
    """Return a table whose column is coded by the levels declared instead of those found in it."""
    if not isinstance(pool, Table) or name not in pool.categories:
        raise ValueError(
            f"levels: expected numbers for {name!r}, which holds no codes of words, got words; a "
            "data frame, or read_table with categories, has columns of words"
        )
    levels = ordered(declared_levels(name, declared, "levels"))
    place = {level: float(code) for code, level in enumerate(levels)}
    codes = np.array([place.get(level, np.nan) for level in pool.categories[name].levels])
    column = pool.columns.index(name)
    rows = pool.rows.copy()
    rows[:, column] = codes[rows[:, column].astype(int)]
    if np.isnan(rows).any():
        raise ValueError(
            f"levels: expected every level that {name!r} holds among the {len(levels)} declared, "
            "got another"
        )
    return replace(
        pool,
        rows=rows,
        categories={**pool.categories, name: Category(levels, declared=True)},
        notes=tuple(note for note in pool.notes if note != observed_words(name)),
    )


def frame_columns(pool: Any) -> list[str] | None:
    """Return the column names of a data frame, such as one of pandas or polars."""
    names = getattr(pool, "columns", None)
    return None if names is None else [str(name) for name in names]
