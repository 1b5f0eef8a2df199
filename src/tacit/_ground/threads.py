"""How many threads linear algebra uses while a small problem is solved."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which the BLAS libraries loaded so far run on one thread.

    NumPy and SciPy ship a BLAS each; with threads, the workers of one spin while the other works,
    which costs small and middling problems several times their own time.
    """
    return _controller().limit(limits=1)  # type: ignore[no-any-return]


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
