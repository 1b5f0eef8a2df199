"""``tacit verify``: have stored files checked by the checker that shares no code with Tacit."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer


def verify(
    files: Annotated[
        list[str], typer.Argument(help="Releases and accounts, as --json wrote them.")
    ],
    data: Annotated[
        str | None, typer.Option(help="The holder's file of data that digests name.")
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Check what stored files claim: exit status 0 all hold, 1 false or not shown, 2 refused.

    The same as `python -m tacit_check FILE…`, in a process of its own, of which nothing is Tacit's.
    """
    # a file of a name that starts with a dash is a file
    options = [*(["--json"] if machine else []), *([] if data is None else ["--data", data])]
    done = subprocess.run([sys.executable, "-m", "tacit_check", *options, "--", *files])
    raise typer.Exit(done.returncode)
