"""What a stranger asked that was answered wrong, or without a word."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tacit import Table
from tacit.statistics import prepare_sql


def asked(sql: str, tables: dict[str, pd.DataFrame | Path], **levels: list[int]):
    return prepare_sql(
        sql, tables, Table(person="who", epsilon=1e6, clip=10, levels=levels or None)
    )


def test_keys_of_seven_digits_are_told_apart() -> None:
    codes = pd.DataFrame({"who": ["a", "b", "c"], "zip": [1234567, 1234568, 1234568]})
    sql = "SELECT zip, COUNT(*) FROM t GROUP BY zip"
    release = asked(sql, {"t": codes}, zip=[1234567, 1234568]).draw()
    assert [name.rpartition("=")[2] for name in release.names] == ["1234567", "1234568"]
    assert release.values.round().tolist() == [1.0, 2.0]


def test_ids_that_are_whole_here_and_floats_there_are_not_joined() -> None:
    left = pd.DataFrame({"who": [1, 2, 3], "x": [1, 2, 3]})
    right = pd.DataFrame({"who": [1.0, 2.0, float("nan")], "y": [1, 2, 3]})
    with pytest.raises(ValueError, match="columns of one kind in a join"):
        asked("SELECT COUNT(*) FROM a JOIN b USING (who)", {"a": left, "b": right})


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT COUNT(*) FROM t WHERE x BETWEEN SYMMETRIC 6 AND 0", "BETWEEN SYMMETRIC"),
        (
            "SELECT COUNT(DISTINCT b.who) FROM t LEFT JOIN b USING (who)",
            "which a LEFT JOIN may not find",
        ),
    ],
)
def test_what_would_mean_another_thing_is_refused(sql: str, message: str) -> None:
    rows = pd.DataFrame({"who": ["a", "b"], "x": [1, 2]})
    with pytest.raises(ValueError, match=message):
        asked(sql, {"t": rows, "b": rows.head(1)})


def test_groups_beside_a_mean_have_alike_noise_no_larger_than_by_themselves() -> None:
    visits = pd.DataFrame({"who": ["a"], "city": [1], "x": [1.0]})
    promise = Table(
        mu=1.0, person="who", clip=4, bounds={"x": (0, 10)}, levels={"city": list(range(40))}
    )
    sql = "SELECT COUNT(*), AVG(x) FROM t GROUP BY city"
    expected = prepare_sql(sql, {"t": visits}, promise).expected
    counts = [one.error for one in expected if one.name.startswith("COUNT")]
    assert len(counts) == 40
    assert max(counts) < 4.0 * 3.0


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_a_folder_named_like_a_column_holds_none(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "year=2020"
    folder.mkdir()
    path, rows = folder / f"t.{ending}", pd.DataFrame({"who": ["a", "b"], "year": [7, 7]})
    if ending == "parquet":
        rows.to_parquet(path)
    elif ending == "csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_json(path, orient="records", lines=True)
    release = asked("SELECT COUNT(*) FROM t WHERE year = 7", {"t": path})
    # 2020 of the folder would leave none
    assert release.draw().values.round().tolist() == [2.0]
