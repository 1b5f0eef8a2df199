"""Edited ledgers: what is refused, and which row `verify` names first."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tacit.ledger import Budget, BudgetExceededError, Ledger, NoBudgetError, verify_ledger
from tests.cli_runner import Tacit, refused
from tests.ledger.edited import copied, edit
from tests.ledger.guarantees import gdp, nats, pair


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two secrets, three budgets, five releases, one of them cancelled: 15 records."""
    location = tmp_path_factory.mktemp("whole") / "ledger.db"
    ledger = Ledger(location)
    ledger.set_budget("s", mi_budget=10.0)
    for amount in (1.0, 2.0, 0.5):
        with ledger.reserve("s", nats(amount), f"{amount} nats") as reservation:
            reservation.mark_drawn()
            reservation.commit({"release": [amount]})
    ledger.set_budget("s", mi_budget=20.0)
    ledger.reserve("s", nats(4.0), "not drawn").cancel()
    ledger.set_budget("t", epsilon=3.0, delta=1e-6, mu=1.0)
    ledger.reserve("t", gdp(0.25), "left open")
    return location


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A copy of its own for every test."""
    return copied(whole, tmp_path)


def test_a_whole_ledger_verifies(path: Path, tacit: Tacit) -> None:
    result = Ledger(path).verify()
    assert result.holds
    assert result.records == 15
    assert Ledger(path).verify(result.head) == result
    shown = tacit("ledger", "verify", "--ledger", path)
    assert shown.code == 0
    assert "15 records, none edited" in shown.out
    assert result.head in shown.out
    assert json.loads(tacit("ledger", "verify", "--ledger", path, "--json", "-").out)["holds"]


EDITS = {
    "UPDATE tacit_entries SET nats = 0.1 WHERE number = 2": "release 2 of secret 's' was edited",
    "UPDATE tacit_entries SET status = 'cancelled' WHERE number = 1": "release 1 of secret 's'",
    "UPDATE tacit_entries SET status = 'lost' WHERE number = 3": "release 3 of secret 's'",
    "UPDATE tacit_entries SET description = '' WHERE number = 4": "release 4 of secret 's'",
    "UPDATE tacit_entries SET record = NULL WHERE number = 1": "release 1 of secret 's'",
    "UPDATE tacit_entries SET secret = 's' WHERE number = 5": "release 5 of secret 's' was edited",
    "UPDATE tacit_entries SET guarantees = '[]' WHERE number = 2": "release 2 of secret 's'",
    "UPDATE tacit_entries SET time = x'00ff' WHERE number = 2": "release 2 of secret 's'",
    "UPDATE tacit_entries SET number = 99 WHERE number = 2": "release 2 of secret 's' was deleted",
    "DELETE FROM tacit_entries WHERE number = 2": "release 2 of secret 's' was deleted",
    "DELETE FROM tacit_entries": "release 1 of secret 's' was deleted",
    "INSERT INTO tacit_entries SELECT 50, secret, status, notion, nats, epsilon, delta, mu, "
    "leakage, failure, guarantees, reproducible, time, changed, description, version, record "
    "FROM tacit_entries WHERE number = 2": "release 50 of secret 's' was inserted",
    "UPDATE tacit_budgets SET nats = 1e9 WHERE number = 1": "budget 1 of secret 's' was edited",
    "UPDATE tacit_budgets SET who = 'nobody' WHERE number = 2": "budget 2 of secret 's'",
    "DELETE FROM tacit_budgets WHERE number = 3": "budget 3 of secret 't' was deleted",
    "UPDATE tacit_secrets SET account = replace(account, '20.0', '90.0')": "the totals of secret",
    "UPDATE tacit_secrets SET budgeted = 0": "the totals of secret 's' were edited",
    "UPDATE tacit_secrets SET budgeted = 2": "the totals of secret 's' were edited",
    "UPDATE tacit_secrets SET budgeted = 'zz'": "the totals of secret 's' were edited",
    "UPDATE tacit_secrets SET budgeted = x'01'": "the totals of secret 's' were edited",
    "UPDATE tacit_entries SET reproducible = 'f' WHERE number = 2": "release 2 of secret 's'",
    "UPDATE tacit_entries SET reproducible = x'' WHERE number = 2": "release 2 of secret 's'",
    "DELETE FROM tacit_secrets WHERE secret = 't'": "secret 't' was deleted",
    "INSERT INTO tacit_secrets VALUES ('u', '{}', 0, 0)": "secret 'u' was inserted",
    "UPDATE tacit_chain SET status = 'drawn' WHERE place = 4": "record 4, release 1 of secret 's'",
    "UPDATE tacit_chain SET hash = previous WHERE place = 4": "record 4, release 1 of secret 's'",
    "UPDATE tacit_chain SET place = 100 - place WHERE place IN (48, 52, 5)": "record 5 is missing",
    "DELETE FROM tacit_chain WHERE place = 6": "record 6 is missing from the chain",
    "DELETE FROM tacit_chain WHERE place BETWEEN 2 AND 4": "records 2 to 4 are missing",
    "DELETE FROM tacit_chain WHERE place >= 14": "records 14 to 15 are cut off the end",
    "DELETE FROM tacit_chain": "records 1 to 15 are cut off the end",
    "UPDATE tacit_meta SET value = '3:00' WHERE key = 'head'": "the head is not the newest",
    "UPDATE tacit_meta SET value = x'00' WHERE key = 'head'": "the head is not the newest record",
    "UPDATE tacit_budgets SET orders = 7 WHERE number = 3": "budget 3 of secret 't' was edited",
    "UPDATE tacit_entries SET guarantees = 7 WHERE number = 2": "release 2 of secret 's'",
    "UPDATE tacit_secrets SET secret = x'78' WHERE secret = 't'": "secret 't' was deleted",
    "DELETE FROM tacit_meta WHERE key = 'head'": "the head is not the newest record",
}


@pytest.mark.parametrize("statement", EDITS, ids=lambda text: text[:60])
def test_the_first_edited_row_is_named(
    path: Path, tacit: Tacit, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    edit(path, statement)
    result = verify_ledger(path)
    assert not result.holds
    assert not result.checkpoint
    # by stretches of a few records each, on connections of their own
    with monkeypatch.context() as few:
        few.setattr("tacit.ledger.verification.STRETCH", 4)
        assert verify_ledger(path) == result
    assert EDITS[statement] in result.findings[0]
    shown = tacit("ledger", "verify", "--ledger", path)
    assert shown.code == 1
    assert shown.out.startswith(f"edited: {result.findings[0]}")
    assert tacit("ledger", "verify", "--ledger", path, "--json", "-").code == 1


def test_a_flag_that_is_no_flag_is_named(path: Path) -> None:
    Ledger(path).reserve("v", nats(0.1), "seeded", reproducible=True, no_budget=True).commit({})
    assert verify_ledger(path).holds
    edit(path, "UPDATE tacit_entries SET reproducible = 2 WHERE number = 6")
    assert verify_ledger(path).findings[0] == "release 6 of secret 'v' was edited"
    assert Ledger(path).entries("v")[0].charge.notion == "void"


@pytest.mark.parametrize("flag", ["2", "-1", "'zz'", "x'00'", "0.5"])
def test_an_edited_flag_frees_no_misspelt_secret(path: Path, flag: str) -> None:
    edit(path, f"UPDATE tacit_secrets SET budgeted = {flag}")
    with pytest.raises(NoBudgetError):
        Ledger(path).reserve("misspelt", nats(0.1), "would spend from no budget")
    with pytest.raises(NoBudgetError):
        Ledger(path).check_budgeted("misspelt")


def test_a_verification_goes_on_from_a_checkpoint(path: Path, tacit: Tacit) -> None:
    begun = verify_ledger(path).checkpoint
    assert verify_ledger(path, since=begun).checkpoint == begun
    ledger = Ledger(path)
    ledger.reserve("s", nats(0.25), "newer").commit({})
    ledger.reserve("s", nats(0.25), "not drawn").cancel()
    ledger.reserved(5, "t").commit({"release": "left open before"})
    ledger.set_budget("t", epsilon=4.0, delta=1e-6)
    assert verify_ledger(path, since=begun) == verify_ledger(path)
    shown = tacit("ledger", "verify", "--ledger", path, "--since", begun)
    assert verify_ledger(path).checkpoint in shown.out.replace("\n", "")
    assert "none edited of those that were read" in shown.out
    assert "not read" not in tacit("ledger", "verify", "--ledger", path).out
    wrong = tacit("ledger", "verify", "--ledger", path, "--since", begun[:-1])
    refused(wrong, "since: expected PLACE:HASH:TOTALS")
    refused(tacit("ledger", "verify", "--ledger", path, "--workers", "0"), "workers: expected")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE tacit_entries SET description = '' WHERE number = 6", "release 6 of secret 's'"),
        ("UPDATE tacit_budgets SET nats = 99 WHERE number = 2", "budget 2 of secret 's'"),
        ("DELETE FROM tacit_entries WHERE number = 6", "release 6 of secret 's' was deleted"),
        ("DELETE FROM tacit_chain WHERE place = 16", "record 16 is missing"),
        ("UPDATE tacit_chain SET hash = previous WHERE place = 15", "record 15 of the head given"),
    ],
)
def test_what_a_resumed_verification_finds(path: Path, change: str, words: str) -> None:
    begun = verify_ledger(path).checkpoint
    Ledger(path).reserve("s", nats(0.25), "newer").commit({})
    edit(path, change)
    assert any(words in found for found in verify_ledger(path, since=begun).findings)


def test_totals_and_budgets_sealed_anew_differ_from_a_checkpoint(path: Path) -> None:
    from tacit.ledger.tables import digest

    begun = verify_ledger(path).checkpoint
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        account, place = connection.execute(
            "SELECT account, place FROM tacit_secrets WHERE secret = 's'"
        ).fetchone()
        less = account.replace('"nats", "", "7p-1', '"nats", "", "1p-1')
        assert less != account
        connection.execute("UPDATE tacit_secrets SET account = ? WHERE secret = 's'", (less,))
        connection.execute(
            "UPDATE tacit_chain SET account = ? WHERE place = ?", (digest(less), place)
        )
        connection.commit()
    found = verify_ledger(path, since=begun).findings
    assert found == ("the totals or budgets up to record 15 are not as they were",)


def test_a_row_counts_as_what_it_was_at_the_moment_verified(path: Path) -> None:
    from tacit.ledger.stretches import Stretch, read

    ledger = Ledger(path)
    ledger.set_budget("s", mi_budget=9.0)
    with ledger._store.transaction(write=False) as connection:
        was, now = (read(connection, Stretch("budget", 1, 99, newest), {}) for newest in (15, 16))
    assert len(was.history) == len(now.history) - 1
    assert was.budgets["s"] != now.budgets["s"]
    before = ledger._account("t")
    ledger.reserved(5, "t").commit({})
    with ledger._store.transaction(write=False) as connection:
        earlier, later = (
            read(connection, Stretch("release", 1, 5, newest), {}).totals.of("t")
            for newest in (16, 17)
        )
    assert earlier == before.totals
    assert later == ledger._account("t").totals != before.totals


def test_swapped_rows_are_found(path: Path) -> None:
    edit(
        path,
        "UPDATE tacit_entries SET number = -1 WHERE number = 1",
        "UPDATE tacit_entries SET number = 1 WHERE number = 2",
        "UPDATE tacit_entries SET number = 2 WHERE number = -1",
    )
    assert verify_ledger(path).findings[0] == "release 1 of secret 's' was edited"


def test_a_record_sealed_anew_is_the_one_named(path: Path) -> None:
    from tacit.ledger.chain import seal

    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        link = dict(connection.execute("SELECT * FROM tacit_chain WHERE place = 5").fetchone())
        link["status"] = "drawn"
        connection.execute(
            "UPDATE tacit_chain SET status = 'drawn', hash = ? WHERE place = 5", (seal(link),)
        )
        connection.commit()
    assert "record 5 was rewritten" in verify_ledger(path).findings[0]


def test_a_noted_head_finds_an_older_copy(path: Path, tmp_path: Path, tacit: Tacit) -> None:
    Ledger(path).verify()
    shutil.copy(path, tmp_path / "older.db")
    Ledger(path).reserve("s", nats(1.0), "one more").commit({})
    head = Ledger(path).verify().head
    assert Ledger(tmp_path / "older.db").verify().holds
    behind = verify_ledger(tmp_path / "older.db", head)
    assert behind.findings == ("record 17 of the head given is missing",)
    Ledger(tmp_path / "older.db").reserve("s", nats(0.5), "another past").commit({})
    assert "is another one" in verify_ledger(tmp_path / "older.db", head).findings[0]
    assert tacit("ledger", "verify", "--ledger", path, "--head", head).code == 0
    genesis = "0" * 64
    assert tacit("ledger", "verify", "--ledger", path, "--head", f"0:{genesis}").code == 0
    assert tacit("ledger", "verify", "--ledger", path, "--head", f"0:{'f' * 64}").code == 1
    for wrong in (
        "17",
        f"17:{'x' * 64}",
        f"-1:{genesis}",
        f"{'1' * 5000}:{genesis}",
        f"٣:{genesis}",
    ):
        refused(
            tacit("ledger", "verify", "--ledger", path, "--head", wrong), "head: expected PLACE"
        )


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM tacit_chain WHERE place >= 14",
        "DELETE FROM tacit_chain",
        "DELETE FROM tacit_meta WHERE key = 'head'",
        "UPDATE tacit_meta SET value = '15:00' WHERE key = 'head'",
        "DROP TABLE tacit_chain",
        "DROP TABLE tacit_entries",
        "DROP TABLE tacit_meta",
        "DELETE FROM tacit_meta",
        "DELETE FROM tacit_meta WHERE key = 'schema'",
        "UPDATE tacit_secrets SET account = replace(account, '20.0', '90.0')",
        "UPDATE tacit_secrets SET account = '{}'",
        "UPDATE tacit_secrets SET account = (SELECT account FROM tacit_secrets WHERE secret='t')",
        "UPDATE tacit_secrets SET place = 1",
        "UPDATE tacit_secrets SET place = 0",
        "DELETE FROM tacit_secrets",
    ],
)
def test_a_contradictory_ledger_spends_nothing(path: Path, statement: str) -> None:
    edit(path, statement)
    with pytest.raises(ValueError, match="ledger: "):
        Ledger(path).reserve("s", nats(0.001), "refused")
    with pytest.raises(ValueError, match="ledger: "):
        Ledger(path).spent("s")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM tacit_entries",
        "UPDATE tacit_entries SET status = 'lost'",
        "UPDATE tacit_entries SET status = 'cancelled'",
        "UPDATE tacit_entries SET nats = 0, guarantees = '[]'",
        "UPDATE tacit_budgets SET nats = 1e9",
        "DELETE FROM tacit_budgets",
    ],
)
def test_edited_rows_free_no_budget(path: Path, statement: str) -> None:
    edit(path, statement)
    ledger = Ledger(path)
    assert ledger.spent("s").nats == 3.5
    assert ledger.remaining("s") == Budget(nats=16.5)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(16.6), "too much")


def test_every_status_but_cancelled_counts(path: Path) -> None:
    edit(path, "UPDATE tacit_entries SET status = 'lost' WHERE number <> 4")
    assert [entry.counts for entry in Ledger(path).entries()] == [True, True, True, False, True]


def test_an_edited_release_can_be_neither_cancelled_nor_committed(path: Path) -> None:
    ledger = Ledger(path)
    reservation = ledger.reserve("s", nats(0.5), "half")
    edit(path, "UPDATE tacit_entries SET guarantees = replace(guarantees, '0.5', '3.5')")
    for move in (reservation.cancel, lambda: reservation.commit({}), reservation.mark_drawn):
        with pytest.raises(ValueError, match=r"release 6 was edited; it contradicts itself"):
            move()
    assert ledger.spent("s").nats == 4.0
    edit(path, "DELETE FROM tacit_entries WHERE number = 6")
    with pytest.raises(ValueError, match="no longer in the ledger"):
        reservation.cancel()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def without_journal(path: Path) -> None:
    emptied(path)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)


def half_of_it(path: Path) -> None:
    Ledger(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def no_tables(path: Path) -> None:
    path.unlink()
    edit(path, "PRAGMA user_version = 7")


@pytest.mark.parametrize("damage", [emptied, without_journal, half_of_it, no_tables])
def test_an_emptied_or_cut_file_is_refused_and_left(
    path: Path, tacit: Tacit, damage: Callable[[Path], None]
) -> None:
    damage(path)
    content = path.read_bytes()
    for create in (True, False):
        with pytest.raises(ValueError, match=r"empty \(0 bytes\)|corrupt|holds no tables"):
            Ledger(path, create=create).spent("s")
    refused(tacit("ledger", "show", "--ledger", path), "ledger: ")
    refused(tacit("ledger", "budget", "--ledger", path, "--secret", "s", "--mi-budget", "1"))
    assert path.read_bytes() == content


def test_a_file_removed_beside_its_journal_is_not_made_anew(path: Path) -> None:
    ledger = Ledger(path)
    ledger.reserve("s", nats(0.5), "in the journal").commit({})
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(ValueError, match="is missing, but its journal"):
        Ledger(path)
    assert not path.exists()
    with pytest.raises(ValueError, match="removed or replaced since it was opened"):
        ledger.reserve("s", nats(0.5), "would be lost")


def test_a_file_replaced_while_it_is_open_is_refused(path: Path, tmp_path: Path) -> None:
    ledger = Ledger(path)
    Ledger(tmp_path / "other.db").set_budget("s", mi_budget=1e6)
    os.replace(tmp_path / "other.db", path)
    with pytest.raises(ValueError, match="removed or replaced"):
        ledger.reserve("s", nats(0.5), "into another file")


def test_a_failed_spend_leaves_nothing(path: Path) -> None:
    ledger = Ledger(path)
    before = ledger.verify()
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(100.0), "too much")
    with pytest.raises(ValueError, match="text that can be stored"):
        ledger.reserve("s", nats(0.1), "\ud800")
    with pytest.raises(ValueError, match="ledger: "):
        ledger.reserve("new\ud800", nats(0.1), "x", no_budget=True)
    with pytest.raises(ValueError, match="not added up"):
        ledger.reserve("t", pair(0.1, 0.0, "replace"), "mixed")
    assert ledger.verify() == before
    assert ledger.secrets() == ("s", "t")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE tacit_meta SET value = x'00' WHERE key = 'head'", "the newest record"),
        ("UPDATE tacit_budgets SET orders = 7 WHERE number = 3", "budget 3 cannot be read"),
        ("UPDATE tacit_entries SET guarantees = 7 WHERE number = 2", "release 2 cannot be read"),
        ("UPDATE tacit_entries SET guarantees = '[7]' WHERE number = 2", "release 2 cannot be"),
        ("UPDATE tacit_entries SET record = '{' WHERE number = 2", "release 2 cannot be read"),
        ("UPDATE tacit_secrets SET secret = x'78' WHERE secret = 't'", "the name of secret b'x'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    path: Path, tacit: Tacit, statement: str, words: str
) -> None:
    edit(path, statement)
    refused(tacit("ledger", "show", "--ledger", path, "--json", "-"), "ledger: ", words)


def test_text_that_is_no_text_is_one_sentence_of_a_verification(path: Path, tacit: Tacit) -> None:
    edit(path, "UPDATE tacit_entries SET description = CAST(x'ff' AS TEXT) WHERE number = 2")
    refused(tacit("ledger", "verify", "--ledger", path), "ledger: ", "description")
