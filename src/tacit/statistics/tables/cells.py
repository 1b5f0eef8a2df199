"""The cells of columns: numbers, texts or nothing, each read by itself, and what is gathered."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import LARGEST_EXACT
from tacit.statistics.tables.columns import ColumnCells, Mask
from tacit.statistics.tables.table import Category, order_levels, plain_text

Bits = npt.NDArray[np.uint64]

NUMBER = re.compile(r"(?ai)[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity)\Z")
INTEGER = re.compile(r"[+-]?[0-9]+\Z")
# What is tried as a date or a time of day; weeks and bare digits are none.
DATED, CLOCK = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d\d:\d\d")
# Spellings of "nothing" in columns of numbers.
ABSENT = ("", "na", "n/a", "#n/a", "nan", "null")
# Words in files, numbers in frames and databases.
TRUTH = {"true": 1.0, "false": 0.0}
ABSENT_BITS = np.uint64(2**64 - 1)
LARGEST_SHORT = float(np.finfo(np.float32).max)
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class CellBlock:
    """Some rows of one column.

    Attributes:
        column: the cells as they came.
        numbers: (n,) the cells as numbers; NaN where they are texts or absent.
        absent: (n,) cells that hold nothing.
        inexact: (n,) integers beyond ``LARGEST_EXACT``.
    """

    column: ColumnCells
    numbers: Array
    absent: Mask
    inexact: Mask

    def bits(self) -> Bits:
        """Return 64 bits per cell, the same however it is written: (n,).

        Those of its number, or the first ones of the SHA-256 of its text.
        """
        typed = isinstance(self.column.values, np.ndarray)
        bits: Bits = ((self.column.doubles() if typed else self.numbers) + 0.0).view(np.uint64)
        odd = np.flatnonzero(np.isnan(self.numbers) & ~self.absent)
        if odd.size:
            texts = [self.column.texts[place] for place in odd.tolist()]
            found = {text: _text_bits(text) for text in dict.fromkeys(texts)}
            bits[odd] = np.array([found[text] for text in texts], dtype=np.uint64)
        bits[self.absent] = ABSENT_BITS
        return bits


def column_cells(column: ColumnCells, decimal: str, *, typed: bool = False) -> CellBlock:
    """Return what a column holds, each cell read by itself.

    What a cell is read as does not depend on the type that the others gave its column: a number, a
    truth value and their texts are one where columns have types.

    Args:
        column: of any type.
        decimal: the mark in the numbers of texts.
        typed: whether its source has types: its texts may then be numbers and truth values that a
            text among them turned into texts.
    """
    held = column.values
    if not isinstance(held, np.ndarray):
        return _text_cells(column, "." if column.pointed else decimal, typed)
    # exact: a missing value or one of more digits beside them makes doubles of these
    numbers = held.astype(np.float64)
    if column.missing is not None:
        numbers[column.missing] = np.nan
    far = np.zeros(len(held), dtype=bool)
    if held.dtype.kind in "iu" and held.dtype.itemsize == 8:
        far |= held > LARGEST_EXACT
        if held.dtype.kind == "i":
            far |= held < -LARGEST_EXACT
        far &= ~np.isnan(numbers)
    return CellBlock(column, numbers, np.isnan(numbers), far)


def value_of(text: str, decimal: str = ".") -> float | str | None:
    """Return what a text stands for where columns have types, whatever made a text of it.

    A number or a truth value as a number, a date or a time in one spelling, at UTC; other texts as
    they are; None for nothing.

    Example:
        >>> value_of("2.00") == value_of("2"), value_of("True"), value_of("2020-01-01T00:00:00Z")
        (True, 1.0, '2020-01-01T00:00:00')
    """
    spelled = plain_text(text)
    number = spelled if "." in spelled or decimal == "." else spelled.replace(",", ".")
    if NUMBER.match(number):
        return float(number)
    if spelled.lower() in ("", "nan"):
        return None
    try:
        if DATED.match(spelled):
            moment = datetime.fromisoformat(spelled)
            # where times with a zone and without stand in one column, the latter are taken at UTC
            aware = moment.tzinfo is not None
            return (moment.astimezone(UTC) if aware else moment).replace(tzinfo=None).isoformat()
        if CLOCK.match(spelled):
            return time.fromisoformat(spelled).isoformat()
    except (ValueError, OverflowError):
        pass
    return TRUTH.get(spelled.lower(), spelled)


class RowBits:
    """64 bits of every cell of a table, gathered batch by batch: what names its rows."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._parts: list[list[Bits]] = [[] for _ in names]

    def add(self, columns: Sequence[CellBlock]) -> None:
        """Take some rows more."""
        for parts, cells in zip(self._parts, columns, strict=True):
            parts.append(cells.bits())

    def filled(self) -> int:
        """Return how many rows there are up to the last one that holds anything."""
        holds = np.zeros(sum(map(len, self._parts[0])), dtype=bool)
        for parts in self._parts:
            if parts:
                holds |= np.concatenate(parts) != ABSENT_BITS
        return len(holds) - int(np.argmax(holds[::-1])) if holds.any() else 0

    def fingerprint(self) -> str:
        """Return ``"sha256:<hex>"`` of the rows that hold anything, whatever their order.

        SHA-256 of the sorted names and of the sorted rows. Tables with k different texts get one
        digest by accident with probability about k²/2⁶⁵, and then share one budget.
        """
        order = sorted(range(len(self._names)), key=self._names.__getitem__)
        whole = hashlib.sha256(repr([self._names[place] for place in order]).encode())
        rows = np.empty((sum(map(len, self._parts[0])), len(order)), dtype=">u8")
        for target, place in enumerate(order):
            np.concatenate(self._parts[place] or [np.empty(0, np.uint64)], out=rows[:, target])
        rows = rows[(rows != ABSENT_BITS).any(axis=1)]
        lines = rows.view(f"S{8 * len(order)}").ravel()
        lines.sort()
        whole.update(lines.view(np.uint8).data)
        return "sha256:" + whole.hexdigest()


