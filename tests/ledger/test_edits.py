"""Every edit of a ledger's file is found: cells, rows, types, and what lies to a reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.ledger import Ledger, verify_ledger
from tests.cli_runner import Tacit
from tests.ledger.edited import copied, edit
from tests.ledger.guarantees import gdp, nats, pair

TABLES = ("tacit_meta", "tacit_secrets", "tacit_budgets", "tacit_entries", "tacit_chain")
EDITS_OF_A_TABLE = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven secrets, one of them of no ASCII, and 100 releases of every status."""
    location = tmp_path_factory.mktemp("whole") / "ledger.db"
    ledger = Ledger(location)
    kinds = (nats, gdp, lambda amount: pair(amount, 1e-9))
    for turn in range(7):
        ledger.set_budget(f"π {turn}", mi_budget=1e3, mu=1e3, epsilon=1e3, delta=1e-3)
    for number in range(100):
        guarantee = kinds[number % 7 % 3](0.01 * (1 + number))
        reservation = ledger.reserve(f"π {number % 7}", guarantee, f"μ\n {number}")
        if number % 10 == 3:
            reservation.cancel()
        elif number % 10 != 5:
            reservation.mark_drawn()
            if number % 10 != 8:
                reservation.commit({"release": [number, "é"]})
    return location


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return copied(whole, tmp_path)


def holds(path: Path) -> bool:
    """Whether a ledger verifies; one that cannot be read does not."""
    try:
        return verify_ledger(path).holds
    except ValueError:
        return False


def edited(value: Any, other: Any) -> list[Any]:
    """Values beside the one of a cell: of another row, of another type, a little off."""
    values = [other, None, "", "x", b"", 0, 1, 2.5, -1]
    if isinstance(value, str):
        values += [f"{value} ", f"{value}\0", f"\0{value}", value.upper(), value[:-1]]
        values += [value.encode(), f'{value}", "', value.replace("0", "1", 1)]
    elif value is not None:
        values += [value + 1, -value, float(value), str(value), str(value).encode(), value * 2]
    return values


def stored(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    found = connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    # 1 and 1.0 are equal, and are not the same
    return [tuple((type(value), value) for value in row) for row in found]


@pytest.mark.parametrize("table", TABLES)
def test_an_edit_of_any_cell_is_found(path: Path, table: str) -> None:
    rng, tried = np.random.default_rng(0), 0
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
        before = stored(connection, table)
        while tried < EDITS_OF_A_TABLE:
            place = int(rng.integers(len(columns)))
            row, other = (rows[int(rng.integers(len(rows)))] for _ in range(2))
            values = edited(row[1 + place], other[1 + place])
            value = values[int(rng.integers(len(values)))]
            try:
                # of a row that others stand by, the name is that of another row
                connection.execute(
                    f"UPDATE OR IGNORE {table} SET {columns[place]} = ? WHERE rowid = ?",
                    (value, row[0]),
                )
            except sqlite3.IntegrityError:
                continue
            if stored(connection, table) == before:
                continue
            tried += 1
            assert not holds(path), (table, columns[place], row, value)
            marks = ", ".join("?" * len(columns))
            connection.execute("BEGIN")
            connection.execute(f"DELETE FROM {table}")
            connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})", [one[1:] for one in rows]
            )
            connection.execute("COMMIT")
    assert verify_ledger(path).holds


SWAPPED = (
    "UPDATE {table} SET {key} = -1 WHERE {key} = {a}",
    "UPDATE {table} SET {key} = {a} WHERE {key} = {b}",
    "UPDATE {table} SET {key} = {b} WHERE {key} = -1",
)


