"""Sums in blocks, each of which is one grouping of the rows by categories."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.queries.sums import Term

Places: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Block:
    """Sums that share the columns by which rows are grouped.

    Attributes:
        keys: places of those columns.
        cells: levels of each combination that occurs.
        measures: what is summed in a cell: terms without the conditions on the keys.
        places: of the sum of each (cell, measure) among all; −1 where it was not asked for.
    """

    keys: tuple[int, ...]
    cells: tuple[tuple[float, ...], ...]
    measures: tuple[Term, ...]
    places: tuple[tuple[int, ...], ...]

    def cells_of(self, rows: Array) -> Places:
        """Return the place of the cell that every row is in, (n,); −1 for none."""
        found = np.zeros(len(rows), dtype=np.intp)
        outside = np.zeros(len(rows), dtype=bool)
        codes = np.zeros(len(self.cells), dtype=np.intp)
        size = 1
        for number, key in enumerate(self.keys):
            own = np.array([cell[number] for cell in self.cells])
            levels = np.unique(own)
            # the place of each value among the levels, and whether it is one of them
            at = np.minimum(np.searchsorted(levels, rows[:, key]), len(levels) - 1)
            outside |= levels[at] != rows[:, key]
            found += size * at
            codes += size * np.searchsorted(levels, own)
            size *= len(levels)
        places = np.full(size, -1, dtype=np.intp)
        places[codes] = np.arange(len(self.cells))
        return np.where(outside, -1, places[found])


def blocks_of(terms: Sequence[Term], keys: Collection[int]) -> list[Block]:
    """Return the terms in blocks, each of which is one grouping of the rows.

    Raises:
        ValueError: a condition on a category other than that it is one of the levels.
    """
    found: dict[tuple[int, ...], dict[tuple[float, ...], dict[Term, int]]] = {}
    for place, one in enumerate(terms):
        on_keys = [part for part in one.conditions if part.column in keys]
        if any(part.low != part.high or not part.closed for part in on_keys):
            raise ValueError("query: expected groups by the levels of a category, got ranges")
        columns = tuple(part.column for part in on_keys)
        levels = tuple(part.low for part in on_keys)
        rest = tuple(part for part in one.conditions if part.column not in keys)
        if len(set(columns)) < len(columns):
            # two levels of one column at once: no row adds to it
            continue
        measure = Term(rest, one.factors, one.once)
        found.setdefault(columns, {}).setdefault(levels, {})[measure] = place
    blocks = []
    for columns, cells in found.items():
        measures = tuple(dict.fromkeys(one for cell in cells.values() for one in cell))
        places = tuple(tuple(cell.get(one, -1) for one in measures) for cell in cells.values())
        blocks.append(Block(columns, tuple(cells), measures, places))
    return blocks


def keys_of(terms: Sequence[Term]) -> frozenset[int]:
    """Return the columns on which every condition is that they have one value."""
    ranged = {
        part.column
        for one in terms
        for part in one.conditions
        if part.low != part.high or not part.closed
    }
    used = {part.column for one in terms for part in one.conditions}
    summed = {column for one in terms for column in one.factors}
    return frozenset(used - ranged - summed)
