"""A stretch of a ledger, read by itself: links against those before, rows against their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from tacit.ledger.chain import GENESIS, NEWEST_LINK, SEALED, plain_seal
from tacit.ledger.notions import Budget
from tacit.ledger.records import CANCELLED, COMMITTED
from tacit.ledger.rows import budget_of
from tacit.ledger.sums import Stated, Sums
from tacit.ledger.tables import (
    RELEASE,
    TABLE_OF,
    RowDigest,
    chain_table,
    digest,
    row_digest,
)

CHAIN = "chain"
UNPLACED = float("inf")
ROWS_TOGETHER = 1000
DIGESTS = {kind: RowDigest(table) for kind, table in TABLE_OF.items()}
COUNTED = DIGESTS[RELEASE].picked("secret", "number", "status", "guarantees", "reproducible")

Finding = tuple[float, str]
Orders = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Stretch:
    """Places of the chain, or numbers of a table, both ends included.

    Links after ``newest`` are of a later moment than the one that is verified: rows count as what
    they were. Those alone are read that changed after ``since``.
    """

    kind: str
    first: int
    last: int
    newest: int
    since: int = 0


@dataclass
class Reading:
    """What a stretch gave; ``after`` are findings that come after a gap behind their place."""

    findings: list[Finding] = field(default_factory=list)
    after: list[Finding] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    end: tuple[int, str] = (0, GENESIS)
    # of every secret: where it was sealed last, and as what
    sealed: dict[str, tuple[int, str]] = field(default_factory=dict)
    totals: Sums = field(default_factory=Sums)
    # of the same rows, as they were at the checkpoint
    earlier: Sums = field(default_factory=Sums)
    budgets: dict[str, Budget | None] = field(default_factory=dict)
    # number and digest of every budget, and where it was sealed
    history: list[tuple[float, int, str]] = field(default_factory=list)


def read(connection: sa.Connection, stretch: Stretch, orders: Orders) -> Reading:
    """Read a stretch.

    Args:
        connection: of a transaction that only reads.
        stretch: what is read.
        orders: the Rényi orders of secrets that do not have the usual ones.
    """
    if stretch.kind == CHAIN:
        return _links(connection, stretch)
    return _rows(connection, stretch, orders)


def _streamed(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Sequence[Any]]:
    """Return the rows of a query, a few at a time: a ledger may be larger than the memory.

    SQLite's are as its driver gives them, which takes a third less than rows of SQLAlchemy; a
    server sends them all at once unless it is asked otherwise.
    """
    plain = connection.dialect.name == "sqlite"
    options = {} if plain else {"yield_per": ROWS_TOGETHER}
    found = connection.execute(query, execution_options=options)
    rows: Any = found.cursor if plain else found
    while some := rows.fetchmany(ROWS_TOGETHER):
        yield from some
    found.close()


def _links(connection: sa.Connection, stretch: Stretch) -> Reading:
    found, table = Reading(), chain_table.c
    before = connection.execute(NEWEST_LINK.where(table.place < stretch.first)).first()
    place, previous = (0, GENESIS) if before is None else (int(before[0]), before[1])
    columns = [chain_table.c[name] for name in SEALED]
    query = (
        sa.select(*columns, table.hash)
        .where(table.place.between(stretch.first, stretch.last))
        .order_by(table.place)
    )
    for *content, sealed in _streamed(connection, query):
        earlier, at, kind, number, secret, _, _, _, account = content
        if at == place + 1 and earlier == previous and sealed == plain_seal(content):
            pass
        elif at != place + 1:
            found.missing.append(place + 1)
            found.findings.append((place + 1, f"{span(place + 1, at - 1)} missing from the chain"))
        elif sealed != digest(content):
            found.findings.append(
                (at, f"record {at}, {kind} {number} of secret {secret!r}, was edited")
            )
        elif earlier != previous:
            found.findings.append(
                (place, f"record {place} was rewritten after record {at} sealed it")
            )
        if kind not in TABLE_OF:
            found.findings.append((at, f"record {at} is of an unknown kind"))
        found.sealed[secret] = (at, account)
        place, previous = at, sealed
    found.end = (place, previous)
    return found


def span(first: int, last: int) -> str:
    """Return the records between two places as the subject of a sentence."""
    return f"record {first} is" if first == last else f"records {first} to {last} are"


def _rows(connection: sa.Connection, stretch: Stretch, orders: Orders) -> Reading:
    """Hold every row against what sealed it last, and add it to the account of its secret."""
    found, digests = Reading(), DIGESTS[stretch.kind]
    named = digests.picked("secret", "number")
    for *values, place, content in _streamed(connection, _sealed_rows(stretch)):
        secret, number = named(values)
        if not _is_sealed(digests, values, content):
            name = f"{stretch.kind} {number} of secret {secret!r}"
            if place is None:
                found.findings.append((UNPLACED, f"{name} was inserted"))
            else:
                found.after.append((place, f"{name} was edited"))
        elif stretch.kind == RELEASE:
            _count(connection, stretch, found, place, values, orders)
        elif place <= stretch.newest:
            found.budgets[secret] = budget_of(digests.row(values))
            found.history.append((place, number, content))
    return found


def _is_sealed(digests: RowDigest, values: Sequence[Any], content: str | None) -> bool:
    """Whether a row is what its last link says; one that is unlike its kind is digested slowly."""
    try:
        if digests(values) == content:
            return True
    except (TypeError, KeyError):
        pass
    return content == row_digest(digests.row(values))


def _count(
    connection: sa.Connection,
    stretch: Stretch,
    found: Reading,
    place: int,
    values: Sequence[Any],
    orders: Orders,
) -> None:
    """Add a release to the account of its secret, and as it was at the checkpoint."""
    secret, number, status, guarantees, reproducible = COUNTED(values)
    if place > stretch.newest:
        status = _status(connection, number, stretch.newest)
    moments = [(found.totals, status)]
    if stretch.since:
        moments.append((found.earlier, _status(connection, number, stretch.since)))
    for sums, was in moments:
        if was not in (None, CANCELLED):
            committed, own = was == COMMITTED, orders.get(secret)
            sums.add(secret, Stated(guarantees, bool(reproducible), committed, own))


def _sealed_rows(stretch: Stretch) -> sa.Select[Any]:
    """Return every row of a stretch beside the place and the content of the link it has last."""
    table, link = TABLE_OF[stretch.kind], chain_table.alias()
    mine = (link.c.kind == stretch.kind) & (link.c.number == table.c.number)
    last = sa.select(sa.func.max(link.c.place)).where(mine).correlate(table).scalar_subquery()
    query = (
        sa.select(*DIGESTS[stretch.kind].columns, chain_table.c.place, chain_table.c.row)
        .select_from(table.outerjoin(chain_table, chain_table.c.place == last))
        .where(table.c.number.between(stretch.first, stretch.last))
        .order_by(table.c.number)
    )
    if stretch.since and stretch.kind == RELEASE:
        changed = sa.select(link.c.number).where(
            link.c.place > stretch.since, link.c.kind == stretch.kind
        )
        query = query.where(table.c.number.in_(changed))
    return query


def _status(connection: sa.Connection, number: int, place: int) -> str | None:
    """Return what a release was at a place of the chain, None where it was not yet."""
    table = chain_table.c
    query = sa.select(table.status).where(
        table.kind == RELEASE, table.number == number, table.place <= place
    )
    status = connection.execute(query.order_by(table.place.desc()).limit(1)).scalar()
    return None if status is None else str(status)
