"""Batches of records that coins drew, in the place of a loader's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
    default_convert,
)

from tacit._ground.reprs import shown
from tacit.gradients.batches import map_tensors
from tacit.gradients.randomness import StepRandomness
from tacit.training.collation import CheckedCollation
from tacit.training.loop_plan import LoopPlan, LoopSettings
from tacit.training.sampling import FixedOrder, Places, Poisson
from tacit.training.workers import Workers

# What a loader is made again with, beside its records and their batches.
KEPT = (
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
        owners: which unit of the piece each of them is of, in order; None where each is one.
        counted: how many of them count: all, or none.
        last: whether the step is complete with them.
    """

    records: list[int]
    owners: list[int] | None
    counted: int
    last: bool


class SampledLoader:
    """Yields the batches of one epoch a pass, drawn as the account has it.

    Batches are of different sizes, as their draws fall. With a largest size a step comes in
    several of them.

    Args:
        plan: whose loader's records, collation and workers are kept.
        workers: the processes that share a step.

    Attributes:
        taken: steps that are done.
        work: all steps, as the account has them.
        current: what was yielded last and waits for its backward pass; None where nothing does.
        ready: refuses a model that no batch may pass through.
    """

    def __init__(self, plan: LoopPlan, workers: Workers) -> None:
        self._loader, settings, details = plan.parts[2], plan.settings, plan.details
        self.dataset, self.taken = self._loader.dataset, 0
        self._micro_batch, self._seed = settings.micro_batch, settings.seed
        self._draws, self._units, self._batch = settings.sampling, plan.units, plan.batch
        self._count, _ = check_loader(self._loader, settings)
        self.work = details.sampled
        self._steps, self._epochs = details.schedule.steps, details.epochs
        self.coins, self.workers = StepRandomness(settings.seed), workers
        self._waiting, self._begun, self._passes = False, False, 0
        self._collate = self._loader.collate_fn
        if self._collate not in (default_collate, default_convert):
            people = settings.person is not None and settings.person.drawn == "people"
            self._collate = CheckedCollation(self._collate, in_order=people)
        # where accelerate's loader puts its batches
        self._device = getattr(self._loader, "device", None)
        self.current: Piece | None = None
        self.ready: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> NoReturn:
        # what splits the batches of a DataLoader asks for its sampler
        said = f"'SampledLoader' object has no attribute {name!r}"
        if name == "batch_sampler":
            said += "; LoopSettings(micro_batch=…) stands in the place of a BatchMemoryManager"
        raise AttributeError(said)

    def __len__(self) -> int:
        """Return the steps of an epoch."""
        return self.work.each

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the epoch that stands next.

        Raises:
            ValueError: all steps that are paid for were taken, a batch had no backward pass or no
                step, or two passes would draw one step.
        """
        if self.taken >= self._steps:
            raise ValueError(
                f"loader: expected no pass beyond the {self._epochs} that are paid for, got one "
                f"after {self.taken} of {self._steps} steps"
            )
        if self._begun:
            raise ValueError(
                "loader: expected all batches of a step in one pass, got another pass amid a step, "
                "whose records would be drawn twice"
            )
        self._passes += 1
        this = self._passes
        if self._seed is None:
            _seed_anew()
        # a pass that was broken off is finished by the next one
        stop = min((self.taken // len(self) + 1) * len(self), self._steps)
        pieces = self._pieces(range(self.taken, stop))
        for piece, batch in zip(pieces, self._batches(pieces), strict=True):
            self.refuse_waiting()
            if this != self._passes:
                raise ValueError(
                    "loader: expected one pass at a time, got the next batch of one that another "
                    "pass has followed"
                )
            self.ready()
            self.current = piece
            yield batch if self._device is None else map_tensors(batch, self._placed)
        self.refuse_waiting()

    def _batches(self, pieces: list[Piece]) -> Iterable[Any]:
        if isinstance(self.dataset, IterableDataset):
            return self._streamed(pieces)
        kept = {name: getattr(self._loader, name) for name in KEPT}
        kept["collate_fn"] = self._collate
        # in the order of the pieces, whatever the number of workers
        records = [piece.records for piece in pieces]
        return DataLoader(self.dataset, batch_sampler=records, **kept)

    def _streamed(self, pieces: list[Piece]) -> Iterator[Any]:
        """Yield the records of a stream as they come, from the first that is not yet taken.

        Raises:
            ValueError: it ends before the records that were declared.
        """
        every, first = iter(self.dataset), pieces[0].records[0]
        # a pass that was broken off is finished by the next one
        passed = sum(1 for _ in islice(every, first))
        for piece in pieces:
            rows = list(islice(every, len(piece.records)))
            passed += len(rows)
            if len(rows) < len(piece.records):
                raise ValueError(
                    f"records: expected a stream of the {self._count} records that were declared, "
                    f"got one that ends after {passed}"
                )
            yield self._collate(rows)

    def _placed(self, values: Any) -> Any:
        return values.to(self._device, non_blocking=True) if isinstance(values, Tensor) else values

    def done(self) -> Piece:
        """Return the batch whose backward pass this is, which is its only one."""
        if self.current is None:
            raise ValueError(
                "losses: expected one backward pass for each batch of private.loader, got one "
                "without a batch; a record may count once in a step"
            )
        piece, self.current = self.current, None
        self._waiting, self._begun = piece.last, not piece.last
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
        drawn = [self._cut(units.tolist()) for units in self._drawn(steps)]
        # models that are spread over workers pass as often in each of them
        most = self.workers.largest(torch.tensor([max(1, len(one)) for one in drawn])).tolist()
        found: list[Piece] = []
        for parts, count in zip(drawn, most, strict=True):
            for index in range(count):
                groups = parts[index] if index < len(parts) else []
                places = [place for group in groups for place in group]
                owners = None
                if self._units is not None:
                    owners = [number for number, group in enumerate(groups) for _ in group] or [0]
                last = index + 1 == count
                # none drawn: a record passes in its place and counts for nothing
                found.append(Piece(places or [self.workers.rank], owners, len(places), last))
        return found

    def _cut(self, units: list[int]) -> list[list[Any]]:
        """Return the records of some units in parts of a largest size; no unit is divided."""
        groups = [[unit] if self._units is None else list(self._units[unit]) for unit in units]
        if self._micro_batch is None:
            return [groups] if groups else []
        parts: list[list[Any]] = []
        room = 0
        for group in groups:
            if not parts or len(group) > room:
                parts.append([])
                room = self._micro_batch
            parts[-1].append(group)
            room -= len(group)
        return parts

    def _drawn(self, steps: range) -> list[Tensor]:
        """Return the units of every step that are this worker's."""
        rank, size = self.workers.rank, self.workers.size
        every = self._count if self._units is None else len(self._units)
        if self._seed is not None and isinstance(self._draws, Poisson):
            # the coins of one process, whatever the number of workers
            drawn = self._draws.drawn(steps, Places(every, self._batch), self.work, self.coins)
            return [one[one % size == rank] for one in drawn]
        own = Places(len(range(rank, every, size)), self._batch)
        drawn = self._draws.drawn(steps, own, self.work, self.coins)
        return [one * size + rank for one in drawn]


