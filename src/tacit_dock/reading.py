"""What is read of a dock, each within one transaction."""

from __future__ import annotations

import base64
import binascii
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from tacit.documents import loads
from tacit_dock.cards import FENCE, MARK, MARKS, mark, unmarked
from tacit_dock.database import CHANGE
from tacit_dock.errors import RefusedError
from tacit_dock.records import LISTED, WITHDRAWN, Filters, Learnware, LearnwarePage, Revision
from tacit_dock.tables import (
    learnware_table,
    meta_table,
    revision_table,
    space_table,
    tag_table,
)
from tacit_dock.words import having_words

CURSOR = "after:"
MOST_FACETS, MOST_SPACES = 50, 100
# What is told of every revision.
TOLD = tuple(field.name for field in fields(Revision))
Rows = list[Any]


def row(connection: sa.Connection, identifier: str) -> Any:
    """Return the row of a learnware, None where there is none."""
    query = sa.select(learnware_table).where(learnware_table.c.id == identifier)
    return connection.execute(query).one_or_none()


def learnware(connection: sa.Connection, identifier: str) -> Learnware | None:
    """Return a learnware with its card and history, None where there is none."""
    found = row(connection, identifier)
    return None if found is None else _built(connection, [found], whole=True)[0]


def page(
    connection: sa.Connection, filters: Filters, cursor: str | None, limit: int, status: str
) -> LearnwarePage:
    """Return a page of learnwares, the newest first."""
    query = sa.select(learnware_table).where(learnware_table.c.status == status, *_where(filters))
    if cursor is not None:
        query = query.where(learnware_table.c.number < _opened(cursor))
    newest = query.order_by(learnware_table.c.number.desc()).limit(limit + 1)
    rows: Rows = list(connection.execute(newest))
    more = len(rows) > limit
    rows = rows[:limit]
    return LearnwarePage(
        tuple(_built(connection, rows)), _closed(rows[-1].number) if more else None
    )


def named(connection: sa.Connection, identifiers: tuple[str, ...]) -> dict[str, Learnware]:
    """Return those of these ids that are listed."""
    query = sa.select(learnware_table).where(
        learnware_table.c.id.in_(identifiers), learnware_table.c.status == LISTED
    )
    return {held.id: held for held in _built(connection, list(connection.execute(query)))}


def matching(connection: sa.Connection, filters: Filters, space: str) -> set[str]:
    """Return the ids of listed learnwares of a space that pass the filters."""
    query = sa.select(learnware_table.c.id).where(
        learnware_table.c.status == LISTED, learnware_table.c.space == space, *_where(filters)
    )
    return set(connection.execute(query).scalars())


def spaces(connection: sa.Connection) -> list[dict[str, object]]:
    """Return the fullest spaces of listed learnwares, the fullest first."""
    count = sa.func.count().label("count")
    query = (
        sa.select(space_table.c.digest, space_table.c.fields, count)
        .join(learnware_table, learnware_table.c.space == space_table.c.digest)
        .where(learnware_table.c.status == LISTED)
        .group_by(space_table.c.digest, space_table.c.fields)
        .order_by(count.desc(), space_table.c.digest)
        .limit(MOST_SPACES)
    )
    return [
        {"digest": digest, **loads(fields), "learnwares": int(many)}
        for digest, fields, many in connection.execute(query)
    ]


def count(connection: sa.Connection) -> int:
    """Return how many learnwares are listed."""
    query = sa.select(sa.func.count()).where(learnware_table.c.status == LISTED)
    return int(connection.execute(query).scalar_one())


def facets(connection: sa.Connection) -> dict[str, list[tuple[str, int]]]:
    """Return what lists are narrowed to, by the name of the filter, with counts."""
    listed = learnware_table.c.status == LISTED
    join = tag_table.join(learnware_table, tag_table.c.learnware == learnware_table.c.number)
    sources = {
        "tag": (tag_table.c.tag, join),
        "modality": (learnware_table.c.modality, learnware_table),
        "developer": (learnware_table.c.developer, learnware_table),
        "guarantee": (learnware_table.c.guarantee, learnware_table),
        **dict.fromkeys(MARKS, (tag_table.c.tag, join)),
    }
    found = {}
    for name, (column, source) in sources.items():
        count = sa.func.count()
        if name in MARKS:
            wanted = column.startswith(mark(name, ""), autoescape=True)
        else:
            wanted = column.notlike(f"%{MARK}%") if name == "tag" else column != ""
        query = (
            sa.select(column, count)
            .select_from(source)
            .where(listed, wanted)
            .group_by(column)
            .order_by(count.desc(), column)
            .limit(MOST_FACETS)
        )
        start = len(mark(name, "")) if name in MARKS else 0
        found[name] = [(str(value)[start:], int(many)) for value, many in connection.execute(query)]
    return found


def newest_change(connection: sa.Connection) -> int:
    """Return the number of the newest change."""
    query = sa.select(meta_table.c.value).where(meta_table.c.key == CHANGE)
    return int(connection.execute(query).scalar_one())


def changes(connection: sa.Connection, seen: int) -> tuple[int, list[tuple[str, str, str, str]]]:
    """Return the newest change, and what has changed since one."""
    newest = newest_change(connection)
    if newest == seen:
        return newest, []
    table = learnware_table.c
    changed = (
        sa.select(table.id, table.status, table.space, table.revision)
        .where(table.change > seen)
        .order_by(table.number)
    )
    return newest, [(r[0], r[1], r[2], r[3]) for r in connection.execute(changed)]


