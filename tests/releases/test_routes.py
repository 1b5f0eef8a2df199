"""Every way on which a release leaves passes the checker: of a claim proved false nothing does."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest

from tacit import Ledger, Rows
from tacit.cli import run
from tacit.releases import proof, verification
from tacit.releases.kinds import known_kinds
from tacit.releases.proof import ReleaseProof
from tacit.statistics import Session

from .files import MAKERS, ROWS, STATES

GAUSSIAN = {"kind": "gaussian", "sensitivity": "1", "noise": "1"}
FALSE = ReleaseProof(mechanism=GAUSSIAN, claims=({"kind": "gaussian-dp", "mu": "0.9"},))
WRONG = "proves a claim to be wrong .*: nothing is released"
# Kinds that train for seconds, and those that promise nothing.
SLOW, SILENT = {"loop", "adapter", "draw", "classifier"}, {"audit"}


@pytest.fixture(autouse=True)
def false(monkeypatch):
    """Whatever a release claims, its proof claims less than its noise gives."""
    monkeypatch.setattr(verification, "proof_of", lambda _: FALSE)


def test_the_checker_proves_it_to_be_false():
    with pytest.raises(ArithmeticError, match=WRONG):
        verification.refuse_false(None)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(name, marks=pytest.mark.thorough) if name in SLOW else name
        for name in MAKERS
        # a sealed store is filled, not drawn
        if name not in SILENT | {"store", "reported"}
    ],
)
def test_no_workflow_returns_it(kind):
    with pytest.raises(ArithmeticError, match=WRONG):
        MAKERS[kind]()
    assert known_kinds()


def test_a_session_keeps_no_answer(tmp_path):
    path = tmp_path / "session"
    with Session(ROWS, Rows(success=0.6), path=path) as session:
        with pytest.raises(ArithmeticError, match=WRONG):
            session.ask("mean", share=0.5)
        # the share is spent, as the noise was drawn; the number is nowhere
        assert session.answers == (None,)
        assert len(session.spends) == 1


@pytest.mark.parametrize("name", ["rows.npy", "rows.safetensors", "rows.parquet"])
def test_no_file_of_rows_is_written(tmp_path, name):
    from .files import codes

    assert len(STATES)
    with pytest.raises(ArithmeticError, match=WRONG):
        codes(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_store_has_no_certificate(tmp_path):
    pytest.importorskip("cryptography")
    from tests.stores.places import PLACES, filled

    with filled(PLACES["folder"](tmp_path)) as store, pytest.raises(ArithmeticError, match=WRONG):
        store.certificate()


def test_a_command_writes_and_prints_none(tmp_path, capsys):
    table, ledger = tmp_path / "table.csv", tmp_path / "ledger.db"
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows([["a"], *[[n % 7] for n in range(40)]])
    Ledger(ledger).set_budget("s", mu=9.0)
    before = {entry.name for entry in tmp_path.iterdir()}
    command = ["statistic", str(table), "--query", "mean", "--protect", "table", "--success", "0.6"]
    command += ["--bounds", "a=0:7", "--trials", "0", "--ledger", str(ledger), "--secret", "s"]
    outputs = ["--json", str(tmp_path / "a.json"), "--report", str(tmp_path / "a.html")]
    assert run([*command, *outputs]) == 2
    assert {entry.name for entry in tmp_path.iterdir()} == before
    told = capsys.readouterr()
    assert told.out == ""
    assert "nothing is released" in told.err
    # what was drawn is paid for, and the ledger holds no number of it
    (entry,) = Ledger(ledger).entries("s")
    assert (entry.status, entry.record) == ("drawn", None)


def test_a_dock_serves_none():
    pytest.importorskip("torch")
    from tacit_dock import RefusedError
    from tacit_dock.claims import headline
    from tests.dock import learnwares

    with pytest.raises(RefusedError, match="false"):
        headline(learnwares.release(learnwares.specification(1)))


def test_no_account_is_written(tmp_path, monkeypatch, capsys):
    claims_of = proof.claims_of

    def lowered(guarantees: Any) -> Any:
        stated, *rest = claims_of(guarantees)
        return ({**stated, "epsilon": "0.1"}, *rest)

    monkeypatch.setattr(proof, "claims_of", lowered)
    path = tmp_path / "account.json"
    command = ["account", "gaussian", "--noise-std", "1", "--delta", "1e-5", "--json", str(path)]
    assert run(command) == 2
    assert not path.exists()
    told = capsys.readouterr()
    assert "nothing is released" in told.err
    assert told.out == ""


def test_what_is_false_is_no_number(monkeypatch):
    # the same with the proof that the workflow gives: it leaves
    monkeypatch.undo()
    assert np.isfinite(MAKERS["table"]().values).all()