def _seed_anew() -> None:
    """Seed what masks and augmentations are drawn from by the operating system.

    Of a seed that is known, a record's mask would follow from how many records are drawn before it:
    one record more would move what all behind it add.
    """
    torch.seed()
    random.seed()
    np.random.seed()  # noqa: NPY002


def check_loader(loader: Any, settings: LoopSettings) -> tuple[int, int]:
    """Return the number of records of a loader and its batch size.

    Raises:
        ValueError: it is no ``DataLoader`` of records that have places, nor of a stream whose
            records are declared.
    """
    if not isinstance(loader, DataLoader):
        raise ValueError(
            f"loader: expected a torch.utils.data.DataLoader, got {type(loader).__name__}"
        )
    if isinstance(loader.dataset, IterableDataset):
        return _check_stream(loader, settings)
    if settings.records is not None:
        raise ValueError("records: expected none of a loader that knows how many it has, got some")
    if not hasattr(loader.dataset, "__len__"):
        raise ValueError(
            "loader: expected records that have a place each, for coins to draw them, got "
            f"{type(loader.dataset).__name__}, which has no length"
        )
    count = len(loader.dataset)
    if count < 1:
        raise ValueError(f"loader: expected at least one record, got {shown(count)}")
    batches: Any = loader.batch_sampler
    # accelerate deals out the batches of a loader over processes
    while hasattr(batches, "batch_sampler") and not getattr(batches, "split_batches", False):
        batches = batches.batch_sampler
    if type(batches) is not BatchSampler:
        raise ValueError("loader: expected one with a batch_size, got batches of its own")
    _check_sampler(batches.sampler, count)
    if settings.person is None and _repeats(loader.dataset):
        raise ValueError(
            "loader: expected each record once, got a data set that has some several times, which "
            "would be clipped and counted each by itself; protect whoever they are of by "
            "LoopSettings(person=People(of=…))"
        )
    return count, int(batches.batch_size)


