"""Columns that look as if they named persons, for the holder of a table alone."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from tacit.statistics.tables.reading import column_names, read_table

# Words for those whom records are about, alone or with what numbers them; and names of numbers.
PERSONS = (
    "account|citizen|client|customer|donor|driver|employee|household|member|participant|passenger|"
    "patient|person|pupil|respondent|student|subject|subscriber|user|visitor"
)
LIKELY = re.compile(
    rf"({PERSONS})s?([ _.-]?(id|key|no|nr|number|name|code|uuid))?|id|uid|uuid|ssn|e-?mail",
    re.IGNORECASE,
)


class SharedValue(NamedTuple):
    """How many rows share a value of a column, at most."""

    column: str
    rows: int


def looks_like_an_identifier(name: str) -> bool:
    """Return whether a column's name is one for persons.

    Example:
        >>> [looks_like_an_identifier(one) for one in ("customer_id", "User", "city", "username2")]
        [True, True, False, False]
    """
    return LIKELY.fullmatch(name.strip()) is not None


def most_shared(
    source: str,
    *,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
) -> SharedValue | None:
    """Return which column that looks like an identifier has a value in most rows.

    None where there is no such column, or no value of one occurs twice. It is the table's: whoever
    hides one record is to know that a person has several, and nobody else is told.

    Args:
        source: path of a file.
        encoding: as ``read_table`` takes it, as are the others.
        delimiter: of a CSV file.
        decimal: the mark in numbers.

    Raises:
        ValueError: it cannot be read.
    """
    names = column_names(source, encoding=encoding, delimiter=delimiter, decimal=decimal)
    likely = [name for name in names if looks_like_an_identifier(name)]
    found = []
    for name in likely:
        table = read_table(
            source,
            [name],
            categories={name: None},
            missing="drop-unreadable",
            encoding=encoding,
            delimiter=delimiter,
            decimal=decimal,
        )
        if len(table):
            found.append(SharedValue(name, int(np.bincount(table.rows[:, 0].astype(int)).max())))
    worst = max(found, key=lambda one: one.rows, default=None)
    return worst if worst is not None and worst.rows > 1 else None
