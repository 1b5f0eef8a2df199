"""Apply a function to many items on this machine, in order, whatever the number of workers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import joblib
from threadpoolctl import threadpool_limits

from tacit._ground.checks import integer

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


def parallel_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int | None = None,
    description: str | None = None,
    progress: bool | None = None,
) -> list[Result]:
    """Return ``[function(item) for item in items]``, computed by several processes.

    The first items are computed here and timed; worker processes are started only when what is
    left is worth it. Linear algebra runs on one thread everywhere, so the results are the same
    bits for every number of workers, given a function of its item alone.

    Args:
        function: any callable of one item, a lambda or closure included.
        items: the inputs.
        workers: number of processes; None for one per core, 1 for none besides this one.
        description: label of the progress bar.
        progress: True or None shows a bar with the remaining time on stderr, when stderr is a
            terminal and (for None) a description is given; False never shows one.

    Returns:
        The results, in the order of the items.

    Raises:
        ValueError: ``workers`` is not an integer >= 1.
        Exception: whatever ``function`` raises, unchanged.

    Example:
        >>> parallel_map(lambda x: x * x, range(4), workers=1)
        [0, 1, 4, 9]
    """
    count = available_workers() if workers is None else integer("workers", workers, minimum=1)
    inputs = list(items)
    shown = progress is True or (progress is None and description is not None)
    results: list[Result] = []
    with progress_bar(len(inputs), description or "working", shown=shown) as advance:
        with threadpool_limits(limits=1):
            results += _serial_start(function, inputs, advance, alone=count == 1)
        remaining = inputs[len(results) :]
        for batch in _batched_results(function, remaining, count):
            results += batch
            advance(len(batch))
    return results


def _serial_start(
    function: Callable[[Item], Result],
    inputs: Sequence[Item],
    advance: Callable[[int], None],
    *,
    alone: bool,
) -> list[Result]:
    """Compute items here until all are done, or until the rest is worth starting workers for."""
    results: list[Result] = []
    start = time.perf_counter()
    for item in inputs:
        results.append(function(item))
        advance(1)
        if alone:
            continue
        elapsed = time.perf_counter() - start
        left = elapsed / len(results) * (len(inputs) - len(results))
        if elapsed > 0.05 and left > WORTH_STARTING_WORKERS_SECONDS:
            break
    return results


def _batched_results(
    function: Callable[[Item], Result], inputs: Sequence[Item], workers: int
) -> Iterator[list[Result]]:
    """Yield the results of consecutive batches, in order, from worker processes."""
    if not inputs:
        return
    size = max(1, -(-len(inputs) // (workers * BATCHES_PER_WORKER)))
    batches = [inputs[start : start + size] for start in range(0, len(inputs), size)]
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        run = joblib.Parallel(n_jobs=workers, return_as="generator")
        yield from run(joblib.delayed(_apply)(function, batch) for batch in batches)


def _apply(function: Callable[[Any], Any], batch: Sequence[Any]) -> list[Any]:
    return [function(item) for item in batch]


def progress_bar(
    total: int, description: str, *, shown: bool
) -> AbstractContextManager[Callable[[int], None]]:
    """Return a context whose value advances a bar on stderr, if that is a terminal."""
    if not shown or total == 0 or not sys.stderr.isatty():
        return nullcontext(lambda _: None)
    return _TerminalBar(total, description)


class _TerminalBar(AbstractContextManager[Callable[[int], None]]):
    """A bar on stderr whose remaining time is estimated from the items already done."""

    def __init__(self, total: int, description: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(description, total=total)

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        return self._advance

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def _advance(self, count: int) -> None:
        self._progress.advance(self._task, count)
