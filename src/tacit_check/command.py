"""Check files, each within a limit of time and memory that the checker sets itself."""

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tacit_check import VERSION

SECONDS, MEGABYTES = 60, 256
USAGE = "Check what files claim. Exit status: 0 all hold, 1 false or not shown, 2 refused."
# Exit statuses; the last is what a shell gives a program whose reader went away.
HELD, WORSE, REFUSED, CLOSED = 0, 1, 2, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the files of a command line and say what was found.

    Returns:
        0 where every file holds, 1 where a claim is false or not shown or nothing was checkable,
        2 where a file is refused, 141 where whoever reads the output closed it.
    """
    try:
        status = each(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still to be written goes nowhere, or the interpreter would say so at its end
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return CLOSED
    return status


def each(arguments: Sequence[str] | None = None) -> int:
    """Check the files of a command line one by one; return the worst exit status."""
    parser = argparse.ArgumentParser(prog="tacit_check", description=USAGE)
    # of a terminal that knows no ε
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--data", help="the holder's data, which files name by digest")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.add_argument("--version", action="version", version=f"tacit_check {VERSION}")
    chosen = parser.parse_args(arguments)
    if importlib.util.find_spec("flint") is None:
        print("tacit_check needs python-flint: pip install python-flint", file=sys.stderr)
        return REFUSED
    # once, before a process of its own for every file
    importlib.import_module("tacit_check.claims")
    return max(tell(path, within(path, chosen.data), plain=chosen.json) for path in chosen.files)


def within(path: str, data: str | None = None) -> dict[str, Any]:
    """Check one file in a process of its own, which dies before it takes too much.

    Returns:
        What `found` returns.
    """
    if not hasattr(os, "fork"):
        return found(path, data)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # the child: nothing of it reaches the caller but one line of JSON
        try:
            limit()
            told = found(path, data)
        except MemoryError:
            told = refusal(f"needs more than {MEGABYTES} MB")
        except BaseException as error:
            told = refusal(f"cannot be checked ({type(error).__name__})")
        with open(writer, "w", encoding="utf-8") as stream:
            json.dump(told, stream)
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as stream:
        content = stream.read()
    ended = os.WTERMSIG(os.waitpid(child, 0)[1])
    if content and not ended:
        return dict(json.loads(content))
    least = f"{SECONDS} s" if ended in (signal.SIGXCPU, signal.SIGKILL) else f"{MEGABYTES} MB"
    return refusal(f"needs more than {least}")


def limit() -> None:
    """Set limits of clock and memory on this process; what exceeds them ends it."""
    import resource

    # a core of a checker that was ended would only hold what the file said
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    size = MEGABYTES << 20
    # a lower limit stands
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    # FLINT says that it has no memory, on either stream, and ends the process
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def found(path: str, data: str | None = None) -> dict[str, Any]:
    """Check one file in this process.

    Returns:
        ``word`` (the verdict of all, or ``"refused"``), ``why``, and what was found of each claim.
    """
    from tacit_check.balls import RefusedFileError
    from tacit_check.claims import check
    from tacit_check.data import measure
    from tacit_check.reading import contents, parse

    # of which file a refusal speaks
    where = "--data: "
    try:
        measured = None if data is None else measure(data)
        where = ""
        result = check(parse(contents(path)), measured)
    except RefusedFileError as error:
        return refusal(where + str(error))
    return {"word": result.word, "why": "", "holds": result.word == "holds", **asdict(result)}


def refusal(why: str) -> dict[str, Any]:
    """Return what is said of a file that is refused."""
    nothing = dict.fromkeys(("verdicts", "given", "theorems", "notes"), ())
    return {"word": "refused", "why": why, "holds": False, **nothing}


def tell(path: str, answer: dict[str, Any], *, plain: bool = False) -> int:
    """Say what was found of a file; return its exit status."""
    status = REFUSED if answer["word"] == "refused" else HELD if answer["holds"] else WORSE
    # the name of a file says nothing but itself
    file = path if path.isprintable() else ascii(path)
    if plain or status == REFUSED:
        told = json.dumps({"file": path, "checker": VERSION, **answer})
        print(told if plain else f"{file}: refused: {answer['why']}")
        return status
    lines = [f"{file}: {answer['word']}"]
    lines += [f"  {one['verdict']}: {one['claim']}{_numbers(one)}" for one in answer["verdicts"]]
    for heading, name in (("taken as given", "given"), ("holds", "notes"), ("theorems",) * 2):
        lines += [f"  {heading}:"] * bool(answer[name]) + [f"    {one}" for one in answer[name]]
    print(*lines, f"  checked by tacit_check {VERSION}: {answer['word']}", sep="\n")
    return status


def _numbers(one: dict[str, Any]) -> str:
    if one["why"]:
        return f" ({one['why']})"
    said = (("at most", one["upper"]), ("at least", one["lower"]))
    ends = ", ".join(f"{side} {number}" for side, number in said if number)
    return f" (the mechanism: {ends})" if ends else ""
