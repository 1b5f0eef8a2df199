"""What the cells of a column hold: numbers, texts, or nothing."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit._ground.checks import Array
from tacit._ground.numbers import LARGEST_EXACT
from tacit.statistics.tables.buffers import Mask, doubles, flags, integers, mask

Bits = npt.NDArray[np.uint64]

NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity)$"
INTEGER = re.compile(r"[+-]?[0-9]+\Z")
# Spellings of "nothing" in columns of numbers.
ABSENT = r"(?i)\A(na|n/a|#n/a|nan|null)?\z"
# Words in files, numbers in frames and databases.
TRUTH = {"true": 1.0, "false": 0.0}
ABSENT_BITS = np.uint64(2**64 - 1)


@dataclass(frozen=True, eq=False)
class Cells:
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


def column_cells(column: Any, decimal: str) -> Cells:
    """Return what an Arrow column holds, text or typed; ``decimal`` is the mark of its texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = column.dictionary
        if pa.types.is_string_view(words.type):
            # as polars has them; nothing takes from these by index
            words = pa.array(words.to_pylist(), pa.large_string())
        return column_cells(pc.take(words, column.indices), decimal)
    if pa.types.is_boolean(kind):
        return _typed(column, doubles(column.cast(pa.int8()).cast(pa.float64())))
    if pa.types.is_float64(kind):
        return _typed(column, doubles(column))
    if pa.types.is_integer(kind):
        numbers = doubles(column.cast(pa.float64(), safe=False))
        if kind.bit_width < 64:
            return _typed(column, numbers)
        far = pc.greater(column, pa.scalar(LARGEST_EXACT, kind))
        if pa.types.is_signed_integer(kind):
            far = pc.or_(far, pc.less(column, pa.scalar(-LARGEST_EXACT, kind)))
        return _typed(column, numbers, mask(far))
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


def plain_text(text: str) -> str:
    """Return the one spelling of a text: composed, lines ended by a line feed."""
    return unicodedata.normalize("NFC", text.strip().replace("\r\n", "\n").replace("\r", "\n"))


def is_number(text: str) -> bool:
    """Return whether a text stands for a finite number or an infinite one."""
    if "_" in text or not text.isascii():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


class RowBits:
    """64 bits of every cell of a table, gathered batch by batch: what names its rows."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._parts: list[list[Bits]] = [[] for _ in names]

    def add(self, columns: Sequence[Cells]) -> None:
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


def _typed(column: Any, numbers: Array, inexact: Mask | None = None) -> Cells:
    none = np.zeros(len(numbers), dtype=bool)
    return Cells(column, numbers, np.isnan(numbers), none if inexact is None else inexact)


def _text_cells(column: Any, decimal: str) -> Cells:
    numbers = _all_numbers(column) if decimal == "." and is_text(column.type) else None
    if numbers is not None:
        none = np.zeros(len(numbers), dtype=bool)
        return Cells(column, numbers, none, _inexact(column, numbers))
    texts = texts_of(column)
    if decimal == ",":
        # a point beside a decimal comma would group thousands: no number
        texts = pc.replace_substring(pc.replace_substring(texts, ".", "·"), ",", ".")
    plain = pc.match_substring_regex(texts, NUMBER)
    numbers = np.full(len(texts), np.nan)
    numbers[mask(plain)] = doubles(texts.filter(plain).cast(pa.float64()))
    absent = mask(pc.match_substring_regex(texts, ABSENT))
    return Cells(column, numbers, absent, _inexact(texts, numbers))


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
    digests = [sha256(_spelled(text).encode()).digest()[:8] for text in texts]
    bits: Bits = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
    for place, text in enumerate(texts):
        if len(text) in (4, 5) and text.lower() in TRUTH:
            bits[place] = np.array([TRUTH[text.lower()]]).view(np.uint64)[0]
    return bits


def _spelled(text: str) -> str:
    # most texts have one spelling already
    return text if text.isascii() and "\r" not in text else plain_text(text)
