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
    from pathlib import Path

    from tacit_dock import DockStore

    if not create and not Path(folder).is_dir():
        raise ValueError(f"--folder: no such folder: {folder}")
    return DockStore(folder, database, create=create)
