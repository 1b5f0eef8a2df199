"""Columns as they come, batch by batch: numbers in arrays, everything else as texts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground import arrow
from tacit._ground.numbers import LARGEST_EXACT

Mask: TypeAlias = npt.NDArray[np.bool_]

# Integers from here on are infinite as doubles.
OVERFLOW = 2**1024
MOMENTS, SPANS = "dates or times", "durations"
UNITS = {"SECOND": "s", "MILLI": "ms", "MICRO": "us", "NANO": "ns"}
MICROSECOND = timedelta(microseconds=1)
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True, eq=False)
class ColumnCells:
    """Some rows of one column.

    Attributes:
        values: (n,) an array of numbers or truth values, or texts, None where there is none.
        missing: (n,) where an array holds nothing, NaN apart; None for nowhere.
        coded: whether its source has it as a category.
        odd: what it holds that is neither numbers nor texts, though it may be stored so.
        pointed: whether the mark in the numbers of its texts is a point, whatever is asked for.
    """

    values: npt.NDArray[Any] | Sequence[str | None]
    missing: Mask | None = None
    coded: bool = False
    odd: str | None = None
    pointed: bool = False

    @cached_property
    def texts(self) -> list[str]:
        """The cells as texts without blanks around, "" where there is none."""
        if not isinstance(self.values, np.ndarray):
            return [text.strip() if text else "" for text in self.values]
        values = self.doubles() if self.values.dtype.kind == "f" else self.values
        texts = [spell(cell) or "" for cell in values.tolist()]
        for place in [] if self.missing is None else np.flatnonzero(self.missing).tolist():
            texts[place] = ""
        return texts

    def doubles(self) -> npt.NDArray[np.float64]:
        """Return an array as the doubles that its texts stand for, (n,), NaN where it has none.

        Those of single precision are the shortest text that stands for them, as a CSV file has it.
        """
        assert isinstance(self.values, np.ndarray)
        short = self.values.dtype == np.float32
        found = (self.values.astype("U") if short else self.values).astype(np.float64)
        if self.missing is not None:
            found[self.missing] = np.nan
        return found


def spell(cell: Any) -> str | None:
    """Return the text of a Python value by itself, None for nothing: a whole number has no point.

    Example:
        >>> spell(2.0), spell(True), spell(b"ann"), spell(float("nan"))
        ('2', 'true', 'ann', None)
    """
    if isinstance(cell, (complex, np.complexfloating)) and cell.imag == 0.0:
        # one complex number makes complex ones of all beside it
        cell = float(cell.real)
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
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


def of_objects(cells: Sequence[Any]) -> ColumnCells:
    """Return Python values as a column: each as its text but where all are floats or texts.

    A type found for all of them would depend on which is there.
    """
    kinds = set(map(type, cells)) - {type(None)}
    if kinds == {float}:
        # None is NaN
        return ColumnCells(np.array(cells, dtype=np.float64))
    return ColumnCells(list(map(spell, cells)))


def of_arrow(column: Any, told: Any = None) -> ColumnCells:
    """Return a column of Arrow's, of the type told where that is kept beside it."""
    kind = column.schema if told is None else told
    name = kind.type.name
    if name == "EXTENSION":
        stands = (kind.metadata or {})[b"ARROW:extension:name"].decode()
        return replace(_of_storage(column), odd=f"what its type {stands} stands for")
    if name == "DICTIONARY":
        # numbers that a file has as a category are numbers
        coded = told is None or "STRING" in told.value_type.type.name
        return replace(_of_storage(column), coded=coded)
    if name == "HALF_FLOAT":
        return ColumnCells(arrow.numbers(column).astype(np.float16))
    if name in ("DURATION", "TIMESTAMP", "TIME32", "TIME64", "DATE32", "DATE64"):
        return _of_time(column, kind, name)
    return _of_storage(column)


def _of_storage(column: Any) -> ColumnCells:
    name = column.schema.type.name
    if name.startswith(("INT", "UINT", "HALF", "FLOAT", "DOUBLE", "BOOL")) and "_M" not in name:
        missing = arrow.absent(column)
        return ColumnCells(arrow.stored(column), missing if missing.any() else None)
    if name.startswith("DECIMAL"):
        return ColumnCells(_decimals(column), pointed=True)
    with warnings.catch_warnings():
        # of types that it does not know it has the storage
        warnings.simplefilter("ignore")
        try:
            cells = column.to_pylist()
        except UnicodeDecodeError:
            if name not in ("STRING", "LARGE_STRING"):
                raise ValueError("data: expected texts in UTF-8, got other bytes") from None
            cells = _repaired(column)
    if "STRING" in name:
        return ColumnCells(cells)
    return replace(of_objects(cells), odd=SPANS if name.startswith("INTERVAL") else None)


