"""``tacit show``: any stored release in ten lines."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.console import line, tell_title
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
    from tacit.pages.words import lines, verdict
    from tacit.releases.loading import read_checked
    from tacit.releases.verification import REMOVED, verify

    output = json_output(json, force, {"RELEASE": release})
    found = read_checked(release)
    console = output.console
    tell_title(console, verdict(found.release))
    for label, text in lines(found.release):
        line(console, label, text)
    checked = verify(found.release).sentence
    line(console, "checked", f"{checked}; {REMOVED}" if found.removed else checked)
    if found.unchecked:
        line(console, "claimed", f"not checked: {found.unchecked}")
    output.write(found.release.to_dict())
    output.tell()
