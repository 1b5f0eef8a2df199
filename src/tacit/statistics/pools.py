"""A pool that was checked: rows, names of columns, and what was declared of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.persons import RowsOfPersons
from tacit.statistics.queries.statistic import Columns
from tacit.statistics.tables.table import RESULT, Category

# In names, before keys are found; and the code of what is no key that was found.
EACH_KEY, NO_KEY = "each key found", -1.0
# Of a column whose bounds are found, until they are: errors are told in widths of them.
NOMINAL_ENDS = (0.0, 1.0)


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


def _words_of(codes: tuple[float, ...], kind: Category | None) -> tuple[float | str, ...]:
    """Return what was declared for a column: words where it was coded by them."""
    coded = kind is not None and kind.declared and codes == tuple(range(len(kind.levels)))
    return kind.levels if kind is not None and coded else codes