def _repeats(dataset: Any) -> bool:
    """Whether a data set that is made of places in another has some of them twice."""
    if not isinstance(dataset, (ConcatDataset, Subset)) and not _of_table(dataset):
        return False
    found: dict[int, list[Any]] = {}
    for whole, places in _origins(dataset, np.arange(len(dataset))):
        found.setdefault(whole, []).append(places)
    every = [np.concatenate(places) for places in found.values()]
    return any(len(np.unique(places)) < len(places) for places in every)


def _origins(dataset: Any, places: Any) -> Iterator[tuple[int, Any]]:
    """Yield what records lie in, and their places there, where places are numbers."""
    if isinstance(dataset, Subset):
        own = np.asarray(dataset.indices)
        # otherwise names
        if own.dtype.kind in "iu":
            yield from _origins(dataset.dataset, own[places])
        return
    if hasattr(dataset, "__len__"):
        # −1 is the last one
        places = places % len(dataset)
    if _of_table(dataset):
        yield from _stored(dataset, places)
        return
    if not isinstance(dataset, ConcatDataset):
        yield id(dataset), places
        return
    ends = np.asarray([0, *dataset.cumulative_sizes])
    part = np.searchsorted(ends, places, side="right") - 1
    for number, one in enumerate(dataset.datasets):
        yield from _origins(one, places[part == number] - ends[number])


def _of_table(dataset: Any) -> bool:
    """Whether records are rows of a table, as those of Hugging Face's ``datasets`` are."""
    return hasattr(dataset, "_indices") and hasattr(getattr(dataset, "data", None), "column")


def _stored(dataset: Any, places: Any) -> Iterator[tuple[int, Any]]:
    """Yield where in memory rows lie: what is chosen, and put together, of one table shares it."""
    if dataset._indices is not None:
        places = np.asarray(dataset._indices.column(0))[places].astype(np.int64)
    first = 0
    for chunk in dataset.data.column(0).chunks:
        inside = places[(first <= places) & (places < first + len(chunk))] - first
        held = [one.address for one in chunk.buffers() if one is not None]
        yield (held[-1] if held else id(chunk)), inside + chunk.offset
        first += len(chunk)


def _check_stream(loader: DataLoader[Any], settings: LoopSettings) -> tuple[int, int]:
    """Return the records that are declared of a stream, and its batch size.

    Raises:
        ValueError: no number, or a draw that needs records to have places.
    """
    name = type(loader.dataset).__name__
    if settings.records is None:
        raise ValueError(
            f"records: expected how many the stream {name} has, in LoopSettings(records=…), for "
            "the account rests on it, got none"
        )
    if settings.sampling != FixedOrder(shuffled=False) or settings.person is not None:
        beside = "" if settings.person is None else " with a person"
        raise ValueError(
            "sampling: expected FixedOrder(shuffled=False) and no person of a stream, whose "
            f"records come as they come and no coin draws, got {shown(settings.sampling)}{beside}"
        )
    if loader.num_workers > 0 or Workers().size > 1:
        raise ValueError(
            "loader: expected a stream that one process reads (num_workers=0), for each further "
            "one would read its records again"
        )
    if loader.batch_size is None:
        raise ValueError("loader: expected one with a batch_size, got batches of its own")
    return settings.records, loader.batch_size


def _check_sampler(sampler: Any, count: int) -> None:
    """Refuse a sampler that says which records are seen, or how often: it is not followed.

    Raises:
        ValueError: it has another law than all records alike, once a pass.
    """
    once = isinstance(sampler, SequentialSampler | DistributedSampler) or (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == count
    )
    if not once:
        raise ValueError(
            "loader: expected one of all its records, each once a pass, for in its place they are "
            f"drawn as the account says, got one with {type(sampler).__name__}; give a Subset of "
            "the records, and how they are drawn by LoopSettings(sampling=…)"
        )
