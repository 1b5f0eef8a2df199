"""How a pool is opened: a table, numbers or a frame, held against what a promise declares of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, array, matrix, vector
from tacit._ground.numbers import LARGEST_EXACT
from tacit._ground.reprs import shown
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.promises import AUTO, Table
from tacit.statistics.caps import Caps, caps_of, in_order
from tacit.statistics.gaps import (
    Places,
    as_numbers,
    nothing_there,
    plain_rows,
    read_places,
    without_gaps,
)
from tacit.statistics.pools import NOMINAL_ENDS, Pool, key_word
from tacit.statistics.promises import SMALLEST_POOL, declared_levels, hides_table
from tacit.statistics.queries.language import columns_read, keys_read
from tacit.statistics.tables.cells import level_places, value_of
from tacit.statistics.tables.table import (
    UNREAD,
    Category,
    DataTable,
    check_levels,
    observed_note,
    order_levels,
    without_column,
)

# Rows with nothing in a column, or no value of it, are left out; numbers are held by bounds.
LENIENT = "bounded"


def open_pool(
    pool: Any,
    columns: Sequence[str] | None,
    promise: Any,
    *,
    fewest: int = SMALLEST_POOL,
    query: Any = None,
    target: str | None = None,
) -> Pool:
    """Check a pool and what a promise declares of it.

    Args:
        pool: (N, p) numbers, a data frame, a ``DataTable``, or a pool that was checked.
        columns: as ``prepare`` takes them.
        promise: its ``bounds`` and ``levels`` are taken, where it has them.
        fewest: N at least.
        query: what will be asked: of a data frame only the columns that it names are read.
        target: the column that a regression explains.

    Raises:
        ValueError: as ``prepare``.
    """
    if isinstance(pool, Pool):
        return pool
    person, hidden = getattr(promise, "person", None), hides_table(promise)
    sought, seekable = None, ()
    if person is not None:
        sought = sought_key(query, promise, target, getattr(pool, "categories", {}))
        # of a query that is known now what it seeks is all
        seekable = getattr(promise, "sought", ()) if query is None else ()
    named = seekable if sought is None else (sought,)
    known, levels = read_frame(pool, columns, promise, query=query, target=target, sought=named)
    if hidden and not isinstance(known, DataTable):
        known = plain_rows(known)
    persons = None
    called: Sequence[str] = ()
    if person is not None:
        capped = hidden and bool(promise.max_rows or promise.max_groups)
        known, columns, persons, called = _take_persons(known, columns, person, named=capped)
    rows = as_numbers(known) if hidden else _own_rows(known, fewest)
    labels, rows = _labelled(known, columns, rows)
    table = known if isinstance(known, DataTable) else None
    kinds = {} if table is None else table.categories
    categories = {name: kind for name, kind in kinds.items() if name in labels}
    declared = getattr(promise, "bounds", None)
    unknown = _unknown(declared, labels, person)
    opened = Pool(
        rows,
        labels,
        categories,
        _read_bounds(declared, labels, unknown),
        _read_levels(levels, labels, categories),
        table is not None and table.queried,
        persons,
        sought=sought,
        seekable=_among(seekable, labels),
        unknown=unknown,
    )
    if not hidden:
        return opened
    read = read_places(labels, None if query is None else columns_read(query, target))
    grouped = {*opened.levels, *(labels.index(one) for one in named if one in labels)}
    caps = caps_of(promise, grouped=bool(grouped) and query is not None)
    if caps is not None and persons is not None:
        opened = _capped(opened, caps, called, read, grouped)
    # where the number of rows is public, one with nothing in a column has another in its place
    replaced = person is None and getattr(promise, "adjacency", None) is Adjacency.REPLACE
    nothing = nothing_there(len(labels), opened.bounds, opened.levels) if replaced else None
    dropped = 0 if table is None else table.dropped
    rows, persons = without_gaps(opened.rows, opened.persons, read, nothing, dropped)
    return replace(opened, rows=rows, persons=persons)


def _capped(
    pool: Pool, caps: Caps, names: Sequence[str], read: Places, grouped: Collection[int]
) -> Pool:
    """Return the pool with the rows that caps leave of every person.

    Args:
        pool: of persons.
        caps: of the rows and groups of a person.
        names: of the persons, by their places.
        read: places of the columns that are read.
        grouped: places of those by which rows are grouped.
    """
    assert pool.persons is not None, "caps are of persons"
    # a row with nothing in a column that is read is none of the person's rows
    whole = np.flatnonzero(~np.isnan(pool.rows[:, read]).any(axis=1))
    numbers: list[Array] = []
    keys: list[Array] = []
    for name, at in sorted((name, at) for at, name in enumerate(pool.columns)):
        if at in grouped or at in read:
            held = in_order(pool.rows[whole, at], pool.levels.get(at), pool.categories.get(name))
            (keys if at in grouped else numbers).append(held)
    stays = whole[caps.kept(pool.persons[whole], names, numbers, keys)]
    persons = np.unique(pool.persons[stays], return_inverse=True)[1].reshape(-1)
    return replace(pool, rows=pool.rows[stays], persons=persons)


def _labelled(
    known: Any, columns: Sequence[str] | None, rows: Array
) -> tuple[tuple[str, ...], Array]:
    """Return the names of the columns and the rows (N, p) of these: of a frame those asked for."""
    own = _names_of_frame(known)
    labels = _column_names(own if own is not None else columns, rows.shape[1])
    if own is None or columns is None:
        return labels, rows
    wanted = _select(columns, labels)
    rows = np.ascontiguousarray(rows[:, [labels.index(name) for name in wanted]])
    rows.flags.writeable = False
    return wanted, rows


def read_frame(
    pool: Any,
    columns: Sequence[str] | None,
    promise: Any,
    *,
    query: Any = None,
    target: str | None = None,
    sought: tuple[str, ...] = (),
) -> tuple[Any, Any]:
    """Return a data frame as a ``DataTable``, any other pool as it is, and levels left to declare.

    Levels in words are those of a column of texts: it is coded by them. Of a frame only the columns
    that the query reads are read, where it names them; where the table is hidden and the queries
    are still to come, those of which something was declared: a text in another would leave its row
    out of every answer.

    Raises:
        ValueError: a frame that cannot be read, or words for a column that is none of texts.
    """
    person, hidden = getattr(promise, "person", None), hides_table(promise)
    words, numbers = _split_words(declared_levels(promise))
    if hasattr(pool, "__arrow_c_stream__"):
        from tacit.statistics.tables.reading import NO_COLUMN, read_table

        if columns is not None:
            wanted: Any = name_list(columns)
        elif query is None and hidden:
            wanted = _declared_columns(promise)
        else:
            wanted = columns_read(query, target)
            scheme, _, paired = str(getattr(promise, "pairs", None)).partition(":")
            if wanted is not None and scheme == "column":
                # by which rows are paired
                wanted = tuple(dict.fromkeys((*wanted, paired)))
        if person is not None:
            # rows that lack something are left out: that they are there is what is hidden
            wanted = None if wanted is None else list(dict.fromkeys((*wanted, person)))
            coded: Any = {**words, **dict.fromkeys((person, *sought))}
            return read_table(pool, wanted, categories=coded, missing=LENIENT), numbers
        wanted = NO_COLUMN if columns is None and wanted == () else wanted
        missing = LENIENT if hidden else "refuse"
        return read_table(pool, wanted, categories=words, missing=missing), numbers
    if hasattr(pool, "collect"):
        kind = type(pool).__name__
        raise ValueError(f"pool: expected a table, got a {kind}; collect() makes a frame of it")
    for name, declared in words.items():
        pool = _recode(pool, name, declared)
    return pool, numbers


def _declared_columns(promise: Any) -> tuple[str, ...] | None:
    """Return the columns that have bounds or levels; None where these have no names."""
    held = [one for one in (promise.bounds, promise.levels) if one is not None]
    if not all(isinstance(one, Mapping) for one in held):
        return None
    return tuple(dict.fromkeys(str(name) for one in held for name in one))


def _split_words(levels: Any) -> tuple[dict[str, list[str]], Any]:
    """Return the levels that are words, by column, and the others; None for none."""
    if not isinstance(levels, Mapping):
        return {}, levels
    words = {
        name: list(held)
        for name, held in levels.items()
        if isinstance(held, (list, tuple)) and held and all(isinstance(one, str) for one in held)
    }
    return words, {name: held for name, held in levels.items() if name not in words} or None


def _recode(pool: Any, name: str, declared: Sequence[str]) -> DataTable:
    """Return a table whose column is coded by the levels declared instead of those found in it."""
    if not isinstance(pool, DataTable) or name not in pool.categories:
        raise ValueError(
            f"levels: expected numbers for {name!r}, which holds no codes of words, got words; a "
            "data frame, or read_table with categories, has columns of words"
        )
    levels = order_levels(check_levels(name, declared, "levels"))
    # by what a level stands for, as where columns have types the words found depend on all of them
    place, found = level_places(levels, argument="levels"), pool.categories[name].levels
    codes = np.array([place.get(value_of(level), np.nan) for level in found])
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
        notes=tuple(note for note in pool.notes if note != observed_note(name)),
    )


def sought_key(
    query: Any, promise: Any, target: str | None, categories: Mapping[str, Category]
) -> str | None:
    """Return the column whose keys a query about people needs and nobody declared; None for none.

    Raises:
        ValueError: there are several, or the promise has no δ, without which no key is found.
    """
    if not isinstance(promise, Table) or promise.person is None or query is None:
        return None
    levels = promise.declared_levels
    if levels is not None and not isinstance(levels, Mapping):
        return None
    declared = {*(levels or {}), *(name for name, kind in categories.items() if kind.declared)}
    left = [name for name in keys_read(query, target) if name not in declared]
    if not left:
        return None
    if len(left) > 1:
        raise ValueError(
            f"levels: expected the categories of all of {', '.join(left)} but one to be declared, "
            "as keys of one column are found, got none"
        )
    if promise.epsilon is None or promise.delta is None:
        raise ValueError(
            f"levels: expected the categories of {left[0]!r}, declared without looking at the "
            f"table ({left[0]}=A,B), or epsilon with delta, by which they are found from it, got "
            "neither"
        )
    return left[0]


def _among(seekable: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns whose keys may be sought, which are of the table.

    Raises:
        ValueError: one is not.
    """
    for name in seekable:
        if name not in names:
            raise ValueError(f"levels: expected columns of the table, got {name!r}")
    return seekable


