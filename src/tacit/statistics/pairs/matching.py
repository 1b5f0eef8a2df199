"""Groups of rows that are alike: the swaps that noise has to cover are then short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit._ground.checks import Array, matrix
from tacit._ground.threads import one_thread
from tacit.compute import progress_reports
from tacit.statistics.pairs.choices import checked_sizes, without
from tacit.statistics.pairs.exchanges import exchange
from tacit.statistics.pairs.leaves import first_groups
from tacit.statistics.pairs.pairing import Indices, Pairing

# Distance of two categories in standard deviations of a number: each is off by 1/√2.
CATEGORY_WEIGHT = 2.0**-0.5
MOST_CATEGORIES = 1000


def nearest(
    rows: Any,
    *,
    group_size: int = 2,
    categories: Sequence[int] = (),
    scaled: bool = True,
    search: Any = None,
    progress: bool | None = None,
) -> Pairing:
    """Return groups of rows that are alike, the worst of them improved until none gains.

    Median splits leave leaves of about 512 rows; in each, the row farthest from all others takes
    its nearest free partner first. Then, round by round, each of the 400 worst groups exchanges a
    row with the group of a neighbour of its members, where that shortens the longer of the two.

    Args:
        rows: (N, p) numbers.
        group_size: k, rows in a group, >= 2.
        categories: columns whose numbers are codes of categories: two different ones are as far
            apart as one standard deviation of a number.
        scaled: divide each number by its standard deviation; False takes distances as they are.
        search: (N, s) coordinates in which neighbours are looked up, where the rows have many
            more columns than directions; the rows themselves when None.
        progress: whether to show a bar; None and True do.

    Returns:
        The ``Pairing``; the N mod k rows farthest from the middle are in no group.

    Raises:
        ValueError: fewer rows than a group needs, entries that are not finite, or a column with
            more than 1,000 categories.

    Example:
        >>> pairing = nearest([[0.0], [5.0], [0.1], [5.2]])
        >>> sorted(sorted(pair) for pair in pairing.members.tolist())
        [[0, 2], [1, 3]]
    """
    values = matrix("rows", rows)
    size, count = checked_sizes(len(values), group_size)
    features = _features(values, categories) if scaled else values
    looked_up = features if search is None else matrix("search", search)
    if len(looked_up) != len(values):
        raise ValueError(f"search: expected {len(values)} rows, got {len(looked_up)}")
    kept = without(len(values), _farthest(features, len(values) - count * size))
    with one_thread(), progress_reports("pairing", shown=progress is not False) as report:
        members = first_groups(features, kept, size, report)
        exchange(members, features, looked_up, report)
    return Pairing(members, len(values), "nearest")


def _features(values: Array, categories: Sequence[int]) -> Array:
    """Return numbers in units of their standard deviation, and a column for each category."""
    chosen = sorted({int(column) for column in categories})
    if chosen and not 0 <= chosen[0] <= chosen[-1] < values.shape[1]:
        raise ValueError(
            f"categories: expected columns 0 to {values.shape[1] - 1}, got {list(categories)}"
        )
    numbers = np.delete(values, chosen, axis=1)
    middle = np.median(numbers, axis=0)
    spread = _spreads(numbers)
    parts = [(numbers - middle) / spread]
    for column in chosen:
        codes, places = np.unique(values[:, column], return_inverse=True)
        if codes.size > MOST_CATEGORIES:
            raise ValueError(
                f"categories: expected at most {MOST_CATEGORIES} in a column, got {codes.size} "
                f"in column {column}"
            )
        shown = np.zeros((len(values), codes.size))
        shown[np.arange(len(values)), places] = CATEGORY_WEIGHT
        parts.append(shown)
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _spreads(numbers: Array) -> Array:
    """Return standard deviations, 1 where there is none; huge numbers do not overflow."""
    largest = np.abs(numbers).max(axis=0, initial=0.0)
    unit = np.where(largest > 0.0, largest, 1.0)
    spreads = unit * (numbers / unit).std(axis=0)
    return np.where(spreads > 0.0, spreads, 1.0)


def _farthest(features: Array, count: int) -> Indices:
    """Return the rows farthest from the middle: left out, they make no pair worse."""
    if count == 0:
        return np.empty(0, dtype=np.intp)
    gaps = features - np.median(features, axis=0)
    lengths = np.einsum("ij,ij->i", gaps, gaps)
    return np.argsort(-lengths, kind="stable")[:count]
