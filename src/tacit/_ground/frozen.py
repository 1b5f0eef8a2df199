"""Arrays that nobody can change, for values that say something about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

from tacit._ground.reprs import short_repr

Kind = TypeVar("Kind")
Key = TypeVar("Key")
Value = TypeVar("Value")
Entry = TypeVar("Entry", bound=np.generic)


class FrozenMapping(Mapping[Key, Value]):
    """A copy of a mapping that nobody can change; it pickles, and is equal to what it copies.

    Example:
        >>> FrozenMapping({"age": (0, 120)})["age"], FrozenMapping({}) == {}
        ((0, 120), True)
    """

    __slots__ = ("_held",)

    def __init__(self, held: Mapping[Key, Value]) -> None:
        self._held = dict(held)

    def __getitem__(self, key: Key) -> Value:
        return self._held[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return repr(self._held)


def frozen(values: npt.NDArray[Entry]) -> npt.NDArray[Entry]:
    """Return values that nobody can change any more: a copy, unless they already are."""
    if _is_still(values):
        return values
    copy = np.array(values, copy=True, subok=False)
    copy.flags.writeable = False
    return copy


def _is_still(values: Any) -> bool:
    """Whether neither an array nor one that it is a view of can be written to."""
    while type(values) is np.ndarray and not values.flags.writeable:
        if values.base is None:
            return True
        values = values.base
    return isinstance(values, bytes)


def owned_fields(value: Any) -> None:
    """Make the arrays in the fields of a frozen dataclass its own, and writing to them an error."""
    for one in fields(value):
        held = getattr(value, one.name, None)
        if isinstance(held, np.ndarray):
            object.__setattr__(value, one.name, frozen(held))
        elif isinstance(held, tuple) and any(isinstance(entry, np.ndarray) for entry in held):
            owned = (frozen(entry) if isinstance(entry, np.ndarray) else entry for entry in held)
            object.__setattr__(value, one.name, tuple(owned))


def read_only(kind: type[Kind]) -> type[Kind]:
    """Give a frozen dataclass fields whose arrays are its own, and writing to them an error.

    Example:
        >>> from dataclasses import dataclass
        >>> @read_only
        ... @dataclass(frozen=True)
        ... class Noise:
        ...     variances: np.ndarray
        >>> Noise(np.ones(2)).variances[0] = 0.0
        Traceback (most recent call last):
        ValueError: assignment destination is read-only
    """
    plain = kind.__init__

    @wraps(plain)
    def initialised(self: Any, *positional: Any, **named: Any) -> None:
        plain(self, *positional, **named)
        owned_fields(self)

    kind.__init__ = initialised  # type: ignore[method-assign]
    return kind


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def array_value(*, kw_only: bool = False) -> Callable[[type[Kind]], type[Kind]]:
    """Make a frozen value of arrays, which are its own, read-only, and short in its ``repr``.

    Two of them are not compared: arrays have no one truth.

    Example:
        >>> @array_value()
        ... class Noise:
        ...     variances: np.ndarray
        >>> Noise(np.ones(2))
        Noise(variances=<float64 (2,)>)
    """

    def made(kind: type[Kind]) -> type[Kind]:
        plain = dataclass(frozen=True, eq=False, kw_only=kw_only)(kind)
        return short_repr(read_only(plain))

    return made
