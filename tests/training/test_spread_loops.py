"""Several processes release what one would: the same sum, with its noise once."""

import multiprocessing
import subprocess
import sys

import pytest
import torch

from tests.training.loops import method_of, trained
from tests.training.spread import train


def run(kind, size, folder):
    context = multiprocessing.get_context("spawn")
    every = [
        context.Process(target=train, args=(rank, size, kind, str(folder))) for rank in range(size)
    ]
    for one in every:
        one.start()
    for one in every:
        one.join()
    return [one.exitcode for one in every]


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "size"), [("ddp", 2), ("fsdp", 2), ("fsdp", 4)])
def test_processes_release_what_one_would(kind, size, tmp_path):
    _, whole = trained(epochs=2, method=method_of(kind))
    assert run(kind, size, tmp_path) == [0] * size
    for rank in range(size):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, one in whole.items():
            assert torch.allclose(found[name], one, atol=1e-6, rtol=0), name


@pytest.mark.thorough
def test_a_script_of_accelerate_under_torchrun_trains_what_one_process_does(tmp_path):
    """``accelerate launch --cpu --num_processes 2`` starts one process: torchrun starts two."""
    pytest.importorskip("accelerate")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               "2", "-m", "tests.training.spread", str(tmp_path)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    _, whole = trained(epochs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, one in whole.items():
            assert torch.allclose(found[name], one, atol=1e-6, rtol=0), name


@pytest.mark.thorough
def test_a_process_that_dies_ends_the_loop_and_publishes_nothing(tmp_path):
    codes = run("dies", 2, tmp_path)
    assert codes[0] != 0
    assert not list(tmp_path.glob("*.pt"))
