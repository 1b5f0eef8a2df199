"""The ledger on disk: crashes, races, and files that are not ledgers."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tacit.ledger import BudgetExceededError, Ledger
from tests.forks import forked
from tests.ledger.guarantees import nats
from tests.ledger.race import race


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def crash(path: Path, moment: str) -> None:
    with Ledger(path).reserve("s", nats(0.3), "crash") as reservation:
        if moment == "drawn":
            reservation.mark_drawn()
        os._exit(9)


@pytest.mark.parametrize("moment", ["reserved", "drawn"])
def test_a_crash_counts_as_spent(path: Path, moment: str) -> None:
    assert forked(lambda: crash(path, moment)).returncode == 9
    ledger = Ledger(path)
    assert ledger.spent("s").nats == 0.3
    assert ledger.entries("s")[0].status == moment


def test_processes_that_race_never_overrun_the_budget(path: Path) -> None:
    Ledger(path).set_budget("s", mi_budget=2.0)
    won = race(str(path))
    assert sum(won) == 16
    assert Ledger(path).spent("s").nats == 2.0
    assert len(Ledger(path).entries("s")) == 16


def test_processes_that_race_to_make_the_ledger_all_get_it(path: Path) -> None:
    assert sum(race(str(path), runners=4)) == 32
    assert Ledger(path).spent("s").nats == 4.0


def test_the_file_is_in_wal_mode_and_flushed_at_commit(path: Path) -> None:
    ledger = Ledger(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    connection.close()
    with ledger._store.transaction() as opened:
        assert opened.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2


def test_a_text_file_is_not_a_ledger(path: Path) -> None:
    path.write_text("not a database at all, but long enough to have a header\n" * 20)
    with pytest.raises(ValueError, match="not a SQLite database"):
        Ledger(path)


def test_a_corrupt_database_is_named(path: Path) -> None:
    Ledger(path).set_budget("s", mi_budget=1.0)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"corrupt|malformed|not a SQLite"):
        Ledger(path).spent("s")


def test_another_programs_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(ValueError, match="another program"):
        Ledger(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert tables == [("bookmarks",)]
    assert path.read_bytes() == content


def test_a_ledger_of_a_later_version_is_refused(path: Path) -> None:
    Ledger(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE tacit_meta SET value = '99'")
    connection.close()
    with pytest.raises(ValueError, match="schema '99'"):
        Ledger(path)


def test_a_read_only_file_is_refused(path: Path) -> None:
    Ledger(path)
    path.chmod(stat.S_IRUSR)
    with pytest.raises(ValueError, match="read-only"):
        Ledger(path)


@pytest.mark.parametrize(
    ("location", "sentence"),
    [
        ("", "expected a file path"),
        (":memory:", "durable"),
        ("sqlite://", "durable"),
        ("mysql://host/name", "SQLite or PostgreSQL"),
        ("nonsense://host/name", "SQLite or PostgreSQL"),
        ("no/such/folder/ledger.db", "no such folder"),
    ],
)
def test_bad_locations_get_a_sentence(location: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Ledger(location)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a file"):
        Ledger(tmp_path)
    with pytest.raises(ValueError, match="no such file"):
        Ledger(tmp_path / "missing.db", create=False)
    assert not (tmp_path / "missing.db").exists()


def test_an_unreachable_server_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="ledger:"):
        Ledger("postgresql://nobody:hidden@127.0.0.1:1/none")


WRITER = """
import sys
from tacit.guarantees import InformationBound
from tacit.ledger import Ledger
bound = InformationBound(nats=0.5, secret="rows", evidence="theorem", assumptions=(), source="t")
ledger = Ledger(sys.argv[1])
while True:
    ledger.reserve("s", bound, "while it is copied").commit({})
    print("one more", flush=True)
