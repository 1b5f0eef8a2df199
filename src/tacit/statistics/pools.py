"""What a statistic is computed of: rows, names of columns, and what was declared of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, array, matrix, vector
from tacit._ground.numbers import LARGEST_EXACT
from tacit._ground.reprs import shown
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.promises import AUTO, Table
from tacit.statistics.caps import caps_of, in_order
from tacit.statistics.gaps import (
    as_numbers,
    nothing_there,
    plain_rows,
    read_places,
    without_gaps,
)
from tacit.statistics.promises import SMALLEST_POOL, declared_levels, hides_table
from tacit.statistics.queries.language import columns_read, keys_read
from tacit.statistics.queries.statistic import Columns
from tacit.statistics.tables.cells import level_places, value_of
from tacit.statistics.tables.table import (
    RESULT,
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
# In names, before keys are found; and the code of what is no key that was found.
EACH_KEY, NO_KEY = "each key found", -1.0
# Of a column whose bounds are found, until they are: errors are told in widths of them.
NOMINAL_ENDS = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class RowsOfPersons:
    """A pool of persons: indexed by persons it gives all of their rows, person by person.

    Attributes:
        rows: (n, p).
        persons: (n,) place of the person of every row, all of 0 … P − 1.
    """

    rows: Array
    persons: npt.NDArray[np.intp]

    def __len__(self) -> int:
        """Return P, the number of persons."""
        return len(self._starts) - 1

    def __getitem__(self, persons: Any) -> Array:
        """Return the rows of some persons."""
        chosen = np.asarray(persons, dtype=np.intp)
        sizes = self._starts[chosen + 1] - self._starts[chosen]
        # places 0 … m − 1 of each, after where the rows of the person start
        inner = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found: Array = self.rows[self._order[np.repeat(self._starts[chosen], sizes) + inner]]
        return found

    def sums(self, added: Array) -> Array:
        """Return sums (P, k) over the rows of every person of what rows (n, k) add."""
        if not len(added):
            return added
        return np.add.reduceat(added[self._order], self._starts[:-1], axis=0)

    def means(self) -> Array:
        """Return the mean of every person's rows, (P, p)."""
        return self.sums(self.rows) / np.diff(self._starts)[:, None]

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self.persons, kind="stable")

    @cached_property
    def _starts(self) -> npt.NDArray[np.intp]:
        counts = np.bincount(self.persons)
        return np.concatenate([[0], np.cumsum(counts)])


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool that was checked, and is owned: what the caller does to theirs is not drawn.

    Attributes:
        rows: (N, p).
        columns: p names.
        categories: what the codes of a column mean, by its name.
        bounds: declared (lowest, highest) of columns, by position.
        levels: declared categories of columns, by position, ascending.
        queried: whether a row is one of the result of a query.
        persons: (N,) place of the person of every row, where a promise names their column, which
            is none of the p then.
        elsewhere: returns what persons add, given what a row can, where rows are not in memory.
        sought: the column whose keys nobody declared, and which are found from the table.
        seekable: columns of which a query of a session may seek the keys.
        keys_elsewhere: weighs these keys where rows are not in memory, and returns what persons add
            in the groups of those that were found.
        unknown: places of columns whose bounds nobody declared, and which are found from the table;
            ``bounds`` has nominal ones of them until then.
        parts_elsewhere: weighs the parts of a column's log scale where rows are not in memory.
    """

    rows: Array
    columns: tuple[str, ...]
    categories: Mapping[str, Category]
    bounds: Mapping[int, tuple[float, float]]
    levels: Mapping[int, tuple[float, ...]]
    queried: bool = False
    persons: npt.NDArray[np.intp] | None = None
    elsewhere: Callable[[Any], Any] | None = None
    sought: str | None = None
    seekable: tuple[str, ...] = ()
    keys_elsewhere: Any = None
    unknown: tuple[int, ...] = ()
    parts_elsewhere: Callable[[int, Sequence[int]], Mapping[int, int]] | None = None

    @staticmethod
    def of(
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
        known, levels = open_pool(pool, columns, promise, query=query, target=target, sought=named)
        persons = None
        names: Sequence[str] = ()
        if hidden and not isinstance(known, DataTable):
            known = plain_rows(known)
        if person is not None:
            named_persons = promise.max_rows or promise.max_groups if hidden else None
            known, columns, persons, names = _take_persons(
                known, columns, person, named=bool(named_persons)
            )
        rows = as_numbers(known) if hidden else _own_rows(known, fewest)
        categories = known.categories if isinstance(known, DataTable) else {}
        own = _names_of_frame(known)
        labels = _column_names(own if own is not None else columns, rows.shape[1])
        if own is not None and columns is not None:
            wanted = _select(columns, labels)
            rows = np.ascontiguousarray(rows[:, [labels.index(name) for name in wanted]])
            rows.flags.writeable = False
            labels = wanted
            categories = {name: kind for name, kind in categories.items() if name in labels}
        unknown = _unknown(getattr(promise, "bounds", None), labels, person)
        bounds = _read_bounds(getattr(promise, "bounds", None), labels, unknown)
        declared = _read_levels(levels, labels, categories)
        if hidden:
            nothing = nothing_there(len(labels), bounds, declared)
            grouped = {*declared, *(labels.index(one) for one in named if one in labels)}
            caps = caps_of(promise, grouped=bool(grouped) and query is not None)
            if caps is not None and persons is not None:
                read = read_places(labels, None if query is None else columns_read(query, target))
                # a row with nothing in a column that is read is none of the person's rows
                whole = np.flatnonzero(~np.isnan(rows[:, read]).any(axis=1))
                held = {
                    labels[at]: in_order(rows[whole, at], declared.get(at), categories.get(name))
                    for at, name in sorted(enumerate(labels), key=lambda pair: pair[1])
                    if at in read or at in grouped
                }
                keys = [held.pop(labels[at]) for at in sorted(grouped, key=labels.__getitem__)]
                stays = whole[caps.kept(persons[whole], names, list(held.values()), keys)]
                rows = rows[stays]
                persons = np.unique(persons[stays], return_inverse=True)[1].reshape(-1)
            replaced = getattr(promise, "adjacency", None) is Adjacency.REPLACE
            rows, persons = without_gaps(
                rows,
                persons,
                read_places(labels, None if query is None else columns_read(query, target)),
                nothing if person is None and replaced else None,
                known.dropped if isinstance(known, DataTable) else 0,
            )
        return Pool(
            rows,
            labels,
            categories,
            bounds,
            declared,
            isinstance(known, DataTable) and known.queried,
            persons,
            sought=sought,
            seekable=_among(seekable, labels),
            unknown=unknown,
        )

    def as_columns(self, *, looked_at: bool) -> Columns:
        """Return the columns with what is known of them before anything is drawn.

        Args:
            looked_at: whether what is computed may depend on the rows, which are public but for
                the draw; else on what was declared alone.
        """
        # levels that were found are the table's, and no name of a number repeats them
        words = {
            self.columns.index(name): kind.levels
            for name, kind in self.categories.items()
            if kind.declared
        }
        levels = self.levels
        if self.sought is not None:
            # one key stands for all that will be found
            place = self._place_of_sought()
            levels, words = {**levels, place: (0.0,)}, {**words, place: (EACH_KEY,)}
        return Columns(
            self.columns,
            self.rows if looked_at else None,
            bounds=self.bounds,
            levels=levels,
            words=words,
            people=not looked_at and (self.persons is not None or self.elsewhere is not None),
        )

    @property
    def units(self) -> Array | RowsOfPersons:
        """What is drawn or is not: rows, or persons with all of theirs."""
        return self.rows if self.persons is None else RowsOfPersons(self.rows, self.persons)

    @property
    def unit_rows(self) -> Array:
        """A row (P, p) for each of them: of a person the mean of theirs."""
        units = self.units
        return units.means() if isinstance(units, RowsOfPersons) else units

    def without(self, names: Collection[str]) -> Pool:
        """Return the pool without some columns, of rows in memory."""
        kept = [at for at, name in enumerate(self.columns) if name not in names]
        rows = np.ascontiguousarray(self.rows[:, kept])
        rows.flags.writeable = False
        return replace(
            self,
            rows=rows,
            columns=tuple(self.columns[at] for at in kept),
            categories={name: one for name, one in self.categories.items() if name not in names},
            bounds={kept.index(at): held for at, held in self.bounds.items() if at in kept},
            levels={kept.index(at): held for at, held in self.levels.items() if at in kept},
            seekable=tuple(name for name in self.seekable if name not in names),
            unknown=tuple(kept.index(at) for at in self.unknown if at in kept),
        )

    def seeking_bounds(self, places: Collection[int]) -> Pool:
        """Return the pool that seeks bounds of these columns alone; others have none then."""
        others = set(self.unknown).difference(places)
        bounds = {at: pair for at, pair in self.bounds.items() if at not in others}
        return replace(
            self, unknown=tuple(at for at in self.unknown if at not in others), bounds=bounds
        )

    def _place_of_sought(self) -> int:
        if self.sought not in self.columns:
            raise ValueError(f"query: expected a column of the table, got {self.sought!r}")
        return self.columns.index(self.sought)

    def sought_places(self) -> tuple[npt.NDArray[np.intp], tuple[str, ...] | Array]:
        """Return the place (N,) of the key of every row, and what the places stand for; secret."""
        assert self.sought is not None, "no keys are sought"
        values, places = np.unique(self.rows[:, self._place_of_sought()], return_inverse=True)
        kind = self.categories.get(self.sought)
        if kind is None:
            return places.reshape(-1), values
        return places.reshape(-1), tuple(kind.levels[int(code)] for code in values)

    def with_keys(self, keys: tuple[str, ...] | tuple[float, ...]) -> Pool:
        """Return the pool with these keys as if they had been declared; others are none of them."""
        assert self.sought is not None, "no keys are sought"
        place, kind = self._place_of_sought(), self.categories.get(self.sought)
        left = tuple(name for name in self.seekable if name != self.sought)
        found = replace(self, sought=None, seekable=left, keys_elsewhere=None)
        if self.keys_elsewhere is not None:
            found = replace(found, elsewhere=self.keys_elsewhere.among(keys))
            keys = tuple(map(key_word, keys))
        if kind is None:
            numbers = tuple(float(key) for key in keys)
            return replace(found, levels={**self.levels, place: numbers})
        codes = {key: float(code) for code, key in enumerate(keys)}
        coded = np.array([codes.get(level, NO_KEY) for level in kind.levels])
        rows = self.rows.copy()
        rows[:, place] = coded[rows[:, place].astype(int)] if len(rows) else rows[:, place]
        rows.flags.writeable = False
        declared = Category(tuple(map(str, keys)), declared=True)
        return replace(
            found,
            rows=rows,
            categories={**self.categories, self.sought: declared},
            levels={**self.levels, place: tuple(codes.values())},
        )

    @property
    def observed_columns(self) -> frozenset[str]:
        """Names of columns whose codes stand for levels that were read from the table."""
        observed = {name for name, kind in self.categories.items() if not kind.declared}
        # keys that are sought group rows, by a promise of their own
        return frozenset(observed - {self.sought})

    def declaration(self) -> dict[str, Any]:
        """Return the bounds and levels that were declared, by the names of the columns."""
        named = {place: self.categories.get(name) for place, name in enumerate(self.columns)}
        return {
            "bounds": {self.columns[place]: pair for place, pair in self.bounds.items()},
            "levels": {
                self.columns[place]: _words_of(held, named[place])
                for place, held in self.levels.items()
            },
        }

    def notes(self, *, hidden: bool) -> tuple[str, ...]:
        """Return what a row is and what codes stand for, as far as a reader may know it.

        Args:
            hidden: whether the table itself is: then nothing of what was found in it is told.
        """
        lines = [RESULT] if self.queried else []
        for name, kind in self.categories.items():
            if kind.declared:
                codes = ", ".join(f"{code} = {level}" for code, level in enumerate(kind.levels))
                lines.append(f"codes of {name}: {codes}")
            elif not hidden:
                lines.append(
                    f"{name} has {len(kind.levels)} levels, coded in the order of their names; "
                    "they were read from the table, so they are not named here (declared levels "
                    "are)"
                )
        return tuple(lines)


def key_word(key: str | float) -> str:
    """Return a key as it is told: whole numbers whole, others so that they read back."""
    if isinstance(key, str):
        return key
    if isinstance(key, int):
        return str(key)
    value = float(key)
    return str(int(value)) if value.is_integer() and abs(value) < 2.0**53 else repr(value)


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


def _words_of(codes: tuple[float, ...], kind: Category | None) -> tuple[float | str, ...]:
    """Return what was declared for a column: words where it was coded by them."""
    coded = kind is not None and kind.declared and codes == tuple(range(len(kind.levels)))
    return kind.levels if kind is not None and coded else codes


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
    return tuple(wanted)


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


def _column_names(columns: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"x{index}" for index in range(width))
    if isinstance(columns, str) or not all(isinstance(name, str) for name in name_list(columns)):
        raise ValueError(f"columns: expected {width} names, got {shown(columns)}")
    if len(columns) != width or len(set(columns)) != width:
        raise ValueError(f"columns: expected {width} different names, got {list(columns)}")
    return tuple(columns)


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


def open_pool(
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


def _names_of_frame(pool: Any) -> list[str] | None:
    """Return the column names of a data frame, such as one of pandas or polars."""
    names = getattr(pool, "columns", None)
    return None if names is None else [str(name) for name in names]


def name_list(names: Any) -> list[Any]:
    """Return names in a list; a text is one name."""
    return list(names) if isinstance(names, (list, tuple, np.ndarray)) else [names]