def _take_persons(
    known: Any, columns: Sequence[str] | None, person: str, *, named: bool
) -> tuple[Any, Any, npt.NDArray[np.intp], Sequence[str]]:
    """Return the pool and its names without the column of the persons, and their places (N,).

    Where they shall be ``named`` what they are called stands beside, by their places.
    """
    own = _names_of_frame(known)
    names = own if own is not None else name_list([] if columns is None else columns)
    if person not in names:
        raise ValueError(f"person: expected a column of the table, got {person!r}")
    place = names.index(person)
    rows = known.rows if isinstance(known, DataTable) else np.asarray(known)
    if rows.ndim != 2 or place >= rows.shape[1]:
        raise ValueError("person: expected columns beside the one that names persons, got none")
    if not isinstance(known, DataTable):
        # a row of nobody is left out, as one of a table that is read is
        rows = known = rows[~np.isnan(rows[:, place])]
    values, persons = np.unique(rows[:, place], return_inverse=True)
    words = known.categories.get(person) if isinstance(known, DataTable) else None
    called: Sequence[str] = ()
    if named:
        every = values.tolist()
        called = [key_word(one) if words is None else words.levels[int(one)] for one in every]
    rest = [name for name in names if name != person]
    if columns is not None:
        columns = [name for name in name_list(columns) if name != person]
    if isinstance(known, DataTable):
        return without_column(known, person), columns or None, persons.reshape(-1), called
    left = np.delete(rows, place, axis=1)
    if not rest:
        # persons are counted, of whom no number is read
        rest, columns, left = [UNREAD], None, np.zeros((len(rows), 1))
    return left, rest, persons.reshape(-1), called


