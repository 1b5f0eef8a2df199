"""Folder and database of a dock know each other: two of different docks are refused."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import sqlalchemy as sa

from tacit._ground.files import write_bytes_atomic
from tacit_dock.blobs import Blobs
from tacit_dock.database import Database
from tacit_dock.tables import learnware_table, meta_table

NAME = "dock.id"
KEY = "identity"
IDENTITY = re.compile(r"[0-9a-f]{32}")


def check_pair(blobs: Blobs, database: Database) -> None:
    """Refuse a folder and a database of two docks; give a new pair, or one without, an identity.

    A database without records goes with a folder without contents, and a pair of an older version,
    which has no identity, with itself.

    Raises:
        ValueError: they are of two docks, or one has records or contents and the other is new.
    """
    path = blobs.folder.parent / NAME
    there = _of_folder(path)
    with database.writing() as (connection, _):
        here = identity_of(connection)
        if there is not None and there == here:
            return
        filled = next(blobs.digests(), None) is not None
        records = connection.execute(sa.select(learnware_table.c.number).limit(1)).first()
        if here is not None and there is not None:
            raise ValueError(
                f"database: {database.label} is of another dock than the folder {path.parent}"
            )
        if here is None and filled and records is None:
            raise ValueError(
                f"database: {database.label} has no records, and the folder {path.parent} holds "
                "contents of a dock: name the database of that dock, or an empty folder"
            )
        if here is not None and not filled and records is not None:
            raise ValueError(
                f"folder: {path.parent} is empty, and {database.label} is of a dock with records: "
                "give the folder that it has"
            )
        if here is not None and there is None and filled:
            raise ValueError(
                f"folder: {path.parent} holds contents without {NAME}, and {database.label} is of "
                "a dock whose folder has one: restore that file, or give the folder that it has"
            )
        if here is None and there is not None and records is not None:
            raise ValueError(
                f"folder: {path.parent} is of another dock than the database {database.label}"
            )
        name = here or there or secrets.token_hex(16)
        if here is None:
            connection.execute(meta_table.insert().values(key=KEY, value=name))
        if there is None:
            write_bytes_atomic("folder", path, f"{name}\n".encode(), mode=0o600)


def _of_folder(path: Path) -> str | None:
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError):
        text = ""
    if not IDENTITY.fullmatch(text):
        raise ValueError(f"folder: expected the identity of a dock in {path}, got something else")
    return text


def identity_of(connection: sa.Connection) -> str | None:
    """Return the name of the dock whose records a database holds, None where it has none."""
    query = sa.select(meta_table.c.value).where(meta_table.c.key == KEY)
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else str(found)
