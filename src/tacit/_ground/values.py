"""What is asked for, as frozen values: ranges stand at the fields, and a value checks itself."""

from __future__ import annotations

import enum
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from tacit._ground.checks import as_float, boolean, choice, integer
from tacit._ground.frozen import FrozenMapping, owned_fields
from tacit._ground.reprs import shown

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Within:
    """A range of numbers, whole ones for a field of ``int``.

    Attributes:
        low: its lower end.
        high: its upper end.
        ends: a bracket for each end, round where the end is left out.

    Example:
        >>> Within(0, 1).check("share", 1.0, float)
        Traceback (most recent call last):
        ValueError: share: expected a number in (0, 1), got 1.0
    """

    low: float
    high: float = float("inf")
    ends: str = "()"

    def check(self, name: str, value: Any, kind: Any) -> float | int:
        """Return the number.

        Raises:
            ValueError: it is none, or out of range.
        """
        number = integer(name, value, maximum=None) if kind is int else as_float(name, value)
        below = number <= self.low if self.ends[0] == "(" else number < self.low
        above = number >= self.high if self.ends[1] == ")" else number > self.high
        if below or above:
            what = "an integer" if kind is int else "a number"
            # a percentage where a share is asked for
            share = f"; {number:g}% is {number / 100:g}" if self.high == 1.0 < number <= 100 else ""
            raise ValueError(f"{name}: expected {what} in {self}, got {number!r}{share}")
        return number

    def __str__(self) -> str:
        high = "∞" if self.high == float("inf") else f"{self.high:g}"
        return f"{self.ends[0]}{self.low:g}, {high}{self.ends[1]}"


@dataclass(frozen=True)
class Spelled:
    """How a field that is no number and no word is written in one flag.

    Attributes:
        metavar: what stands for it in the help.
        read: returns the field's value of a text, or raises ``ValueError``.
        repeated: whether the flag may be given several times, and ``read`` takes their list.
    """

    metavar: str
    read: Callable[[Any], Any]
    repeated: bool = False


@dataclass(frozen=True)
class Flag:
    """The flag of a field, where it is not named as the field is."""

    name: str


Share: TypeAlias = Annotated[float, Within(0, 1)]
Positive: TypeAlias = Annotated[float, Within(0)]
NonNegative: TypeAlias = Annotated[float, Within(0, ends="[)")]
Count: TypeAlias = Annotated[int, Within(1, ends="[)")]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def value(kind: type[Kind]) -> type[Kind]:
    """Make a frozen value of keyword fields that checks itself.

    Numbers are held against the ``Within`` of their annotation, ``Literal`` and enum fields against
    their words, arrays are copied and read-only, mappings cannot be changed. A method
    ``_together``, where there is one, then refuses fields that make no sense beside each other. The
    ``repr`` has what is not the default; ``Args:`` of the docstring has a line for every field,
    which is the help of its flag.

    Example:
        >>> @value
        ... class Effort:
        ...     '''How much work goes in.
        ...
        ...     Args:
        ...         trials: Simulated releases that are attacked.
        ...     '''
        ...     trials: Annotated[int, Within(0, ends="[)")] = 2000
        >>> Effort(), Effort(trials=10), told(Effort)["trials"].partition(" In")[0]
        (Effort(), Effort(trials=10), 'Simulated releases that are attacked.')
        >>> Effort(trials=-1)
        Traceback (most recent call last):
        ValueError: trials: expected an integer in [0, ∞), got -1
    """
    kind.__post_init__ = _checked  # type: ignore[attr-defined]
    made = dataclass(frozen=True, kw_only=True, repr=False)(kind)
    made.__repr__ = _represented  # type: ignore[method-assign]
    return made


def is_value(kind: Any) -> bool:
    """Whether a class was made by ``value``."""
    return isinstance(kind, type) and kind.__dict__.get("__post_init__") is _checked


@cache
def field_kinds(kind: Any) -> Mapping[str, tuple[Any, tuple[Any, ...]]]:
    """Return the type and the notes of every field, its ``| None`` left out."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _parts(hints[field.name]) for field in fields(kind)}


@cache
def told(kind: Any) -> Mapping[str, str]:
    """Return what ``Args:`` of the docstring says of every field, its range and its default.

    Raises:
        TypeError: it says nothing of one: a fault of the program.
    """
    text = inspect.cleandoc(kind.__doc__ or "")
    block = text.partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", block, re.MULTILINE)
    words = {name: " ".join(line.split()) for name, line in found}
    missing = [field.name for field in fields(kind) if field.name not in words]
    if missing:
        raise TypeError(f"{kind.__name__}: its docstring says nothing of {', '.join(missing)}")
    kinds: Mapping[str, Any] = field_kinds(kind)
    return {one.name: _help(words[one.name], one, *kinds[one.name]) for one in fields(kind)}


def _help(words: str, field: Field[Any], base: Any, notes: tuple[Any, ...]) -> str:
    within = next((note for note in notes if isinstance(note, Within)), None)
    words += "" if within is None else f" In {within}."
    shown = field.default not in (None, MISSING) and base is not bool
    return f"{words} {field.default} when left out." if shown else words


@cache
def words_of(kind: Any) -> tuple[str, ...] | None:
    """Return the words that a field may be; None where it is no choice of words."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(str(one.value) for one in kind)
    return None


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(kind) is Annotated:
        base, notes = _parts(kind.__origin__)
        return base, (*notes, *kind.__metadata__)
    if get_origin(kind) in (Union, types.UnionType):
        inner = [one for one in get_args(kind) if one is not type(None)]
        if len(inner) == 1:
            base, notes = _parts(inner[0])
            return base, (*notes, type(None))
    return kind, ()


def _checked(self: Any) -> None:
    for name, (kind, notes) in field_kinds(self.__class__).items():
        given = getattr(self, name)
        if given is None and (kind is Any or type(None) in notes):
            continue
        object.__setattr__(self, name, _field(name, given, kind, notes))
    owned_fields(self)
    together = getattr(self, "_together", None)
    if together is not None:
        together()


def _field(name: str, given: Any, kind: Any, notes: tuple[Any, ...]) -> Any:
    """Return a field as it is kept: in range, of its kind, and nobody else's to change."""
    within = next((note for note in notes if isinstance(note, Within)), None)
    if within is not None:
        return within.check(name, given, kind)
    words = words_of(kind)
    if words is not None:
        word = choice(name, given.value if isinstance(given, enum.Enum) else given, words)
        return kind(word) if isinstance(kind, type) else word
    if kind is bool:
        return boolean(name, given)
    if kind is float:
        return as_float(name, given)
    if kind is int:
        return integer(name, given)
    if kind is str and not isinstance(given, str):
        raise ValueError(f"{name}: expected text, got {shown(given)}")
    if isinstance(given, Mapping):
        return FrozenMapping(given)
    return tuple(given) if isinstance(given, list) else given


def _represented(self: Any) -> str:
    parts = []
    for field in fields(self):
        held = getattr(self, field.name)
        same = held is field.default or (
            not isinstance(held, np.ndarray)
            and type(held) is type(field.default)
            and held == field.default
        )
        if not same:
            parts.append(f"{field.name}={shown(held)}")
    return f"{type(self).__name__}({', '.join(parts)})"
