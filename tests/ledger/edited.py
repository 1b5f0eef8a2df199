"""A ledger's file that is copied and edited behind the library's back."""

import sqlite3
from contextlib import closing
from pathlib import Path


def copied(whole: Path, folder: Path) -> Path:
    """Return a copy of a ledger, for one test alone."""
    location = folder / "ledger.db"
    with closing(sqlite3.connect(whole)) as held, closing(sqlite3.connect(location)) as copy:
        held.backup(copy)
    return location


def edit(path: Path, *statements: str) -> None:
    """Run statements on the file of a ledger."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
