"""The chain: every row made or changed, sealed by a hash over all that came before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from tacit.ledger.account import Account, account_from_json
from tacit.ledger.tables import (
    SCHEMA,
    TABLE_OF,
    TEXT,
    budget_table,
    chain_table,
    digest,
    entry_table,
    meta_table,
    row_digest,
    secret_table,
)

GENESIS = "0" * 64
HEAD = re.compile("([0-9]{1,18}):([0-9a-f]{64})")
SEALED = ("previous", "place", "kind", "number", "secret", "status", "time", "row", "account")
ADVICE = "contradicts itself; `tacit ledger verify` names the first edited row"

# Statements are made once: to build one anew takes several times longer than to run it.
HEAD_ROW = sa.select(meta_table.c.value).where(meta_table.c.key == "head")
LOCKED_HEAD = HEAD_ROW.with_for_update()
MOVED_HEAD = meta_table.update().where(meta_table.c.key == "head")
NEWEST_LINK = (
    sa.select(chain_table.c.place, chain_table.c.hash).order_by(chain_table.c.place.desc()).limit(1)
)
NEW_LINK = chain_table.insert()
SECRET_ROW = sa.select(secret_table).where(secret_table.c.secret == sa.bindparam("named"))
LOCKED_SECRET = SECRET_ROW.with_for_update()
NEW_SECRET = secret_table.insert()
CHANGED_SECRET = secret_table.update().where(secret_table.c.secret == sa.bindparam("named"))
SEALED_ACCOUNT = sa.select(chain_table.c.secret, chain_table.c.account).where(
    chain_table.c.place == sa.bindparam("at")
)
SEALED_ROW = (
    sa.select(chain_table.c.row)
    .where(
        chain_table.c.kind == sa.bindparam("of"), chain_table.c.number == sa.bindparam("numbered")
    )
    .order_by(chain_table.c.place.desc())
    .limit(1)
)


@dataclass(frozen=True)
class Page:
    """The account of one secret as it was read, and where in the chain it was sealed (0: new)."""

    secret: str
    account: Account
    place: int


def now() -> str:
    """Return the time as ISO-8601 UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def initial_rows() -> list[dict[str, str]]:
    """Return the rows of ``tacit_meta`` in a new ledger."""
    return [{"key": "schema", "value": SCHEMA}, {"key": "head", "value": head_text(0, GENESIS)}]


def head_text(place: int, sealed: str) -> str:
    """Return a head as it is stored and shown."""
    return f"{place}:{sealed}"


def parse_head(text: str | None) -> tuple[int, str]:
    """Return the place and the hash of a head."""
    # what is stored may be anything, a blob too
    found = HEAD.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"head: expected PLACE:HASH as `tacit ledger verify` shows, got {text!r}")
    return int(found[1]), found[2]


def seal(link: Mapping[Any, Any]) -> str:
    """Return the hash of a link: of its own content and of the hash before it."""
    return digest([link[name] for name in SEALED])


def are_whole(links: Sequence[Sequence[Any]], place: int, previous: str) -> bool:
    """Whether links follow a place of the chain one by one, each with the hash of its content.

    Each is written as ``seal`` writes what a ledger enters, in a third of the time: status, time
    and digests need no escapes there. A link that needs some is left to ``seal``, so that False is
    no finding.
    """
    contents = list[str]()
    try:
        for earlier, at, kind, number, secret, status, time, row, account, _ in links:
            texts = '", "'.join((status, time, row, account))
            contents.append(f'["{earlier}", {at}, "{kind}", {number}, {TEXT(secret)}, "{texts}"]')
        froms, places, kinds, numbers, _, *columns, hashes = zip(*links, strict=True)
        # a join takes text alone, and an escape makes it longer; other hashes are seen to be such
        plain = "".join((previous, *map("".join, columns)))
    except TypeError:
        return False
    # what is equal to a text is one, and a fraction is written as no whole number is
    return (
        len(TEXT(plain)) == len(plain) + 2
        and places == tuple(range(place + 1, place + 1 + len(links)))
        and froms == (previous, *hashes[:-1])
        and {*kinds} <= TABLE_OF.keys()
        and {*map(type, places + numbers)} == {int}
        and hashes == tuple([sha256(content.encode()).hexdigest() for content in contents])
    )


