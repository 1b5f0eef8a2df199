"""Who changed what in a dock, and when: written with the change itself, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from tacit_dock.tables import deed_table
from tacit_dock.tokens import now

OPERATOR = "operator"


@dataclass(frozen=True)
class Deed:
    """One change.

    Attributes:
        number: in their order.
        time: ISO 8601, UTC.
        who: a developer, or ``"operator"`` for a command on the dock's own machine.
        what: ``"submit"``, ``"revise"``, ``"withdraw"``, ``"admit"``, ``"token"``, ``"revoke"`` or
            ``"move"``.
        learnware: its id; empty of tokens.
        detail: the revision; of tokens their number and developer, never the token.
    """

    number: int
    time: str
    who: str
    what: str
    learnware: str
    detail: str


def note(
    connection: sa.Connection, who: str, what: str, *, learnware: str = "", detail: str = ""
) -> None:
    """Write down a change within the transaction that makes it."""
    row = {"time": now(), "who": who, "what": what, "learnware": learnware, "detail": detail}
    connection.execute(deed_table.insert().values(row))


def deeds(connection: sa.Connection, limit: int) -> tuple[Deed, ...]:
    """Return the newest changes, the newest first."""
    query = sa.select(deed_table).order_by(deed_table.c.number.desc()).limit(limit)
    return tuple(Deed(*row) for row in connection.execute(query))
