"""The awkward files of a first day, through the command line: read, or refused in one sentence."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli_runner import QUICK, in_process, refused

AGES = [23.5, 41.0, 35.25, 58.0, 62.75, 19.0]
INCOMES = [1800.0, 3200.5, 2750.0, 4100.0, 2300.0, 990.0]
CITIES = ["Bern", "Oslo", "Rome", "Bern", "Rome", "Oslo"]


def text(delimiter: str = ",", decimal: str = ".", header: str | None = None) -> str:
    lines = [header or delimiter.join(("age", "income", "city"))]
    for age, income, city in zip(AGES, INCOMES, CITIES, strict=True):
        cells = (f"{age}".replace(".", decimal), f"{income}".replace(".", decimal), city)
        lines.append(delimiter.join(cells))
    return "\n".join(lines) + "\n"


def columns() -> pa.Table:
    return pa.table({"age": AGES, "income": INCOMES, "city": CITIES})


def stored(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as people, people:
        people.execute("create table person (age, income, city)")
        rows = zip(AGES, INCOMES, CITIES, strict=True)
        people.executemany("insert into person values (?, ?, ?)", rows)
        people.commit()
        return people.serialize()


def changed(row: int, column: int, cell: str) -> str:
    lines = [line.split(",") for line in text().splitlines()]
    lines[row][column] = cell
    return "\n".join(",".join(line) for line in lines) + "\n"


@dataclass(frozen=True)
class Awkward:
    """A file, how it is asked for, and what becomes of it."""

    name: str
    content: Callable[[], bytes]
    flags: tuple[str, ...] = ()
    refusal: tuple[str, ...] = ()
    note: str = ""
    rows: int = 6
    used: str = "age,income"
    codes: dict[str, list[str]] = field(default_factory=dict)


AWKWARD = [
    Awkward("gzip.csv.gz", lambda: gzip.compress(text().encode())),
    Awkward("typed.parquet", lambda: stored(columns())),
    Awkward("standard-input", lambda: text().encode()),
    Awkward("utf-16.csv", lambda: text().encode("utf-16")),
    Awkward(
        "latin-1-in-an-unused-column.csv",
        lambda: changed(3, 2, "Zürich").encode("latin-1"),
        note="Windows-1252",
    ),
    Awkward(
        "cyrillic.csv",
        lambda: text(header="age,income,город").encode("cp1251"),
        ("--encoding", "cp1251", "--category", "город"),
        used="age,город",
        codes={"город": ["Bern", "Oslo", "Rome"]},
        note="those that occur",
    ),
    Awkward("decimal-comma.csv", lambda: text(";", ",").encode(), ("--decimal", ",")),
    Awkward(
        "missing-refused.csv",
        lambda: changed(2, 1, "").encode(),
        refusal=("line 3", "column 'income'", "an empty field"),
    ),
    Awkward(
        "missing-dropped.csv",
        lambda: changed(2, 1, "NA").encode(),
        ("--missing", "drop"),
        rows=5,
        note="1 of 6 rows were dropped",
    ),
    Awkward(
        "categories.csv",
        lambda: text().encode(),
        ("--category", "city=Rome,Bern,Oslo,Paris"),
        used="city,age",
        codes={"city": ["Bern", "Oslo", "Paris", "Rome"]},
    ),
    Awkward(
        "integers-beyond-doubles.csv",
        lambda: changed(4, 0, "9007199254740993").encode(),
        refusal=("line 5", "column 'age'", "2⁵³"),
    ),
    Awkward(
        "one-name-twice.csv",
        lambda: text(header="age,income,age").encode(),
        refusal=("columns 1 and 3 have one name",),
    ),
    Awkward(
        "a-name-left-out.csv",
        lambda: text(header="age,,city").encode(),
        refusal=("column 2 has no name",),
    ),
    Awkward(
        "a-query.db", database, ("--sql", "select age, income from person where age > 20"), rows=5
    ),
]


@pytest.mark.parametrize("file", AWKWARD, ids=lambda file: file.name)
def test_an_awkward_file_is_read_or_refused(
    file: Awkward,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / file.name
    path.write_bytes(file.content())
    source: tuple[object, ...] = (path,)
    if file.name == "standard-input":
        source = ("-",)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.content())))
    if file.name.endswith(".db"):
        source = ("--database", path)
    done = in_process(capsys)(
        *("statistic", *source, "--query", "mean", "--columns", file.used, *file.flags),
        *("--success", "0.6", "--sampling-rate", "1/2", "--no-attack", "--json", "-", *QUICK),
    )
    if file.refusal:
        refused(done, *file.refusal)
        assert not [cell for cell in (*CITIES, "9007199254740993") if cell in done.err]
        return
    assert done.code == 0, done.err
    provenance = json.loads(done.out)["provenance"]
    assert provenance["data_columns"] == file.used.split(",")
    assert provenance["data_rows"] == file.rows
    assert provenance["data_categories"] == file.codes
    for name, levels in file.codes.items():
        told = ", ".join(f"{code} = {level}" for code, level in enumerate(levels))
        assert f"{name}: {told}" in done.err
    notes = " ".join(provenance["data_notes"])
    assert (file.note in notes) if file.note else not notes
    assert all(note in done.err for note in provenance["data_notes"])


def test_twelve_awkward_files_and_two_more_are_listed() -> None:
    assert len({file.name for file in AWKWARD}) == 14
