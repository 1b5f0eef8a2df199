"""A prepared run: another run's checkpoint, a crash that loses a round, what fails at the end."""

import shutil

import numpy as np
import pytest
import torch

from tacit import Ledger, Run
from tacit.runs.folder import RESERVED
from tacit.training import Beside, Indistinguishable, References, prepare_training
from tacit.training.charges import Journal
from tacit.training.prepared import Measurements, attempt
from tests.training.runs import squares, task

GROUPS = np.arange(10) % 5
ROUNDS = 4


def prepared(folder, *, seed=0, about=("toy",), rate=1.0):
    model, inputs, targets = task(seed)

    def fit(run):
        for _ in range(run.charges, ROUNDS):
            run.step((inputs, targets), GROUPS)
        return run.release("a toy")

    rounds = Indistinguishable(
        model, torch.optim.SGD(model.parameters(), lr=rate),
        Beside(references=References.leave_out(5), mu=1.0), loss=squares,
        run=Run(steps=ROUNDS, checkpoint=folder, about=about),
    )  # fmt: skip
    return prepare_training(rounds, fit, description="a toy")


@pytest.mark.parametrize("other", [{"seed": 1}, {"about": (np.zeros(3),)}, {"rate": 0.5}])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, other):
    first = prepared(tmp_path).draw()
    with pytest.raises(ValueError, match="the folder holds a run with another about"):
        prepared(tmp_path, **other).draw()
    assert prepared(tmp_path).draw().digests == first.digests


def test_a_run_that_lost_a_round_in_a_crash_is_finished_without_it(tmp_path, monkeypatch):
    book = Ledger(tmp_path / "book.db")
    saved = Journal.save
    calls = []

    def dies(self, state):
        calls.append(state)
        if len(calls) == 2:
            raise KeyboardInterrupt
        saved(self, state)

    monkeypatch.setattr(Journal, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        prepared(tmp_path / "run").draw(ledger=book, secret="s")
    release = prepared(tmp_path / "run").draw(ledger=book, secret="s")
    assert release.details.rounds == ROUNDS - 1
    assert release.details.taken.tolist() == [ROUNDS] * 5
    assert (book.spent("s").releases, book.spent("s").open) == (1, 0)


def test_a_copied_checkpoint_is_worth_one_model(tmp_path, monkeypatch):
    """Three copies of a run that died after its second round end in one release."""
    book, saved, calls = Ledger(tmp_path / "book.db"), Journal.save, []

    def dies(self, state):
        saved(self, state)
        calls.append(state)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        prepared(tmp_path / "run").draw(ledger=book, secret="s")
    monkeypatch.setattr(Journal, "save", saved)
    for copy in ("two", "three"):
        shutil.copytree(tmp_path / "run", tmp_path / copy)
    first = prepared(tmp_path / "run").draw(ledger=book, secret="s")
    for copy in ("two", "three"):
        with pytest.raises(ValueError, match="a reservation is worth one release"):
            prepared(tmp_path / copy).draw(ledger=book, secret="s")
    assert prepared(tmp_path / "run").draw(ledger=book, secret="s").digests == first.digests
    assert (book.spent("s").releases, book.spent("s").open) == (1, 0)


def test_where_the_ledger_entry_is_must_be_known(tmp_path):
    book = Ledger(tmp_path / "book.db")
    prepared(tmp_path / "run").draw(ledger=book, secret="s")
    (tmp_path / "run" / RESERVED).unlink()
    with pytest.raises(ValueError, match="where 1 ledger entries are"):
        prepared(tmp_path / "run").draw(ledger=book, secret="s")


@pytest.mark.parametrize("error", [OverflowError("x"), RuntimeError("cell"), KeyboardInterrupt()])
def test_a_measurement_that_fails_is_a_note_and_nothing_is_lost(error):
    def fails():
        raise error

    found = attempt(fails)
    said = f"Nothing was measured of the model: {type(error).__name__}."
    assert found == Measurements(remarks=(said,))
