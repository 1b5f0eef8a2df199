"""``tacit verify``: have stored files checked by the checker that shares no code with Tacit."""

from __future__ import annotations

import json as json_text
import subprocess
import sys
from typing import Annotated

import typer

from tacit.cli.options import Force, Json
from tacit.cli.output import json_output


def verify(
    files: Annotated[
        list[str], typer.Argument(help="Releases and accounts, as --json wrote them.")
    ],
    data: Annotated[
        str | None, typer.Option(help="The holder's file of data that digests name.")
    ] = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Check what stored files claim: exit status 0 all hold, 1 false or not shown, 2 refused.

    The same as `python -m tacit_check FILE…`, in a process of its own, of which nothing is Tacit's.
    """
    read = {f"FILE {place}": path for place, path in enumerate(dict.fromkeys(files), 1)}
    output = json_output(json, force, {"--data": data, **read})
    options = [*([] if json is None else ["--json"]), *([] if data is None else ["--data", data])]
    # a file of a name that starts with a dash is a file
    command = [sys.executable, "-m", "tacit_check", *options, "--", *files]
    done = subprocess.run(command, stdout=None if json is None else subprocess.PIPE)
    if json is not None:
        # the checker prints one object a line
        output.write([json_text.loads(line) for line in (done.stdout or b"").splitlines()])
        output.tell()
    raise typer.Exit(done.returncode)
