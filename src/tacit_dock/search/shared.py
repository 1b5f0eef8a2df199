"""A lock that many readers hold together and a writer alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """Many read at a time; who writes waits for them, and they wait for who writes.

    Example:
        >>> lock = SharedLock()
        >>> with lock.reading():
        ...     pass
        >>> with lock.writing():
        ...     pass
    """

    def __init__(self) -> None:
        self._readers = 0
        self._writer = threading.Lock()
        self._changed = threading.Condition()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock beside other readers."""
        with self._writer, self._changed:
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone: later readers wait, earlier ones are waited for."""
        with self._writer:
            with self._changed:
                self._changed.wait_for(lambda: not self._readers)
            yield