def content(
    connection: sa.Connection, identifier: str, name: str, revision: str | None
) -> str | None:
    """Return the digest of a content of a learnware."""
    found = row(connection, identifier)
    if found is None:
        return None
    wanted = found.revision if revision is None else revision
    query = sa.select(revision_table.c[name]).where(
        revision_table.c.learnware == found.number, revision_table.c.revision == wanted
    )
    digest = connection.execute(query).scalars().first()
    return None if digest is None else str(digest)


def usage(connection: sa.Connection, developer: str) -> tuple[int, int]:
    """Return how many learnwares a developer holds, and how many bytes of all revisions."""
    mine = (learnware_table.c.developer == developer) & (learnware_table.c.status != WITHDRAWN)
    count = sa.select(sa.func.count()).select_from(learnware_table).where(mine)
    join = revision_table.join(
        learnware_table, revision_table.c.learnware == learnware_table.c.number
    )
    size = sa.select(sa.func.coalesce(sa.func.sum(revision_table.c.size), 0))
    held = size.select_from(join).where(mine)
    return int(connection.execute(count).scalar_one()), int(connection.execute(held).scalar_one())


def _where(filters: Filters) -> list[Any]:
    table = learnware_table.c
    found: list[Any] = []
    if filters.tag is not None:
        tagged = sa.select(tag_table.c.learnware).where(tag_table.c.tag == filters.tag.lower())
        found.append(table.number.in_(tagged))
    if filters.modality is not None:
        found.append(table.modality == filters.modality.lower())
    if filters.developer is not None:
        found.append(table.developer == filters.developer)
    for kind in MARKS:
        value = getattr(filters, kind)
        if value is not None:
            marked = sa.select(tag_table.c.learnware).where(tag_table.c.tag == mark(kind, value))
            found.append(table.number.in_(marked))
    if filters.words is not None:
        found += having_words(filters.words)
    if filters.max_epsilon is not None:
        held = revision_table.c
        within = sa.select(held.learnware).where(
            held.learnware == table.number,
            held.revision == table.revision,
            # a database may look at a row before other conditions rule it out
            sa.cast(sa.func.nullif(held.epsilon, ""), sa.Float) <= filters.max_epsilon,
        )
        found.append(sa.exists(within))
    if filters.guarantee == "any":
        found.append(table.guarantee != "")
    elif filters.guarantee == "none":
        found.append(table.guarantee == "")
    elif filters.guarantee is not None:
        found.append(table.guarantee == filters.guarantee)
    return found


def _built(connection: sa.Connection, rows: Rows, *, whole: bool = False) -> list[Learnware]:
    """Return learnwares with their newest content; with what they had before where they are whole.

    However often a learnware was revised, a list reads one content of each.
    """
    wanted = [held.number for held in rows]
    tagged = sa.select(tag_table).where(tag_table.c.learnware.in_(wanted)).order_by(tag_table.c.tag)
    tags: dict[int, list[str]] = {}
    for held in connection.execute(tagged):
        tags.setdefault(held.learnware, []).append(held.tag)
    table = revision_table.c
    last = sa.select(sa.func.max(table.number)).where(table.learnware.in_(wanted))
    query = sa.select(revision_table).where(table.number.in_(last.group_by(table.learnware)))
    newest = {held.learnware: held for held in connection.execute(query)}
    history: dict[int, Rows] = {number: [held] for number, held in newest.items()}
    if whole:
        columns = [table[name] for name in ("learnware", *TOLD)]
        every = sa.select(*columns).where(table.learnware.in_(wanted)).order_by(table.number.desc())
        history = {number: [] for number in newest}
        for held in connection.execute(every):
            history[held.learnware].append(held)
    return [
        _one(held, tags.get(held.number, []), newest[held.number], history[held.number])
        for held in rows
    ]


def _one(held: Any, tags: list[str], newest: Any, history: Rows) -> Learnware:
    manifest = loads(newest.manifest) if newest.manifest is not None else {}
    card = newest.card or ""
    found = FENCE.match(card)
    marked = {kind: unmarked(kind, tags) for kind in MARKS}
    return Learnware(
        id=held.id,
        number=held.number,
        developer=held.developer,
        status=held.status,
        created=held.created,
        updated=held.updated,
        revision=held.revision,
        title=held.title,
        modality=held.modality,
        tags=tuple(tag for tag in tags if MARK not in tag),
        license=next(iter(marked["license"]), ""),
        languages=marked["language"],
        task=next(iter(marked["task"]), ""),
        space=manifest.get("space", {}),
        method=manifest.get("method", ""),
        classes=tuple(manifest.get("classes", ())),
        inputs=manifest.get("inputs", ""),
        guarantee=loads(newest.headline) if newest.headline is not None else None,
        notes=tuple(manifest.get("notes", ())),
        head=loads(newest.head) if newest.head is not None else {},
        text=card[found.end() :] if found else "",
        history=tuple(_revision(one) for one in history),
        withdrawn=held.withdrawn,
        reason=held.reason,
    )


def _revision(held: Any) -> Revision:
    return Revision(**{name: getattr(held, name) for name in TOLD})


def _closed(number: int) -> str:
    return base64.urlsafe_b64encode(f"{CURSOR}{number}".encode()).decode().rstrip("=")


def _opened(cursor: str) -> int:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
        number = text.removeprefix(CURSOR)
        if text == number or not number.isdigit() or len(number) > 18:
            raise ValueError
        return int(number)
    except (ValueError, UnicodeError, binascii.Error):
        raise RefusedError(422, "cursor: expected one that a page of this dock gave") from None
