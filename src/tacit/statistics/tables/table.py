"""What a table is once it is read: columns of finite numbers, and what the codes in them mean."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.frozen import array_value


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


@array_value()
class DataTable:
    """Columns of finite numbers, read by ``read_table`` or ``read_query``; a pool as it is.

    Attributes:
        columns: p names.
        rows: (n, p).
        fingerprint: of all columns and rows that were there, as ``fingerprint`` gives it.
        label: the name of the file, or what stands for it.
        categories: what the codes of a column mean, by its name.
        dropped: rows left out because a column read has nothing there.
        notes: what has to be said beside a release.
        queried: whether it is the result of a query, a row of which is no record of a database.
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
    queried: bool = False

    def __len__(self) -> int:
        """Return n."""
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the rows, for NumPy."""
        rows: Array = np.array(self.rows, dtype=dtype, copy=copy)
        return rows


# The column of zeros of a table of which no column is read.
UNREAD = "row"


def without_column(table: DataTable, name: str) -> DataTable:
    """Return a table without a column that only tells which rows belong together."""
    place = table.columns.index(name)
    kept = [column for column in range(len(table.columns)) if column != place]
    # where no other was read rows are only counted, as by a column of zeros
    return replace(
        table,
        columns=tuple(table.columns[column] for column in kept) or (UNREAD,),
        rows=table.rows[:, kept].copy() if kept else np.zeros((len(table), 1)),
        categories={key: kind for key, kind in table.categories.items() if key != name},
        notes=tuple(note for note in table.notes if note != observed_note(name)),
    )


def plain_text(text: str) -> str:
    """Return the one spelling of a text: composed, lines ended by a line feed."""
    return unicodedata.normalize("NFC", text.strip().replace("\r\n", "\n").replace("\r", "\n"))


def is_number(text: str) -> bool:
    """Return whether a text stands for a finite number or an infinite one."""
    if "_" in text or not text.isascii():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def order_levels(levels: Iterable[str]) -> tuple[str, ...]:
    """Return levels in the order of their codes: numbers by size before words."""
    return tuple(sorted(levels, key=_order))


def _order(level: str) -> tuple[bool, float, str]:
    number = is_number(level)
    return not number, float(level) if number else 0.0, level


def check_levels(name: str, levels: Sequence[str], argument: str = "categories") -> list[str]:
    """Return the levels given for a category, each once and with something in it."""
    spelled = [plain_text(str(level)) for level in levels]
    if isinstance(levels, str) or not spelled or not all(spelled):
        raise ValueError(f"{argument}: expected levels for {name!r}, got {levels!r}")
    if len(set(spelled)) < len(spelled):
        raise ValueError(f"{argument}: expected different levels for {name!r}, got one twice")
    return spelled


def dropped_words(dropped: int, count: int) -> str:
    """Say how many rows were dropped, and what that does to tables that differ in one row."""
    return (
        f"{dropped:,} of {count:,} rows were dropped, as a column used holds nothing that can be "
        "read there. Each row's own cells decide that, so tables that differ in one row still "
        "differ in at most one. The number of rows dropped is not hidden"
    )


RESULT = (
    "the table is the result of a query, and wherever a row is named, a row of that result is "
    "meant. One record of the database may make or change several of these rows, or all through "
    "an aggregate, a window or a group. So may one row of a file whose types DuckDB reads off its "
    "rows"
)


def observed_note(column: str) -> str:
    """Say what levels tell that were read from the table itself."""
    return (
        f"the levels of {column} are those that occur: their list tells that each is in the table, "
        "which no promise hides; declare the levels to tell nothing"
    )
