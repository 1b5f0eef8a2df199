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

    from tacit.statistics.tables.cells import doubles, flags, integers, mask

    column = pa.array([9.0, 1.0, None, 3.0]).slice(1)
    np.testing.assert_array_equal(doubles(column), [1.0, np.nan, 3.0])
    assert integers(pa.array([7, 8, 9], pa.int32()).slice(2)).tolist() == [9]
    assert mask(pa.array([True, True, None, False]).slice(1)).tolist() == [True, False, False]
    assert flags(np.array([True, False])).to_pylist() == [True, False]
    assert doubles(pa.array([], pa.float64())).size == 0
