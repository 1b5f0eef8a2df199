"""Which two inputs a statement of differential privacy is about."""

from __future__ import annotations

import enum
from typing import Any, Literal, TypeAlias

from tacit._ground.checks import choice


class Adjacency(enum.StrEnum):
    """Which data sets are neighbours: one has a record more, or one record is another.

    Example:
        >>> Adjacency("replace").sentence(), Adjacency.ADD_REMOVE.sentence("person")
        ('replace one record', 'add or remove one person')
        >>> Adjacency.of("replace one household")
        <Adjacency.REPLACE: 'replace'>
    """

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"

    def sentence(self, unit: str = "record") -> str:
        """Return it in the words of a guarantee.

        Args:
            unit: of privacy: what is added, removed or replaced.
        """
        return f"{WORDS[self]}{unit}"

    @staticmethod
    def of(sentence: str) -> Adjacency | None:
        """Return the adjacency of a sentence; None where it says another relation."""
        # by its first words: the unit of privacy is the rest
        found = (one for one, words in WORDS.items() if sentence.startswith(words))
        return next(found, None)

    @staticmethod
    def read(name: str, value: Any) -> Adjacency:
        """Return the adjacency that an argument says by its word.

        Raises:
            ValueError: it is another word; ``name`` is what the message calls the argument.
        """
        return Adjacency(choice(name, value, tuple(one.value for one in Adjacency)))


# How an argument says which: by the value or by its word.
Neighbours: TypeAlias = Adjacency | Literal["add-remove", "replace"]
WORDS = {Adjacency.ADD_REMOVE: "add or remove one ", Adjacency.REPLACE: "replace one "}
