"""Which promise a release of numbers keeps, and what was declared for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource, choice, matrix, vector
from tacit.statistics.bounded.workflow import check_declared, prepare_table
from tacit.statistics.prepared_numbers import PreparedNumbers
from tacit.statistics.queries import ROW_FUNCTIONS, Query, resolve_query
from tacit.statistics.rows.workflow import prepare_callable, prepare_sums
from tacit.statistics.strength import Strength
from tacit.statistics.sums.query import known_names, sum_query
from tacit.statistics.sums.statistic import Columns
from tacit.statistics.tables.table import Category

PROMISES = ("rows", "table", "draw")
ROW_METHODS = ("auto", "sums", "swaps", "family", "cheaper")
ADJACENCIES = ("add-remove", "replace")


@dataclass(frozen=True, eq=False)
class Settings:
    """What a release of numbers is prepared with, as ``prepare`` takes it."""

    names: Sequence[str] | None
    sampling_rate: float
    pairs: Any
    cost: Any
    rng: RandomSource
    attack: bool
    attack_trials: int
    progress: bool | None
    workers: int | None
    confidence: float
    method: str
    simulations: int


@dataclass(frozen=True, eq=False)
class Declared:
    """What is known of a table before it is looked at.

    Attributes:
        bounds: (lowest, highest) of columns by position.
        levels: categories of columns by position, ascending.
        adjacency: ``"add-remove"`` or ``"replace"``.
        observed: names of columns whose codes stand for levels that were found in the table.
        words: what the codes of columns stand for, by position, where that was declared.
    """

    bounds: Mapping[int, tuple[float, float]]
    levels: Mapping[int, tuple[float, ...]]
    adjacency: str
    observed: frozenset[str] = frozenset()
    words: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def columns(self, names: tuple[str, ...], rows: Array | None = None) -> Columns:
        """Return the columns with what is known of them, and the rows where they may be read."""
        return Columns(names, rows, bounds=self.bounds, levels=self.levels, words=self.words)

    @staticmethod
    def of(
        columns: Sequence[str],
        bounds: Any,
        levels: Any,
        adjacency: str,
        categories: Mapping[str, Category],
    ) -> Declared:
        """Check what the caller declared.

        Args:
            columns: names of the table's columns.
            bounds: as ``prepare`` takes them.
            levels: likewise; for a column that was read with declared levels, their codes.
            adjacency: likewise.
            categories: what the codes of columns mean, where the table knows.

        Raises:
            ValueError: a column that is not there, or bounds that do not increase.
        """
        choice("adjacency", adjacency, ADJACENCIES)
        names = tuple(columns)
        found = {}
        for place, pair in _by_column("bounds", bounds, names).items():
            low, high = vector(f"bounds of {names[place]}", list(pair), size=2).tolist()
            if not low < high:
                raise ValueError(
                    f"bounds: expected lowest < highest for {names[place]!r}, got {low}, {high}"
                )
            found[place] = (low, high)
        coded = {
            names.index(name): tuple(float(code) for code in range(len(category.levels)))
            for name, category in categories.items()
            if category.declared and name in names
        }
        kinds = coded | {
            place: tuple(np.unique(vector(f"levels of {names[place]}", list(given))).tolist())
            for place, given in _by_column("levels", levels, names).items()
        }
        observed = frozenset(name for name, held in categories.items() if not held.declared)
        # levels that were found are the table's, and no name of a number tells them
        words = {
            names.index(name): held.levels
            for name, held in categories.items()
            if held.declared and name in names
        }
        return Declared(found, kinds, adjacency, observed, words)


def _by_column(name: str, value: Any, columns: tuple[str, ...]) -> dict[int, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        for key in value:
            if key not in columns:
                raise ValueError(f"{name}: expected columns of the table, got {key!r}")
        return {columns.index(key): entry for key, entry in value.items()}
    rows = matrix(name, value, columns=2)
    if len(rows) != len(columns):
        raise ValueError(f"{name}: expected {len(columns)} rows, one per column, got {len(rows)}")
    return dict(enumerate(rows.tolist()))


def prepare_promise(
    protect: str,
    query: Any,
    rows: Array,
    columns: tuple[str, ...],
    target: str | None,
    *,
    strength: Strength,
    settings: Settings,
    declared: Declared,
) -> PreparedNumbers:
    """Certify a release by pairs, or of a table, before anything is drawn."""
    if protect == "table":
        return _table(query, rows, columns, target, strength, settings, declared)
    refuse("bounds", declared.bounds or None, protect)
    choice("method", settings.method, ROW_METHODS)
    adding = None
    if settings.method in ("auto", "sums"):
        adding = sum_query(query, declared.columns(columns, rows), target)
    if adding is None:
        known = Columns(columns, rows, words=declared.words)
        return _callable(query_of(query, known, target), rows, columns, strength, settings)
    return prepare_sums(
        adding,
        rows,
        names=settings.names,
        columns=columns,
        strength=strength,
        sampling_rate=settings.sampling_rate,
        pairs=settings.pairs,
        cost=settings.cost,
        rng=settings.rng,
        attack=settings.attack,
        attack_trials=settings.attack_trials,
        progress=settings.progress,
    )


def _callable(
    query: Query, rows: Array, columns: tuple[str, ...], strength: Strength, settings: Settings
) -> PreparedNumbers:
    if settings.method == "sums":
        raise ValueError(
            "method: expected 'auto', 'swaps', 'family' or 'cheaper' for a query that does not add "
            f"up, such as {query.description!r}, got 'sums'"
        )
    for name in ("mu", "epsilon", "delta", "rho"):
        if getattr(strength, name) is not None:
            raise ValueError(
                f"{name}: expected success for a query that does not add up, such as "
                f"{query.description!r}, got {name}"
            )
    if strength.success is None:
        raise ValueError("success: expected a number, got None")
    return prepare_callable(
        query,
        rows,
        names=settings.names,
        columns=columns,
        success=strength.success,
        sampling_rate=settings.sampling_rate,
        pairs=settings.pairs,
        cost=settings.cost,
        method=settings.method,
        simulations=settings.simulations,
        confidence=settings.confidence,
        rng=settings.rng,
        attack=settings.attack,
        attack_trials=settings.attack_trials,
        workers=settings.workers,
        progress=settings.progress,
    )


def _table(
    query: Any,
    rows: Array,
    columns: tuple[str, ...],
    target: str | None,
    strength: Strength,
    settings: Settings,
    declared: Declared,
) -> PreparedNumbers:
    refuse("pairs", settings.pairs, "table")
    refuse("method", None if settings.method == "auto" else settings.method, "table")
    adding = sum_query(query, declared.columns(columns), target)
    if adding is None:
        raise ValueError(
            f"query: expected one of {', '.join(known_names())} with protect='table', whose sums "
            f"are bounded by what one row adds, got {query!r}"
        )
    check_declared(adding, columns, declared.observed)
    return prepare_table(
        adding,
        rows,
        names=settings.names,
        columns=columns,
        strength=strength,
        bounds=declared.bounds,
        adjacency=declared.adjacency,
        cost=settings.cost,
        rng=settings.rng,
        attack=settings.attack,
        attack_trials=settings.attack_trials,
    )


def query_of(query: Any, columns: Columns, target: str | None) -> Query:
    """Return any query as a function of rows, names of statistics of sums included."""
    if isinstance(query, Query):
        return query
    if not isinstance(query, str) or _adds_up_only(query):
        adding = sum_query(query, columns, target)
        if adding is not None:
            return Query(adding, adding.names, adding.description)
    return resolve_query(query, columns.names, target)


def refuse(name: str, value: Any, protect: str) -> None:
    """Refuse an argument that the promise does not have."""
    if value is not None:
        raise ValueError(f"{name}: expected None with protect={protect!r}, got {value!r}")


def _adds_up_only(text: str) -> bool:
    """Whether the text names statistics of sums, and one that is no other built-in."""
    heads = [piece.partition(" by ")[0].partition(":")[0].strip() for piece in text.split("+")]
    names = [head.lower().replace("_", "-") for head in heads]
    grouped = any(" by " in piece for piece in text.split("+"))
    plain = all(name in ROW_FUNCTIONS for name in names) and not grouped
    return not plain and all(name in known_names() for name in names)
