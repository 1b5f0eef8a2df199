"""``tacit show``: any stored release in ten lines."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output


def show(
    release: Annotated[
        str, typer.Argument(help="A release, as --json or --out wrote it: JSON, or a file of rows.")
    ],
    json: Json = None,
    force: Force = False,
) -> None:
    """Print any stored release in ten lines: what it is, what it guarantees, what attacks got.

    A file whose parts contradict each other is refused, as by the gate.
    """
    from tacit.gate.consistency import consistent_form
    from tacit.report.words import lines, verdict

    output = json_output(json, force, {"RELEASE": release})
    form = consistent_form(release, partial=True)
    conclusion = verdict(form)
    console = output.console
    style = "bold" if conclusion.kind == "bounded" else "bold red"
    console.print(Text(conclusion.sentence, style))
    for label, text in lines(form):
        line(console, label, text)
    output.write(form.to_dict())
    output.tell()
