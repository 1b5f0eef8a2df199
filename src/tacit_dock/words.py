"""The words of a card, by which it is found: the same in every database."""

from __future__ import annotations

import re
import unicodedata

import sqlalchemy as sa

from tacit_dock.tables import learnware_table, word_table

WORD = re.compile(r"[^\W_]+")
LONGEST, MOST_OF_A_CARD, MOST_ASKED = 40, 4000, 8
LAST = "\U0010ffff"


def words_of(text: str) -> list[str]:
    """Return the words of a text in order: no case, no accents, at most 40 characters each.

    Example:
        >>> words_of("Straße, café: MNIST-digits")
        ['strasse', 'cafe', 'mnist', 'digits']
    """
    plain = unicodedata.normalize("NFKD", text).casefold()
    kept = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return [found[:LONGEST] for found in WORD.findall(kept)]


def keep_words(connection: sa.Connection, number: int, text: str) -> None:
    """Have a learnware found by the words of a text, and by no others.

    Args:
        connection: within the transaction that writes the record.
        number: of the learnware.
        text: title, tags and card; empty once it is withdrawn.
    """
    connection.execute(sa.delete(word_table).where(word_table.c.learnware == number))
    words = list(dict.fromkeys(words_of(text)))[:MOST_OF_A_CARD]
    if words:
        rows = [{"learnware": number, "word": word} for word in words]
        connection.execute(word_table.insert(), rows)


def having_words(text: str) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that a learnware has words that begin as every one of these does."""
    table = word_table.c
    return [
        sa.exists().where(
            table.learnware == learnware_table.c.number,
            table.word >= word,
            table.word < word + LAST,
        )
        for word in list(dict.fromkeys(words_of(text)))[:MOST_ASKED]
    ]
