"""The same bits from a Dask scheduler and a Ray cluster as from this machine, killed or not."""

import importlib.util
import os
import signal
import time
from fractions import Fraction

import numpy as np
import pytest

from tacit.compute import EngineError, mapping, parallel_map
from tacit.statistics.draws.candidates import draw_family
from tacit.statistics.queries import Query
from tacit.statistics.simulation import simulate
from tests.clusters import dask_cluster, ray_cluster

pytestmark = [
    pytest.mark.services,
    # of Dask and Ray about their own threads and sockets
    pytest.mark.filterwarnings("ignore:::distributed", "ignore:::ray", "ignore::ResourceWarning"),
]
CLUSTERS = {"dask": ("distributed", dask_cluster), "ray": ("ray", ray_cluster)}


@pytest.fixture(scope="module", params=sorted(CLUSTERS))
def engine(request):
    library, cluster = CLUSTERS[request.param]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: make test-services")
    with cluster() as address:
        yield address


@pytest.fixture(autouse=True)
def eager_workers(monkeypatch):
    monkeypatch.setattr(mapping, "WORTH_STARTING_WORKERS_SECONDS", 0.0)


def test_the_same_bits_as_on_one_machine(engine):
    tables = np.random.default_rng(0).normal(size=(12, 200, 40))

    def spectrum(index, generator):
        time.sleep(0.06)
        noisy = tables[index] + generator.normal(size=(200, 40))
        return os.getpid(), np.linalg.eigvalsh(noisy.T @ noisy)

    alone = parallel_map(spectrum, range(12), workers=1, seed=7)
    shared = parallel_map(spectrum, range(12), engine=engine, seed=7)
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(alone, shared, strict=True))
    processes = {process for process, _ in shared}
    assert len(processes - {os.getpid()}) == 2


def test_a_killed_worker_is_replaced_and_nothing_counted_twice(engine, tmp_path):
    flag, home = tmp_path / "flag", os.getpid()

    def count(item):
        time.sleep(0.06)
        if os.getpid() != home and item >= 10 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item, np.random.default_rng(item).normal()

    counted = parallel_map(count, range(30), engine=engine)
    assert flag.exists(), "no worker was killed"
    assert counted == [(item, np.random.default_rng(item).normal()) for item in range(30)]


def test_what_the_function_raises_comes_through(engine):
    def refuse(item):
        time.sleep(0.06)
        if item == 9:
            raise KeyError("item 9")

    with pytest.raises(KeyError, match="item 9"):
        parallel_map(refuse, range(12), engine=engine)


def test_a_batch_that_kills_every_worker_gets_a_sentence(engine):
    home = os.getpid()

    def kill(item):
        time.sleep(0.06)
        if os.getpid() != home:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(EngineError, match="lost the workers of one batch 4 times"):
        parallel_map(kill, range(3), engine=engine)


def broken_once(flag, number, pattern):
    """Return a task that kills what matches the pattern when it meets a number."""
    home = os.getpid()

    def task(item):
        import psutil

        time.sleep(0.06)
        if os.getpid() != home and item == number and not flag.exists():
            flag.touch()
            for process in psutil.process_iter(["cmdline"]):
                if pattern in " ".join(process.info["cmdline"] or []):
                    process.kill()
        return item, np.random.default_rng(item).normal()

    return task


def test_a_broken_connection_is_made_again(tmp_path):
    pytest.importorskip("ray")
    flag = tmp_path / "flag"
    with ray_cluster() as address:
        task = broken_once(flag, 10, "--mode=specific-server")
        counted = parallel_map(task, range(30), engine=address)
    assert flag.exists(), "the server of the client was not killed"
    assert counted == [(item, np.random.default_rng(item).normal()) for item in range(30)]


def test_a_scheduler_that_is_gone_gets_a_sentence(tmp_path):
    pytest.importorskip("distributed")
    with dask_cluster() as address:
        port = address.rpartition(":")[2]
        task = broken_once(tmp_path / "flag", 10, f"dask scheduler --host 127.0.0.1 --port {port}")
        with pytest.raises(EngineError, match="engine: "):
            parallel_map(task, range(30), engine=address)
    assert (tmp_path / "flag").exists()


def test_other_versions_on_a_worker_get_a_sentence(engine, monkeypatch):
    monkeypatch.setattr("tacit.compute.remote.version", lambda _: "0.0")
    with pytest.raises(EngineError, match=r"has tacit .*, expected 0\.0 as here"):
        parallel_map(time.sleep, [0.06] * 3, engine=engine)


def slow_mean(rows):
    time.sleep(0.01)
    return rows.mean(axis=0)


def test_a_statistic_by_the_environment(engine, monkeypatch):
    table = np.random.default_rng(1).normal(size=(60, 3))
    query = Query(slow_mean)
    family = draw_family(60, Fraction(1, 2), 64, np.random.default_rng(2))
    alone, shared = (
        simulate(query, table, family, workers=None, progress=False)
        for name in ("local", engine)
        if monkeypatch.setenv("TACIT_ENGINE", name) is None
    )
    assert np.array_equal(alone, shared)
