"""The columns of a source: which are read, as what, and how a refusal names them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa

from tacit._ground.checks import Array
from tacit.statistics.tables.cells import odd_kind, plain_text
from tacit.statistics.tables.columns import Codes, Numbers, Problem, declared_levels
from tacit.statistics.tables.typed import TypedTable

# Likeness of a column's name to one that is not there, for "did you mean".
LIKE = 0.7
# Asked for where no column is read and rows are counted: no column can have this name.
NO_COLUMN = ("",)
Levels = Mapping[str, Sequence[str] | None]


class Source(Protocol):
    """What a table is read from, whatever it is stored as."""

    names: tuple[str, ...]
    notes: tuple[str, ...]

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of some rows, then of the next ones."""

    def place(self, row: int) -> str:
        """Return where a row stands."""

    def close(self) -> None:
        """Stop reading, and let go of what is read from."""


@dataclass(frozen=True)
class Request:
    """What is to be read of a source, and how refusals are worded."""

    columns: Sequence[str] | None = None
    categories: Levels = field(default_factory=dict)
    missing: str = "refuse"
    decimal: str = "."
    show_values: bool = False


class Header:
    """The names of a source, and what was asked of them.

    The header of a text may be a row of data, or a line of a file that is no table: a refusal
    names a column by its number there, unless the caller named it first.
    """

    def __init__(self, source: Source, label: str, request: Request) -> None:
        self.names = source.names
        self._source, self._label, self._request = source, label, request
        self._told = isinstance(source, TypedTable) or request.show_values
        self._places = self._check_names()
        listed = request.columns
        if isinstance(listed, str):
            raise ValueError(f"columns: expected a list of names, got {listed!r}")
        if listed is not None and tuple(listed) == NO_COLUMN:
            listed = ()
        elif listed is not None and not len(listed):
            raise ValueError("columns: expected at least one column name, got none")
        wanted = list(self.names if listed is None else listed)
        self._asked = {plain_text(str(name)) for name in (*(listed or ()), *request.categories)}
        self.chosen = self._positions(wanted)
        self._levels: dict[int, list[str] | None] = {}
        for name, levels in request.categories.items():
            place = self._position(name, "categories")
            self._levels[place] = None if levels is None else declared_levels(name, levels)
            if place not in self.chosen:
                raise ValueError(
                    f"categories: expected one of the columns read, got {self.names[place]!r}"
                )

    def gatherer(self, place: int, column: Any) -> Numbers | Codes:
        """Return what gathers a column: numbers, or codes where it is a category.

        Raises:
            ValueError: its type is neither of numbers nor of texts, such as durations.
        """
        if place in self._levels or pa.types.is_dictionary(column.type):
            return Codes(self._levels.get(place), lenient=self._lenient)
        odd = odd_kind(column.type)
        if odd is not None:
            raise ValueError(
                f"data: {self._column(place)}: expected numbers, got {odd}; give them in a unit, "
                "such as days, or leave the column out"
            )
        return Numbers(lenient=self._lenient)

    def refuse(self, before: int, problem: Problem, place: int) -> NoReturn:
        """Refuse the table for a cell of a batch that ``before`` rows precede."""
        held = f" ({problem.cell!r})" if self._request.show_values else ""
        where = f"{self._source.place(before + problem.row)}, {self._column(place)}"
        raise ValueError(f"data: {where}: {problem.sentence}{held}")

    def refuse_missing(self, rows: Array) -> None:
        """Refuse the table for its first cell with nothing in it, unless such rows are dropped."""
        if self._request.missing != "refuse":
            return
        row, target = np.argwhere(np.isnan(rows))[0].tolist()
        where = f"{self._source.place(row)}, {self._column(self.chosen[target])}"
        raise ValueError(
            f"data: {where}: expected a value, got an empty field; missing='drop' leaves such rows "
            "out and counts them"
        )

    @property
    def _lenient(self) -> bool:
        return self._request.missing == "drop-unreadable"

    def _column(self, place: int) -> str:
        named = self._told or self.names[place] in self._asked
        return f"column {self.names[place]!r}" if named else f"column {place + 1}"

    def _check_names(self) -> dict[str, int]:
        if not self.names:
            raise ValueError(f"data: {self._label} has no columns")
        first: dict[str, int] = {}
        for place, name in enumerate(self.names):
            if not name:
                raise ValueError(f"data: {self._label}: column {place + 1} has no name")
            if name in first:
                raise ValueError(
                    f"data: {self._label}: columns {first[name] + 1} and {place + 1} have one name"
                    + (f", {name!r}" if self._told else "")
                )
            first[name] = place
        return first

    def _positions(self, wanted: Sequence[str]) -> list[int]:
        places: dict[int, str] = {}
        for name in wanted:
            place = self._position(name, "columns")
            if place in places:
                raise ValueError(f"columns: the column {name!r} is asked for twice")
            places[place] = name
        return list(places)

    def _position(self, name: str, argument: str) -> int:
        spelled = plain_text(str(name))
        if spelled in self._places:
            return self._places[spelled]
        near = difflib.get_close_matches(spelled, self.names, 1, LIKE)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if self._told:
            hint = f"; it has {', '.join(map(repr, self.names))}"
        elif not near:
            hint = f" among its {len(self.names)}; show_values lists them"
        raise ValueError(f"{argument}: {self._label} has no column {name!r}{hint}")
