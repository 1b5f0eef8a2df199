"""Frames, Parquet, Arrow and queries: names, kinds and the same rows under one fingerprint."""

from __future__ import annotations

import importlib
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from tacit.statistics import Table, fingerprint, prepare, privatize, read_query, read_table

ROWS = {
    "height": [1.5, 1.75, 1.82, 1.66, 1.9],
    "name": ["ann", "bob", "zoë", "NA", ""],
    "member": [True, False, True, True, False],
    "born": [1990, 1985, 2001, 1979, 1999],
}
QUICK: dict[str, Any] = {"simulations": 60, "workers": 1, "attack": False, "progress": False}


def frames(rows: dict[str, Any]) -> list[Any]:
    found = [pa.table(rows)]
    for name in ("pandas", "polars"):
        try:
            found.append(importlib.import_module(name).DataFrame(rows))
        except ModuleNotFoundError:
            continue
    return found


def text() -> str:
    lines = [",".join(ROWS)]
    lines += [",".join(str(cell) for cell in row) for row in zip(*ROWS.values(), strict=True)]
    return "\n".join(lines) + "\n"


def written(folder: Path) -> dict[str, Path]:
    """The same rows in every container."""
    table = pa.table(ROWS)
    paths = {name: folder / name for name in ("csv", "gz", "bz2", "zst", "lz4", "parquet", "arrow")}
    paths["csv"].write_text(text(), encoding="utf-8")
    for name, codec in (("gz", "gzip"), ("bz2", "bz2"), ("zst", "zstd"), ("lz4", "lz4")):
        with pa.CompressedOutputStream(str(paths[name]), codec) as stream:
            stream.write(text().encode())
    parquet.write_table(table, paths["parquet"], compression="zstd")
    feather.write_feather(table, str(paths["arrow"]))
    for encoding in ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp1252"):
        paths[encoding] = folder / encoding
        paths[encoding].write_bytes(text().encode(encoding))
    for name, delimiter in (("semicolon", ";"), ("tab", "\t"), ("bar", "|")):
        paths[name] = folder / name
        paths[name].write_text(text().replace(",", delimiter), encoding="utf-8")
    return paths


def test_the_same_rows_have_one_fingerprint_in_every_container(tmp_path: Path) -> None:
    paths = written(tmp_path)
    expected = fingerprint(paths["csv"])
    assert {name: fingerprint(path) for name, path in paths.items()} == dict.fromkeys(
        paths, expected
    )
    assert [fingerprint(frame) for frame in frames(ROWS)] == [expected] * len(frames(ROWS))
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("create table t (height real, name text, member text, born integer)")
        rows = [(h, n, str(m), b) for h, n, m, b in zip(*ROWS.values(), strict=True)]
        database.executemany("insert into t values (?, ?, ?, ?)", rows)
    read = read_query("select * from t", tmp_path / "rows.db", ["height", "born"])
    assert read.fingerprint == expected
    assert read.columns == ("height", "born")
    comma = text().replace(",", ";").replace(".", ",")
    (tmp_path / "comma").write_text(comma, encoding="utf-8")
    assert fingerprint(tmp_path / "comma", decimal=",") == expected
    assert fingerprint(tmp_path / "comma") != expected


@pytest.mark.parametrize("name", ["csv", "parquet", "arrow", "zst"])
def test_files_are_known_by_their_bytes_and_read_alike(tmp_path: Path, name: str) -> None:
    path, levels = written(tmp_path)[name], {"name": None}
    table = read_table(path, ["born", "name"], categories=levels, missing="drop")
    assert table.categories["name"].levels == ("NA", "ann", "bob", "zoë")
    assert table.rows.tolist() == [[1990, 1], [1985, 2], [2001, 3], [1979, 0]]
    assert table.dropped == 1


