"""Differences that are read in blocks, several times: an array, a file on disk, or a callable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._ground.checks import Array, array
from tacit.design.listed.problem import checked_budgets

BLOCK_ENTRIES = 2**21


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows z_i over the roots of their budgets, read anew at every iteration.

    Attributes:
        source: (m, d) array, or what yields (n, d) arrays every time it is iterated or called.
        budgets: g, a scalar or (m,).
        checked: whether the rows are known to be finite.
    """

    source: Any
    budgets: Any
    checked: bool = False

    @property
    def in_memory(self) -> bool:
        """Whether all rows lie in memory, so that something may be kept for each of them."""
        return isinstance(self.source, np.ndarray) and not isinstance(self.source, np.memmap)

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        """Yield the index of the first row of a block, and its rows z_i/√g_i."""
        first, width = 0, None
        for piece in self._pieces():
            rows = piece if self.checked else array("differences", piece, ndim=2)
            if width is not None and rows.shape[1] != width:
                raise ValueError(
                    f"differences: expected blocks of {width} columns, got {rows.shape[1]} "
                    f"from row {first} on"
                )
            width = rows.shape[1]
            yield first, self._scaled(rows, self._limits(first, len(rows)))
            first += len(rows)
        if first == 0:
            raise ValueError("differences: expected at least one row, got none")
        if np.ndim(self.budgets) == 1 and len(self.budgets) != first:
            raise ValueError(f"budgets: expected {first} entries, got {len(self.budgets)}")

    def _pieces(self) -> Iterator[Any]:
        if isinstance(self.source, np.ndarray):
            step = max(1, BLOCK_ENTRIES // self.source.shape[1])
            for start in range(0, self.source.shape[0], step):
                yield self.source[start : start + step]
            return
        if not callable(self.source):
            yield from self.source
            return
        try:
            inspect.signature(self.source).bind()
        except TypeError:
            raise ValueError(
                "differences: expected a callable without arguments that returns blocks"
            ) from None
        pieces = self.source()
        if not isinstance(pieces, Iterable):
            raise ValueError(
                "differences: expected a callable that returns an iterator of blocks, got "
                f"{type(pieces).__name__} from it"
            )
        yield from pieces

    def _limits(self, first: int, count: int) -> Any:
        if np.ndim(self.budgets) == 0:
            return checked_budgets(self.budgets, 1)[0]
        given = self.budgets[first : first + count]
        if len(given) < count:
            raise ValueError(
                f"budgets: expected {first + count} entries or more, got {first + len(given)}"
            )
        return checked_budgets(given, count)

    @staticmethod
    def _scaled(rows: Array, limits: Any) -> Array:
        if np.ndim(limits) == 0:
            limits = limits[None]
        if (limits == 1.0).all():
            return rows
        # What overflows is refused where all rows are looked at.
        with np.errstate(over="ignore"):
            scaled: Array = rows / np.sqrt(limits)[:, None]
        return scaled

    def limits(self, indices: Any) -> Array:
        """Return the budgets of the rows at the indices."""
        limits: Array = np.asarray(self.budgets, dtype=np.float64)
        return np.full(len(indices), float(limits)) if limits.ndim == 0 else limits[indices]

    def rows(self, indices: Any) -> Array:
        """Return the rows z_i/√g_i at increasing indices."""
        if isinstance(self.source, np.ndarray):
            chosen = np.asarray(self.source[indices], dtype=np.float64)
            return self._scaled(chosen, self.limits(indices))
        found = []
        for first, rows in self:
            low, high = np.searchsorted(indices, [first, first + len(rows)])
            found.append(rows[indices[low:high] - first])
        return np.concatenate(found)


def blocks_of(differences: Any, budgets: Any) -> Blocks | None:
    """Return differences as blocks where they are a file or a stream, None where they are not.

    Raises:
        ValueError: an iterator, which can be read only once.
    """
    if isinstance(differences, np.memmap):
        if differences.ndim != 2 or differences.dtype.kind not in "fiub" or not differences.size:
            raise ValueError(
                "differences: expected a 2-dimensional file of numbers, got shape "
                f"{differences.shape} of {differences.dtype}"
            )
        return Blocks(differences, _budgets(budgets))
    if isinstance(differences, Iterator):
        raise ValueError(
            "differences: expected rows that can be read several times (an array, a file, a "
            f"callable that returns blocks), got a {type(differences).__name__}"
        )
    array_like = hasattr(differences, "__array__") or hasattr(differences, "__len__")
    if array_like or not isinstance(differences, (Callable, Iterable)):  # type: ignore[arg-type]
        return None
    return Blocks(differences, _budgets(budgets))


def _budgets(budgets: Any) -> Any:
    """Return budgets as an array; a file is left where it is."""
    return budgets if isinstance(budgets, np.memmap) else array("budgets", budgets, ndim=(0, 1))
