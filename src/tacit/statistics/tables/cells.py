"""The cells of columns, batch by batch: numbers, texts or nothing, and what is gathered of them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit._ground.checks import Array
from tacit._ground.numbers import LARGEST_EXACT
from tacit.statistics.tables.table import Category, order_levels, plain_text

Mask: TypeAlias = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.uint64]

NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity)$"
INTEGER = re.compile(r"[+-]?[0-9]+\Z")
PLAIN_NUMBER = re.compile(NUMBER)
# What is tried as a date or a time of day; weeks and bare digits are none.
DATED, CLOCK = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d\d:\d\d")
# Spellings of "nothing" in columns of numbers.
ABSENT = r"(?i)\A(na|n/a|#n/a|nan|null)?\z"
# Words in files, numbers in frames and databases.
TRUTH = {"true": 1.0, "false": 0.0}
ABSENT_BITS = np.uint64(2**64 - 1)
LARGEST_SHORT = float(np.finfo(np.float32).max)
LARGEST = float(np.finfo(np.float64).max)
# Integers from here on are infinite as doubles.
OVERFLOW = 2**1024


@dataclass(frozen=True, eq=False)
class CellBlock:
    """Some rows of one column.

    Attributes:
        column: the cells as they came.
        numbers: (n,) the cells as numbers; NaN where they are texts or absent.
        absent: (n,) cells that hold nothing.
        inexact: (n,) integers beyond ``LARGEST_EXACT``.
    """

    column: Any
    numbers: Array
    absent: Mask
    inexact: Mask

    def bits(self) -> Bits:
        """Return 64 bits per cell, the same however it is written: (n,).

        Those of its number, or the first ones of the SHA-256 of its text.
        """
        numbers = self.numbers
        if _is_short(self.column.type):
            # single precision by the shortest text that stands for it, as a CSV file has it
            there, numbers = ~self.absent, numbers.copy()
            texts = texts_of(self.column.filter(flags(there)))
            numbers[there] = doubles(texts.cast(pa.float64()))
        bits: Bits = (numbers + 0.0).view(np.uint64)
        odd = np.isnan(self.numbers) & ~self.absent
        if odd.any():
            coded = texts_of(self.column).filter(flags(odd)).dictionary_encode()
            bits[odd] = _text_bits(coded.dictionary.to_pylist())[integers(coded.indices)]
        bits[self.absent] = ABSENT_BITS
        return bits


def column_cells(column: Any, decimal: str, *, typed: bool = False) -> CellBlock:
    """Return what an Arrow column holds, each cell read by itself.

    What a cell is read as does not depend on the type that the others gave its column: a number, a
    truth value and their texts are one where columns have types.

    Args:
        column: texts, or of any type.
        decimal: the mark in the numbers of texts.
        typed: whether its source has types: its texts may then be numbers and truth values that a
            text among them turned into texts.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = column.dictionary
        if pa.types.is_string_view(words.type):
            # as polars has them; nothing takes from these by index
            words = pa.array(words.to_pylist(), pa.large_string())
        return column_cells(pc.take(words, column.indices), decimal, typed=typed)
    if pa.types.is_boolean(kind):
        return _cells_of_type(column, doubles(column.cast(pa.int8()).cast(pa.float64())))
    if pa.types.is_floating(kind):
        # exact: a missing value or one of more digits beside them makes doubles of these
        return _cells_of_type(column, doubles(column.cast(pa.float64())))
    if pa.types.is_integer(kind):
        numbers = doubles(column.cast(pa.float64(), safe=False))
        if kind.bit_width < 64:
            return _cells_of_type(column, numbers)
        far = pc.greater(column, pa.scalar(LARGEST_EXACT, kind))
        if pa.types.is_signed_integer(kind):
            far = pc.or_(far, pc.less(column, pa.scalar(-LARGEST_EXACT, kind)))
        return _cells_of_type(column, numbers, mask(far))
    # decimals are the nearest double of their text, as in a CSV file
    return _text_cells(column, "." if pa.types.is_decimal(kind) else decimal, typed)


