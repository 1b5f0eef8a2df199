"""Batches of records that coins drew, in the place of a loader's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from tacit._ground.reprs import shown
from tacit.gradients.randomness import StepRandomness
from tacit.training.workers import Workers

# What a loader is made again with, beside its records and their batches.
KEPT = (
    "collate_fn",
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)


class Piece(NamedTuple):
    """Some records of a step that pass together.

    Attributes:
        records: their places; of a step that drew none, one that counts for nothing.
        counted: how many of them count: all, or none.
        last: whether the step is complete with them.
    """

    records: list[int]
    counted: int
    last: bool


class SampledLoader:
    """Yields the batches of one epoch a pass: every record is in a step by a coin of its own.

    Batches are of different sizes, as their coins fall. With a largest size a step comes in
    several of them.

    Args:
        loader: whose records, collation and workers are kept.
        sampling_rate: q.
        steps: T of all epochs.
        epochs: how many passes they are divided into.
        micro_batch: records that pass together, at most; None for all of a step.
        seed: of the coins; None for the operating system's.

    Attributes:
        taken: steps that are done.
        current: what was yielded last and waits for its backward pass; None where nothing does.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        *,
        sampling_rate: float,
        steps: int,
        epochs: int,
        micro_batch: int | None,
        seed: int | None,
        workers: Workers,
    ) -> None:
        self.dataset = loader.dataset
        self.taken = 0
        self._loader, self._micro_batch = loader, micro_batch
        self._rate, self._steps, self._epochs = sampling_rate, steps, epochs
        self._randomness, self._seed, self._workers = StepRandomness(seed), seed, workers
        self._waiting = False
        self.current: Piece | None = None

    def __len__(self) -> int:
        """Return the steps of an epoch."""
        return -(-self._steps // self._epochs)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the epoch that stands next.

        Raises:
            ValueError: all steps that are paid for were taken, or a batch had no backward pass or
                no step.
        """
        if self.taken >= self._steps:
            raise ValueError(
                f"loader: expected no pass beyond the {self._epochs} that are paid for, got one "
                f"after {self.taken} of {self._steps} steps"
            )
        # a pass that was broken off is finished by the next one
        stop = min((self.taken // len(self) + 1) * len(self), self._steps)
        pieces = self._pieces(range(self.taken, stop))
        kept = {name: getattr(self._loader, name) for name in KEPT}
        # in the order of the pieces, whatever the number of workers
        again: DataLoader[Any] = DataLoader(
            self.dataset, batch_sampler=[piece.records for piece in pieces], **kept
        )
        for piece, batch in zip(pieces, again, strict=True):
            self.refuse_waiting()
            self.current = piece
            yield batch
        self.refuse_waiting()

    def done(self) -> Piece:
        """Return the batch whose backward pass this is, which is its only one."""
        if self.current is None:
            raise ValueError(
                "losses: expected one backward pass for each batch of private.loader, got one "
                "without a batch; a record may count once in a step"
            )
        piece, self.current = self.current, None
        self._waiting = piece.last
        return piece

    def stepped(self) -> None:
        """Count a step."""
        self.taken, self._waiting = self.taken + 1, False

    @property
    def complete(self) -> bool:
        """Whether all records of a step had their backward pass."""
        return self._waiting

    def refuse_waiting(self) -> None:
        """Refuse to go on where a batch has had no backward pass, or a step was left out."""
        if self.current is not None:
            raise ValueError(
                "loader: expected private.backward(losses) for every batch, got the next batch "
                "asked for before it; which batches count may not depend on the records"
            )
        if self._waiting:
            raise ValueError(
                "loader: expected optimizer.step() after the backward pass of every batch, got the "
                "next batch asked for before it; records that pass together are bounded by "
                "LoopSettings(micro_batch=…)"
            )

    def _pieces(self, steps: range) -> list[Piece]:
        """Return what passes in these steps, as many pieces in every worker."""
        drawn = [self._sample(step) for step in steps]
        own = [max(1, -(-len(one) // (self._micro_batch or max(len(one), 1)))) for one in drawn]
        # models that are spread over workers pass as often in each of them
        most = self._workers.largest(torch.tensor(own)).tolist()
        found: list[Piece] = []
        for records, count in zip(drawn, most, strict=True):
            size = self._micro_batch or max(len(records), 1)
            places = records.tolist()
            for index in range(count):
                some = places[index * size : (index + 1) * size]
                last = index + 1 == count
                # none drawn: a record passes in its place and counts for nothing
                found.append(Piece(some or [self._workers.rank], len(some), last))
        return found

    def _sample(self, step: int) -> Tensor:
        """Return the records of a step that are this worker's."""
        rank, size = self._workers.rank, self._workers.size
        every = len(self.dataset)  # type: ignore[arg-type]
        if self._seed is not None:
            # the coins of one process, whatever the number of workers
            drawn = self._randomness.sample(step, every, self._rate)
            return drawn[drawn % size == rank]
        own = len(range(rank, every, size))
        return self._randomness.sample(step, own, self._rate) * size + rank


def check_loader(loader: Any) -> tuple[int, int]:
    """Return the number of records of a loader and its batch size.

    Raises:
        ValueError: it is no ``DataLoader`` of records that have places.
    """
    if not isinstance(loader, DataLoader):
        raise ValueError(
            f"loader: expected a torch.utils.data.DataLoader, got {type(loader).__name__}"
        )
    if isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__len__"):
        raise ValueError(
            "loader: expected records that have a place each, for coins to draw them, got a stream "
            f"({type(loader.dataset).__name__})"
        )
    count = len(loader.dataset)
    if loader.batch_size is None:
        raise ValueError("loader: expected one with a batch_size, got batches of its own")
    if count < 1:
        raise ValueError(f"loader: expected at least one record, got {shown(count)}")
    return count, int(loader.batch_size)
