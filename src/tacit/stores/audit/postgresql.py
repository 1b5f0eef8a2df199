"""Vectors in PostgreSQL, of pgvector or arrays, and the files that the server keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from tacit.databases import label_of, open_engine, parse_location, reason
from tacit.stores.audit.opened import SEALED, OpenedStore, StoredColumns, sealed_store, told

# of the engine and of drivers that are asked at once
FAULTS = (sa.exc.SQLAlchemyError, OSError)
# types of pgvector, and arrays of numbers
KINDS = {"vector", "halfvec", "_float4", "_float8"}
# recycled files of the log keep what they held until they are written over
CLEAN = (
    "VACUUM FULL; ALTER SYSTEM SET wal_recycle = off; SELECT pg_reload_conf(); "
    "SELECT pg_switch_wal(); CHECKPOINT; and new backups and archives in the place of the old"
)
CLUSTER = OpenedStore(kind="the files of a PostgreSQL server", clean=CLEAN)
# tables, partitions and materialized views, each where its rows lie, of any schema of a user's
COLUMNS = sa.text(
    "SELECT nspname AS table_schema, relname AS table_name, attname AS column_name, "
    "typname AS udt_name, has_table_privilege(pg_class.oid, 'SELECT') AS readable "
    "FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "JOIN pg_type ON pg_type.oid = atttypid "
    "WHERE relkind IN ('r', 'm') AND relispopulated AND attnum > 0 AND NOT attisdropped "
    "AND nspname !~ '^pg_' AND nspname <> 'information_schema' "
    "ORDER BY nspname, relname, attnum"
)


def read_postgresql(
    location: str, width: int | None = None, by: str | None = None
) -> tuple[OpenedStore, Path | None]:
    """Read what a user of a database may read, and where the server's files lie if here.

    Args:
        location: ``postgresql://`` URL.
        width: d, where a codebook or vectors say it: bytes of 4 d are vectors.
        by: column that says whom a row is about.

    Returns:
        The store, and the folder of the server; None where it is not said or not on this machine.

    Raises:
        ValueError: no such database, or the driver is not installed.
    """
    url = parse_location("PATH", location)
    engine = open_engine("PATH", url)
    try:
        with engine.connect() as connection:
            columns = connection.execute(COLUMNS).all()
            folder = _folder(connection)
            found = StoredColumns()
            for column in columns:
                if not column.readable:
                    found.clear.append(f"{column.table_name}.{column.column_name}, not to be read")
                elif column.table_name not in SEALED:
                    _read_column(connection, column, width, by, found)
        if any(one.table_name == "tacit_documents" for one in columns):
            from tacit.stores.backends.database import DatabaseBackend

            kind = "a sealed table of PostgreSQL"
            return sealed_store(DatabaseBackend(location), kind, found), folder
    except FAULTS as error:
        raise ValueError(f"PATH: {label_of(url)}: {reason(error)}") from None
    finally:
        engine.dispose()
    return told(found, "a database of PostgreSQL", CLEAN, by), folder


def _read_column(
    connection: sa.Connection, column: Any, width: int | None, by: str | None, found: StoredColumns
) -> None:
    table = sa.table(column.table_name, schema=column.table_schema)
    name = f"{column.table_name}.{column.column_name}"
    cell: Any = sa.column(column.column_name)
    if column.udt_name in KINDS:
        # pgvector's types and arrays alike are cast to float4[]: lists of numbers
        asked = sa.select(sa.cast(cell, sa.ARRAY(sa.REAL))).select_from(table)
        rows = [one for (one,) in connection.execute(asked.where(cell.is_not(None)))]
        # arrays of several lengths, or of arrays, are no vectors: they tell what they hold
        if len({len(one) for one in rows}) == 1 and np.ndim(rows[0]) == 1:
            found.vectors.append(np.array(rows, np.float32))
        elif rows:
            found.clear.append(name)
        return
    held = [one for (one,) in connection.execute(sa.select(cell).select_from(table))]
    held = [one for one in held if one is not None]
    if width and held and column.udt_name == "bytea" and {len(one) for one in held} == {4 * width}:
        joined = b"".join(bytes(one) for one in held)
        found.vectors.append(np.frombuffer(joined, "<f4").reshape(-1, width))
    elif held:
        found.clear.append(name)
    if column.column_name == by:
        found.counts.update(map(str, held))


def _folder(connection: sa.Connection) -> Path | None:
    """Return the folder of the server's files, where it is said and is here."""
    try:
        with connection.begin_nested():
            place = Path(str(connection.execute(sa.text("SHOW data_directory")).scalar_one()))
            asked = sa.text("SELECT system_identifier FROM pg_control_system()")
            identifier = connection.execute(asked).scalar_one()
        # a folder of this name may be another server's: the first 8 bytes say which
        held = (place / "global" / "pg_control").read_bytes()[:8]
    except FAULTS:
        return None
    return place if int.from_bytes(held, sys.byteorder) == identifier else None
