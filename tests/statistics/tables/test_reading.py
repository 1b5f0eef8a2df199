"""Reading tables: every dress of the same numbers reads alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.statistics import fingerprint, read_table


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tables_in_every_dress_read_alike(
    tmp_path: Path, delimiter: str, start: str, end: str
) -> None:
    rows = [['"first, or; so"', "second"], ["1.5", " -2e3 "], ["0", "+.25"], []]
    text = start + "".join(delimiter.join(row) + end for row in rows)
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    table = read_table(path)
    assert table.columns == ("first, or; so", "second")
    assert table.rows.tolist() == [[1.5, -2000.0], [0.0, 0.25]]
    assert table.fingerprint == fingerprint(path)


def test_read_table_refuses_no_columns(tmp_path: Path) -> None:
    data = tmp_path / "t.csv"
    data.write_text("a\n1\n")
    with pytest.raises(ValueError, match="at least one column"):
        read_table(data, [])


ROWS = "id,name,x\n1,ann,0.1\n2,bob,-0.0\n9007199254740993,eve,1e3\n"


@pytest.mark.parametrize(
    "text",
    [
        ROWS.replace(",", ";"),
        ROWS.replace(",", "\t").replace("\n", "\r\n"),
        "\ufeff" + ROWS,
        '"id","name","x"\n"1","ann","0.10000000000000001"\n2, bob ,0\n9007199254740993,eve,1E3\n',
        "x,id,name\n1000,9007199254740993,eve\n.1,1e0,ann\n0.0,+2,bob\n",
    ],
)
def test_the_same_rows_have_one_fingerprint(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "b.csv").write_bytes(text.encode())
    assert fingerprint(tmp_path / "a.csv") == fingerprint(tmp_path / "b.csv")
    assert read_table(tmp_path / "b.csv", ["x"]).fingerprint == fingerprint(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "text",
    [
        ROWS.replace("0.1", "0.10000000000000002"),
        ROWS.replace("ann", "Ann"),
        ROWS.replace("name", "Name"),
        ROWS + "2,bob,0\n",
        ROWS.replace("1,ann,0.1\n", ""),
        "id,name,x\n1,ann,-0.0\n2,bob,0.1\n9007199254740993,eve,1e3\n",
    ],
)
def test_other_rows_have_another_fingerprint(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "b.csv").write_bytes(text.encode())
    assert fingerprint(tmp_path / "a.csv") != fingerprint(tmp_path / "b.csv")


def test_text_in_cells_has_one_spelling(tmp_path: Path) -> None:
    dresses = (
        'caf\u00e9,x\n"one\ntwo",1\n',
        'cafe\u0301,x\r\n"one\r\ntwo",1.0\r\n',
        'caf\u00e9,x\n"one\rtwo",1\n',
    )
    prints = set()
    for number, text in enumerate(dresses):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(text.encode())
        prints.add(fingerprint(path))
    path.write_bytes('caf\u00e9,x\n"one two",1\n'.encode())
    assert len(prints) == 1
    assert fingerprint(path) not in prints
