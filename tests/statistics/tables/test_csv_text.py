"""The lines of a CSV text, its encodings and its delimiters."""

from __future__ import annotations

import codecs
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.statistics import DataTable, read_table
from tacit.statistics.tables import csv_text
from tacit.statistics.tables.csv_text import decode

ENDS = {"unix": "\n", "windows": "\r\n", "old": "\r"}


@pytest.fixture(params=[None, 2], ids=["whole", "blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are parsed at once, and by two records, a batch each."""
    if request.param is not None:
        monkeypatch.setattr(csv_text, "ROWS_AT_A_TIME", request.param)


def refusal(path: Path, text: str, **options: object) -> str:
    path.write_bytes(text.encode())
    with pytest.raises(ValueError, match="data") as refused:
        read_table(path, **options)
    return str(refused.value)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("before", [0, 3, 40])
@pytest.mark.parametrize("bad", ["x,1", "1,", "1", "1,2,3", "inf,1", "9007199254740993,1"])
def test_a_refusal_names_the_line_of_an_editor(
    tmp_path: Path, end: str, before: int, bad: str
) -> None:
    lines = ["", "  ", "a,b", *["1,2"] * before, bad, "5,6"]
    said = refusal(tmp_path / "t.csv", end.join(lines) + end)
    assert f"line {4 + before}" in said


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bad", ["1,x,z", "1,2"])
def test_lines_are_counted_over_cells_of_several_lines(tmp_path: Path, end: str, bad: str) -> None:
    cell = f'"one{end}two{end}""three"""'
    lines = [f'a,b,"long{end}name"', f"1,2,{cell}", "1,2,z", f"1,2,{cell}", bad]
    said = refusal(tmp_path / "t.csv", end.join(lines) + end, columns=["a", "b"])
    assert f"line {2 + 3 + 1 + 3 + 1}" in said


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("last", ["\n", ""])
def test_a_quote_that_is_never_closed_is_found_where_it_opens(
    tmp_path: Path, after: int, last: str
) -> None:
    lines = ["a,b", "1,2", '3,"4', *["5,6"] * after]
    said = refusal(tmp_path / "t.csv", "\n".join(lines) + last)
    assert "line 3: a quote opens there and is never closed" in said


def test_a_quote_that_swallows_a_long_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_text, "LONGEST_FIELD", 1 << 20)
    text = "a,b\n1,2\n" + '3,"4\n' + "5,6\n" * 600_000
    said = refusal(tmp_path / "t.csv", text)
    assert "line 3: a field is longer than 1 MiB" in said


def test_bare_separators_at_the_end_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n,\n,\n\n")
    assert read_table(tmp_path / "t.csv").rows.tolist() == [[1, 2], [3, 4]]
    said = refusal(tmp_path / "t.csv", "a,b\n1,2\n,\n3,4\n")
    assert "line 3, column 1: expected a value" in said


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encodings_of_unicode_are_found(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes("größe,x\n1.5,2\n".encode(encoding))
    assert read_table(tmp_path / "t.csv", ["größe"]).rows.tolist() == [[1.5]]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "koi8-r", "UTF_16"])
def test_an_encoding_that_is_named_is_used(tmp_path: Path, encoding: str) -> None:
    name = {"shift_jis": "年齢", "koi8-r": "возраст"}.get(encoding, "âge")
    (tmp_path / "t.csv").write_bytes(f"{name},x\n1.5,2\n".encode(encoding))
    table = read_table(tmp_path / "t.csv", [name], encoding=encoding)
    assert (table.columns, table.rows.tolist(), table.notes) == ((name,), [[1.5]], ())


def test_a_byte_that_is_none_of_the_encoding_named_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("a,b\n1,2\n1,é\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"t\.csv, line 3: expected utf-8 text"):
        read_table(tmp_path / "t.csv", ["a"], encoding="utf-8")
    with pytest.raises(ValueError, match="encoding: expected a text encoding"):
        read_table(tmp_path / "t.csv", encoding="klingon")
    with pytest.raises(ValueError, match="encoding: expected a text encoding"):
        read_table(tmp_path / "t.csv", encoding="hex")


@given(st.binary(max_size=80))
def test_every_byte_is_read_as_utf_8_or_as_windows_1252(content: bytes) -> None:
    if b"\x00" in content or content.startswith((codecs.BOM_UTF8, b"\xff\xfe", b"\xfe\xff")):
        return
    text, start, note = decode(content, None, "t")
    try:
        expected = content.decode("utf-8")
    except UnicodeDecodeError:
        assert note is not None
        try:
            western = content.decode("cp1252")
        except UnicodeDecodeError:
            return
        got = text[start:].decode()
        # what is well-formed UTF-8 by accident is read as that
        assert got == western or any(ord(letter) > 127 for letter in got)
        assert len(got) <= len(western)
    else:
        assert (text[start:].decode(), note) == (expected, None)


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("a;b\n1,5;2\n", {"decimal": ","}, [[1.5, 2]]),
        ("a\n1,5\n2,25\n", {"decimal": ","}, [[1.5], [2.25]]),
        ('a,b\n"1,5","2"\n', {"decimal": ","}, [[1.5, 2]]),
        ("a|b\n1|2\n", {}, [[1, 2]]),
        ("a b\n1 2\n", {"delimiter": "space"}, [[1, 2]]),
        ("a\tb\n1\t2\n", {"delimiter": "\\t"}, [[1, 2]]),
        ("a:b\n1:2\n", {"delimiter": ":"}, [[1, 2]]),
    ],
)
def test_delimiters_and_decimal_marks(
    tmp_path: Path, text: str, options: dict[str, str], rows: list[list[float]]
) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv", **options).rows.tolist() == rows


