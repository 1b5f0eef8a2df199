"""Counts that add up: whole, not negative, and every margin the sum of its cells."""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np

from tacit._ground.checks import Array
from tacit.releases.release import Release
from tacit.statistics.details import declared_columns
from tacit.statistics.queries.counts import GroupBy, KeyCount, RowCount
from tacit.statistics.queries.language import bind_query

# Cells of the finest table, at most: their squares are worked on together.
MOST_CELLS = 4096

Cell: TypeAlias = dict[int, float]


def consistent_counts(release: Release[Any]) -> dict[str, int]:
    """Return released counts of rows as whole numbers that add up and are not negative.

    The cells x of the finest table are those that the released counts y of all tables, margins
    included, say are the likeliest under independent noise of their errors σ:

        min over x >= 0 of Σ (y_i − (Ax)_i)²/σ_i²,

    where row i of A sums the cells of count i. They are rounded so that their sum is rounded to
    nearest (the largest remainders up), and every count is the sum of its cells. It is computed of
    the release alone: post-processing, which tells nothing more.

    Args:
        release: of ``rows``, ``rows by city``, ``rows by city by sex`` … of a promise ``Table``, of
            declared words; one of its tables is by all columns of the others.

    Returns:
        The counts, by their names, in the order of the release.

    Raises:
        ValueError: other numbers, no finest table, or columns whose values were found or are no
            words, of which rows are not left out that have another value.

    Example:
        >>> import pandas as pd
        >>> from tacit import Table, privatize
        >>> frame = pd.DataFrame({"who": range(90), "city": ["Bern", "Oslo", "Oslo"] * 30})
        >>> promise = Table(mu=1.0, person="who", clip=2, levels={"city": ["Bern", "Oslo"]})
        >>> release = privatize("rows+rows by city", frame, promise)
        >>> counts = consistent_counts(release)
        >>> counts["rows"] == counts["rows|city=Bern"] + counts["rows|city=Oslo"]
        True

    Source: Hay, Rastogi, Miklau and Suciu (2010), Section 3, with x >= 0.
    """
    cells, values, errors, names = _cells_of(release)
    columns = tuple(sorted({place for cell in cells for place in cell}))
    finest = [cell for cell in cells if tuple(sorted(cell)) == columns]
    if not finest:
        raise ValueError("release: expected a table by all columns of its others, got none")
    if len(finest) > MOST_CELLS:
        raise ValueError(f"release: expected at most {MOST_CELLS} cells, got {len(finest)}")
    # row i sums the cells that meet all conditions of count i
    sums = np.array(
        [[all(cell[at] == one[at] for at in one) for cell in finest] for one in cells], dtype=float
    )
    # the likeliest cells under noise of the stated errors
    if len(finest) == len(cells):
        likeliest = np.maximum(values, 0.0)
    else:
        from scipy.optimize import nnls

        likeliest = nnls(sums / errors[:, None], values / errors)[0]
    rounded = _rounded(likeliest)
    whole = (sums @ rounded).astype(int).tolist()
    return dict(zip(names, whole, strict=True))


def _cells_of(release: Release[Any]) -> tuple[list[Cell], Array, Array, list[str]]:
    """Return the conditions, number, error and name of every count of a release.

    Raises:
        ValueError: a number that is none, or of a column whose rows may have other values.
    """
    details, numbers = release.details, release.numbers
    asked = getattr(details, "query", ())
    if numbers is None or not asked or not hasattr(details, "columns"):
        raise ValueError("release: expected counts of rows of a promise Table, got another")
    columns = declared_columns(details.promise, details.columns)
    known = details.promise.levels or {}
    cells: list[Cell] = []
    for one in asked:
        if isinstance(one, KeyCount):
            continue
        places, base = [], one
        while isinstance(base, GroupBy) and base.edges is None:
            places.append(details.columns.index(base.column))
            base = base.statistic
        if not isinstance(base, RowCount):
            raise ValueError("release: expected counts of rows by declared words, got others")
        bound: Any = bind_query([one], columns)
        # each number is one of the sums, in their order
        cells += [{part.column: part.low for part in term.conditions} for term in bound.terms]
    _check_words(details, cells, known)
    first = len(numbers.names) - len(cells)
    rest = slice(first, None)
    values = np.asarray(numbers.values, dtype=float)[rest]
    errors = np.maximum(np.asarray(numbers.errors, dtype=float)[rest], 1e-300)
    return cells, values, errors, list(numbers.names[rest])


def _check_words(details: Any, cells: list[Cell], known: Any) -> None:
    """Refuse margins of columns of which rows with other values are counted.

    Raises:
        ValueError: there are some.
    """
    groups = {tuple(sorted(cell)) for cell in cells}
    if len(groups) == 1:
        return
    for place in set(itertools.chain(*groups)):
        name = details.columns[place]
        words = all(isinstance(level, str) for level in known.get(name, (0.0,)))
        if not words or name == getattr(details, "key_column", None):
            raise ValueError(
                f"release: expected margins over declared words of {name}, as rows of others are "
                "counted in what should be a sum, got another"
            )


def _rounded(values: Array) -> Array:
    """Return whole numbers whose sum is that of the numbers (k,), rounded to nearest."""
    floors = np.floor(values)
    missing = round(float(values.sum() - floors.sum()))
    up = np.argsort(-(values - floors), kind="stable")[:missing]
    floors[up] += 1.0
    return floors
