"""A full disk: said as such, and a reserve by which what frees it can still be done."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tacit_dock.errors import RefusedError, UnavailableError

NAME = "reserve"
AGAIN_SECONDS = 600
EDGE = 4096
FULL = (errno.ENOSPC, errno.EDQUOT)
# SQLITE_FULL, and SQLITE_IOERR_SHMSIZE where the index of its log cannot grow.
SQLITE_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
POSTGRES_FULL = "53100"


class FullError(RefusedError):
    """There is no room: nothing was changed, and a withdrawal is still done."""

    def __init__(self) -> None:
        super().__init__(
            507, "the dock's disk is full: nothing was kept", retry_after=AGAIN_SECONDS
        )


@contextmanager
def told_of_disk() -> Iterator[None]:
    """Turn the system's words for a disk that does not take or give into the dock's.

    Raises:
        FullError: the disk is full.
        UnavailableError: it is gone, fails or is read-only.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise FullError from None
        raise UnavailableError(f"folder: {error.strerror}") from error


def is_full(error: BaseException | None) -> bool:
    """Whether a database's error says that its disk is full."""
    code = getattr(error, "sqlite_errorcode", None)
    return code in SQLITE_FULL or getattr(error, "sqlstate", None) == POSTGRES_FULL


class Reserve:
    """A file that takes room until room is needed.

    Args:
        folder: of the dock.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def fill(self, size: int) -> bool:
        """Take room where there is some; return whether it is taken."""
        held = self._held()
        if held is None or held >= size:
            return held is not None
        partial = self._path.with_suffix(".partial")
        try:
            descriptor = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
            finally:
                os.close(descriptor)
            os.replace(partial, self._path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            return False
        return True

    def give(self) -> bool:
        """Give the room back; return whether there was any."""
        if not self._held():
            return False
        self._path.unlink()
        return True

    def _held(self) -> int | None:
        """Return how much room is taken; None where the file is not of zeros, and nobody's here."""
        try:
            with open(self._path, "rb") as stream:
                start = stream.read(EDGE)
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - EDGE))
                return None if (start + stream.read()).strip(b"\0") else size
        except FileNotFoundError:
            return 0