def is_text(kind: Any) -> bool:
    """Return whether the cells of an Arrow type are texts."""
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(holds(kind) for holds in strings)


def odd_kind(kind: Any) -> str | None:
    """Return what a type holds that is neither numbers nor texts, though it may be stored so."""
    if isinstance(kind, pa.BaseExtensionType):
        return f"what its type {kind.extension_name} stands for"
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return "durations"
    return "dates or times" if pa.types.is_temporal(kind) else None


def texts_of(column: Any) -> Any:
    """Return the cells as texts without blanks around, "" where there is none."""
    kind = column.type
    if is_text(kind) or any(holds(kind) for holds in CAST):
        texts = column.cast(pa.large_string())
    else:
        # bytes, lists, durations: cell by cell, so that none decides what another is read as
        texts = pa.array(list(map(spell, column.to_pylist())), pa.large_string())
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    return pc.utf8_trim_whitespace(texts)


def spell(cell: Any) -> str | None:
    """Return the text of a Python value by itself, None for nothing: a whole number has no point.

    Example:
        >>> spell(2.0), spell(True), spell(b"ann"), spell(float("nan"))
        ('2', 'true', 'ann', None)
    """
    if isinstance(cell, (complex, np.complexfloating)) and cell.imag == 0.0:
        # one complex number makes complex ones of all beside it
        cell = float(cell.real)
    if cell is None or isinstance(cell, str):
        # half a surrogate pair is no text
        return None if cell is None else cell.encode("utf-8", "replace").decode()
    if isinstance(cell, (bool, np.bool_)):
        return str(bool(cell)).lower()
    if isinstance(cell, Decimal):
        return None if cell.is_nan() else str(cell)
    if isinstance(cell, Integral):
        whole = int(cell)
        return str(whole) if abs(whole) < OVERFLOW else "inf" if whole > 0 else "-inf"
    if isinstance(cell, Real):
        number = float(cell)
        if math.isnan(number):
            return None
        exact = number.is_integer() and abs(number) <= LARGEST_EXACT
        return str(int(number)) if exact else repr(number)
    if isinstance(cell, timedelta):
        return timedelta.__str__(cell)
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            pass
    return str(cell).encode("utf-8", "replace").decode()


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
    if PLAIN_NUMBER.match(number):
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


# Types whose cells Arrow turns into texts one by one, whatever the others are.
CAST = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_dictionary,
    pa.types.is_null,
)


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


def _is_short(kind: Any) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def _cells_of_type(column: Any, numbers: Array, inexact: Mask | None = None) -> CellBlock:
    none = np.zeros(len(numbers), dtype=bool)
    return CellBlock(column, numbers, np.isnan(numbers), none if inexact is None else inexact)


def _text_cells(column: Any, decimal: str, typed: bool) -> CellBlock:
    numbers = _all_numbers(column) if decimal == "." and is_text(column.type) else None
    if numbers is not None:
        none = np.zeros(len(numbers), dtype=bool)
        return CellBlock(column, numbers, none, _inexact(column, numbers))
    texts = texts_of(column)
    if decimal == ",":
        # a point beside a decimal comma would group thousands: no number
        texts = pc.replace_substring(pc.replace_substring(texts, ".", "·"), ",", ".")
    plain = pc.match_substring_regex(texts, NUMBER)
    numbers = np.full(len(texts), np.nan)
    numbers[mask(plain)] = doubles(texts.filter(plain).cast(pa.float64()))
    for word, number in TRUTH.items() if typed else ():
        numbers[mask(pc.match_substring_regex(texts, rf"(?i)\A{word}\z"))] = number
    absent = mask(pc.match_substring_regex(texts, ABSENT))
    return CellBlock(column, numbers, absent, _inexact(texts, numbers))