def _own_rows(pool: Any, fewest: int) -> Array:
    # integers that double precision does not hold would be rounded
    whole = isinstance(pool, np.ndarray) and pool.dtype.kind in "iu" and pool.size
    if whole and max(int(pool.max()), -int(pool.min())) > LARGEST_EXACT:
        raise ValueError(
            f"pool: expected integers within ±2⁵³ = {LARGEST_EXACT:,}, got other values"
        )
    # a table that was read may have no row left: a promise about it answers as for a few
    empty = isinstance(pool, DataTable) and not len(pool)
    checked = pool.rows if empty else array("pool", pool, ndim=(1, 2))
    # a copy: what the caller does to the pool later does not reach what is drawn
    rows = np.array(checked[:, None] if checked.ndim == 1 else checked, order="C")
    rows.flags.writeable = False
    if len(rows) < fewest:
        raise ValueError(f"pool: expected at least {fewest} rows, got {len(rows)}")
    return rows


def _select(columns: Sequence[str], own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns asked for of those that have names."""
    wanted = name_list(columns)
    if not all(isinstance(name, str) for name in wanted):
        raise ValueError(f"columns: expected names of columns, got {shown(columns)}")
    missing = [name for name in wanted if name not in own]
    if missing:
        raise ValueError(f"columns: expected some of {', '.join(own)}, got {missing[0]!r}")
    if not wanted or len(set(wanted)) != len(wanted):
        raise ValueError(f"columns: expected different names of columns, got {shown(columns)}")
    return tuple(map(str, wanted))


def _column_names(columns: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"x{index}" for index in range(width))
    if isinstance(columns, str) or not all(isinstance(name, str) for name in name_list(columns)):
        raise ValueError(f"columns: expected {width} names, got {shown(columns)}")
    if len(columns) != width or len(set(columns)) != width:
        raise ValueError(f"columns: expected {width} different names, got {list(columns)}")
    # such as those of an array of texts
    return tuple(map(str, columns))


def _names_of_frame(pool: Any) -> list[str] | None:
    """Return the column names of a data frame, such as one of pandas or polars."""
    names = getattr(pool, "columns", None)
    return None if names is None else [str(name) for name in names]


def name_list(names: Any) -> list[Any]:
    """Return names in a list; a text is one name."""
    return list(names) if isinstance(names, (list, tuple, np.ndarray)) else [names]


def _unknown(bounds: Any, names: tuple[str, ...], person: str | None) -> tuple[int, ...]:
    """Return the places of columns whose bounds shall be found.

    Raises:
        ValueError: the promise is about no persons.
    """
    given = bounds if isinstance(bounds, Mapping) else {}
    asked = [name for name, pair in given.items() if isinstance(pair, str) and pair == AUTO]
    if asked and person is None:
        raise ValueError(
            f"bounds: expected lowest and highest of {asked[0]!r}, as they are found for a promise "
            f"about persons alone (person, --person), got {AUTO}"
        )
    return tuple(names.index(name) for name in asked if name in names)


def _read_bounds(
    bounds: Any, names: tuple[str, ...], unknown: tuple[int, ...] = ()
) -> dict[int, tuple[float, float]]:
    found = dict.fromkeys(unknown, NOMINAL_ENDS)
    for place, pair in _by_column("bounds", bounds, names).items():
        if place in unknown:
            continue
        low, high = vector(f"bounds of {names[place]}", list(pair), size=2).tolist()
        if not low < high:
            raise ValueError(
                f"bounds: expected lowest < highest for {names[place]!r}, got {low}, {high}"
            )
        found[place] = (low, high)
    return found


def _read_levels(
    levels: Any, names: tuple[str, ...], categories: Mapping[str, Category]
) -> dict[int, tuple[float, ...]]:
    # a column that was read with declared levels holds their codes
    coded = {
        names.index(name): tuple(float(code) for code in range(len(kind.levels)))
        for name, kind in categories.items()
        if kind.declared
    }
    return coded | {
        place: tuple(np.unique(vector(f"levels of {names[place]}", list(given))).tolist())
        for place, given in _by_column("levels", levels, names).items()
    }


def _by_column(name: str, value: Any, columns: tuple[str, ...]) -> dict[int, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        for key in value:
            if key not in columns:
                raise ValueError(f"{name}: expected columns of the table, got {key!r}")
        return {columns.index(key): entry for key, entry in value.items()}
    rows = matrix(name, value, columns=2)
    if len(rows) != len(columns):
        raise ValueError(f"{name}: expected {len(columns)} rows, one per column, got {len(rows)}")
    return dict(enumerate(rows.tolist()))
