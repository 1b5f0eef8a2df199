"""Ledgers of Tacit 0.1: migrated whole, everything counted, or left as they are."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tacit.ledger import Budget, BudgetExceededError, IncomparableGuaranteeError, Ledger
from tests.ledger.guarantees import gaussian_curve, nats, pair, success
from tests.ledger.old import OldLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def old(path: Path) -> Iterator[OldLedger]:
    with closing(sqlite3.connect(path)) as connection:
        yield OldLedger(connection)


def test_everything_recorded_stays_counted(old: OldLedger, path: Path) -> None:
    old.budget("s", nats=1.0)
    old.release("s", nats(0.25))
    old.release("s", nats(0.125), "reserved")
    old.release("s", nats(0.0625), "drawn")
    old.release("s", nats(0.5), "cancelled")
    old.release("s", nats(0.03125), "a status nobody writes")
    old.release("curve", gaussian_curve(5.0))
    old.release("seeded", nats(0.1), reproducible=True)
    old.release("bare", success(0.6))
    ledger = Ledger(path)
    spent = ledger.spent("s")
    assert (spent.nats, spent.releases, spent.open) == (0.46875, 4, 3)
    assert ledger.remaining("s") == Budget(nats=0.53125)
    assert [entry.status for entry in ledger.entries("s")][3:] == [
        "cancelled",
        "a status nobody writes",
    ]
    assert [entry.counts for entry in ledger.entries("s")] == [True, True, True, False, True]
    assert ledger.entries("s")[0].record == {"release": [1.5]}
    assert ledger.spent("curve").renyi["add-remove"][1][1] == pytest.approx(2 / 50)
    assert math.isinf(ledger.spent("seeded").nats)
    assert ledger.spent("bare").unadded == 1
    assert ledger.verify().holds
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(0.54), "too much")
    ledger.reserve("s", nats(0.5), "within").commit({})
    assert Ledger(path).verify().holds
    assert [entry.number for entry in ledger.entries()] == list(range(1, 10))


def test_budgets_that_replaced_each_other_are_all_in_force(old: OldLedger, path: Path) -> None:
    old.budget("s", nats=1.0)
    old.budget("s", epsilon=1.0, delta=1e-6)
    ledger = Ledger(path)
    assert ledger.budget("s") == Budget(nats=1.0, epsilon=1.0, delta=1e-6)
    first, _ = ledger.budget_history("s")
    assert (first.new, first.who) == (Budget(nats=1.0), "unknown (Tacit 0.1)")
    ledger.reserve("s", pair(0.5, 0.0), "one").commit({})
    with pytest.raises(IncomparableGuaranteeError):
        ledger.reserve("s", success(0.6), "states nothing counted")


def test_a_program_of_0_1_that_is_still_open_cannot_write(old: OldLedger, path: Path) -> None:
    old.release("s", nats(0.25))
    Ledger(path)
    old.announced = {"s"}
    with pytest.raises(sqlite3.OperationalError, match="guarantee"):
        old.release("s", nats(0.25))
    old.connection.rollback()
    with pytest.raises(sqlite3.IntegrityError, match=r"tacit_budgets\.who"):
        old.budget("s", nats=1e9)
    old.connection.rollback()
    with pytest.raises(sqlite3.IntegrityError, match=r"tacit_secrets\.account"):
        old.release("t", nats(0.25))
    old.connection.rollback()
    assert Ledger(path).verify().holds


def test_an_unreadable_row_leaves_the_file_as_it_is(old: OldLedger, path: Path) -> None:
    old.release("s", nats(0.25))
    old.release("s", nats(0.25), text='{"type": "InformationBound"}')
    dump = list(old.connection.iterdump())
    with pytest.raises(
        ValueError, match=r"written by Tacit 0\.1 and row 2 of tacit_entries cannot"
    ):
        Ledger(path)
    assert list(old.connection.iterdump()) == dump


def test_an_empty_ledger_of_0_1_is_migrated(old: OldLedger, path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.entries() == ()
    assert ledger.verify().holds
    ledger.reserve("s", nats(0.25), "first").commit({})
    assert Ledger(path).verify().holds


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM tacit_secrets", "row 1 of tacit_budgets .*lacks its secret 's'"),
        ("UPDATE tacit_budgets SET nats = -1", "row 1 of tacit_budgets"),
        ("UPDATE tacit_budgets SET nats = 'x'", "row 1 of tacit_budgets"),
        ("UPDATE tacit_entries SET guarantee = '7'", "row 1 of tacit_entries"),
        ("UPDATE tacit_entries SET time = x'00'", "a time in it was edited"),
    ],
)
def test_a_refused_migration_names_ledger_and_row(
    old: OldLedger, path: Path, statement: str, words: str
) -> None:
    old.budget("s", nats=1.0)
    old.release("s", nats(0.25))
    old.connection.execute(statement)
    old.connection.commit()
    dump = list(old.connection.iterdump())
    with pytest.raises(ValueError, match=f"ledger.db was written by .*{words}"):
        Ledger(path)
    assert list(old.connection.iterdump()) == dump
