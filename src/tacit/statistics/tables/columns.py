"""Columns gathered batch by batch: numbers, or codes of a category."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit._ground.checks import Array
from tacit._ground.numbers import LARGEST_EXACT
from tacit.statistics.tables.buffers import Mask, integers, mask
from tacit.statistics.tables.cells import Cells, is_number, is_text, plain_text, texts_of
from tacit.statistics.tables.table import Category


class Problem(NamedTuple):
    """A cell that cannot be read: its row in the batch, what is wrong, what it holds."""

    row: int
    sentence: str
    cell: str


TEXT = "expected a number, got text; leave the column out, or code it as a category"
INFINITE = "expected a finite number, got an infinite one"
INEXACT = (
    f"expected a number, got an integer beyond 2⁵³ = {LARGEST_EXACT:,}, which loses digits; leave "
    "the column out, or code it as a category"
)


class Numbers:
    """A column of numbers, NaN where there is none; ``lenient``, where none can be read too."""

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient
        self._parts: list[Array] = []

    def add(self, cells: Cells) -> Problem | None:
        """Take some rows more; return the first cell that is no finite number."""
        if self._lenient:
            readable = np.isfinite(cells.numbers) & ~cells.inexact
            self._parts.append(np.where(readable, cells.numbers, np.nan))
            return None
        self._parts.append(cells.numbers)
        return min(
            filter(
                None,
                (
                    _first(cells, np.isnan(cells.numbers) & ~cells.absent, TEXT),
                    _first(cells, np.isinf(cells.numbers), INFINITE),
                    _first(cells, cells.inexact, INEXACT),
                ),
            ),
            default=None,
        )

    def values(self) -> Array:
        """Return (n,), and let go of the parts."""
        values, self._parts = np.concatenate(self._parts), []
        return values


class Codes:
    """A column of codes of a category, NaN where there is none; ``lenient``, at others too."""

    def __init__(self, levels: Sequence[str] | None, *, lenient: bool = False) -> None:
        self._lenient, self._declared = lenient, levels is not None
        self._place = {level: place for place, level in enumerate(levels or ())}
        self._parts: list[Array] = []

    def add(self, cells: Cells) -> Problem | None:
        """Take some rows more; return the first cell that is none of the levels declared."""
        coded = texts_of(cells.column).dictionary_encode()
        levels = [plain_text(text) for text in coded.dictionary.to_pylist()]
        if not self._declared:
            for level in levels:
                self._place.setdefault(level, len(self._place))
        places = np.array([self._place.get(level, -1) for level in levels], dtype=np.float64)
        codes = places[integers(coded.indices)]
        codes[_nothing(cells)] = np.nan
        if self._lenient:
            codes[codes == -1.0] = np.nan
        self._parts.append(codes)
        undeclared = f"expected one of the {len(self._place)} levels declared, got another"
        return _first(cells, codes == -1.0, undeclared)

    def values(self) -> tuple[Array, Category]:
        """Return the codes by the sorted levels, (n,), and let go of the parts."""
        provisional, self._parts = np.concatenate(self._parts), []
        there = ~np.isnan(provisional)
        used = set(np.unique(provisional[there]).astype(int).tolist())
        # nothing is a level of its own: an empty field is in no list
        kept = [level for level, place in self._place.items() if self._declared or place in used]
        levels = ordered(kept)
        code = np.full(len(self._place), np.nan)
        for number, level in enumerate(levels):
            code[self._place[level]] = number
        values = np.full(len(provisional), np.nan)
        values[there] = code[provisional[there].astype(int)]
        return values, Category(levels, self._declared)


def ordered(levels: Iterable[str]) -> tuple[str, ...]:
    """Return levels in the order of their codes: numbers by size before words."""
    return tuple(sorted(levels, key=_order))


def declared_levels(name: str, levels: Sequence[str], argument: str = "categories") -> list[str]:
    """Return the levels given for a category, each once and with something in it."""
    spelled = [plain_text(str(level)) for level in levels]
    if isinstance(levels, str) or not spelled or not all(spelled):
        raise ValueError(f"{argument}: expected levels for {name!r}, got {levels!r}")
    if len(set(spelled)) < len(spelled):
        raise ValueError(f"{argument}: expected different levels for {name!r}, got one twice")
    return spelled


def _nothing(cells: Cells) -> Mask:
    """Return where a category has no level: "NA" is one, an empty field is none."""
    kind = cells.column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not is_text(kind):
        return cells.absent
    # a comparison with a scalar would import pandas
    return mask(pc.match_substring_regex(texts_of(cells.column), r"\A\z"))


def _first(cells: Cells, bad: Any, sentence: str) -> Problem | None:
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    return Problem(row, sentence, str(cells.column[row].as_py()))


def _order(level: str) -> tuple[bool, float, str]:
    number = is_number(level)
    return not number, float(level) if number else 0.0, level