@pytest.mark.parametrize(
    ("table", "key"),
    [("tacit_entries", "number"), ("tacit_budgets", "number"), ("tacit_chain", "place")],
)
def test_swapped_and_lost_rows_are_found(path: Path, table: str, key: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(4):
        copy = path.with_name("copy.db")
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as held, closing(sqlite3.connect(copy)) as copied:
            held.backup(copied)
            last = held.execute(f"SELECT max({key}) FROM {table}").fetchone()[0]
        a, b = (1 + int(number) for number in rng.choice(last, 2, replace=False))
        edit(copy, *(words.format(table=table, key=key, a=a, b=b) for words in SWAPPED))
        assert not holds(copy), (a, b)
        edit(copy, *(words.format(table=table, key=key, a=a, b=b) for words in SWAPPED))
        assert holds(copy)
        edit(copy, f"DELETE FROM {table} WHERE {key} = {a}")
        assert not holds(copy), a


@pytest.mark.parametrize("status", ["reserved", "drawn", "committed", "cancelled"])
def test_a_row_put_back_to_what_it_was_is_found(path: Path, status: str) -> None:
    ledger = Ledger(path)
    reservation = ledger.reserve("π 1", nats(0.25), "put back")
    was = row_of(path, reservation.number)
    if status != "reserved":
        reservation.mark_drawn() if status != "cancelled" else reservation.cancel()
    else:
        was = {**was, "changed": "1999"}
    if status == "committed":
        was = row_of(path, reservation.number)
        reservation.commit({})
    assert holds(path)
    with closing(sqlite3.connect(path)) as connection:
        named = ", ".join(f"{name} = :{name}" for name in was)
        connection.execute(f"UPDATE tacit_entries SET {named} WHERE number = :number", was)
        connection.commit()
    assert verify_ledger(path).findings[0] == (
        f"release {reservation.number} of secret 'π 1' was edited"
    )


def row_of(path: Path, number: int) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM tacit_entries WHERE number = ?", (number,))
        return dict(found.fetchone())


def made_anew(path: Path, table: str, change: Callable[[str], str]) -> None:
    """Make a table anew by another statement, with the rows it had."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        made = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,))
        text = made.fetchone()[0]
        other = change(text)
        assert other != text
        indexes = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND type = 'index' AND sql NOTNULL",
            (table,),
        ).fetchall()
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute(f"ALTER TABLE {table} RENAME TO held")
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE tbl_name = 'held' AND sql NOTNULL "
            "AND type = 'index'"
        ).fetchall():
            connection.execute(f"DROP INDEX {name}")
        connection.execute(other)
        connection.execute(f"INSERT INTO {table} SELECT * FROM held")
        connection.execute("DROP TABLE held")
        for (words,) in indexes:
            connection.execute(words)


def without_types(text: str) -> str:
    for word in (" DOUBLE", " TEXT", " BOOLEAN", " INTEGER NOT NULL", "PRIMARY KEY (number)"):
        text = text.replace(word, " CHECK (1)" if "KEY" in word else "")
    return text


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tacit_entries SET number = number",
        "UPDATE tacit_entries SET nats = 0 WHERE nats = 0.0 AND number = 3",
        "UPDATE tacit_entries SET reproducible = 0.0 WHERE number = 3",
        "UPDATE tacit_entries SET reproducible = '0' WHERE number = 3",
        "UPDATE tacit_entries SET number = '3' WHERE number = 3",
        "UPDATE tacit_entries SET number = 3.0 WHERE number = 3",
        "UPDATE tacit_entries SET time = CAST(time AS BLOB) WHERE number = 3",
        "INSERT INTO tacit_entries SELECT * FROM tacit_entries WHERE number = 4",
        "INSERT INTO tacit_entries SELECT * FROM tacit_entries WHERE number = 3",
    ],
)
def test_types_and_copies_that_a_table_without_types_lets_in_are_found(
    path: Path, change: str
) -> None:
    made_anew(path, "tacit_entries", without_types)
    edit(path, change)
    same = "number = number" in change
    # the same rows in another table are what was written
    assert holds(path) is same


def test_a_table_without_rowids_hides_nothing(path: Path) -> None:
    made_anew(path, "tacit_entries", lambda text: f"{text} WITHOUT ROWID")
    made_anew(path, "tacit_chain", lambda text: f"{text} WITHOUT ROWID")
    assert holds(path)
    edit(path, "UPDATE tacit_entries SET description = 'other' WHERE number = 5")
    assert not holds(path)


def stale(path: Path, index: str, *statements: str) -> None:
    """Edit a table while the file does not name its index, which stays as it was."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        row = connection.execute(
            "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = ?", (index,)
        ).fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = ?", (index,))
        connection.execute("PRAGMA writable_schema = RESET")
    edit(path, *statements)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("PRAGMA writable_schema = RESET")