def check_head(connection: sa.Connection, *, lock: bool = False) -> tuple[int, str]:
    """Return the head, after checking that it is the newest link there is."""
    text = connection.execute(LOCKED_HEAD if lock else HEAD_ROW).scalar_one_or_none()
    newest = connection.execute(NEWEST_LINK).first()
    found = (0, GENESIS) if newest is None else (int(newest.place), str(newest.hash))
    if text != head_text(*found):
        raise ValueError(f"ledger: the newest record is not the one it should be; it {ADVICE}")
    return found


def read_page(connection: sa.Connection, secret: str, *, lock: bool = False) -> Page | None:
    """Return the account of ``secret`` after checking it against its seal; None when unknown."""
    row = connection.execute(LOCKED_SECRET if lock else SECRET_ROW, {"named": secret}).first()
    if row is None:
        _check_unknown(connection, secret)
        return None
    sealed = connection.execute(SEALED_ACCOUNT, {"at": row.place}).first()
    if row.place == 0:
        intact = row.account == Account().to_json()
        if intact:
            _check_unknown(connection, secret)
    else:
        intact = sealed is not None and tuple(sealed) == (secret, digest(row.account))
    if not intact:
        raise ValueError(f"ledger: the totals of secret {secret!r} were edited; it {ADVICE}")
    return Page(secret, account_from_json(row.account), int(row.place))


def lock_page(connection: sa.Connection, secret: str, *, sqlite: bool) -> Page:
    """Hold the row of ``secret`` until the transaction ends, making it when it is new."""
    fresh = {"secret": secret, "account": Account().to_json(), "budgeted": False, "place": 0}
    if not sqlite:
        from sqlalchemy.dialects.postgresql import insert

        connection.execute(insert(secret_table).values(**fresh).on_conflict_do_nothing())
    page = read_page(connection, secret, lock=True)
    if page is None:
        connection.execute(NEW_SECRET, fresh)
        page = Page(secret, Account(), 0)
    return page


def append(
    connection: sa.Connection,
    page: Page,
    account: Account,
    kind: str,
    row: Mapping[str, Any],
    status: str,
) -> None:
    """Seal a row made or changed, and the account of its secret after it."""
    head = check_head(connection, lock=True)
    text = account.to_json()
    link = new_link(head, page.secret, text, kind, row, status)
    connection.execute(NEW_LINK, link)
    flagged = account.budget is not None
    connection.execute(
        CHANGED_SECRET,
        {"named": page.secret, "account": text, "budgeted": flagged, "place": link["place"]},
    )
    connection.execute(MOVED_HEAD, {"value": head_text(link["place"], link["hash"])})


def new_link(
    head: tuple[int, str], secret: str, account: str, kind: str, row: Mapping[str, Any], status: str
) -> dict[str, Any]:
    """Return the link that follows ``head``."""
    link: dict[str, Any] = {
        "place": head[0] + 1,
        "previous": head[1],
        "kind": kind,
        "number": row["number"],
        "secret": secret,
        "status": status,
        "time": now(),
        "row": row_digest(row),
        "account": digest(account),
    }
    return {**link, "hash": seal(link)}


def check_row(connection: sa.Connection, kind: str, row: Mapping[str, Any]) -> None:
    """Refuse a row that is not as it was when it was last sealed."""
    sealed = connection.execute(
        SEALED_ROW, {"of": kind, "numbered": row["number"]}
    ).scalar_one_or_none()
    if sealed != row_digest(row):
        raise ValueError(f"ledger: {kind} {row['number']} was edited; it {ADVICE}")


def _check_unknown(connection: sa.Connection, secret: str) -> None:
    """Refuse a secret without an account whose releases or budgets are there all the same."""
    for table in (entry_table, budget_table):
        query = sa.select(table.c.number).where(table.c.secret == secret).limit(1)
        if connection.execute(query).first() is not None:
            raise ValueError(f"ledger: the totals of secret {secret!r} are missing; it {ADVICE}")
