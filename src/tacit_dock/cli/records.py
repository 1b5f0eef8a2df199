"""``tacit dock admit | log``: what an operator decides about a record, and sees of all."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import consoles, line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output
from tacit_dock.cli.place import FOLDER, Database, Folder, open_store


def admit(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="Of the learnware.")],
    *,
    folder: Folder = FOLDER,
    database: Database = None,
) -> None:
    """List a learnware that is in quarantine: searches find it from now on."""
    with open_store(folder, database, create=False) as store:
        found = store.admit(identifier)
    line(consoles(False), "listed", f"{found.id} {found.title}")


def log(
    *,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    json: Json = None,
    force: Force = False,
    folder: Folder = FOLDER,
    database: Database = None,
) -> None:
    """List who changed what and when, the newest first; no token stands there."""
    output = json_output(json, force)
    with open_store(folder, database, create=False) as store:
        deeds = store.deeds(limit)
    for held in deeds:
        what = f"{held.what:<9} {held.learnware or held.detail}"
        output.console.print(Text(f"{held.time[:19]}  {held.who:<24}  {what}"))
    output.write({"deeds": [vars(held) for held in deeds]})
    output.tell()
