"""What a worker of another machine does with a batch, and what it sends back."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

# other versions may give other bits
PINNED = ("tacit", "numpy", "scipy")


def _versions() -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in PINNED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


@dataclass(frozen=True)
class Packed:
    """A function by value, and the versions it has to meet."""

    content: bytes
    versions: dict[str, str]

    @classmethod
    def of(cls, function: Callable[[Any], Any]) -> Packed:
        """Pack a function, a lambda or closure included."""
        return cls(cloudpickle.dumps(function), _versions())


@dataclass(frozen=True)
class Failure:
    """An exception of the function, packed; or a sentence about the worker."""

    error: bytes = b""
    sentence: str | None = None


def compute_packed(packed: Packed, batch: Sequence[Any]) -> list[Any] | Failure:
    """Return the results of a batch, or why there are none; for Dask and Ray workers."""
    here = _versions()
    for name, wanted in packed.versions.items():
        if here[name] != wanted:
            return Failure(sentence=f"has {name} {here[name]}, expected {wanted} as here")
    # for good: threads of one worker would give each other's limit back
    threadpool_limits(limits=1)
    try:
        function = cloudpickle.loads(packed.content)
    except ImportError as error:
        return Failure(sentence=f"cannot import {error.name!r}, which the function needs")
    try:
        return [function(item) for item in batch]
    except Exception as error:
        return Failure(error=cloudpickle.dumps(sendable(error)))


def sendable(error: Exception) -> Exception:
    """Return an exception that survives the way back: itself, or one that says the same."""
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
