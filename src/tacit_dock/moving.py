"""A dock's records in another database, and the old one closed for good."""

from __future__ import annotations

import os

import sqlalchemy as sa

from tacit_dock.blobs import Blobs
from tacit_dock.database import CHANGE, Database
from tacit_dock.deeds import OPERATOR, note
from tacit_dock.identity import check_pair, identity_of
from tacit_dock.tables import MOVED, learnware_table, meta_table, metadata
from tacit_dock.upgrading import fill_in

BATCH = 500


def move_records(
    folder: str | os.PathLike[str], source: str | os.PathLike[str], target: str
) -> tuple[str, int]:
    """Copy every record of a dock to an empty database, and have the old one refuse from then on.

    Nothing can be written meanwhile: servers wait, and find the old database closed afterwards. The
    copy is whole or not there, and the old database is closed only when the copy is on the disk.

    Args:
        folder: of the contents, which stay where they are.
        source: path or URL of the database that is left.
        target: path or URL of one that holds no records.

    Returns:
        What the target is called, and how many learnwares are in it.

    Raises:
        ValueError: the source is not the folder's, or the target holds records or does not answer.
    """
    held = Database(source, create=False, fill_in=fill_in)
    other = Database(target)
    try:
        if other.url == held.url:
            raise ValueError(f"to: expected another database than {held.label}")
        check_pair(Blobs(folder), held)
        with held.writing() as (old, _):
            with other.alone() as new:
                count = _copied(old, new, other)
                note(new, OPERATOR, "move", detail=f"from {held.label}")
            # without the number of a change no server writes or searches any more
            old.execute(sa.delete(meta_table).where(meta_table.c.key == CHANGE))
            schema = sa.update(meta_table).where(meta_table.c.key == "schema")
            old.execute(schema.values(value=f"{MOVED}{other.label}"))
    except BaseException:
        if other.is_new:
            other.discard()
        raise
    finally:
        held.close()
        other.close()
    return other.label, count


def _copied(old: sa.Connection, new: sa.Connection, other: Database) -> int:
    """Copy every row of every table; return how many learnwares there are."""
    records = new.execute(sa.select(learnware_table.c.number).limit(1)).first()
    if records is not None or identity_of(new) is not None:
        raise ValueError(f"to: expected a database that holds no dock yet, got {other.label}")
    for table in reversed(metadata.sorted_tables):
        new.execute(sa.delete(table))
    for table in metadata.sorted_tables:
        every = sa.select(table).execution_options(stream_results=True)
        for part in old.execute(every).mappings().partitions(BATCH):
            new.execute(table.insert(), [dict(row) for row in part])
        if not other.is_sqlite and "number" in table.c:
            # the next number is after the last of those that were given
            last = sa.select(sa.func.max(table.c.number)).scalar_subquery()
            sequence = sa.func.pg_get_serial_sequence(table.name, "number")
            new.execute(sa.select(sa.func.setval(sequence, sa.func.coalesce(last, 1))))
    counted = sa.select(sa.func.count()).select_from(learnware_table)
    return int(new.execute(counted).scalar_one())
