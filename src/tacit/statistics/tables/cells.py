"""The cells of columns, batch by batch: numbers, texts or nothing, and what is gathered of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
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
# Spellings of "nothing" in columns of numbers.
ABSENT = r"(?i)\A(na|n/a|#n/a|nan|null)?\z"
# Words in files, numbers in frames and databases.
TRUTH = {"true": 1.0, "false": 0.0}
ABSENT_BITS = np.uint64(2**64 - 1)


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
        bits: Bits = (self.numbers + 0.0).view(np.uint64)
        odd = np.isnan(self.numbers) & ~self.absent
        if odd.any():
            coded = texts_of(self.column).filter(flags(odd)).dictionary_encode()
            bits[odd] = _text_bits(coded.dictionary.to_pylist())[integers(coded.indices)]
        bits[self.absent] = ABSENT_BITS
        return bits


def column_cells(column: Any, decimal: str) -> CellBlock:
    """Return what an Arrow column holds, text or typed; ``decimal`` is the mark of its texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = column.dictionary
        if pa.types.is_string_view(words.type):
            # as polars has them; nothing takes from these by index
            words = pa.array(words.to_pylist(), pa.large_string())
        return column_cells(pc.take(words, column.indices), decimal)
    if pa.types.is_boolean(kind):
        return _cells_of_type(column, doubles(column.cast(pa.int8()).cast(pa.float64())))
    if pa.types.is_float64(kind):
        return _cells_of_type(column, doubles(column))
    if pa.types.is_integer(kind):
        numbers = doubles(column.cast(pa.float64(), safe=False))
        if kind.bit_width < 64:
            return _cells_of_type(column, numbers)
        far = pc.greater(column, pa.scalar(LARGEST_EXACT, kind))
        if pa.types.is_signed_integer(kind):
            far = pc.or_(far, pc.less(column, pa.scalar(-LARGEST_EXACT, kind)))
        return _cells_of_type(column, numbers, mask(far))
    # Single precision and decimals are the shortest text that stands for them, as in a CSV file.
    typed = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return _text_cells(column, "." if typed else decimal)


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
    try:
        texts = column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # lists, bytes: no text of their own, and Python's is as good as any to tell them apart
        cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
        texts = pa.array(cells, pa.large_string())
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    return pc.utf8_trim_whitespace(texts)


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


def _cells_of_type(column: Any, numbers: Array, inexact: Mask | None = None) -> CellBlock:
    none = np.zeros(len(numbers), dtype=bool)
    return CellBlock(column, numbers, np.isnan(numbers), none if inexact is None else inexact)


def _text_cells(column: Any, decimal: str) -> CellBlock:
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


TEXT = "expected a number, got text; leave the column out, or code it as a category"
INFINITE = "expected a finite number, got an infinite one"
INEXACT = (
    f"expected a number, got an integer beyond 2⁵³ = {LARGEST_EXACT:,}, which loses digits; leave "
    "the column out, or code it as a category"
)


class NumberCells:
    """A column of numbers, NaN where there is none; ``lenient``, where none can be read too."""

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient
        self._parts: list[Array] = []

    def add(self, cells: CellBlock) -> UnreadableCell | None:
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


class CategoryCodes:
    """A column of codes of a category, NaN where there is none; ``lenient``, at others too."""

    def __init__(self, levels: Sequence[str] | None, *, lenient: bool = False) -> None:
        self._lenient, self._declared = lenient, levels is not None
        self._place = {level: place for place, level in enumerate(levels or ())}
        self._parts: list[Array] = []

    def add(self, cells: CellBlock) -> UnreadableCell | None:
        """Take some rows more; return the first cell that is none of the levels declared."""
        coded = texts_of(cells.column).dictionary_encode()
        levels = [plain_text(text) for text in coded.dictionary.to_pylist()]
        if not self._declared:
            for level in levels:
                self._place.setdefault(level, len(self._place))
        places = np.array([self._place.get(level, -1) for level in levels], dtype=np.float64)
        codes = places[integers(coded.indices)]
        codes[_empty_cells(cells)] = np.nan
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
        levels = order_levels(kept)
        code = np.full(len(self._place), np.nan)
        for number, level in enumerate(levels):
            code[self._place[level]] = number
        values = np.full(len(provisional), np.nan)
        values[there] = code[provisional[there].astype(int)]
        return values, Category(levels, self._declared)


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
