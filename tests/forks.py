"""Work in a process forked from this one: one that dies, or leaves, without imports of its own."""

from __future__ import annotations

import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tacit.__main__ import main
from tests.cli_runner import Outcome

# Seconds that a child may take.
LONGEST = 300.0


def forked(
    work: Callable[[], object], *, cwd: Path | None = None, stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run work in a process of its own, which ends with it.

    Args:
        work: what leaves by itself, is killed, or returns.
        cwd: where it runs.
        stdout: a descriptor that takes what it prints, instead of the answer.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            # threads of the runner of tests hold nothing that a child takes
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _leave(work, cwd, out.fileno() if stdout is None else stdout, err.fileno())
        # a child that waits for what only a thread of this process would do ends the test alone
        watch = threading.Timer(LONGEST, os.kill, (child, signal.SIGABRT))
        watch.start()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        watch.cancel()
        for stream in (out, err):
            stream.seek(0)
        told = [stream.read().decode() for stream in (out, err)]
    return subprocess.CompletedProcess([], code, *told)


def forked_tacit(
    *arguments: object, cwd: Path | None = None, before: Callable[[], object] | None = None
) -> Outcome:
    """Run the command in a forked process, after what is done there before."""

    def work() -> None:
        if before is not None:
            before()
        command(*arguments)

    done = forked(work, cwd=cwd)
    return Outcome(done.returncode, done.stdout, done.stderr)


def command(*arguments: object) -> None:
    """Be the command, as its process is."""
    sys.argv = ["tacit", *map(str, arguments)]
    main()


def die(*_: object, **__: object) -> None:
    """End this process as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying_at(place: str) -> Callable[[], None]:
    """Return what puts death in the place of a function of this dotted name."""
    owner, _, name = place.rpartition(".")
    return lambda: setattr(pkgutil.resolve_name(owner), name, die)


def _leave(work: Callable[[], object], cwd: Path | None, out: int, err: int) -> NoReturn:
    code = 1
    # what a new process leaves unsaid
    warnings.resetwarnings()
    for unsaid in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", unsaid)
    try:
        for place, name, taken in ((1, "stdout", out), (2, "stderr", err)):
            os.dup2(taken, place)
            setattr(sys, name, open(place, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        if torch := sys.modules.get("torch"):
            # threads of a pool are not in a child, which would wait for them without end
            torch.set_num_threads(1)
        if cwd is not None:
            os.chdir(cwd)
            sys.path.insert(0, "")
        try:
            work()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        # what the interpreter does at its end
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)