@pytest.mark.parametrize("frame", frames({"a": [1.0, 2, 3, 5, 8, 13], "b": range(6)}), ids=type)
def test_a_frame_keeps_its_names(frame: Any) -> None:
    table = read_table(frame, ["b"])
    assert (table.columns, table.rows[:, 0].tolist()) == (("b",), list(range(6)))
    assert isinstance(table, Table)
    assert np.asarray(table).shape == (6, 1)
    release = privatize("mean", frame, success=0.6, **QUICK, protect="draw")
    assert release.names == ("mean[a]", "mean[b]")
    assert prepare("mean", table, success=0.6, **QUICK, protect="draw").plan.names == ("mean[b]",)


@pytest.mark.parametrize("frame", frames({"a": [1, 2], "b": ["x", "y"]}), ids=type)
def test_a_frame_with_text_names_row_and_column(frame: Any) -> None:
    with pytest.raises(
        ValueError, match="data: row 1, column 'b': expected a number, got text"
    ) as e:
        prepare("mean", frame, success=0.6, **QUICK, protect="draw")
    assert "'x'" not in str(e.value)


@pytest.mark.parametrize("frame", frames({"a": [1, 2**53 + 1]}), ids=type)
def test_a_frame_with_integers_beyond_doubles_is_refused(frame: Any) -> None:
    with pytest.raises(ValueError, match=r"row 2, column 'a'.*2⁵³"):
        read_table(frame)


def test_categorical_columns_of_a_frame_are_coded_unasked() -> None:
    table = pa.table({"a": [1, 2, 3], "b": pa.array(["y", "x", "y"]).dictionary_encode()})
    read = read_table(table)
    assert read.rows.tolist() == [[1, 1], [2, 0], [3, 1]]
    assert not read.categories["b"].declared


def test_pandas_objects_of_several_kinds_are_texts() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": [1, "two", None]}, index=["r", "s", "t"])
    assert read_table(frame, ["a"]).rows.tolist() == [[1], [2], [3]]
    coded = read_table(frame, ["b"], categories={"b": None}, missing="drop")
    assert coded.categories["b"].levels == ("1", "two")


def test_a_duckdb_query_is_read(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("create table t as select * from (values (1, 'x'), (2, 'y')) v(a, b)")
    before = path.read_bytes()
    assert read_query("select a from t order by a", path).rows.tolist() == [[1], [2]]
    with pytest.raises(ValueError, match="sql: the query failed with InvalidInputException"):
        read_query("delete from t", path)
    assert path.read_bytes() == before
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    read = read_query(f"select b from '{tmp_path / 'x.csv'}' where a > 1")
    assert read.rows.tolist() == [[4]]


def test_a_query_that_fails_tells_no_values(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with sqlite3.connect(path) as database:
        database.execute("create table t (a)")
        database.execute("insert into t values ('swordfish')")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="sql: the query failed with OperationalError") as failed:
        read_query("select no_such_column from t", path)
    assert "no_such_column" not in str(failed.value)
    with pytest.raises(ValueError, match="no_such_column"):
        read_query("select no_such_column from t", path, show_values=True)
    with pytest.raises(ValueError, match="failed with OperationalError"):
        read_query("delete from t", path)
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="database: cannot read"):
        read_query("select 1", tmp_path / "none.db")
    with pytest.raises(ValueError, match="expected an SQLite or DuckDB file"):
        read_query("select 1", Path(__file__))


@pytest.mark.parametrize("name", ["parquet", "arrow", "gz", "zst"])
def test_a_file_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path)[name]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=f"data: {name} is not whole"):
        read_table(path, ["born"])


def test_flags_of_a_text_are_refused_beside_a_typed_table(tmp_path: Path) -> None:
    path = written(tmp_path)["parquet"]
    with pytest.raises(ValueError, match="delimiter: expected it for a CSV file only"):
        read_table(path, delimiter=";")
    with pytest.raises(ValueError, match="encoding: expected it for a CSV file only"):
        read_table(pa.table(ROWS), encoding="utf-8")
    with pytest.raises(ValueError, match="data: expected a path or a data frame"):
        read_table([[1.0, 2.0]])
