import os
import subprocess
import sys
import time

import numpy as np
import pytest

from tacit import compute
from tacit.compute import available_workers, parallel_map


@pytest.fixture
def eager_workers(monkeypatch):
    monkeypatch.setattr(compute, "WORTH_STARTING_WORKERS_SECONDS", 0.0)


def slow_identity(item):
    time.sleep(0.03)
    return item, os.getpid()


def test_results_are_in_order():
    assert parallel_map(lambda x: x + 1, range(1000)) == list(range(1, 1001))


def test_nothing_to_do():
    assert parallel_map(slow_identity, []) == []


def test_several_processes_share_the_work_and_keep_the_order(eager_workers):
    results = parallel_map(slow_identity, range(20), workers=2)
    assert [item for item, _ in results] == list(range(20))
    processes = {process for _, process in results}
    assert processes - {os.getpid()}, "no worker process was ever used"


def test_one_worker_is_this_process(eager_workers):
    results = parallel_map(slow_identity, range(5), workers=1)
    assert {process for _, process in results} == {os.getpid()}


def test_a_lambda_with_a_closure_runs_in_workers(eager_workers):
    offset = np.arange(3.0)
    results = parallel_map(lambda x: (time.sleep(0.03), offset + x)[1], range(10), workers=2)
    np.testing.assert_array_equal(np.stack(results), np.arange(10.0)[:, None] + offset)


def test_results_do_not_depend_on_workers(eager_workers):
    tables = np.random.default_rng(0).normal(size=(12, 300, 40))

    def spectrum(index):
        time.sleep(0.02)
        return np.linalg.eigvalsh(tables[index].T @ tables[index])

    alone = parallel_map(spectrum, range(12), workers=1)
    shared = parallel_map(spectrum, range(12), workers=2)
    assert all(np.array_equal(a, b) for a, b in zip(alone, shared, strict=True))


class OddItemError(Exception):
    pass


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_comes_through_as_it_is(eager_workers, workers):
    def refuse(item):
        time.sleep(0.03)
        if item == 9:
            raise OddItemError("item 9")
        return item

    with pytest.raises(OddItemError, match="item 9"):
        parallel_map(refuse, range(12), workers=workers)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_bad_workers(workers):
    with pytest.raises(ValueError, match="workers"):
        parallel_map(abs, [1], workers=workers)


def test_available_workers_is_what_the_scheduler_grants():
    expected = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert available_workers() == expected


def test_no_bar_away_from_a_terminal():
    code = "from tacit.compute import parallel_map; parallel_map(abs, [1], progress=True)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stderr == b""
    assert run.stdout == b""


def test_a_bar_on_a_terminal():
    pty = pytest.importorskip("pty")
    main, follower = pty.openpty()
    code = (
        "from tacit.compute import parallel_map;"
        "parallel_map(abs, range(3), description='counting', progress=True)"
    )
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=follower, env=environment)
    assert process.wait(timeout=60) == 0
    os.close(follower)
    shown = os.read(main, 65536).decode()
    os.close(main)
    assert "counting" in shown
