"""The command that runs all checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import LABEL_WIDTH
from tacit.cli.doctor.finding import Finding
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output


def doctor(
    folder: Annotated[
        str, typer.Option(help="The folder in which releases and a ledger are to be kept.")
    ] = ".",
    json: Json = None,
    force: Force = False,
) -> None:
    """Check this installation: exit status 0 if all is well, 1 if something is broken.

    Packages and their files, random bits, floats, engines, a folder, bounds beside true values.
    """
    output = json_output(json, force, {"--folder": folder})
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"--folder: expected a folder, got {folder}, which is none")
    found = []
    for one in findings(place):
        found.append(one)
        mark = Text("well    " if one.well else "broken  ", "green" if one.well else "bold red")
        output.console.print(mark + Text(one.check.ljust(LABEL_WIDTH), "dim") + Text(one.sentence))
    well = all(one.well for one in found)
    output.write({"well": well, "findings": [asdict(one) for one in found]})
    output.tell()
    raise typer.Exit(0 if well else 1)


def findings(folder: Path) -> Iterator[Finding]:
    """Yield what every check finds; one that cannot be run is one that is not well."""
    from tacit.cli.doctor import checks, oracles

    steps = (checks.packages, checks.files, checks.entropy, checks.floats, checks.engines)
    for step in (*steps, lambda: checks.folder(folder), oracles.bounds):
        try:
            yield from step()
        except Exception as error:  # whatever is broken is the finding
            name = getattr(step, "__name__", "folder").strip("<>")
            yield Finding(name, False, f"cannot be checked ({type(error).__name__})")