"""


def test_a_copy_made_while_it_is_written_is_whole_and_goes_on(path: Path, tmp_path: Path) -> None:
    Ledger(path)
    copy = tmp_path / "copy.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with closing(sqlite3.connect(path)) as held, closing(sqlite3.connect(copy)) as copied:
            held.backup(copied, pages=2)
        copied_once = Ledger(copy).verify()
        # it was written to meanwhile and after
        while Ledger(path).verify().records <= copied_once.records:
            assert writer.stdout.readline(), "it ended"
        writer.kill()
    now = Ledger(path).verify()
    assert copied_once.holds
    assert now.holds
    assert 2 <= copied_once.records < now.records
    # a copy that is put back is behind the head that was kept
    assert not Ledger(copy).verify(now.head).holds
    spent = Ledger(copy).spent("s").nats
    Ledger(copy).reserve("s", nats(0.5), "goes on").commit({})
    assert Ledger(copy).spent("s").nats == spent + 0.5


def test_a_full_disk_spends_nothing_and_loses_nothing(path: Path) -> None:
    ledger = Ledger(path)
    ledger.reserve("s", nats(0.5), "before").commit({})
    with ledger._store.transaction() as opened:
        # as many pages as there are: SQLite's own disk is full
        pages = opened.exec_driver_sql("PRAGMA page_count").scalar_one()
        opened.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    def spend() -> None:
        for _ in range(60):
            ledger.reserve("s", nats(0.5), "x" * 2000).commit({})

    with pytest.raises(ValueError, match=r"ledger\.db: the disk is full: free space beside it"):
        spend()
    counted = [entry for entry in Ledger(path).entries() if entry.counts]
    assert Ledger(path).verify().holds
    assert Ledger(path).spent("s").nats == 0.5 * len(counted)


def test_a_limit_on_the_size_of_files_is_named_and_spends_nothing(path: Path) -> None:
    ledger = Ledger(path)
    ledger.reserve("s", nats(0.5), "before").commit({})

    def spend() -> None:
        import resource

        least = max(file.stat().st_size for file in path.parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, least))
        ledger.reserve("s", nats(0.5), "x" * 200_000)

    refused = forked(spend)
    assert refused.returncode != 0
    assert "ledger.db: the system could not read or write it or its journal" in refused.stderr
    assert "ulimit -f" in refused.stderr
    assert Ledger(path).verify().holds
    assert [entry.description for entry in Ledger(path).entries()] == ["before"]


def test_a_clock_set_back_changes_no_order_and_no_total(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(path)
    ledger.set_budget("s", mi_budget=1.0)
    for time in ("2026-03-01T00:00:00.000+00:00", "2001-01-01T00:00:00.000+00:00"):
        for module in ("chain", "rows", "reservation"):
            monkeypatch.setattr(f"tacit.ledger.{module}.now", lambda time=time: time)
        ledger.reserve("s", nats(0.5), time).commit({})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(0.5), "whatever day it is")
    assert ledger.verify().holds
    assert [entry.time[:4] for entry in ledger.entries()] == ["2026", "2001"]


def test_nobody_beside_owner_and_group_reads_a_ledger(tmp_path):
    before = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "ledger.db")
        ledger.set_budget("s", mi_budget=1.0)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o660}


def test_a_copy_ends_while_releases_are_written_and_is_the_ledger_of_one_moment(
    path: Path, tmp_path: Path
) -> None:
    ledger = Ledger(path)
    for number in range(20):
        ledger.reserve("s", nats(0.125), f"{number}").commit({})
    before, copy, steps = ledger.verify(), tmp_path / "copy.db", list[int]()

    def write(status: int, left: int, pages: int) -> None:
        steps.append(left)
        assert len(steps) <= pages
        ledger.reserve("s", nats(0.125), "while it is copied").commit({})

    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(copy)) as other:
        # as the how-to says: by steps, in one transaction that reads
        one.execute("BEGIN")
        one.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        one.backup(other, pages=1, progress=write)
    assert len(steps) > 5
    assert steps == sorted(steps, reverse=True)
    assert Ledger(copy).verify() == before
    assert Ledger(copy).verify(ledger.verify().head).findings[0].endswith("head given is missing")
    Ledger(copy).reserve("s", nats(0.125), "goes on").commit({})
    assert Ledger(copy).verify(before.head).holds
