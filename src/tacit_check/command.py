"""Check files, each within a limit of time and memory that the checker sets itself."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from tacit_check import VERSION

MISSING = "tacit_check needs python-flint: pip install 'tacit-privacy[check]'"

SECONDS, MEGABYTES = 60, 256
HELD, WORSE, REFUSED = 0, 1, 2
# What a shell gives a program whose reader went away.
CLOSED = 141


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
    parser = argparse.ArgumentParser(
        prog="tacit_check",
        description="Check what stored releases and accounts claim, sharing no code with what "
        "made them. Exit status: 0 all hold, 1 false or not shown, 2 refused.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--data", help="the holder's file of data that digests name")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.add_argument("--version", action="version", version=f"tacit_check {VERSION}")
    chosen = parser.parse_args(arguments)
    if importlib.util.find_spec("flint") is None:
        print(MISSING, file=sys.stderr)
        return REFUSED
    # once, before a process of its own for every file
    importlib.import_module("tacit_check.claims")
    worst = HELD
    for path in chosen.files:
        worst = max(worst, tell(path, within(path, chosen.data), sys.stdout, plain=chosen.json))
    return worst


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
        os.close(reader)
        try:
            limit()
            answer = found(path, data)
        except MemoryError:
            answer = refusal(f"needs more than {MEGABYTES} MB")
        except BaseException as error:
            answer = refusal(f"cannot be checked ({type(error).__name__})")
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        content = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) or not content:
        late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        what = f"{SECONDS} s" if late else f"{MEGABYTES} MB"
        return refusal(f"needs more than {what}")
    answer = json.loads(content)
    assert isinstance(answer, dict)
    return answer


def limit() -> None:
    """Set limits of clock and memory on this process; what exceeds them ends it."""
    import resource

    # a core of a checker that was ended would only hold what the file said
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    size = MEGABYTES << 20
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or size < hard:
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
    from tacit_check.reading import read

    try:
        proof = read(path)
        result = check(proof, {} if data is None else measure(data))
    except RefusedFileError as error:
        return refusal(str(error))
    return {"word": result.word, "why": "", "holds": result.holds, **asdict(result)}


def refusal(why: str) -> dict[str, Any]:
    """Return what is said of a file that is refused."""
    nothing = dict.fromkeys(("verdicts", "given", "theorems", "notes"), ())
    return {"word": "refused", "why": why, "holds": False, **nothing}


def tell(path: str, answer: dict[str, Any], stream: TextIO, *, plain: bool = False) -> int:
    """Say what was found of a file; return its exit status."""
    status = REFUSED if answer["word"] == "refused" else HELD if answer["holds"] else WORSE
    if plain:
        print(json.dumps({"file": path, "checker": VERSION, **answer}), file=stream)
        return status
    if status == REFUSED:
        print(f"{path}: refused: {answer['why']}", file=stream)
        return status
    print(f"{path}: {answer['word']}", file=stream)
    for one in answer["verdicts"]:
        print(f"  {one['verdict']}: {one['claim']}{_numbers(one)}", file=stream)
    for heading, lines in (
        ("taken as given", answer["given"]),
        ("holds", answer["notes"]),
        ("theorems", answer["theorems"]),
    ):
        if lines:
            print(f"  {heading}:", file=stream)
            for line in lines:
                print(f"    {line}", file=stream)
    print(f"  checked by tacit_check {VERSION}: {answer['word']}", file=stream)
    return status


def _numbers(one: dict[str, Any]) -> str:
    if one["why"]:
        return f" ({one['why']})"
    ends = [f"at most {one['upper']}"] if one["upper"] else []
    ends += [f"at least {one['lower']}"] if one["lower"] else []
    return f" (the mechanism: {', '.join(ends)})" if ends else ""


def exit_main() -> None:
    """Run `main` and exit with its status: the entry of the file that an auditor copies."""
    raise SystemExit(main())
