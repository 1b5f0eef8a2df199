"""Values that a word on the command line names: ``power(0.5)`` for ``Power(alpha=0.5)``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar, Self, TypeVar


@dataclass(frozen=True)
class SpelledValue:
    """A frozen value of numbers, with one word for its kind and its numbers in brackets.

    Numbers at the end that are the defaults are left out. Words of their own for some values stand
    in ``aliases``, each with the fields that it fixes.

    Example:
        >>> @dataclass(frozen=True)
        ... class Grid(SpelledValue):
        ...     step: float
        ...     bits: int = 8
        ...     word = "grid"
        >>> Grid(0.5).name, Grid(0.5, 4).name, Grid.spelling(), Grid.read("grid(0.5,4)")
        ('grid(0.5)', 'grid(0.5,4)', ('grid(step)',), Grid(step=0.5, bits=4))
    """

    word: ClassVar[str]
    aliases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @property
    def name(self) -> str:
        """The word that ``read`` makes the value of."""
        for alias, fixed in self.aliases.items():
            if all(getattr(self, name) == value for name, value in fixed.items()):
                return alias
        held = [(getattr(self, field.name), field.default) for field in _numbers(self)]
        while held and held[-1][0] == held[-1][1]:
            held.pop()
        numbers = ",".join(_spelled(value) for value, _ in held)
        return f"{self.word}({numbers})" if held else self.word

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the value that a word names, None for a word of another kind.

        Raises:
            ValueError: its own word with numbers that are none, or out of range.
        """
        if text in cls.aliases:
            return cls(**cls.aliases[text])
        found = re.fullmatch(re.escape(cls.word) + r"(?:\(([^()]*)\))?", text)
        if found is None:
            return None
        given = [] if found[1] is None else found[1].split(",")
        known = _numbers(cls)
        least = sum(field.default is MISSING for field in known)
        if not least <= len(given) <= len(known):
            return None
        return cls(
            *(
                _number(text, str(field.type), field.name, part.strip())
                for field, part in zip(known, given, strict=False)
            )
        )

    @classmethod
    def spelling(cls) -> tuple[str, ...]:
        """Return the words there are, the names of numbers that must be given in their place."""
        needed = ",".join(field.name for field in _numbers(cls) if field.default is MISSING)
        return (f"{cls.word}({needed})" if needed else cls.word, *cls.aliases)


Value = TypeVar("Value", bound=SpelledValue)


def words_between_commas(text: str) -> tuple[str, ...]:
    """Return what stands between commas, those in brackets aside.

    Example:
        >>> words_between_commas("isotropic, quotient(4,7)")
        ('isotropic', 'quotient(4,7)')
    """
    # a comma before a closing bracket that no other bracket opens separates numbers of one word
    parts = re.split(r",(?![^()]*\))", text)
    return tuple(part.strip() for part in parts if part.strip())


def read_one(argument: str, text: object, kinds: Iterable[type[Value]]) -> Value:
    """Return the value of one of some kinds that a word names.

    Raises:
        ValueError: no kind knows the word; the sentence lists those there are.
    """
    listed = tuple(kinds)
    if isinstance(text, str):
        for kind in listed:
            try:
                found = kind.read(text)
            except ValueError as error:
                raise ValueError(f"{argument}: {error}") from None
            if found is not None:
                return found
    known = ", ".join(repr(word) for kind in listed for word in kind.spelling())
    raise ValueError(f"{argument}: expected one of {known}, got {text!r}")


def _numbers(kind: SpelledValue | type[SpelledValue]) -> list[Field[Any]]:
    """Fields that stand in brackets: what is true or false has a word of its own."""
    return [field for field in fields(kind) if field.type not in (bool, "bool")]


def _spelled(value: float) -> str:
    """Return a number as few digits say it that are read back as it is."""
    short = f"{value:.15g}"
    return short if float(short) == value else repr(value)


def _number(text: str, kind: str, name: str, part: str) -> float:
    try:
        return int(part) if "int" in kind else float(part)
    except ValueError:
        raise ValueError(f"expected a number in the place of {name}, got {text!r}") from None
