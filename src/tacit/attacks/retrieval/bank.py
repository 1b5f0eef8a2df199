"""A bank of candidate states read block by block: an array, a memory map or a list of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, plain

Indices = npt.NDArray[np.int64]


class Bank:
    """N candidates of width d, of which only a block at a time is converted to float64.

    Args:
        name: what messages call it.
        value: (N, d), an array, memory map or tensor, or a sequence of such blocks.

    Raises:
        ValueError: no rows, blocks of different widths, or entries that are no numbers.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        blocks = value if isinstance(value, (list, tuple)) else [value]
        if blocks and all(np.ndim(block) == 1 for block in blocks):
            blocks = [value]
        self._parts = [_rows(name, block) for block in blocks]
        if not self._parts:
            raise ValueError(f"{name}: expected at least one candidate, got an empty bank")
        self.width = self._parts[0].shape[1]
        for part in self._parts:
            if part.shape[1] != self.width:
                raise ValueError(
                    f"{name}: expected blocks of {self.width} columns, got shape {part.shape}"
                )
        self._starts = np.cumsum([0, *(len(part) for part in self._parts)])
        self.count = int(self._starts[-1])

    def spans(self, size: int) -> list[tuple[int, int]]:
        """Cut 0 … N into stretches of at most ``size`` rows, none of them across two blocks."""
        return [
            (low, min(low + size, int(stop)))
            for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True)
            for low in range(int(start), int(stop), size)
        ]

    def rows(self, start: int, stop: int) -> Array:
        """Return rows of one span in float64."""
        part = int(np.searchsorted(self._starts, start, side="right")) - 1
        offset = int(self._starts[part])
        return self._checked(self._parts[part][start - offset : stop - offset], start)

    def column(self, place: int, start: int, stop: int) -> Array:
        """Return one entry of each row of one span, unchecked."""
        part = int(np.searchsorted(self._starts, start, side="right")) - 1
        offset = int(self._starts[part])
        return np.asarray(
            self._parts[part][start - offset : stop - offset, place], dtype=np.float64
        )

    def gather(self, index: Indices) -> Array:
        """Return the rows at ``index`` in float64."""
        parts = np.searchsorted(self._starts, index, side="right") - 1
        result = np.empty((len(index), self.width))
        for part in np.unique(parts):
            chosen = parts == part
            result[chosen] = self._parts[part][index[chosen] - self._starts[part]]
        return self._checked(result, None)

    def _checked(self, rows: Any, start: int | None) -> Array:
        values = np.asarray(rows, dtype=np.float64)
        if not np.isfinite(values).all():
            where = "" if start is None else f" in rows {start} … {start + len(values) - 1}"
            raise ValueError(f"{self.name}: expected finite numbers, got NaN or infinity{where}")
        return values


def _rows(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        rows: npt.NDArray[Any] = np.asanyarray(plain(value))
    except ValueError:
        raise ValueError(f"{name}: expected an array of numbers, got ragged rows") from None
    if rows.dtype.kind not in "fiu" or rows.ndim != 2 or rows.size == 0:
        raise ValueError(
            f"{name}: expected numbers of shape (N, d), none of them zero, got {rows.dtype} "
            f"of shape {rows.shape}"
        )
    return rows


def indices(name: str, value: Any, *, size: int, below: int) -> Indices:
    """Return ``size`` integers in 0 … ``below`` − 1."""
    try:
        found = np.asarray(plain(value))
    except ValueError:
        raise ValueError(f"{name}: expected {size} integers, got ragged rows") from None
    if found.dtype.kind not in "iu" or found.shape != (size,):
        raise ValueError(
            f"{name}: expected {size} integers, got {found.dtype} of shape {found.shape}"
        )
    result = found.astype(np.int64)
    if result.min() < 0 or result.max() >= below:
        raise ValueError(
            f"{name}: expected integers in 0 … {below - 1}, got {result.min()} … {result.max()}"
        )
    return result
