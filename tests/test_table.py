"""Reading tables: every dress of the same numbers reads alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.statistics.table import fingerprint, read_table


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
    assert table.names == ("first, or; so", "second")
    assert table.rows.tolist() == [[1.5, -2000.0], [0.0, 0.25]]
    assert table.fingerprint == fingerprint(path)


def test_read_table_refuses_no_columns(tmp_path: Path) -> None:
    data = tmp_path / "t.csv"
    data.write_text("a\n1\n")
    with pytest.raises(ValueError, match="at least one column"):
        read_table(data, [])