@pytest.mark.parametrize(
    ("index", "change"),
    [
        ("ix_tacit_chain_row", "DELETE FROM tacit_entries WHERE number = 4"),
        ("ix_tacit_chain_row", "UPDATE tacit_chain SET number = 7 WHERE place = 20"),
        ("ix_tacit_chain_row", "DELETE FROM tacit_chain WHERE place = 20"),
        ("ix_tacit_entries_secret", "UPDATE tacit_entries SET secret = 'π 2' WHERE number = 5"),
        ("ix_tacit_entries_secret", "DELETE FROM tacit_entries WHERE number = 5"),
        ("ix_tacit_budgets_secret", "DELETE FROM tacit_budgets WHERE number = 5"),
        ("ix_tacit_secrets_budgeted", "UPDATE tacit_secrets SET budgeted = 0"),
    ],
)
def test_an_index_that_is_no_longer_right_hides_no_edit(
    path: Path, index: str, change: str
) -> None:
    stale(path, index, change)
    assert not holds(path)


def test_an_index_emptied_of_what_a_table_holds_is_named(path: Path) -> None:
    # the rows are as they were, and a reader who asks by the index would miss one
    edit(
        path,
        "CREATE TABLE kept AS SELECT * FROM tacit_entries WHERE number = 5",
        "DELETE FROM tacit_entries WHERE number = 5",
    )
    index = "ix_tacit_entries_secret"
    stale(path, index, "INSERT INTO tacit_entries SELECT * FROM kept", "DROP TABLE kept")
    assert len(Ledger(path).entries()) == 100
    findings = verify_ledger(path).findings
    assert any("the file contradicts itself" in found and index in found for found in findings)


def test_a_name_in_the_file_is_no_line_of_what_is_told(path: Path, tacit: Tacit) -> None:
    index = "x\nwhole: 100 records, none edited"
    edit(path, f'CREATE INDEX "{index}" ON tacit_entries (status)')
    stale(path, index, "UPDATE tacit_entries SET status = 'lost' WHERE number = 5")
    done = tacit("ledger", "verify", "--ledger", path)
    assert done.code == 1
    assert "the file contradicts itself" in done.out
    assert {line[:8] for line in done.out.splitlines()} == {"edited: "}


@pytest.mark.parametrize(
    "trigger",
    [
        "BEFORE INSERT ON tacit_entries BEGIN SELECT RAISE(IGNORE); END",
        "AFTER UPDATE ON tacit_secrets BEGIN UPDATE tacit_secrets SET budgeted = 0; END",
        "AFTER INSERT ON TACIT_Chain BEGIN UPDATE tacit_secrets SET budgeted = 0; END",
    ],
)
def test_a_trigger_is_named(path: Path, trigger: str) -> None:
    edit(path, f"CREATE TRIGGER lies {trigger}")
    (found,) = verify_ledger(path).findings
    assert "the trigger 'lies' was added to the table" in found
    edit(path, "DROP TRIGGER lies", "CREATE VIEW seen AS SELECT secret FROM tacit_entries")
    assert holds(path)


def test_a_view_in_the_place_of_a_table_is_refused(path: Path) -> None:
    edit(
        path,
        "ALTER TABLE tacit_entries RENAME TO others",
        "CREATE VIEW tacit_entries AS SELECT * FROM others",
    )
    with pytest.raises(ValueError, match="it lacks tacit_entries"):
        verify_ledger(path)


def test_what_the_planner_believes_of_a_table_changes_nothing(path: Path) -> None:
    edit(path, "ANALYZE", "UPDATE sqlite_stat1 SET stat = '1 1 1'")
    assert holds(path)
    edit(path, "UPDATE sqlite_stat1 SET stat = '900000000 1 1'")
    assert holds(path)
    edit(path, "UPDATE tacit_entries SET description = '' WHERE number = 9")
    assert not holds(path)