def _repaired(column: Any) -> list[str | None]:
    """Return texts of which some are no UTF-8, with U+FFFD for what is none: each by itself."""
    held, missing = arrow.view(column), arrow.absent(column).tolist()
    ends = np.asarray(held.buffer(1))[held.offset : held.offset + held.length + 1].tolist()
    whole = bytes(held.buffer(2))
    return [
        None if nothing else whole[start:end].decode("utf-8", "replace")
        for start, end, nothing in zip(ends[:-1], ends[1:], missing, strict=True)
    ]


def unreadable(kind: Any) -> bool:
    """Return whether a type of Arrow's is one that nanoarrow 0.9 cannot read.

    It has no values of maps, unions and runs, and frees of texts in views what is not its own.
    """
    inner = filter(None, (kind.value_type, *(kind.fields or ())))
    name = kind.type.name
    return any(mark in name for mark in ("VIEW", "MAP", "UNION", "RUN_END")) or any(
        map(unreadable, inner)
    )


def _decimals(column: Any) -> list[str | None]:
    """Return decimals as texts: integers of 128 or 256 bits, in units of their last digit."""
    view, scale = arrow.view(column), column.schema.scale
    held, size = bytes(view.buffer(1)), 32 if "256" in column.schema.type.name else 16
    texts: list[str | None] = []
    for place, missing in enumerate(arrow.absent(column).tolist(), view.offset):
        whole = int.from_bytes(held[place * size : (place + 1) * size], "little", signed=True)
        digits = str(abs(whole) * 10 ** max(-scale, 0)).rjust(scale + 1, "0")
        point = len(digits) - max(scale, 0)
        text = f"{'-' * (whole < 0)}{digits[:point]}{'.' * (scale > 0)}{digits[point:]}"
        texts.append(None if missing else text)
    return texts


def _of_time(column: Any, kind: Any, name: str) -> ColumnCells:
    missing, held = arrow.absent(column), arrow.stored(column).astype(np.int64)
    if name == "DATE32":
        return of_times(held.view("M8[D]"), missing)
    unit = "ms" if name == "DATE64" else UNITS[kind.unit.name]
    if name == "DURATION":
        return of_times(held.view(f"m8[{unit}]"), missing)
    times = of_times(held.view(f"M8[{unit}]"), missing, zone=bool(getattr(kind, "timezone", None)))
    if not name.startswith(("TIME3", "TIME6", "DATE64")):
        return times
    # a time of day is one of the first day, a day in milliseconds one at midnight
    part = 0 if name == "DATE64" else 2
    return replace(times, values=[text and text.partition(" ")[part] for text in times.values])


def of_times(times: npt.NDArray[Any], missing: Mask, *, zone: bool = False) -> ColumnCells:
    """Return moments, at UTC where they have a zone, or durations, as Python's own have texts."""
    moments = times.dtype.kind == "M"
    if moments:
        texts = [_moment(text, zone) for text in np.datetime_as_string(times).tolist()]
    else:
        step = NANOSECONDS[np.datetime_data(times.dtype)[0]]
        texts = [_span(count * step) for count in times.view(np.int64).tolist()]
    cells = [None if nothing else text for text, nothing in zip(texts, missing, strict=True)]
    return ColumnCells(cells, odd=MOMENTS if moments else SPANS)


def _moment(text: str, zone: bool) -> str:
    """Return a moment as Python spells it: no fraction, or one of micro- or nanoseconds."""
    whole, _, fraction = text.replace("T", " ").partition(".")
    fraction = fraction.rstrip("0")
    digits = f".{fraction.ljust(6 if len(fraction) <= 6 else 9, '0')}" if fraction else ""
    return whole + digits + ("+00:00" if zone else "")


def _span(nanoseconds: int) -> str:
    micro, rest = divmod(nanoseconds, 1000)
    # what is missing is stored as the least integer, which Python has no duration for
    beyond = not timedelta.min // MICROSECOND <= micro <= timedelta.max // MICROSECOND
    return f"{nanoseconds} ns" if rest or beyond else str(timedelta(microseconds=micro))
