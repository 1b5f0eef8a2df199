"""Short representations: what a value holds, without the numbers in its arrays."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

Kind = TypeVar("Kind")
# Longer sequences say how long they are; longer texts and values are cut.
LONGEST, LONGEST_TEXT = 4, 80


def short_repr(kind: type[Kind]) -> type[Kind]:
    """Give a class a ``repr`` in which every array is its type and shape.

    It shows the fields of a dataclass, and the public attributes of any other class.

    Example:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> @short_repr
        ... @dataclass(frozen=True)
        ... class Noise:
        ...     matrix: np.ndarray
        >>> Noise(np.eye(2))
        Noise(matrix=<float64 (2, 2)>)
    """
    kind.__repr__ = _represented  # type: ignore[method-assign]
    return kind


def _represented(self: Any) -> str:
    if is_dataclass(self):
        names = [field.name for field in fields(self) if field.repr]
    else:
        names = [name for name in vars(self) if not name.startswith("_")]
    parts = (f"{name}={shown(getattr(self, name))}" for name in names)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def shown(value: Any, *, depth: int = LONGEST) -> str:
    """Return a value in a few characters: an array as its type and shape, without its numbers.

    Of lists within lists so many levels are shown, and how long the last ones are.
    """
    if hasattr(value, "shape") and hasattr(value, "dtype") and tuple(value.shape):
        return f"<{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}>"
    nested = isinstance(value, (tuple, list, dict))
    if nested and (len(value) > LONGEST or not depth):
        return f"<{type(value).__name__} of {len(value)}>"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(shown(entry, depth=depth - 1) for entry in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST_TEXT else value[: LONGEST_TEXT - 1] + "…")
    try:
        text = repr(value)
    except RecursionError:
        return f"{type(value).__name__}(…)"
    return f"{type(value).__name__}(…)" if len(text) > LONGEST_TEXT else text
