"""Columns that are stored as numbers and are none; frames that are not there yet."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tacit import Rows
from tacit.statistics import prepare, read_query, read_table

FRAME = pd.DataFrame(
    {
        "a": [1.0, 2.0, 3.0, 4.0],
        "span": pd.to_timedelta([1, 2, 3, 4], unit="s"),
        "month": pd.period_range("2020-01", periods=4, freq="M"),
        "day": pd.date_range("2020-01-01", periods=4),
    }
)


@pytest.mark.parametrize(
    ("name", "what"), [("span", "durations"), ("month", "period"), ("day", "dates or times")]
)
def test_a_column_that_is_no_number_is_refused_by_its_kind(name, what):
    assert read_table(FRAME, ["a"]).rows.shape == (4, 1)
    with pytest.raises(ValueError, match=what):
        read_table(FRAME, ["a", name])


def test_a_lazy_frame_is_told_to_be_collected():
    lazy = pl.DataFrame({"a": [1.0, 2.0]}).lazy()
    with pytest.raises(ValueError, match=r"collect\(\)"):
        read_table(lazy)
    with pytest.raises(ValueError, match=r"collect\(\)"):
        prepare("mean", lazy, Rows(success=0.6))


def test_a_locked_database_is_a_sentence(tmp_path):
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path)) as people, people:
        people.execute("create table person (age)")
        people.execute("insert into person values (41)")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    with pytest.raises(ValueError, match="another process holds it"):
        read_query("select age from person", f"sqlite:///{path}?timeout=0.05")
    holder.close()
    assert read_query("select age from person", path).rows.tolist() == [[41.0]]


def test_frames_and_parquet_are_read_without_pyarrow(tmp_path):
    code = """
import sys
sys.modules["pyarrow"] = None
import duckdb, pandas, polars
from tacit.statistics import fingerprint, read_query, read_table
columns = {"a": [1.5, 2.0], "b": ["x", "y" * 20]}
rows = duckdb.sql("SELECT * FROM (VALUES (1.5, 'x'), (2.0, repeat('y', 20))) t(a, b)")
rows.write_parquet("t.parquet")
sources = [pandas.DataFrame(columns), polars.DataFrame(columns), "t.parquet"]
found = {read_table(source, categories={"b": None}).fingerprint for source in sources}
found.add(read_query("SELECT a, b FROM 't.parquet'", None, ["a"]).fingerprint)
assert len(found) == 1, found
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_columns_that_are_not_read_may_be_of_any_type():
    import duckdb
    import pyarrow as pa

    odd = {
        "maps": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "views": pa.array(["x" * 40, "é"], pa.string_view()),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2]), pa.array([1.5])),
        "word": pa.array(["u", None]).dictionary_encode(),
        "n": [1, 2],
    }
    table = read_table(pa.table(odd), ["n", "word"], missing="drop")
    assert (table.rows.tolist(), table.categories["word"].levels) == ([[1.0, 0.0]], ("u",))
    coded = read_table(pa.table(odd), ["views"], categories={"views": None})
    assert coded.categories["views"].levels == ("x" * 40, "é")
    assert read_table(duckdb.sql("SELECT 1 AS n, map {'a': 1} AS m"), ["n"]).rows.tolist() == [[1]]


def test_a_csv_file_is_read_without_pandas(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,c\n1,x,\n2,y,3\n,NA,4\n")
    code = (
        "import sys; from tacit.statistics import read_table; "
        f"table = read_table({str(path)!r}, ['a', 'b', 'c'], categories={{'b': None}}, "
        "missing='drop'); assert table.rows.tolist() == [[2.0, 2.0, 3.0]], table.rows; "
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_slices_and_nulls_are_read_from_their_place():
    import pyarrow as pa

    from tacit._ground.arrow import absent, batches, numbers, stored

    parts = {
        "a": pa.array([9.0, 1.0, None, 3.0]),
        "b": pa.array([None, True, None, False]),
        "c": pa.array([6, 7, 8, 9], pa.int32()),
        "d": pa.array([None, 0.5, None, 1.5], pa.float16()),
    }
    (columns,) = batches(pa.table(parts).slice(1))
    np.testing.assert_array_equal(numbers(columns[0]), [1.0, np.nan, 3.0])
    assert absent(columns[1]).tolist() == [False, True, False]
    assert stored(columns[1])[[0, 2]].tolist() == [True, False]
    assert stored(columns[2]).tolist() == [7, 8, 9]
    np.testing.assert_array_equal(numbers(columns[3]), np.float16([0.5, np.nan, 1.5]))
