"""``tacit adapter show``: what an adapter in a folder guarantees, held against its weights."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output


def show(
    folder: Annotated[str, typer.Argument(help="Folder that `tacit adapter fit --save` wrote.")],
    json: Json = None,
    force: Force = False,
) -> None:
    """Print what an adapter guarantees, after holding its weights against the certificate's digest.

    The guarantee is worked out again from the settings; weights or numbers that disagree are
    refused.
    """
    from tacit.adapters import AdapterRelease, read_adapter
    from tacit.report.words import lines, verdict

    output = json_output(json, force, {"FOLDER": folder})
    release = AdapterRelease.from_dict(read_adapter(folder))
    conclusion = verdict(release.form)
    console = output.console
    console.print(Text(conclusion.sentence, "bold" if conclusion.success < 1.0 else "bold red"))
    for label, text in lines(release.form):
        line(console, label, text)
    for label, value in (
        ("method", f"{release.form.method}, {release.schedule.steps} steps"),
        ("layers", f"{len(release.layers)}: {', '.join(release.layers[:3])}…"),
        ("publish", "with A" if release.form.publishable else "neither A nor B nor BA"),
    ):
        line(console, label, value)
    output.write(release.to_dict())
    output.tell()
