"""A run that is killed is taken up where it was, and what was charged stays charged."""

import os
import signal

import numpy as np
import pytest

from tacit import Ledger
from tacit.runs.folder import STATE
from tacit.training.charges import CHARGED
from tests.forks import dying_at, forked

from .runs import flat, run_of, task

GROUPS = np.arange(10) % 5


def killed(folder, place):
    model, inputs, targets = task()
    run = run_of(model, rounds=6, checkpoint=folder)
    run.step((inputs, targets), GROUPS)
    dying_at(f"tacit.training.charges.Journal.{place}")()
    run.step((inputs, targets), GROUPS)


@pytest.mark.parametrize(("place", "charged"), [("save", 2), ("charge", 1)])
def test_a_kill_loses_no_charge(tmp_path, place, charged):
    """Before the state is saved, or before what it takes is charged."""
    done = forked(lambda: killed(tmp_path, place))
    assert done.returncode == -signal.SIGKILL
    model, inputs, targets = task(seed=3)
    run = run_of(model, rounds=6, checkpoint=tmp_path)
    assert run.rounds == 1
    assert np.allclose(run.left(), 1 - charged / 6)
    assert not np.allclose(flat(model), flat(task(seed=3)[0]))
    for _ in range(6 - charged):
        run.step((inputs, targets), GROUPS)
    with pytest.raises(ValueError, match="spent"):
        run.step((inputs, targets), GROUPS)


def test_the_ledger_entry_of_a_run_taken_up_is_committed_at_its_end(tmp_path):
    ledger = Ledger(tmp_path / "book.db")
    model, inputs, targets = task()
    given = {"rounds": 2, "checkpoint": tmp_path / "run", "ledger": ledger, "secret": "s"}
    run_of(model, **given).step((inputs, targets), GROUPS)
    assert ledger.spent("s").open == 1
    again = run_of(task()[0], **given)
    again.step((inputs, targets), GROUPS)
    again.release()
    assert (ledger.spent("s").open, ledger.spent("s").releases) == (0, 1)
    assert run_of(task()[0], **given).release().details.rounds == 2
    assert ledger.spent("s").releases == 1


def test_a_seeded_run_never_draws_the_same_noise_twice(tmp_path):
    model, inputs, targets = task()
    run = run_of(model, rounds=6, checkpoint=tmp_path, rng=7)
    start = flat(model)
    run.step((inputs, targets), GROUPS)
    first = flat(model) - start
    os.remove(tmp_path / STATE)
    again, _, _ = task()
    taken_up = run_of(again, rounds=6, checkpoint=tmp_path, rng=7)
    assert taken_up.rounds == 0
    taken_up.step((inputs, targets), GROUPS)
    assert not np.allclose(flat(again) - start, first)


def test_a_half_written_line_was_not_drawn(tmp_path):
    model, inputs, targets = task()
    run_of(model, rounds=6, checkpoint=tmp_path).step((inputs, targets), GROUPS)
    with (tmp_path / CHARGED).open("ab") as stream:
        stream.write(b'{"round": 1, "refer')
    run = run_of(task()[0], rounds=6, checkpoint=tmp_path)
    assert np.allclose(run.left(), 5 / 6)
    run.step((inputs, targets), GROUPS)
    assert np.allclose(run.left(), 4 / 6)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"rounds": 7}, "participations"), ({"mu": 2.0, "rounds": 6}, "budgets"),
     ({"count": 4, "rounds": 6}, "references"), ({"gram": "none", "rounds": 6}, "way")],
)  # fmt: skip
def test_another_run_is_refused(tmp_path, options, said):
    model, inputs, targets = task()
    run_of(model, rounds=6, checkpoint=tmp_path).step((inputs, targets), GROUPS)
    with pytest.raises(ValueError, match=f"another {said}"):
        run_of(task()[0], checkpoint=tmp_path, **options)


@pytest.mark.parametrize("damage", ["lost", "swapped", "cut", "state"])
def test_damaged_files_are_refused(tmp_path, damage):
    model, inputs, targets = task()
    run = run_of(model, rounds=6, checkpoint=tmp_path)
    for _ in range(2):
        run.step((inputs, targets), GROUPS)
    path = tmp_path / CHARGED
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "lost":
        path.unlink()
    elif damage == "swapped":
        path.write_bytes(b"".join(lines[::-1]))
    elif damage == "cut":
        path.write_bytes(lines[0])
    else:
        (tmp_path / STATE).write_bytes(b"no state")
    with pytest.raises(ValueError, match="checkpoint"):
        run_of(task()[0], rounds=6, checkpoint=tmp_path)


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    model, inputs, targets = task()
    one = run_of(model, rounds=6, checkpoint=tmp_path)
    two = run_of(task()[0], rounds=6, checkpoint=tmp_path)
    one.step((inputs, targets), GROUPS)
    with pytest.raises(ValueError, match="another process"):
        two.step((inputs, targets), GROUPS)
    assert two.rounds == 0


def test_a_ledger_put_in_the_place_of_the_run_s_own_is_refused(tmp_path):
    from tacit.ledger import Ledger

    place = tmp_path / "ledger.db"
    for turn in range(2):
        ledger = Ledger(place)
        model, inputs, targets = task()
        given = {"rounds": 6, "ledger": ledger, "secret": "S"}
        run_of(model, checkpoint=tmp_path / f"run{turn}", **given).step((inputs, targets), GROUPS)
        if turn == 0:
            for file in tmp_path.glob("ledger.db*"):
                file.unlink()
    with pytest.raises(ValueError, match="ledger: expected the one in which release 1"):
        run_of(task()[0], checkpoint=tmp_path / "run0", **given)


def test_a_ledger_of_another_process_is_not_left_out(tmp_path):
    from tacit.ledger import Ledger

    model, inputs, targets = task()
    run_of(model, rounds=6, checkpoint=tmp_path / "run").step((inputs, targets), GROUPS)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("S", mu=0.01)
    with pytest.raises(ValueError, match="another ledger"):
        run_of(task()[0], rounds=6, checkpoint=tmp_path / "run", ledger=ledger, secret="S")


def test_a_run_killed_before_its_first_state_is_charged_once(tmp_path):
    from tacit.ledger import Ledger

    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("S", mu=1.1)
    model, inputs, targets = task()
    options = {"rounds": 6, "checkpoint": tmp_path / "run", "ledger": ledger, "secret": "S"}
    run_of(model, **options).step((inputs, targets), GROUPS)
    os.remove(tmp_path / "run" / STATE)
    again, _, _ = task()
    assert run_of(again, **options).step((inputs, targets), GROUPS).number == 1


def test_a_state_of_another_model_is_refused(tmp_path):
    model, inputs, targets = task()
    run_of(model, rounds=6, checkpoint=tmp_path).step((inputs, targets), GROUPS)
    with pytest.raises(ValueError, match="checkpoint: expected the model"):
        run_of(task(columns=7)[0], rounds=6, checkpoint=tmp_path)