def _text_cells(column: ColumnCells, decimal: str, typed: bool) -> CellBlock:
    written: Any = column.values
    numbers = _all_numbers(written) if decimal == "." else None
    if numbers is not None:
        none = np.zeros(len(numbers), dtype=bool)
        return CellBlock(column, numbers, none, _inexact(written, numbers))
    texts = column.texts
    if decimal == ",":
        # a point beside a decimal comma would group thousands: no number
        texts = [text.replace(".", "·").replace(",", ".") for text in texts]
    found = {text: _number(text, typed) for text in dict.fromkeys(texts)}
    numbers = np.array([found[text] for text in texts], dtype=np.float64)
    empty = {text for text in found if text.lower() in ABSENT}
    absent = np.array([text in empty for text in texts], dtype=bool)
    return CellBlock(column, numbers, absent, _inexact(texts, numbers))


def _number(text: str, typed: bool) -> float:
    if NUMBER.match(text):
        return float(text)
    return TRUTH.get(text.lower(), math.nan) if typed else math.nan


def _all_numbers(texts: Sequence[Any]) -> Array | None:
    """Return the texts as numbers; None where one of them is no finite number."""
    try:
        numbers = np.fromiter(map(float, texts), np.float64, len(texts))
    except (ValueError, TypeError):
        return None
    # Python's floats have digits of other scripts, and underscores between them
    whole = "".join(texts)
    plain = whole.isascii() and "_" not in whole
    return numbers if plain and np.isfinite(numbers).all() else None


def _inexact(texts: Sequence[Any], numbers: Array) -> Mask:
    """Return which texts are numbers beyond ``LARGEST_EXACT`` that lose digits: (n,)."""
    far: Mask = np.isfinite(numbers) & (np.abs(numbers) >= LARGEST_EXACT)
    for place in np.flatnonzero(far).tolist():
        written = texts[place].strip()
        # 2⁵³ + 1 reads as 2⁵³: only the digits tell
        digits = written.lstrip("+-0") if INTEGER.match(written) else ""
        far[place] = len(digits) > 16 or (digits != "" and int(digits) > LARGEST_EXACT)
        if INTEGER.match(written.replace(".", "", 1)) and not digits:
            far[place] = Decimal(written) != Decimal(float(numbers[place]))
    return far


def _text_bits(text: str) -> int:
    """Return the first 64 bits of the SHA-256 of a text, or those of its truth."""
    truth = TRUTH.get(text.lower())
    if truth is not None:
        return int(np.float64(truth).view(np.uint64))
    # most texts have one spelling already
    plain = text if text.isascii() and "\r" not in text else plain_text(text)
    return int.from_bytes(hashlib.sha256(plain.encode()).digest()[:8], "big")


class UnreadableCell(NamedTuple):
    """A cell that cannot be read: its row in the batch, what is wrong, what it holds."""

    row: int
    sentence: str
    cell: str


TEXT = "expected a number, got text; leave the column out, or read it as a category (--category)"
INFINITE = "expected a finite number, got an infinite one"
INEXACT = (
    f"expected a number, got an integer beyond 2⁵³ = {LARGEST_EXACT:,}, which loses digits; leave "
    "the column out, or read it as a category (--category)"
)


# 1234,5 and 1.234,5
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d{1,3}(\.?\d{3})*,\d+\s*")


