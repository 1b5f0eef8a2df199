"""``tacit dock admit | log | move``: what an operator decides about records, and sees of all."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import consoles, line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output
from tacit_dock.cli.place import FOLDER, Database, Folder, database_of, open_store


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
    """List who changed what and when, the newest first; tokens are not shown."""
    output = json_output(json, force)
    with open_store(folder, database, create=False) as store:
        deeds = store.deeds(limit)
    for held in deeds:
        what = f"{held.what:<9} {held.learnware or held.detail}"
        output.console.print(Text(f"{held.time[:19]}  {held.who:<24}  {what}"))
    output.write({"deeds": [vars(held) for held in deeds]})
    output.tell()


def move(
    to: Annotated[str, typer.Argument(help="PostgreSQL URL or SQLite file without a dock.")],
    *,
    folder: Folder = FOLDER,
    database: Database = None,
) -> None:
    """Copy all records to another database and close the old one; contents stay where they are."""
    from tacit_dock import move_records

    label, count = move_records(folder, database_of(folder, database), to)
    console = consoles(False)
    line(console, "moved", f"{count} learnwares and all beside them to {label}")
    line(console, "next", f"tacit dock serve --folder {folder} --database {label}")