def test_a_mark_that_groups_thousands_is_no_number(tmp_path: Path) -> None:
    said = refusal(tmp_path / "t.csv", "a;b\n1.234,5;2\n", decimal=",")
    assert "line 2, column 1: expected a number, got text" in said
    for delimiter in ("", "ab", '"', "é", "1"):
        with pytest.raises(ValueError, match="delimiter: expected one character"):
            read_table(tmp_path / "t.csv", delimiter=delimiter)
    said = refusal(tmp_path / "t.csv", "a;b\n1;2;3\n")
    assert "expected 2 fields as in the header, got 3; delimiter= names another" in said


def test_a_header_of_numbers_is_not_repeated(tmp_path: Path) -> None:
    said = refusal(tmp_path / "t.csv", "17.5,23\n1,2\n")
    assert "expected a header line with column names, got numbers" in said
    assert "17.5" not in said


def test_categories_are_declared_or_observed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("size,zip\nL,010\nS,9\n,10\nM,9\n")
    table = read_table(path, categories={"size": None, "zip": None}, missing="drop")
    assert table.categories["size"].levels == ("L", "M", "S")
    assert table.categories["zip"].levels == ("9", "010", "10")
    assert table.rows.tolist() == [[0, 1], [2, 0], [1, 0]]
    assert table.dropped == 1
    assert "1 of 4 rows were dropped" in table.notes[0]
    assert "are those that occur" in table.notes[1]
    declared = {"size": ["S", "M", "L", "XL"], "zip": ["9", "010", "10"]}
    table = read_table(path, ["size", "zip"], categories=declared, missing="drop")
    assert table.rows[:, 0].tolist() == [0, 2, 1]
    assert table.categories["size"].levels == ("L", "M", "S", "XL")
    assert len(table.notes) == 1
    with pytest.raises(ValueError, match="line 3, column 'size': expected one of the 1 levels"):
        read_table(path, ["size"], categories={"size": ["L"]})
    for levels in ([], ["", "a"], ["a", " a"], "abc"):
        with pytest.raises(ValueError, match="categories: expected"):
            read_table(path, categories={"size": levels})
    with pytest.raises(ValueError, match="categories: expected one of the columns read"):
        read_table(path, ["zip"], categories={"size": None})
    with pytest.raises(ValueError, match=r"categories: t\.csv has no column 'sizes'; did you"):
        read_table(path, categories={"sizes": None})


def test_rows_without_a_value_are_dropped_by_themselves_alone(tmp_path: Path) -> None:
    """What is left when one row is taken out is what was left, less that row at most."""
    path = tmp_path / "t.csv"
    rows = ["1,2,x", "NA,3,x", "4,,x", "5,6,", "7,8,x"]

    def kept(lines: list[str]) -> list[list[float]]:
        path.write_text("\n".join(["a,b,c", *lines]) + "\n")
        return read_table(path, ["a", "b"], missing="drop").rows.tolist()

    whole = kept(rows)
    assert whole == [[1, 2], [5, 6], [7, 8]]
    for out in range(len(rows)):
        one = kept(rows[:out] + rows[out + 1 :])
        assert len(whole) - len(one) in (0, 1)
        assert [row for row in whole if row in one] == one
    path.write_text("a,b\n,1\n2,\n")
    assert read_table(path, missing="drop").rows.shape == (0, 2)


def test_rows_that_cannot_be_read_are_dropped_by_themselves_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    odd = ["inf,2,x", "NA,3,x", "4,four,x", "5,6,", "7,8,z", "nan,1,y"]
    rows = ["1,2,x", *odd, "3,4,y"]

    def read(lines: list[str]) -> DataTable:
        path.write_text("\n".join(["a,b,c", *lines]) + "\n")
        return read_table(path, missing="drop-unreadable", categories={"c": ["x", "y"]})

    table = read(rows)
    assert table.rows.tolist() == [[1, 2, 0], [3, 4, 1]]
    assert table.dropped == len(odd)
    for out in range(len(odd)):
        assert np.array_equal(read(rows[: out + 1] + rows[out + 2 :]).rows, table.rows)
    # an integer beyond 2⁵³ is read as the nearest double
    assert read(["9007199254740993,1,x"]).rows.tolist() == [[2.0**53, 1.0, 0.0]]
    path.write_text("a,b,c\n1,2,x\n3\n")
    with pytest.raises(ValueError, match="line 3: expected 3 fields"):
        read_table(path, missing="drop-unreadable", categories={"c": ["x", "y"]})


def test_a_header_may_be_long(tmp_path: Path) -> None:
    names = [f"a column with a long name: number {place}" for place in range(3000)]
    header = ";".join(names)
    assert len(header) > 1 << 16
    (tmp_path / "t.csv").write_text(f"{header}\n" + ";".join(["1"] * 3000) + "\n")
    assert read_table(tmp_path / "t.csv").columns == tuple(names)
