"""The processes that train one model together, or the one that trains it alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributed as processes


class Workers:
    """What they add up and what one of them tells the others; one process is its own sum.

    A collective that a dead process does not join raises in the others, before anything that it
    was for is published.

    Attributes:
        rank: of this process.
        size: how many there are.
    """

    def __init__(self) -> None:
        there = processes.is_available() and processes.is_initialized()
        self.rank = processes.get_rank() if there else 0
        self.size = processes.get_world_size() if there else 1

    def _there(self, values: Tensor) -> Tensor:
        """Return values where processes of GPUs can add them up: NCCL takes nothing of the host."""
        if processes.get_backend() == "nccl" and values.device.type == "cpu":
            return values.cuda()
        return values

    @property
    def first(self) -> bool:
        """Whether this process draws the noise and holds the ledger."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, in place where they can add it up."""
        if self.size > 1:
            values = self._there(values)
            processes.all_reduce(values)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest over all processes, entry by entry."""
        if self.size > 1:
            values = self._there(values)
            processes.all_reduce(values, op=processes.ReduceOp.MAX)
        return values

    def from_first(self, values: Tensor) -> Tensor:
        """Return what the first process has."""
        if self.size > 1:
            values = self._there(values)
            processes.broadcast(values, src=0)
        return values

    def together(self, error: BaseException | None) -> None:
        """Raise what the first process was refused with, in every process.

        Raises:
            ValueError: it was refused.
        """
        failed = self.from_first(torch.tensor([0 if error is None else 1]))
        if error is not None:
            raise error
        if bool(failed.item()):
            raise ValueError(
                "ledger: expected the first process to reserve the release, got a refusal there"
            )


def shard_like(parameter: Tensor, whole: Tensor) -> Tensor:
    """Return a whole gradient as its parameter is kept: in this process, or in parts."""
    held: Any = parameter
    if not hasattr(held, "placements"):
        return whole.to(parameter.dtype).contiguous()
    from torch.distributed.tensor import distribute_tensor

    made: Tensor = distribute_tensor(
        whole.to(parameter.dtype).contiguous(), held.device_mesh, held.placements
    )
    return made


def whole_of(parameter: Tensor) -> Tensor:
    """Return all of a parameter, wherever its parts are."""
    held: Any = parameter.detach()
    made: Tensor = held.full_tensor() if hasattr(held, "full_tensor") else held
    return made
