"""A database of an older schema, given what today's is found by."""

from __future__ import annotations

import sqlalchemy as sa

from tacit.documents import loads
from tacit_dock.cards import read_card
from tacit_dock.errors import RefusedError
from tacit_dock.tables import learnware_table, revision_table
from tacit_dock.writing import epsilon_of, keep_card


def fill_in(connection: sa.Connection) -> None:
    """Work out words, marks and ε of every record that holds a card."""
    held, record = revision_table.c, learnware_table.c
    newest = (held.learnware == record.number) & (held.revision == record.revision)
    query = sa.select(held.number, held.learnware, held.card, held.headline).where(
        newest, held.card.is_not(None)
    )
    for number, learnware, card, headline in connection.execute(query).all():
        told = None if headline is None else loads(headline)
        mine = sa.update(revision_table).where(held.number == number)
        connection.execute(mine.values(epsilon=epsilon_of(told)))
        try:
            keep_card(connection, learnware, read_card(card.encode()))
        except RefusedError:
            # of rules that are stricter by now: it stays as it was found before
            continue
