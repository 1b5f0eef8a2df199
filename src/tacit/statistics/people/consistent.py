"""Counts that add up: whole, not negative, and every margin the sum of its cells; and sums."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tacit._ground.checks import Array
from tacit.releases.release import Release
from tacit.statistics.details import declared_columns
from tacit.statistics.queries.counts import GroupBy, KeyCount, RowCount
from tacit.statistics.queries.language import bind_query
from tacit.statistics.queries.moments import Sum
from tacit.statistics.queries.statistic import NORMAL_95, Columns, Statistic
from tacit.statistics.queries.sums import Term

# Cells of the finest table, at most: their squares are worked on together.
MOST_CELLS = 4096
TWICE = "consistent: expected each number once, got one twice"

Cell: TypeAlias = dict[int, float]


@dataclass(frozen=True, eq=False)
class AddedTables:
    """Tables of one number, of which one is by all columns of the others.

    Attributes:
        places: (m,) of its numbers among all of a query.
        terms: (m,) what is summed for each.
        sums: (m, cells) 1 where a number sums a cell of the finest table.
        whole: whether the numbers are counts.
    """

    places: tuple[int, ...]
    terms: tuple[Term, ...]
    sums: Array
    whole: bool

    @property
    def alone(self) -> bool:
        """Whether there is the finest table and no other: number i is cell i."""
        rows, cells = self.sums.shape
        return bool(rows == cells)

    def likeliest(self, values: Array, spreads: Array) -> Array:
        """Return the numbers (m,) that add up and are the likeliest of independent noisy ones.

        ``min over x of Σ (y_i − (Ax)_i)²/σ_i²``, of counts over x >= 0, whose cells are rounded so
        that their sum is rounded to nearest (the largest remainders up).

        Args:
            values: (m,) y.
            spreads: (m,) σ > 0.
        """
        if self.alone:
            # Σ (y_i − x_i)²/σ_i² cell by cell
            return _rounded(np.maximum(values, 0.0)) if self.whole else values
        if self.whole:
            from scipy.optimize import nnls

            found: Array = nnls(self.sums / spreads[:, None], values / spreads)[0]
            return np.asarray(self.sums @ _rounded(found))
        cells = np.linalg.lstsq(self.sums / spreads[:, None], values / spreads)[0]
        return np.asarray(self.sums @ cells)

    def mend(self, values: Array, spreads: Array, widths: float) -> tuple[Array, Array]:
        """Return the numbers (m,) that add up, and half-widths (m,) of their intervals.

        Least squares without x >= 0 and rounding gives ŷ = H y of variance (H Σ Hᵀ)_ii, the least
        of what is linear and right on average: ŷ ± h holds what is true as often as the law says.
        The interval around the number that is released reaches over all of ŷ ± h that a count can
        be, and is never shorter.

        Args:
            values: (m,) y, negative ones as they are.
            spreads: (m,) σ > 0.
            widths: deviations that hold 95% of the noise.
        """
        numbers = self.likeliest(values, spreads)
        # of y/σ, whose variances are 1: ŷ = A (BᵀB)⁻¹ Bᵀ (y/σ), where B = A/σ has the rank of its
        # finest table: BᵀB is solved in a quarter of the time that B's singular values take
        scaled = self.sums / spreads[:, None]
        hat = np.diag(spreads)
        if not self.alone:
            hat = self.sums @ np.linalg.solve(scaled.T @ scaled, scaled.T)
        middle, half = hat @ (values / spreads), widths * np.linalg.norm(hat, axis=1)
        low, high = middle - half, middle + half
        if self.whole:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        reach = np.maximum(half, np.maximum(high - numbers, numbers - low))
        return numbers, np.ceil(reach) if self.whole else reach


@dataclass(frozen=True, eq=False)
class Consistency:
    """What of the numbers of a query is made to add up.

    Attributes:
        tables: of counts, and of sums of each column.
    """

    tables: tuple[AddedTables, ...]

    def mend(
        self, values: Array, spreads: Array, errors: Array, widths: float
    ) -> tuple[Array, Array]:
        """Return the numbers (d,) and errors of which ±1.96 hold 95%, those of tables mended.

        Args:
            values: (d,), with noise, negative counts as they are.
            spreads: (d,) deviations of independent noise.
            errors: (d,) as they are told.
            widths: deviations that hold 95% of the noise.
        """
        numbers, told = values.copy(), errors.copy()
        for table in self.tables:
            own = list(table.places)
            numbers[own], halves = table.mend(values[own], spreads[own], widths)
            told[own] = halves / NORMAL_95
        return numbers, told

    def check(self, values: Array) -> None:
        """Refuse numbers that do not add up.

        Raises:
            ValueError: they do not.
        """
        for table in self.tables:
            own = values[list(table.places)]
            cells = [int(np.flatnonzero(row)[0]) for row in table.sums if row.sum() == 1.0]
            finest = np.zeros(table.sums.shape[1])
            finest[cells] = own[table.sums.sum(axis=1) == 1.0]
            added = table.sums @ finest
            slack = 0.0 if table.whole else 1e-9 * float(np.abs(own).max(initial=1.0))
            if (np.abs(added - own) > slack).any() or (table.whole and own.min() < 0.0):
                raise ValueError("its numbers do not add up")


def consistency_of(
    asked: Sequence[Statistic],
    columns: Columns,
    known: Mapping[str, Any],
    key_column: str | None,
) -> Consistency:
    """Return which numbers of a query are counts of rows, or sums, that can add up.

    Args:
        asked: the statistics.
        columns: what they are bound to.
        known: declared categories of columns, by name.
        key_column: whose categories were found from the table.

    Raises:
        ValueError: none is, no table is by all columns of the others, or columns whose values were
            found or are no words, of which rows are not left out that have another value.
    """
    found: dict[Any, dict[int, Term]] = {}
    first = 0
    for one in asked:
        bound: Any = bind_query([one], columns)
        base: Any = one
        while isinstance(base, GroupBy) and base.edges is None:
            base = base.statistic
        if isinstance(base, RowCount):
            # each number is one of the sums, in their order
            numbers = [((), term) for term in bound.terms]
        elif isinstance(base, Sum):
            # a sum may hold its column's offset as often as a count: which sum it is tells the cell
            numbers = [(term.factors, term) for term in bound.terms if term.factors]
        else:
            numbers = []
        if numbers and len(numbers) < len(bound.names):
            raise ValueError(TWICE)
        for place, (name, term) in enumerate(numbers, first):
            found.setdefault(name, {})[place] = term
        first += len(bound.names)
    if not found and not any(isinstance(one, KeyCount) for one in asked):
        # where no key was found there is no group, which is no fault of the query
        raise ValueError("consistent: expected counts of rows, or sums, got none")
    return Consistency(
        tuple(
            _margins(own, columns, known, key_column, whole=name == ())
            for name, own in found.items()
        )
    )


def _margins(
    own: Mapping[int, Term],
    columns: Columns,
    known: Mapping[str, Any],
    key_column: str | None,
    *,
    whole: bool,
) -> AddedTables:
    """Return the tables of one number.

    Raises:
        ValueError: as ``consistency_of``.
    """
    cells = {
        place: {part.column: part.low for part in term.conditions} for place, term in own.items()
    }
    every = tuple(sorted({column for cell in cells.values() for column in cell}))
    finest = [cell for cell in cells.values() if tuple(sorted(cell)) == every]
    if not finest:
        raise ValueError("consistent: expected a table by all columns of its others, got none")
    if len(finest) > MOST_CELLS:
        raise ValueError(f"consistent: expected at most {MOST_CELLS} cells, got {len(finest)}")
    if len({tuple(map(tuple, sorted(cell.items()))) for cell in cells.values()}) < len(cells):
        raise ValueError(TWICE)
    _check_words(list(cells.values()), columns, known, key_column)
    # row i sums the cells that meet all conditions of number i
    held = {at: np.array([cell[at] for cell in finest]) for at in every}
    sums = np.ones((len(cells), len(finest)))
    for row, one in zip(sums, cells.values(), strict=True):
        for at, level in one.items():
            row *= held[at] == level
    return AddedTables(tuple(own), tuple(own.values()), sums, whole)


def _check_words(
    cells: Sequence[Cell], columns: Columns, known: Mapping[str, Any], key_column: str | None
) -> None:
    """Refuse margins of columns of which rows with other values are counted.

    Raises:
        ValueError: there are some.
    """
    groups = {tuple(sorted(cell)) for cell in cells}
    if len(groups) == 1:
        return
    for place in set(itertools.chain(*groups)):
        name = columns.names[place]
        words = all(isinstance(level, str) for level in known.get(name, (0.0,)))
        if not words or name == key_column:
            raise ValueError(
                f"consistent: expected margins over declared words of {name}, as rows of others "
                "are counted in what should be a sum, got another"
            )


def consistent_counts(release: Release[Any]) -> dict[str, int]:
    """Return released counts of rows as whole numbers that add up and are not negative.

    The cells x of the finest table are those that the released counts y of all tables, margins
    included, say are the likeliest under independent noise of their errors σ:

        min over x >= 0 of Σ (y_i − (Ax)_i)²/σ_i²,

    where row i of A sums the cells of count i. They are rounded so that their sum is rounded to
    nearest (the largest remainders up), and every count is the sum of its cells. It is computed of
    the release alone: post-processing, which tells nothing more. ``Table(consistent=True)`` does it
    when numbers are drawn, with intervals of what adds up.

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
    numbers = release.numbers
    if numbers is None or not hasattr(release.details, "columns"):
        raise ValueError(
            "release: expected counts of rows under the promise Table, got another release"
        )
    tables = consistency_of_details(release.details).tables
    if len(tables) != 1 or not tables[0].whole:
        raise ValueError(
            "release: expected counts of rows by declared categories, got other numbers"
        )
    own = list(tables[0].places)
    errors = np.maximum(np.asarray(numbers.errors)[own], 1e-300)
    counts = tables[0].likeliest(np.asarray(numbers.values)[own], errors)
    names = [numbers.names[place] for place in own]
    return dict(zip(names, counts.astype(int).tolist(), strict=True))


def consistency_of_details(details: Any) -> Consistency:
    """Return the same of what a release keeps.

    Raises:
        ValueError: as ``consistency_of``.
    """
    promise = details.promise
    columns = declared_columns(promise, details.columns)
    return consistency_of(
        details.query, columns, promise.levels or {}, getattr(details, "key_column", None)
    )


def _rounded(values: Array) -> Array:
    """Return whole numbers whose sum is that of the numbers (k,), rounded to nearest."""
    floors = np.floor(values)
    missing = round(float(values.sum() - floors.sum()))
    up = np.argsort(-(values - floors), kind="stable")[:missing]
    floors[up] += 1.0
    return floors
