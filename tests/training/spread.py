"""A loop spread over processes, which write what they trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as processes
from torch import nn

from tests.training.loops import begun, finish, method_of, network


def train(rank: int, size: int, kind: str, folder: str) -> None:
    """Train the network of the tests in one of several processes.

    Args:
        rank: of this process.
        size: how many there are.
        kind: ``ddp``, ``fsdp``, or ``dies`` for one that the last process leaves.
        folder: where they meet and write.
    """
    place = Path(folder)
    processes.init_process_group(
        "gloo", init_method=f"file://{place / 'meet'}", rank=rank, world_size=size
    )
    model = network()
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (size,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        wrapped: nn.Module = model
    else:
        wrapped = nn.parallel.DistributedDataParallel(model)
    # 8 records a step in all
    private, optimizer = begun(
        wrapped, batch=8 // size, epochs=2, micro_batch=3, method=method_of(kind)
    )
    if kind == "dies" and rank == size - 1:
        sys.exit(0)
    release = finish(private, wrapped, optimizer)
    named = {
        name: one.full_tensor() if hasattr(one, "full_tensor") else one
        for name, one in model.state_dict().items()
    }
    torch.save({name: one.clone() for name, one in named.items()}, place / f"{rank}.pt")
    assert release.details.taken == 6
    processes.destroy_process_group()


def accelerated(folder: str) -> None:
    """Train it as a script of accelerate does, in one of the processes that torchrun started."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    size, model = accelerator.num_processes, network()
    wrapped: Any = accelerator.prepare(model)
    private, optimizer = begun(wrapped, batch=8 // size, epochs=2)
    finish(private, wrapped, optimizer)
    place = Path(folder) / f"{accelerator.process_index}.pt"
    torch.save({name: one.clone() for name, one in model.state_dict().items()}, place)
    accelerator.end_training()


if __name__ == "__main__":
    accelerated(sys.argv[1])
