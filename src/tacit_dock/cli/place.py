"""Where a dock is, on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tacit_dock import DockStore

FOLDER = "dock"
Folder = Annotated[str, typer.Option(help="Folder of the contents.")]
Database = Annotated[
    str | None,
    typer.Option(help="SQLite file or PostgreSQL URL; dock.sqlite in the folder if left out."),
]


def open_store(folder: str, database: str | None, *, create: bool) -> DockStore:
    """Return the store of a dock."""
    from tacit_dock import DockStore

    if not create:
        database_of(folder, database)
    return DockStore(folder, database, create=create)


def database_of(folder: str, database: str | None) -> str:
    """Return where the database of a dock is that is there already."""
    from pathlib import Path

    from tacit_dock.store import DATABASE

    if not Path(folder).is_dir():
        raise ValueError(f"--folder: no such folder: {folder}")
    return str(Path(folder, DATABASE)) if database is None else database
