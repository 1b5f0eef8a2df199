"""What a worker of another machine does with a batch, and what it sends back."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

# other versions may give other bits, of PyTorch where it is in use
PINNED = ("tacit", "numpy", "scipy")
PINNED_IN_USE = ("torch", "transformers")


def _versions(names: Iterable[str]) -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Compute linear algebra on so many threads, and afterwards on as many as before."""
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    try:
        with threadpool_limits(limits=threads):
            if torch is not None:
                torch.set_num_threads(threads)
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class Task:
    """What a worker does with a batch: a function of every item, on so many threads."""

    function: Callable[[Any], Any]
    threads: int

    def __call__(self, batch: Sequence[Any]) -> list[Any]:
        """Return the results of a batch, on the threads asked for."""
        # for good: threads of one worker would give each other's limit back
        threadpool_limits(limits=self.threads)
        # a new thread of PyTorch starts with as many as the process was given
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(self.threads)
        return [self.function(item) for item in batch]


@dataclass(frozen=True)
class Packed:
    """A task by value, and the versions it has to meet."""

    content: bytes
    versions: dict[str, str]

    @classmethod
    def of(cls, task: Task) -> Packed:
        """Pack a task whose function may be a lambda or closure."""
        in_use = (name for name in PINNED_IN_USE if name in sys.modules)
        return cls(cloudpickle.dumps(task), _versions((*PINNED, *in_use)))


@dataclass(frozen=True)
class Failure:
    """An exception of the function, packed; or a sentence about the worker."""

    error: bytes = b""
    sentence: str | None = None


def compute_packed(packed: Packed, batch: Sequence[Any]) -> list[Any] | Failure:
    """Return the results of a batch, or why there are none; for Dask and Ray workers.

    A pickle runs code: a worker is there to run what its cluster's users send it.
    """
    here = _versions(name for name in packed.versions if name != "python")
    for name, wanted in packed.versions.items():
        if here[name] != wanted:
            return Failure(sentence=f"has {name} {here[name]}, expected {wanted} as here")
    try:
        task: Task = cloudpickle.loads(packed.content)
    except ImportError as error:
        return Failure(sentence=f"cannot import {error.name!r}, which the function needs")
    try:
        return task(batch)
    except Exception as error:
        return Failure(error=cloudpickle.dumps(sendable(error)))


def sendable(error: Exception) -> Exception:
    """Return an exception that survives the way back: itself, or one that says the same."""
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
