"""A stretch of a ledger, read by itself: links against those before, rows against their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from tacit.ledger.chain import GENESIS, NEWEST_LINK, SEALED, are_whole
from tacit.ledger.notions import Budget
from tacit.ledger.records import CANCELLED, COMMITTED
from tacit.ledger.rows import budget_of
from tacit.ledger.structure import damaged
from tacit.ledger.sums import Statement, Sums
from tacit.ledger.tables import (
    RELEASE,
    TABLE_OF,
    RowDigests,
    chain_table,
    digest,
    row_digest,
)

# the links, and the file itself where the database is one
CHAIN, FILE = "chain", "file"
UNPLACED = float("inf")
# what was not there yet, or given back
UNCOUNTED = (None, CANCELLED)
# So few stay near the processor until they are checked; a server sends more of them at once.
ROWS_TOGETHER, ROWS_SENT = 64, 1000
DIGESTS = {kind: RowDigests(table) for kind, table in TABLE_OF.items()}
COUNTED = itemgetter(
    *map(
        DIGESTS[RELEASE].names.index,
        ("secret", "number", "status", "guarantees", "reproducible"),
    )
)

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

    def take(self, later: Reading) -> None:
        """Add what the stretch after this one gave, and leave no more than its shell there.

        Of many stretches each has sums of nearly every secret: they are not held side by side.
        """
        self.findings += later.findings
        self.after += later.after
        self.missing += later.missing
        self.end = later.end if later.end[0] else self.end
        self.sealed.update(later.sealed)
        self.totals.join(later.totals)
        self.earlier.join(later.earlier)
        self.budgets.update(later.budgets)
        self.history += later.history
        later.__dict__.update(Reading().__dict__)


def read(connection: sa.Connection, stretch: Stretch, orders: Orders) -> Reading:
    """Read a stretch.

    Args:
        connection: of a transaction that only reads.
        stretch: what is read.
        orders: the Rényi orders of secrets that do not have the usual ones.
    """
    if stretch.kind == FILE:
        return Reading(findings=[(UNPLACED, text) for text in damaged(connection)])
    if stretch.kind == CHAIN:
        return _links(connection, stretch)
    return _rows(connection, stretch, orders)


def streamed(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Sequence[Any]]:
    """Return the rows of a query, a few at a time: a ledger may be larger than the memory.

    SQLite's are as its driver gives them, which takes a third less than rows of SQLAlchemy; a
    server sends them all at once unless it is asked otherwise.
    """
    if connection.dialect.name == "sqlite":
        found = connection.execute(query)
        rows: Any = found.cursor
        while some := rows.fetchmany(ROWS_TOGETHER):
            yield some
        found.close()
    else:
        found = connection.execute(query, execution_options={"yield_per": ROWS_SENT})
        for sent in found.partitions():
            for start in range(0, len(sent), ROWS_TOGETHER):
                yield sent[start : start + ROWS_TOGETHER]


def _links(connection: sa.Connection, stretch: Stretch) -> Reading:
    found, table, last = Reading(), chain_table.c, dict[str, Sequence[Any]]()
    before = connection.execute(NEWEST_LINK.where(table.place < stretch.first)).first()
    place, previous = (0, GENESIS) if before is None else (int(before[0]), before[1])
    columns = [chain_table.c[name] for name in SEALED]
    query = (
        sa.select(*columns, table.hash)
        .where(table.place.between(stretch.first, stretch.last))
        .order_by(table.place)
    )
    for links in streamed(connection, query):
        if not are_whole(links, place, previous):
            _doubted(found, links, place, previous)
        last.update({link[4]: link for link in links})
        place, previous = links[-1][1], links[-1][-1]
    found.sealed = {secret: (link[1], link[8]) for secret, link in last.items()}
    found.end = (place, previous)
    return found


def _doubted(found: Reading, links: Sequence[Sequence[Any]], place: int, previous: str) -> None:
    """Say what is wrong with links, one after the other, where it is anything."""
    for *content, sealed in links:
        earlier, at, kind, number, secret = content[:5]
        if at != place + 1:
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
        place, previous = at, sealed


def span(first: int, last: int) -> str:
    """Return the records between two places as the subject of a sentence."""
    return f"record {first} is" if first == last else f"records {first} to {last} are"


def _rows(connection: sa.Connection, stretch: Stretch, orders: Orders) -> Reading:
    """Hold every row against what sealed it last, and add it to the account of its secret."""
    found, digests, last = Reading(), DIGESTS[stretch.kind], stretch.first - 1
    numbered = digests.names.index("number")
    for rows in streamed(connection, _sealed_rows(stretch)):
        numbers = [row[numbered] for row in rows]
        sealed: Sequence[Sequence[Any]] = rows
        if not _are_sealed(digests, rows):
            sealed = [row for row in rows if row[-1] == row_digest(digests.row(row))]
            _edited(found, stretch.kind, [row for row in rows if row not in sealed])
        if len({last, *numbers}) <= len(numbers):
            # they come in the order of their numbers
            twice = {number for number in numbers if [last, *numbers].count(number) > 1}
            found.findings += [(UNPLACED, f"{stretch.kind} {n} is there twice") for n in twice]
        last = numbers[-1]
        if stretch.kind == RELEASE:
            _count(connection, stretch, found, sealed, orders)
            continue
        for row in sealed:
            *_, place, content = row
            if place <= stretch.newest:
                budget = digests.row(row)
                found.budgets[budget["secret"]] = budget_of(budget)
                found.history.append((place, budget["number"], content))
    return found


def _are_sealed(digests: RowDigests, rows: Sequence[Sequence[Any]]) -> bool:
    """Whether rows are ordinary ones, each what its last link says."""
    try:
        return digests(rows) == [row[-1] for row in rows]
    except (TypeError, KeyError):
        return False


def _edited(found: Reading, kind: str, rows: Sequence[Sequence[Any]]) -> None:
    for row in rows:
        whole, place = DIGESTS[kind].row(row), row[-2]
        name = f"{kind} {whole['number']} of secret {whole['secret']!r}"
        if place is None:
            found.findings.append((UNPLACED, f"{name} was inserted"))
        else:
            found.after.append((place, f"{name} was edited"))


def _count(
    connection: sa.Connection,
    stretch: Stretch,
    found: Reading,
    rows: Sequence[Sequence[Any]],
    orders: Orders,
) -> None:
    """Add releases to the accounts of their secrets, and as they were at the checkpoint."""
    since, newest = stretch.since, stretch.newest
    kept, before = list[tuple[str, Statement]](), list[tuple[str, Statement]]()
    for row in rows:
        secret, number, status, guarantees, reproducible = COUNTED(row)
        own = orders.get(secret)
        if row[-2] > newest:
            status = _status(connection, number, newest)
        if status not in UNCOUNTED:
            kept.append((secret, (guarantees, reproducible, status == COMMITTED, own)))
        if since and (status := _status(connection, number, since)) not in UNCOUNTED:
            before.append((secret, (guarantees, reproducible, status == COMMITTED, own)))
    found.totals.add(kept)
    found.earlier.add(before)


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