def _all_numbers(texts: Any) -> Array | None:
    """Return the texts as numbers; None where one of them is no finite number."""
    try:
        numbers = doubles(texts.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _inexact(texts: Any, numbers: Array) -> Mask:
    """Return which texts are numbers beyond ``LARGEST_EXACT`` that lose digits: (n,)."""
    far: Mask = np.isfinite(numbers) & (np.abs(numbers) >= LARGEST_EXACT)
    for place in np.flatnonzero(far).tolist():
        written = texts[place].as_py().strip()
        # 2⁵³ + 1 reads as 2⁵³: only the digits tell
        digits = written.lstrip("+-0") if INTEGER.match(written) else ""
        far[place] = len(digits) > 16 or (digits != "" and int(digits) > LARGEST_EXACT)
        if INTEGER.match(written.replace(".", "", 1)) and not digits:
            far[place] = Decimal(written) != Decimal(float(numbers[place]))
    return far


def _text_bits(texts: Sequence[str]) -> Bits:
    """Return the first 64 bits of the SHA-256 of each text, or those of its truth: (n,)."""
    sha256 = hashlib.sha256
    digests = [sha256(_spell(text).encode()).digest()[:8] for text in texts]
    bits: Bits = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
    for place, text in enumerate(texts):
        if len(text) in (4, 5) and text.lower() in TRUTH:
            bits[place] = np.array([TRUTH[text.lower()]]).view(np.uint64)[0]
    return bits


def _spell(text: str) -> str:
    # most texts have one spelling already
    return text if text.isascii() and "\r" not in text else plain_text(text)


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
        coded = texts_of(cells.column).dictionary_encode()
        levels = [plain_text(text) for text in coded.dictionary.to_pylist()]
        if not self._declared:
            for level in levels:
                self._place.setdefault(level, len(self._place))
        if self._values is None:
            found = [float(self._place.get(level, -1)) for level in levels]
        else:
            values = [value_of(level, self._decimal) for level in levels]
            found = [
                math.nan if value is None else float(self._values.get(value, -1))
                for value in values
            ]
        codes = np.array(found, dtype=np.float64)[integers(coded.indices)]
        codes[_empty_cells(cells)] = np.nan
        if self._lenient:
            codes[codes == -1.0] = np.nan
        self._parts.append(codes)
        undeclared = f"expected one of the {len(self._place)} levels declared, got another"
        return _first(cells, codes == -1.0, undeclared)

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


def _empty_cells(cells: CellBlock) -> Mask:
    """Return where a category has no level: "NA" is one, an empty field is none."""
    kind = cells.column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not is_text(kind):
        return cells.absent
    # a comparison with a scalar would import pandas
    return mask(pc.match_substring_regex(texts_of(cells.column), r"\A\z"))


def _first(cells: CellBlock, bad: Any, sentence: str) -> UnreadableCell | None:
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    return UnreadableCell(row, sentence, str(cells.column[row].as_py()))


# Arrow's own ways to arrays import pandas, for a second: these read the buffers.


def doubles(column: Any) -> Array:
    """Return a column of doubles, NaN where it has none."""
    numbers: Array = _copy(column, np.float64)
    numbers[_null(column)] = np.nan
    return numbers


def integers(column: Any) -> npt.NDArray[np.int64]:
    """Return a column of integers; what is null is anything."""
    numbers: npt.NDArray[np.int64] = _copy(column.cast(pa.int64()), np.int64)
    return numbers


def mask(flags: Any) -> Mask:
    """Return a column of flags, none where it is null."""
    found: Mask = _copy(flags.cast(pa.uint8()), np.uint8).astype(bool) & ~_null(flags)
    return found


def flags(found: Mask) -> Any:
    """Return truth values as an Arrow column."""
    content = pa.py_buffer(found.astype(np.uint8))
    return pa.Array.from_buffers(pa.uint8(), len(found), [None, content]).cast(pa.bool_())


def _copy(column: Any, kind: Any) -> Any:
    """Return what a column has in store for each row, (n,)."""
    if not len(column):
        return np.empty(0, dtype=kind)
    start = column.offset * np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], kind, len(column), start).copy()


def _null(column: Any) -> Mask:
    return mask(column.is_null()) if column.null_count else np.zeros(len(column), dtype=bool)
