"""Apply a function to many items, in order, wherever and by however many workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tacit._ground.checks import integer
from tacit.compute.places import LOSSES_ALLOWED, DisconnectedError, Engine, EngineError
from tacit.compute.progress import progress_bar
from tacit.compute.remote import Task, limited

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCHES_PER_WORKER = 8
WORTH_STARTING_WORKERS_SECONDS = 2.0


def available_workers() -> int:
    """Return the number of processor cores this process may use.

    Example:
        >>> available_workers() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def goes_elsewhere(engine: str | None = None) -> bool:
    """Return whether `parallel_map` gives items to a cluster, by its argument or ``TACIT_ENGINE``.

    Args:
        engine: as for `parallel_map`.

    Raises:
        ValueError: it is no such address.

    Example:
        >>> goes_elsewhere("local"), goes_elsewhere("dask://host:8786")
        (False, True)
    """
    return Engine.parse(engine).elsewhere


def parallel_map(
    function: Callable[..., Result],
    items: Iterable[Item],
    *,
    workers: int | None = None,
    engine: str | None = None,
    seed: int | np.random.SeedSequence | None = None,
    threads: int = 1,
    each: Callable[[Result], None] | None = None,
    description: str | None = None,
) -> list[Result]:
    """Return ``[function(item) for item in items]``, computed by several processes or machines.

    The first items are computed here and timed; workers are asked only when what is left is worth
    it. Linear algebra runs on the same number of threads everywhere, so the results are the same
    bits wherever they are computed, given a function of its item (and generator) alone. A batch
    whose worker is lost is computed again, and each result is taken once.

    Args:
        function: any callable of one item, a lambda or closure included; of an item and a
            generator where a seed is given.
        items: the inputs, which ``function`` leaves as they are: workers may share them.
        workers: number of processes; None for one per core, 1 for none besides this one. A
            cluster that was there before uses all of its workers.
        engine: ``"local"``, ``"dask://HOST:PORT"`` (a scheduler) or ``"ray://HOST:PORT"`` (a Ray
            client server, 10001 by default); ``"dask://local"`` and ``"ray://local"`` start one
            here. None reads ``TACIT_ENGINE``, else ``"local"``. Workers of a cluster need the
            same Python and the same Tacit, NumPy and SciPy.
        seed: an integer >= 0 or a seed sequence, from which every item has a generator of its own.
        threads: of linear algebra and PyTorch for one item, wherever it is computed.
        each: is called here with each result, in the order of the items, as soon as it is known.
        description: label of the progress shown on stderr; None shows none.

    Returns:
        The results, in the order of the items.

    Raises:
        ValueError: ``function``, ``items``, ``workers``, ``engine``, ``seed``, ``threads`` or
            ``each`` is not as above.
        EngineError: nothing answers at the address, or a batch has lost four workers.
        Exception: whatever ``function`` raises; a ``RuntimeError`` of the same words where what a
            worker raised cannot be pickled.

    Example:
        >>> parallel_map(lambda x: x * x, range(4), workers=1)
        [0, 1, 4, 9]
        >>> parallel_map(lambda x, rng: x + int(rng.integers(1)), range(3), seed=0)
        [0, 1, 2]
    """
    if not callable(function):
        raise ValueError(f"function: expected a callable, got {type(function).__name__}")
    if not isinstance(items, Iterable):
        raise ValueError(f"items: expected items one by one, got {type(items).__name__}")
    count = available_workers() if workers is None else integer("workers", workers, minimum=1)
    wide = integer("threads", threads, minimum=1)
    if each is not None and not callable(each):
        raise ValueError(f"each: expected a callable, got {type(each).__name__}")
    place = Engine.parse(engine)
    inputs: list[Any] = list(items)
    if seed is not None:
        function, inputs = (
            _Seeded(function),
            list(zip(inputs, _seeds(seed, len(inputs)), strict=True)),
        )
    # one core here says nothing about a cluster
    alone = workers == 1 or (count == 1 and not place.elsewhere)
    task, results = Task(function, wide), list[Result]()
    shown = description is not None
    with progress_bar(len(inputs), description or "", shown=shown) as advance:

        def keep(found: Sequence[Result]) -> None:
            for result in found:
                results.append(result)
                advance(1)
                if each is not None:
                    each(result)

        with limited(wide):
            for result in _serial_start(function, inputs, alone=alone):
                keep([result])
        for batch in _batched_results(task, inputs[len(results) :], place, count):
            keep(batch)
    return results


def _serial_start(
    function: Callable[[Item], Result], inputs: Sequence[Item], *, alone: bool
) -> Iterator[Result]:
    """Compute items here until all are done, or until the rest is worth starting workers for."""
    start = time.perf_counter()
    for done, item in enumerate(inputs, start=1):
        yield function(item)
        elapsed = time.perf_counter() - start
        left = elapsed / done * (len(inputs) - done)
        if not alone and elapsed > 0.05 and left > WORTH_STARTING_WORKERS_SECONDS:
            return


def _batched_results(
    task: Task, inputs: Sequence[Any], engine: Engine, workers: int
) -> Iterator[list[Any]]:
    """Yield the results of consecutive batches, in order, each once; reconnect where needed."""
    done = losses = 0
    while done < len(inputs):
        try:
            with engine.connect(workers) as place:
                rest = inputs[done:]
                size = max(1, -(-len(rest) // (place.workers * BATCHES_PER_WORKER)))
                batches = [rest[start : start + size] for start in range(0, len(rest), size)]
                for result in place.results(task, batches):
                    done, losses = done + len(result), 0
                    yield result
        except DisconnectedError as error:
            losses += 1
            if losses > LOSSES_ALLOWED:
                raise EngineError(
                    f"engine: the connection to {engine.text} broke {losses} times in a row"
                ) from error


@dataclass(frozen=True)
class _Seeded:
    """A function of an item and a generator, as a function of an item and its own seed."""

    function: Callable[[Any, np.random.Generator], Any]

    def __call__(self, task: tuple[Any, np.random.SeedSequence]) -> Any:
        item, seed = task
        return self.function(item, np.random.default_rng(seed))


def _seeds(seed: int | np.random.SeedSequence, count: int) -> list[np.random.SeedSequence]:
    """Return the children of a seed; unlike ``spawn``, the same ones every time."""
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(integer("seed", seed, minimum=0, maximum=None))
    entropy, key, size = seed.entropy, seed.spawn_key, seed.pool_size
    return [
        np.random.SeedSequence(entropy, spawn_key=(*key, number), pool_size=size)
        for number in range(count)
    ]
