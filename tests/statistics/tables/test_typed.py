"""Frames, Parquet and queries: names, kinds and the same rows under one fingerprint."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from tacit import Draw, Effort, Rows
from tacit._ground import unpacking
from tacit.statistics import DataTable, fingerprint, prepare, privatize, read_query, read_table
from tacit.statistics.engines.duck import DuckDB

ROWS = {
    "height": [1.5, 1.75, 1.82, 1.66, 1.9],
    "name": ["ann", "bob", "zoë", "NA", ""],
    "member": [True, False, True, True, False],
    "born": [1990, 1985, 2001, 1979, 1999],
}
QUICK = Effort(simulations=60, workers=1, trials=0)


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
    paths = {name: folder / name for name in ("csv", "gz", "bz2", "zst", "parquet")}
    paths["csv"].write_text(text(), encoding="utf-8")
    for name, codec in (("gz", "gzip"), ("bz2", "bz2"), ("zst", "zstd")):
        with pa.CompressedOutputStream(str(paths[name]), codec) as stream:
            stream.write(text().encode())
    parquet.write_table(table, paths["parquet"], compression="zstd")
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
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database, database:
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


@pytest.mark.parametrize("name", ["csv", "parquet", "zst"])
def test_files_are_known_by_their_bytes_and_read_alike(tmp_path: Path, name: str) -> None:
    path, levels = written(tmp_path)[name], {"name": None}
    table = read_table(path, ["born", "name"], categories=levels, missing="drop")
    assert table.categories["name"].levels == ("NA", "ann", "bob", "zoë")
    assert table.rows.tolist() == [[1990, 1], [1985, 2], [2001, 3], [1979, 0]]
    assert table.dropped == 1


def test_what_is_read_by_others_alone_is_told_so(tmp_path: Path) -> None:
    feather.write_feather(pa.table(ROWS), str(tmp_path / "arrow"))
    with pa.CompressedOutputStream(str(tmp_path / "lz4"), "lz4") as stream:
        stream.write(text().encode())
    for name, said in (("arrow", "makes a frame of"), ("lz4", "compressed by LZ4")):
        with pytest.raises(ValueError, match=said):
            read_table(tmp_path / name)


@pytest.mark.parametrize("frame", frames({"a": [1.0, 2, 3, 5, 8, 13], "b": range(6)}), ids=type)
def test_a_frame_keeps_its_names(frame: Any) -> None:
    table = read_table(frame, ["b"])
    assert (table.columns, table.rows[:, 0].tolist()) == (("b",), list(range(6)))
    assert isinstance(table, DataTable)
    assert np.asarray(table).shape == (6, 1)
    release = privatize("mean", frame, Draw(success=0.6), QUICK)
    assert release.names == ("mean[a]", "mean[b]")
    assert prepare("mean", table, Draw(success=0.6), QUICK).planned.names == ("mean[b]",)


@pytest.mark.parametrize("frame", frames({"a": [1, 2], "b": ["x", "y"]}), ids=type)
def test_a_frame_with_text_names_row_and_column(frame: Any) -> None:
    with pytest.raises(
        ValueError, match="data: row 1, column 'b': expected a number, got text"
    ) as e:
        prepare("mean", frame, Draw(success=0.6), QUICK)
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
    import duckdb

    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("create table t as select * from (values (1, 'x'), (2, 'y')) v(a, b)")
    before = path.read_bytes()
    assert read_query("select a from t order by a", path).rows.tolist() == [[1], [2]]
    with pytest.raises(ValueError, match="one statement that reads"):
        read_query("delete from t", path)
    assert path.read_bytes() == before
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    read = read_query(f"select b from '{tmp_path / 'x.csv'}' where a > 1")
    assert read.rows.tolist() == [[4]]


def test_a_query_that_fails_tells_no_values(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table t (a)")
        database.execute("insert into t values ('swordfish')")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="sql: the query failed with OperationalError") as failed:
        read_query("select no_such_column from t", path)
    assert "no_such_column" not in str(failed.value)
    with pytest.raises(ValueError, match="no_such_column"):
        read_query("select no_such_column from t", path, show_values=True)
    with pytest.raises(ValueError, match="one statement that reads"):
        read_query("delete from t", path)
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="database: cannot read"):
        read_query("select 1", tmp_path / "none.db")
    with pytest.raises(ValueError, match="expected an SQLite or DuckDB file"):
        read_query("select 1", Path(__file__))


@pytest.mark.parametrize("name", ["parquet", "gz", "zst"])
def test_a_file_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path)[name]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=f"data: {name} is not whole"):
        read_table(path, ["born"])


@pytest.mark.parametrize("name", ["gz", "bz2", "zst"])
def test_a_file_made_to_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = written(tmp_path)[name]
    monkeypatch.setattr(unpacking, "MOST_BYTES", 10)
    assert len(read_table(path, ["born"])) == 5
    monkeypatch.setattr(unpacking, "MOST_TIMES", 0)
    with pytest.raises(ValueError, match=f"data: {name} expands to more than"):
        read_table(path, ["born"])


def test_flags_of_a_text_are_refused_beside_a_typed_table(tmp_path: Path) -> None:
    path = written(tmp_path)["parquet"]
    with pytest.raises(ValueError, match="delimiter: expected it for a CSV file only"):
        read_table(path, delimiter=";")
    with pytest.raises(ValueError, match="encoding: expected it for a CSV file only"):
        read_table(pa.table(ROWS), encoding="utf-8")
    with pytest.raises(ValueError, match="data: expected a path or a data frame"):
        read_table([[1.0, 2.0]])


@pytest.mark.parametrize(
    "statement",
    [
        "drop table t", "create table z(a int)", "delete from t", "insert into t values (1, 1)",
        "with gone as (select 1) delete from t", "update t set a = 0", "attach 'other.db' as o",
        "delete from t returning a", "/* select */ drop table t", "select 1; drop table t",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["path", "url", "duckdb"])
def test_a_database_is_only_read(tmp_path, statement, form):
    path = tmp_path / "b.db"
    if form == "duckdb":
        import duckdb

        connection = duckdb.connect(str(path))
    else:
        connection = sqlite3.connect(path)
    connection.execute("create table t(a int, b int)")
    connection.execute("insert into t values (1, 2), (3, 4), (5, 6), (7, 8)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="sql"):
        read_query(statement, f"sqlite:///{path}" if form == "url" else path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["b.db"]
    for reading in ("select a, b from t", " -- all\n(select a, b from t)"[form != "duckdb" :]):
        if form == "duckdb" or reading.startswith("select"):
            assert len(read_query(reading, path)) == 4


def test_duckdb_neither_copies_nor_takes_the_last_of_two_statements(tmp_path):
    target = tmp_path / "stolen.csv"
    for statement in (f"copy (select 1 as a) to '{target}'", "select 1 as a; select 2 as b"):
        with pytest.raises(ValueError, match="one statement that reads"):
            read_query(statement, None)
    assert not target.exists()


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    path = tmp_path / "none.db"
    with pytest.raises(ValueError, match="no such file"):
        read_query("select 1 as a", f"sqlite:///{path}")
    assert not path.exists()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**63 + 5] * 6, pa.uint64()),
        pa.array([2**53 + 1] * 6, pa.int64()),
        pa.array([-(2**53) - 1] * 6, pa.int64()),
        pa.array(["100000000000000000001.05"] * 6).cast(pa.decimal128(38, 2)),
        pa.array(["9007199254740993"] * 6),
    ],
    ids=str,
)
def test_numbers_that_lose_digits_are_refused_and_not_told(column):
    with pytest.raises(ValueError, match="2⁵³") as refused:
        privatize("mean", pa.table({"a": column}), Rows(success=0.6), QUICK)
    assert "9223372036854775813" not in str(refused.value)


def test_integers_of_an_array_that_lose_digits_are_refused():
    with pytest.raises(ValueError, match=r"pool: .*2⁵³"):
        privatize("mean", np.array([[2**53 + 1 + i] for i in range(60)]), Rows(success=0.6), QUICK)


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_categories_of_polars_are_coded(kind):
    polars = pytest.importorskip("polars")
    words = ["S", "M"] * 20
    typed = polars.Categorical if kind == "Categorical" else polars.Enum(["S", "M"])
    frame = polars.DataFrame({"a": np.arange(40.0), "d": words}).with_columns(
        polars.col("d").cast(typed)
    )
    table = read_table(frame, categories={"d": None})
    assert set(table.rows[:, 1].tolist()) == {0.0, 1.0}
    same = read_table(pa.table({"a": np.arange(40.0), "d": words}), categories={"d": None})
    assert table.fingerprint == same.fingerprint


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_series_is_no_frame(library):
    series = pytest.importorskip(library).DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})["a"]
    with pytest.raises(ValueError, match="data frame"):
        privatize("mean", series, Rows(success=0.6), QUICK)


def test_durations_that_python_has_none_for_leave_the_other_columns_readable():
    """NaT is the least integer, beyond Python's durations in seconds."""
    pandas = pytest.importorskip("pandas")
    spans = np.array([5, "NaT", 10**15], dtype="m8[s]")
    read = read_table(pandas.DataFrame({"t": spans, "x": [1.0, 2.0, 3.0]}), ["x"])
    assert read.rows.tolist() == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    "kind", [(pa.binary(), pa.string()), (pa.large_binary(), pa.large_string())]
)
def test_a_text_that_is_no_utf_8_refuses_no_row_but_its_own(kind):
    texts = pa.array([b"a", b"ok", None, b"\xff\xfe", b"ok"], kind[0]).view(kind[1])
    table = pa.table({"x": [0.0, 1.0, 2.0, 3.0, 4.0], "s": texts}).slice(1)
    assert read_table(table, ["x"]).rows[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    read = read_table(table, categories={"s": ["ok"]}, missing="drop-unreadable")
    assert read.rows.tolist() == [[1.0, 0.0], [4.0, 0.0]]


def test_a_view_in_a_file_of_duckdb_reads_no_other_file(tmp_path):
    import duckdb

    other, path = tmp_path / "other.csv", tmp_path / "sent.duckdb"
    other.write_text("a\n1\n")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE VIEW visits AS SELECT * FROM read_csv('{other}')")
        connection.execute("CREATE TABLE own AS SELECT 1 AS a")
    assert len(read_query("SELECT a FROM own", path)) == 1
    with pytest.raises(ValueError, match="PermissionException"):
        read_query("SELECT a FROM visits", path)
    engine = DuckDB()
    assert engine.table("Own", path, None, ()).columns.keys() == {"a"}
    with pytest.raises(ValueError, match="got a view or none"):
        engine.table("visits", path, None, ())
    engine.close()
