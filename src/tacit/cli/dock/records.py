"""``tacit dock admit``: what an operator decides about a record."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.console import consoles, line
from tacit.cli.dock.place import FOLDER, Database, Folder, open_store


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