class NumberCells:
    """A column of numbers, NaN where there is none; ``lenient``, where none can be read too.

    Args:
        lenient: whether a cell that is no number holds nothing, and so does an infinite one,
        bounded: unless that is beyond all bounds, as the largest number there is.
    """

    def __init__(self, *, lenient: bool = False, bounded: bool = False) -> None:
        self._lenient, self._bounded = lenient, bounded
        self._parts: list[Array] = []

    def add(self, cells: CellBlock) -> UnreadableCell | None:
        """Take some rows more; return the first cell that is no finite number."""
        if self._lenient:
            # an integer beyond 2⁵³ as the nearest double, as any number beside it may make it one
            far = np.copysign(LARGEST if self._bounded else np.nan, cells.numbers)
            self._parts.append(np.where(np.isinf(cells.numbers), far, cells.numbers))
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
        # −0 + 0 = 0: a zero keeps its sign in a column of floats, not beside a text
        values, self._parts = np.concatenate([np.empty(0), *self._parts]) + 0.0, []
        return values


class CategoryCodes:
    """A column of codes of a category, NaN where there is none; ``lenient``, at others too.

    Declared levels are found by the text of a cell; where columns have types, by what it stands
    for, as one text in a column makes texts of all of its numbers.

    Args:
        levels: declared, or None for those that occur.
        lenient: whether a cell that is none of the levels holds nothing.
        by_value: the mark in the numbers of texts, where columns have types.
    """

    def __init__(
        self, levels: Sequence[str] | None, *, lenient: bool = False, by_value: str | None = None
    ) -> None:
        self._lenient, self._declared = lenient, levels is not None
        self._place = {level: place for place, level in enumerate(levels or ())}
        self._values: dict[Any, int] | None = None
        if levels is not None and by_value is not None:
            self._decimal = by_value
            self._values = level_places(levels, by_value)
        self._parts: list[Array] = []

    def add(self, cells: CellBlock) -> UnreadableCell | None:
        """Take some rows more; return the first cell that is none of the levels declared."""
        texts = cells.column.texts
        found = {text: self._code(plain_text(text)) for text in dict.fromkeys(texts)}
        codes = np.array([found[text] for text in texts], dtype=np.float64)
        if isinstance(cells.column.values, np.ndarray):
            codes[cells.absent] = np.nan
        if self._lenient:
            codes[codes == -1.0] = np.nan
        self._parts.append(codes)
        undeclared = f"expected one of the {len(self._place)} levels declared, got another"
        return _first(cells, codes == -1.0, undeclared)

    def _code(self, level: str) -> float:
        if not level:
            # "NA" is a level, an empty field is none
            return math.nan
        if self._values is not None:
            value = value_of(level, self._decimal)
            return math.nan if value is None else float(self._values.get(value, -1))
        if not self._declared:
            self._place.setdefault(level, len(self._place))
        return float(self._place.get(level, -1))

    def values(self) -> tuple[Array, Category]:
        """Return the codes by the sorted levels, (n,), and let go of the parts."""
        provisional, self._parts = np.concatenate([np.empty(0), *self._parts]), []
        there = ~np.isnan(provisional)
        used = set(np.unique(provisional[there]).astype(int).tolist())
        # nothing is a level of its own: an empty field is in no list
        kept = [level for level, place in self._place.items() if self._declared or place in used]
        levels = order_levels(kept)
        code = np.full(len(self._place), np.nan)
        for number, level in enumerate(levels):
            code[self._place[level]] = number
        values = np.full(len(provisional), np.nan)
        values[there] = code[provisional[there].astype(int)]
        return values, Category(levels, self._declared)


def level_places(
    levels: Sequence[str], decimal: str = ".", argument: str = "categories"
) -> dict[Any, int]:
    """Return the place of every level by what it stands for.

    Raises:
        ValueError: two of them stand for one number, truth value or time.
    """
    places: dict[Any, int] = {}
    for place, level in enumerate(levels):
        value = value_of(level, decimal)
        if value is None or value in places:
            other = "nothing" if value is None else repr(levels[places[value]])
            raise ValueError(
                f"{argument}: expected levels that columns with types tell apart, got {level!r}, "
                f"which stands for the same as {other}"
            )
        places[value] = place
    for value, place in list(places.items()):
        # .1 in single precision is another number, 2⁶⁰ another text, and each stands for its own
        if isinstance(value, float) and abs(value) <= LARGEST_SHORT:
            short = np.float32(value)
            places.setdefault(float(short), place)
            places.setdefault(float(str(short)), place)
    return places


def _first(cells: CellBlock, bad: Mask, sentence: str) -> UnreadableCell | None:
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    return UnreadableCell(row, sentence, str(cells.column.values[row]))
