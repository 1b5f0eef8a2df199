"""A sweep has the same bits on several processes, on a Dask scheduler and on a Ray cluster."""

import dataclasses
import importlib.util

import cloudpickle
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.compute import mapping  # noqa: E402
from tacit.hidden_states import Bench, Sizes, SweepRequest, SweepRun, sweep  # noqa: E402
from tacit.models.texts.prefixes import Prefixes  # noqa: E402
from tests.clusters import dask_cluster, ray_cluster  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

SIZES = Sizes(
    geometry=100, pairs=50, prompts=100, generated=20, queries=60, held_out=20, trained=60
)
MECHANISMS = ["isotropic", "codebook-behaviour"]
CLUSTERS = {"dask": ("distributed", dask_cluster), "ray": ("ray", ray_cluster)}


@pytest.fixture(autouse=True)
def eager_workers(monkeypatch):
    monkeypatch.setattr(mapping, "WORTH_STARTING_WORKERS_SECONDS", 0.0)


@pytest.fixture(scope="module")
def asked():
    stream = np.random.default_rng(1).integers(40, size=6000)
    prefixes = Prefixes.draw(stream, bank=200, calibration=200, held_out=100, length=6, rng=0)
    model = small_network(vocabulary=40, width=16)
    request = SweepRequest(
        mechanisms=MECHANISMS, kl_budgets=[0.05, 2.0], codewords=(8,),
        readings=("raw", "posterior-behaviour"), guessers=("known-prefix",),
    )  # fmt: skip
    return {
        "model": model, "layers": [1], "request": request, "prefixes": prefixes, "sizes": SIZES,
        "rng": 3,
    }  # fmt: skip


@pytest.fixture(scope="module")
def alone(asked):
    return sweep(**asked)


def bits(points):
    return [dataclasses.replace(point, seconds=0.0) for point in points]


def test_what_another_process_is_sent_measures_the_same_bits(asked, alone, monkeypatch, tmp_path):
    sent = []

    def everything_sent(task, inputs, engine, workers):
        sent.append(len(inputs))
        task, batch = cloudpickle.loads(cloudpickle.dumps((task, inputs)))
        yield cloudpickle.loads(cloudpickle.dumps(task(batch)))

    monkeypatch.setattr(mapping, "_batched_results", everything_sent)
    path = tmp_path / "points.jsonl"
    shared = sweep(**asked, run=SweepRun(workers=2, out=path))
    assert 0 < sent[0] < len(alone)
    assert bits(shared) == bits(alone)
    # what stands there is not measured again, here or elsewhere
    assert sweep(**asked, run=SweepRun(workers=2, out=path)) == shared
    assert sent[1:] == [0]


@pytest.mark.thorough
def test_two_processes_have_the_bits_of_one(asked, alone, monkeypatch, tmp_path):
    here = []
    plain = Bench.measure
    monkeypatch.setattr(Bench, "measure", lambda *given: here.append(1) or plain(*given))
    reports = []
    path = tmp_path / "points.jsonl"
    run = SweepRun(workers=2, out=path, progress=lambda label, *counts: reports.append(counts))
    shared = sweep(**asked, run=run)
    assert bits(shared) == bits(alone)
    assert 0 < len(here) < len(alone), "no worker measured anything"
    assert reports[0] == (0, len(alone))
    assert reports[-1] == (len(alone), len(alone))
    assert path.read_text(encoding="utf-8").count("\n") == len(alone)
    # what stands there is not measured again, here or elsewhere
    here.clear()
    assert sweep(**asked, run=SweepRun(workers=2, out=path)) == shared
    assert not here


@pytest.mark.services
@pytest.mark.filterwarnings("ignore:::distributed", "ignore:::ray", "ignore::ResourceWarning")
@pytest.mark.parametrize("library", sorted(CLUSTERS))
def test_a_cluster_has_the_bits_of_this_machine(library, asked, alone, monkeypatch):
    needed, cluster = CLUSTERS[library]
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: make test-services")
    here = []
    plain = Bench.measure
    monkeypatch.setattr(Bench, "measure", lambda *given: here.append(1) or plain(*given))
    with cluster() as address:
        monkeypatch.setenv("TACIT_ENGINE", address)
        assert bits(sweep(**asked)) == bits(alone)
    assert 0 < len(here) < len(alone), "no worker measured anything"
