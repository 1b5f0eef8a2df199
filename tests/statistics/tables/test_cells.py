"""What a cell holds, against Python's own reading of it."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit._ground.arrow import batches
from tacit.statistics.tables.cells import LARGEST_EXACT, NUMBER, RowBits, column_cells
from tacit.statistics.tables.columns import ColumnCells, of_arrow
from tacit.statistics.tables.typed import READING

LIKE_NUMBERS = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.text("0123456789+-.eE, _n", max_size=8),
    st.sampled_from(["", "NA", "nan", "-nan", "inf", "Infinity", "1e400", "0x10", "1_000", "١"]),
)


def held(array: pa.Array) -> ColumnCells:
    """Return a column as a frame of it would be read."""
    (columns,) = batches(pa.table({"a": array}))
    return of_arrow(columns[0])


def number(text: str, mark: str) -> float | None:
    """Python's reading, without what no other reader of CSV takes."""
    plain = text.strip().replace(mark, ".") if mark == "." or "." not in text else "no"
    if "_" in plain or not plain.isascii() or "nan" in plain.lower():
        return None
    try:
        return float(plain)
    except ValueError:
        return None


@pytest.mark.parametrize("mark", [".", ","])
@given(st.lists(LIKE_NUMBERS, min_size=1, max_size=6))
def test_texts_are_read_as_python_reads_numbers(mark: str, texts: list[str]) -> None:
    cells = column_cells(ColumnCells(texts), mark)
    expected = [number(text, mark) for text in texts]
    got = [None if math.isnan(value) else value for value in cells.numbers.tolist()]
    assert got == expected
    nothing = ("", "na", "nan", "n/a", "#n/a", "null")
    assert cells.absent.tolist() == [text.strip().lower() in nothing for text in texts]
    assert cells.inexact.tolist() == [beyond(text.strip()) for text in texts]


def beyond(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and int(digits) > LARGEST_EXACT


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        (pa.array([1, 2**53, -3]), ["1", "9007199254740992", "-3"]),
        (pa.array([0.1, 1e22, None, math.nan]), ["0.1", "1e22", "", "NaN"]),
        (pa.array([0.1, 3.0], pa.float32()), ["0.1", "3"]),
        (pa.array([True, False, None]), ["TRUE", "false", ""]),
        (pa.array([decimal.Decimal("1.10"), decimal.Decimal("2.50")]), ["1.1", "2.5"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", "NA", "a"]),
        (pa.array(["x", "1.50"], pa.large_string()), ["x", "1.5"]),
        (pa.array([datetime.date(2026, 11, 22)]), ["2026-11-22"]),
        (pa.nulls(2), ["null", ""]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_a_typed_column_has_the_bits_of_its_text(typed: pa.Array, texts: list[str]) -> None:
    read = column_cells(ColumnCells(texts), ".")
    assert column_cells(held(typed), ".").bits().tolist() == read.bits().tolist()


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int8(), pa.uint16()])
def test_typed_integers_beyond_doubles_are_found(kind: pa.DataType) -> None:
    whole = [0, 1, 100]
    if kind in (pa.int64(), pa.uint64()):
        whole += [2**53, 2**53 + 1, 2**63 - 1]
    if kind == pa.int64():
        whole += [-(2**53), -(2**53) - 1, -(2**63)]
    cells = column_cells(held(pa.array(whole, kind)), ".")
    assert cells.inexact.tolist() == [abs(value) > 2**53 for value in whole]


@given(st.lists(st.lists(st.floats(allow_nan=False), min_size=3, max_size=3), min_size=1))
def test_a_fingerprint_is_the_digest_of_the_sorted_rows(rows: list[list[float]]) -> None:
    names = ("b", "a", "c")
    gathered = RowBits(names)
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        if part:
            columns = [ColumnCells(np.array(column)) for column in zip(*part, strict=True)]
            gathered.add([column_cells(column, ".") for column in columns])
    whole = hashlib.sha256(repr(["a", "b", "c"]).encode())
    cells = np.array(rows)[:, [1, 0, 2]] + 0.0
    whole.update(b"".join(sorted(row.astype(">f8").tobytes() for row in cells)))
    assert gathered.fingerprint() == f"sha256:{whole.hexdigest()}"
    assert gathered.filled() == len(rows)


def test_hostile_texts_are_read_at_once():
    # an expression that can divide them in several ways would take hours
    assert not NUMBER.match("1" * 300_000 + "x")
    assert not READING.match("/**/" * 60 + "drop")
    assert READING.match("/* a */ -- b\n ( /**/ select 1)")
    assert all(map(NUMBER.match, ("1", "1.", ".5", "+1.5e-3", "1e5", "inf")))
    assert not any(map(NUMBER.match, (".", "1.e", "1..2", "e5", "1 2")))
