"""What a table is once it is read: columns of finite numbers, and what the codes in them mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr


@dataclass(frozen=True)
class Category:
    """The levels of a column that is coded: code k stands for ``levels[k]``.

    Attributes:
        levels: sorted, numbers by size before words.
        declared: whether they were given before the table was read. Levels that were observed tell
            that each of them occurs in the table, which no promise about the draw hides.

    Example:
        >>> Category(("Berlin", "Paris"), declared=True).levels[1]
        'Paris'
    """

    levels: tuple[str, ...]
    declared: bool


@short_repr
@read_only
@dataclass(frozen=True, eq=False)
class Table:
    """Columns of finite numbers, read by ``read_table`` or ``read_query``; a pool as it is.

    Attributes:
        columns: p names.
        rows: (n, p).
        fingerprint: of all columns and rows that were there, as ``fingerprint`` gives it.
        label: the name of the file, or what stands for it.
        categories: what the codes of a column mean, by its name.
        dropped: rows left out because a column read has nothing there.
        notes: what has to be said beside a release.
        file_digest: SHA-256 of the file's bytes, by which Tacit 0.1 named a secret; None for
            what is no file.
    """

    columns: tuple[str, ...]
    rows: Array = field(repr=False)
    fingerprint: str
    label: str
    categories: Mapping[str, Category]
    dropped: int
    notes: tuple[str, ...]
    file_digest: str | None

    def __len__(self) -> int:
        """Return n."""
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the rows, for NumPy."""
        rows: Array = np.array(self.rows, dtype=dtype, copy=copy)
        return rows
