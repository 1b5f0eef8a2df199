"""Arrays that nobody can change, for values that say something about them."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Kind = TypeVar("Kind")
Entry = TypeVar("Entry", bound=np.generic)


def frozen(values: npt.NDArray[Entry]) -> npt.NDArray[Entry]:
    """Return values that nobody can change any more: a copy, unless they already are."""
    if not values.flags.writeable:
        return values
    copy = values.copy()
    copy.flags.writeable = False
    return copy


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
        for field in fields(self):
            value = getattr(self, field.name, None)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, field.name, frozen(value))
            elif isinstance(value, tuple) and any(isinstance(one, np.ndarray) for one in value):
                owned = (frozen(one) if isinstance(one, np.ndarray) else one for one in value)
                object.__setattr__(self, field.name, tuple(owned))

    kind.__init__ = initialised  # type: ignore[method-assign]
    return kind
