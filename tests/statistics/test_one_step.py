"""What is left is looked at and spent in one step: threads, processes, copies."""

import copy
import multiprocessing
import os
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

from tacit import Effort, Ledger, Rows, Table
from tacit.statistics import Session, prepare
from tests.forks import dying_at, forked

POOL = np.random.default_rng(0).normal(size=(12, 1))
BOUNDS = [(-4.0, 4.0)]
THREADS = 8


@contextmanager
def hasty():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def asked_by_all(session, share=0.4):
    """Return how many of eight threads were answered."""

    def ask(_):
        try:
            session.ask("count", share=share)
        except ValueError:
            return 0
        return 1

    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(ask, range(THREADS)))


def opened(**options):
    return Session(POOL, Table(success=0.6, bounds=BOUNDS), **options)


def within(session):
    return sum(Fraction(one) ** 2 for one in session.spends) <= Fraction(session.budget) ** 2


def overspent(runs):
    for _ in range(runs):
        session = opened()
        answered = asked_by_all(session)
        assert answered == 2
        assert len(session.spends) == answered == len(session.answers)
        assert all(answer is not None for answer in session.answers)
        assert within(session)


def test_threads_never_overspend_a_session_without_a_file():
    with hasty():
        overspent(40)


@pytest.mark.thorough
def test_a_thousand_sessions_are_never_overspent():
    with hasty():
        overspent(1000)


def test_threads_never_overspend_a_session_with_a_file_and_a_ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    with hasty():
        for run in range(3):
            path = tmp_path / f"{run}.json"
            session = opened(path=path, ledger=ledger, secret=f"table {run}")
            assert asked_by_all(session) == 2
            assert within(session)
            assert len(opened(path=path).spends) == 2
            assert len(list(ledger.entries(f"table {run}"))) == 2


def ask_once(path):
    try:
        opened(path=path).ask("count", share=0.4)
    except ValueError:
        return 0
    return 1


def test_processes_never_overspend_a_session_with_a_file(tmp_path):
    path = tmp_path / "session.json"
    session = opened(path=path)
    with multiprocessing.get_context("fork").Pool(THREADS) as pool:
        assert sum(pool.map(ask_once, [path] * THREADS, chunksize=1)) == 2
    assert session.price("count", share=0.1)
    assert len(session.spends) == 2
    assert within(session)


def in_fork(function):
    """Return what a forked process was refused with."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            function()
            text = "nothing"
        except ValueError as error:
            text = str(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        return stream.read()


def test_a_forked_process_spends_nothing_of_its_parent():
    session = opened()
    prepared = prepare("count", POOL, Table(success=0.6))
    assert "path: expected a file" in in_fork(lambda: session.ask("count", share=0.4))
    assert "draw: expected the process" in in_fork(prepared.draw)
    session.ask("count", share=0.4)
    prepared.draw()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_is_not_copied(copied):
    with pytest.raises(TypeError, match="spend one budget twice"):
        copied(opened())


def test_a_prepared_release_is_drawn_by_one_thread():
    with hasty():
        for _ in range(20):
            prepared = prepare("count", POOL, Table(success=0.6), Effort(trials=0))

            def draw(_, prepared=prepared):
                try:
                    prepared.draw()
                except ValueError:
                    return 0
                return 1

            with ThreadPoolExecutor(THREADS) as threads:
                assert sum(threads.map(draw, range(THREADS))) == 1


def killed(path):
    dying_at("tacit._ground.files.os.replace")()
    Session(POOL, Rows(success=0.6), path=path)


def test_what_a_killed_session_left_is_removed_when_it_is_opened(tmp_path):
    path = tmp_path / "session[1].json"
    for other in (".session1.json.0123456789abcdef.tmp", ".session[1].json.mine.tmp"):
        (tmp_path / other).write_text("of somebody else")
    assert forked(lambda: killed(path)).returncode == -signal.SIGKILL
    assert len([one for one in tmp_path.iterdir() if one.name.startswith(".session[1]")]) == 3
    Session(POOL, Rows(success=0.6), path=path)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        ".session1.json.0123456789abcdef.tmp",
        ".session[1].json.lock",
        ".session[1].json.mine.tmp",
        "session[1].json",
    ]
