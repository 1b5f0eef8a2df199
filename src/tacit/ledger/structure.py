"""What stands in a database beside the rows of a ledger, and what its indexes say of them."""

from __future__ import annotations

import sqlalchemy as sa

from tacit.ledger.tables import metadata

# A trigger of a user, and a rule, act on what a ledger writes.
ON_SERVER = """
SELECT 'trigger', t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid)
UNION ALL
SELECT 'rule', r.rulename, c.relname FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
WHERE pg_table_is_visible(c.oid)
ORDER BY 2, 3
"""
# SQLite keeps the name of the table as the trigger spells it, and takes no notice of its case.
IN_FILE = """
SELECT type, name, lower(tbl_name) FROM sqlite_schema WHERE type = 'trigger' ORDER BY name
"""
MOST_SAID = 10


def added(connection: sa.Connection) -> list[str]:
    """Return a sentence for everything that would change what is written, of which none is ours."""
    query = IN_FILE if connection.dialect.name == "sqlite" else ON_SERVER
    return [
        f"the {kind} {name!r} was added to the table {table}, and changes what is written there"
        for kind, name, table in connection.exec_driver_sql(query)
        if table in metadata.tables
    ]


def damaged(connection: sa.Connection) -> list[str]:
    """Return what SQLite finds in its file: pages, and indexes that do not say what tables hold."""
    if connection.dialect.name != "sqlite":
        return []
    said = connection.exec_driver_sql(f"PRAGMA integrity_check({MOST_SAID})").scalars().all()
    return [f"the file contradicts itself: {line}" for line in said if line != "ok"]
