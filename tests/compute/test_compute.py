import os
import signal
import socket
import subprocess
import sys
import termios
import time

import numpy as np
import pytest

from tacit.compute import (
    EngineError,
    available_workers,
    goes_elsewhere,
    mapping,
    parallel_map,
    progress,
)
from tacit.compute.places import _Processes
from tacit.compute.remote import Task


@pytest.fixture
def eager_workers(monkeypatch):
    monkeypatch.setattr(mapping, "WORTH_STARTING_WORKERS_SECONDS", 0.0)


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


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_has_the_same_threads(eager_workers, workers, threads):
    torch = pytest.importorskip("torch")
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def count(item):
        time.sleep(0.03)
        pools = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
        return os.getpid(), pools | {torch.get_num_threads()}

    before = torch.get_num_threads(), threadpoolctl.threadpool_info()
    counted = parallel_map(count, range(8), workers=workers, threads=threads)
    assert all(found == {threads} for _, found in counted)
    assert len({process for process, _ in counted}) >= workers
    assert (torch.get_num_threads(), threadpoolctl.threadpool_info()) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_each_result_is_handed_over_once_and_in_order(eager_workers, workers):
    seen = []
    results = parallel_map(slow_identity, range(12), workers=workers, each=seen.append)
    assert seen == results


def test_what_each_raises_ends_the_work(eager_workers):
    done = []

    def stop(result):
        done.append(result)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_map(abs, range(10), workers=1, each=stop)
    assert done == [0, 1, 2]


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"threads": True}, {"each": 3}])
def test_bad_threads_and_each(wrong):
    with pytest.raises(ValueError, match=r"^(threads|each): expected"):
        parallel_map(abs, [1], **wrong)


@pytest.mark.parametrize(
    ("address", "cluster"), [("local", False), ("dask://local", True), ("ray://host:10001", True)]
)
def test_whether_items_go_elsewhere(monkeypatch, address, cluster):
    monkeypatch.delenv("TACIT_ENGINE", raising=False)
    assert not goes_elsewhere()
    assert goes_elsewhere(address) is cluster
    monkeypatch.setenv("TACIT_ENGINE", address)
    assert goes_elsewhere() is cluster


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


class TwoPartsError(Exception):
    """Pickles, and cannot be unpickled: its arguments are not those that it was made of."""

    def __init__(self, place, reason):
        super().__init__(f"{reason} at {place}")


def test_what_cannot_be_pickled_is_said_in_its_words(eager_workers):
    here = os.getpid()

    def fail(item):
        time.sleep(0.03)
        if os.getpid() != here:
            raise TwoPartsError(item, "lost")
        return item

    with pytest.raises(RuntimeError, match="TwoPartsError: lost at"):
        parallel_map(fail, range(12), workers=2)


@pytest.mark.parametrize(("function", "items"), [(None, [1]), (3, [1]), (len, None), (len, 5)])
def test_what_cannot_be_mapped_gets_a_sentence(function, items):
    with pytest.raises(ValueError, match=r"^(function|items): expected"):
        parallel_map(function, items)


def test_available_workers_is_what_the_scheduler_grants():
    expected = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert available_workers() == expected


def test_no_bar_away_from_a_terminal():
    code = "from tacit.compute import parallel_map; parallel_map(abs, [1], description='counting')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stderr == b""
    assert run.stdout == b""


def test_a_bar_on_a_terminal():
    pty = pytest.importorskip("pty")
    main, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 100))
    code = (
        "from tacit.compute import parallel_map;parallel_map(abs, range(3), description='counting')"
    )
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("TQDM_DISABLE", None)
    process = subprocess.Popen([sys.executable, "-c", code], stderr=follower, env=environment)
    assert process.wait(timeout=60) == 0
    os.close(follower)
    shown = os.read(main, 65536).decode()
    os.close(main)
    assert "counting" in shown


def test_lines_away_from_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.02)
    with progress.progress_bar(3, "counting", shown=True) as advance:
        for _ in range(3):
            time.sleep(0.03)
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"counting: {n}/3" for n in (1, 2, 3)]


def test_lines_of_reports(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.02)
    with progress.progress_reports("preparing") as report:
        for done in range(3):
            time.sleep(0.03)
            report(f"point {done}", done, 2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["point 1: 1/2", "point 2: 2/2"]


def test_silence_where_asked(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    with progress.progress_bar(3, "counting", shown=False) as advance:
        advance(3)
    with progress.progress_reports("preparing", shown=False) as report:
        report("point", 1, 2)
    assert capsys.readouterr().err == ""


def killed_once(item, flag):
    """The worker that is first to reach item 5 is killed there."""
    time.sleep(0.03)
    if item == 5 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_a_killed_process_is_replaced_and_nothing_counted_twice(eager_workers, tmp_path):
    counted = parallel_map(
        lambda item: killed_once(item, tmp_path / "flag"), range(20), workers=2, engine="local"
    )
    assert counted == list(range(20))
    assert (tmp_path / "flag").exists()


def test_a_batch_that_kills_every_worker_gets_a_sentence(eager_workers):
    home = os.getpid()

    def kill(item):
        time.sleep(0.06)
        if os.getpid() != home:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(EngineError, match="engine: local lost the workers of one batch 4 times"):
        parallel_map(kill, range(4), workers=2, engine="local")


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_has_its_own_generator(eager_workers, workers):
    def draw(item, generator):
        time.sleep(0.03)
        return item + generator.normal()

    drawn = parallel_map(draw, range(6), workers=workers, seed=3)
    expected = [
        item + np.random.default_rng(child).normal()
        for item, child in enumerate(np.random.SeedSequence(3).spawn(6))
    ]
    assert drawn == expected
    family = np.random.SeedSequence(3)
    for _ in range(2):
        assert parallel_map(draw, range(6), workers=workers, seed=family) == expected


@pytest.mark.parametrize(
    "address",
    ["", "loky", "dask://", "dask://host", "dask://host:0", "ray://host:65536", "spark://h:1", 3],
)
def test_a_bad_engine_gets_a_sentence(address):
    with pytest.raises(ValueError, match=r"^engine: expected 'local', 'dask://HOST:PORT'"):
        parallel_map(abs, [1], engine=address)


def test_the_environment_names_the_engine(monkeypatch):
    monkeypatch.setenv("TACIT_ENGINE", "nowhere")
    with pytest.raises(ValueError, match=r"^TACIT_ENGINE: expected .*got 'nowhere'"):
        parallel_map(abs, [1])
    assert parallel_map(abs, [-1], engine="local") == [1]


@pytest.mark.parametrize("library", ["dask", "ray"])
def test_nothing_at_the_address(eager_workers, library):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"{library}://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"engine: expected {library} at {address}, got no"):
            parallel_map(slow_identity, range(9), engine=address)


@pytest.mark.parametrize("library", ["dask", "ray"])
def test_a_missing_library_is_named(eager_workers, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=f"needs {library}: .*cluster"):
        parallel_map(slow_identity, range(9), engine=f"{library}://local")


def test_workers_start_without_the_modules_of_the_current_folder():
    before = os.environ.get("PYTHONSAFEPATH")
    told = _Processes(2).results(Task(os.getenv, 1), [["PYTHONSAFEPATH"], ["PYTHONSAFEPATH"]])
    assert list(told) == [["1"], ["1"]]
    assert os.environ.get("PYTHONSAFEPATH") == before
