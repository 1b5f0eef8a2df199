"""A caller's own function that fails: one sentence, with the line of their code."""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import sys
import sysconfig
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

TACIT = str(Path(__file__).parents[1])
LIBRARIES = tuple(
    sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)


# What is redirected is the process's own: one call at a time.
_SILENT = threading.RLock()
# Standard output and standard error.
DESCRIPTORS = (1, 2)


class QueryError(Exception):
    """A query named as ``module:function`` raised an exception, or its module did.

    Its text names the exception and the deepest line of the caller's own code. ``detail`` is what
    the exception said, which may quote the table.

    Example:
        >>> str(QueryError("query: mine:middle raised KeyError in middle (mine.py:7)", "'ann'"))
        'query: mine:middle raised KeyError in middle (mine.py:7)'
    """

    def __init__(self, sentence: str, detail: str) -> None:
        super().__init__(sentence, detail)
        self.detail = detail

    def __str__(self) -> str:
        """Return the sentence alone."""
        return str(self.args[0])


class QueryWarning(UserWarning):
    """A query named as ``module:function`` warned of something; what it said may quote the table.

    Example:
        >>> str(QueryWarning("query: mine:middle warned (RuntimeWarning, mine.py:7)"))
        'query: mine:middle warned (RuntimeWarning, mine.py:7)'
    """


@contextmanager
def silence() -> Iterator[None]:
    """Let nothing through of what code prints, logs or warns of, whatever it is written in.

    Descriptors 1 and 2 lead nowhere meanwhile, for C code and for processes that are started too;
    what other threads print meanwhile is lost. One call at a time.
    """
    # the command knows this module's errors without numbers
    import numpy as np

    before = logging.root.manager.disable
    with (
        _SILENT,
        _closed_descriptors(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        logging.disable(sys.maxsize)
        try:
            yield
        finally:
            logging.disable(before)


@contextmanager
def _closed_descriptors() -> Iterator[None]:
    """Lead descriptors 1 and 2 to nothing, and back whatever happens; a closed one is closed."""
    _flush()
    opened = [number for number in DESCRIPTORS if _is_open(number)]
    # it may be the number of one that is closed
    nowhere = os.open(os.devnull, os.O_WRONLY)
    others = [number for number in DESCRIPTORS if number not in opened and number != nowhere]
    for number in others:
        os.dup2(nowhere, number)
    kept = [os.dup(number) for number in opened]
    try:
        for number in opened:
            os.dup2(nowhere, number)
        yield
    finally:
        # what is still in a buffer was written meanwhile, and goes where the rest went
        _flush()
        for number, own in zip(opened, kept, strict=True):
            os.dup2(own, number)
        for number in (*kept, *others, nowhere):
            os.close(number)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _flush() -> None:
    """Write out what Python and the C library hold back."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # closed, absent, or a caller's own
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def warning_words(found: warnings.WarningMessage) -> str:
    """Return the kind of a warning, and the line where it is of the caller's own code."""
    own = not found.filename.startswith((TACIT, *LIBRARIES))
    line = f", {_short_path(found.filename)}:{found.lineno}" if own else ""
    return f"{found.category.__name__}{line}"


def query_error(description: str, error: BaseException, circumstances: str = "") -> QueryError:
    """Return the error that stands for an exception of the caller's own code.

    Args:
        description: of the query.
        error: what it raised.
        circumstances: on what, in a few words.
    """
    sentence = f"query: {description} raised {type(error).__name__}{_own_line(error)}"
    return QueryError(sentence + circumstances, str(error))


def _own_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" ({_short_path(error.filename)}:{error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.isfile(frame.filename) and not frame.filename.startswith(TACIT)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    if not (own or frames):
        return ""
    frame = (own or frames)[-1]
    function = "" if frame.name == "<module>" else f" in {frame.name}"
    return f"{function} ({_short_path(frame.filename)}:{frame.lineno})"


def _short_path(path: str) -> str:
    near = os.path.relpath(path)
    return path if near.startswith(os.pardir) else near
