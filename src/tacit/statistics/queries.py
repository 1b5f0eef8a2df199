"""What can be released: the built-in statistics, ``module:function``, or any callable on rows."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.models import Centroids, LeastSquares, Logistic
from tacit.statistics.user_code import query_error

Rows: TypeAlias = Array
RowFunction: TypeAlias = Callable[[Rows], Any]

SYNONYMS = {
    "standard-deviation": "std",
    "ols": "least-squares",
    "k-means": "kmeans",
}
# Functions of rows, under every promise.
ROW_FUNCTIONS = (
    "mean",
    "std",
    "median",
    "quantiles",
    "covariance",
    "least-squares",
    "logistic",
    "kmeans",
)
# Names that are statistics of sums alone, as ``sums.sum_query`` reads them.
SUMS_ONLY = (
    "count",
    "sum",
    "variance",
    "correlation",
    "second-moments",
    "principal-components",
    "histogram:COLUMN",
    "two-way:A,B",
    "cumulative:COLUMN:1,2",
)
DEFAULT_QUANTILES = (0.25, 0.5, 0.75)
DEFAULT_CENTROIDS = 3
# Share by which a product of a level and a number of rows may be rounded up.
HAIR = 1e-12


@dataclass(frozen=True)
class Query:
    """A function of rows with a name for every number it returns.

    Attributes:
        function: takes (n, p) rows of the pool, returns a number or an array of numbers.
        names: one label per number returned, or None to have them numbered.
        description: what the function is, in a few words.
        imported: whether the function was named as ``module:function``.
    """

    function: RowFunction
    names: tuple[str, ...] | None
    description: str
    imported: bool = False


@dataclass(frozen=True)
class Mean:
    """Column means."""

    def __call__(self, rows: Rows) -> Array:
        """Return (p,)."""
        means: Array = rows.mean(axis=0)
        return means

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``mean[a]`` per column."""
        return tuple(f"mean[{name}]" for name in columns)


@dataclass(frozen=True)
class StandardDeviation:
    """Column standard deviations, with n − 1."""

    def __call__(self, rows: Rows) -> Array:
        """Return (p,)."""
        _at_least(rows, 2, "std")
        deviations: Array = rows.std(axis=0, ddof=1)
        return deviations

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``std[a]`` per column."""
        return tuple(f"std[{name}]" for name in columns)


@dataclass(frozen=True)
class Quantiles:
    """Column quantiles: the least value that at least qN of N rows do not exceed.

    As NumPy's ``quantile(..., method="inverted_cdf")``, and as ``sums.Quantiles`` means them.
    """

    levels: tuple[float, ...] = DEFAULT_QUANTILES

    def __call__(self, rows: Rows) -> Array:
        """Return (levels · p,), column by column."""
        ordered = np.sort(rows, axis=0)
        # ⌈qN⌉-th smallest; a product such as .3 · 10 is whole up to a hair
        places = np.ceil(np.multiply(self.levels, len(rows)) * (1.0 - HAIR)).astype(np.intp) - 1
        quantiles: Array = ordered[np.maximum(places, 0)]
        return quantiles.T.ravel()

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``q0.25[a]`` per column and level."""
        return tuple(f"q{level:g}[{name}]" for name in columns for level in self.levels)


@dataclass(frozen=True)
class CovarianceTriangle:
    """Upper triangle of the covariance matrix, with n − 1."""

    def __call__(self, rows: Rows) -> Array:
        """Return (p (p + 1)/2,), row by row."""
        _at_least(rows, 2, "covariance")
        centred = rows - rows.mean(axis=0)
        triangle: Array = (centred.T @ centred / (len(rows) - 1))[np.triu_indices(rows.shape[1])]
        return triangle

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``cov[a,b]`` per pair."""
        width = range(len(columns))
        return tuple(f"cov[{columns[i]},{columns[j]}]" for i in width for j in width if i <= j)


@dataclass(frozen=True)
class Joined:
    """Several statistics of the same rows, one after the other."""

    parts: tuple[Any, ...]

    def __call__(self, rows: Rows) -> Array:
        """Return the parts' numbers, concatenated."""
        return np.concatenate([part(rows) for part in self.parts])

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the parts' labels, concatenated."""
        return tuple(name for part in self.parts for name in part.names(columns))


def built_in_queries() -> tuple[str, ...]:
    """Return the names of the built-in statistics, without what follows a colon.

    Example:
        >>> "mean" in built_in_queries(), "histogram" in built_in_queries()
        (True, True)
    """
    return (*ROW_FUNCTIONS, *(form.partition(":")[0] for form in SUMS_ONLY))


def resolve_query(
    query: str | RowFunction | Query, columns: Sequence[str], target: str | None = None
) -> Query:
    """Return the statistic that a text or a callable stands for.

    Texts: ``mean``, ``std``, ``median``, ``quantiles`` or ``quantiles:0.1,0.9``, ``covariance``
    (upper triangle), ``least-squares``, ``logistic``, ``kmeans`` or ``kmeans:4``; several joined
    by ``+``; or ``module:function`` for a function that can be imported.

    Args:
        query: the text, a callable on (n, p) rows, or a ``Query``, which is returned as it is.
        columns: names of the p columns of the pool.
        target: column that the regressions explain; the last one when None.

    Returns:
        A ``Query``; its names are None for a callable, whose numbers are not known by name.

    Raises:
        ValueError: an unknown text, a module or function that is not there, a target that is not a
            column, a parameter out of range.
        QueryError: a module of the caller's own that raises when it is imported.

    Example:
        >>> resolve_query("mean+std", ["height"]).names
        ('mean[height]', 'std[height]')
    """
    if isinstance(query, Query):
        return query
    if callable(query):
        label = getattr(query, "__qualname__", type(query).__qualname__)
        module = getattr(query, "__module__", None)
        return Query(query, None, f"{module}:{label}" if module else str(label))
    if not isinstance(query, str) or not query.strip():
        raise ValueError(f"query: expected a text or a callable, got {query!r}")
    position = _target_position(columns, target)
    if _is_import(query):
        return Query(_imported(query), None, query, imported=True)
    texts = [text.strip() for text in query.split("+")]
    parts = tuple(_built_in(text, query, len(columns), position) for text in texts)
    function = parts[0] if len(parts) == 1 else Joined(parts)
    return Query(function, function.names(tuple(columns)), query)


def _built_in(text: str, query: str, width: int, target: int) -> Any:
    name, _, parameter = text.lower().replace("_", "-").partition(":")
    name = SYNONYMS.get(name, name)
    if name in ("least-squares", "logistic") and width < 2:
        raise ValueError(f"query: {name} needs a target and at least one more column, got {width}")
    if name == "quantiles":
        return Quantiles(_levels(parameter) if parameter else DEFAULT_QUANTILES)
    if name == "kmeans":
        return Centroids(_count(parameter) if parameter else DEFAULT_CENTROIDS)
    plain: dict[str, Any] = {
        "mean": Mean(),
        "std": StandardDeviation(),
        "median": Quantiles((0.5,)),
        "covariance": CovarianceTriangle(),
        "least-squares": LeastSquares(target),
        "logistic": Logistic(target),
    }
    if name not in plain or parameter:
        raise _unknown(query)
    return plain[name]


def _unknown(query: str) -> ValueError:
    known = ", ".join([*ROW_FUNCTIONS, *SUMS_ONLY])
    return ValueError(
        f"query: expected one of {known} (joined by '+'), or module:function, got {query!r}"
    )


def _is_import(query: str) -> bool:
    head = query.partition(":")[0].lower().replace("_", "-")
    return ":" in query and "+" not in query and SYNONYMS.get(head, head) not in ROW_FUNCTIONS


def _imported(query: str) -> RowFunction:
    module_name, _, attribute = query.partition(":")
    if not all(part.isidentifier() for part in f"{module_name}.{attribute}".split(".")):
        raise _unknown(query)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            raise ValueError(f"{_unknown(query)}; there is no module {missing!r}") from None
        raise query_error(query, error, " while its module was imported") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"query: module {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"query: expected {query!r} to be a function, got {type(found).__name__}")
    function: RowFunction = found
    return function


def _target_position(columns: Sequence[str], target: str | None) -> int:
    if len(columns) == 0:
        raise ValueError("columns: expected at least one name, got none")
    if target is None:
        return len(columns) - 1
    if target not in columns:
        raise ValueError(f"target: expected one of {', '.join(columns)}, got {target!r}")
    return list(columns).index(target)


def _levels(parameter: str) -> tuple[float, ...]:
    try:
        levels = tuple(float(text) for text in parameter.split(","))
    except ValueError:
        levels = (math.nan,)
    if not all(0.0 <= level <= 1.0 for level in levels):
        raise ValueError(f"query: expected quantile levels in [0, 1], got {parameter!r}")
    return levels


def _count(parameter: str) -> int:
    if not parameter.isdecimal() or int(parameter) < 1:
        raise ValueError(f"query: expected a number of centroids >= 1, got {parameter!r}")
    return int(parameter)


def _at_least(rows: Rows, count: int, name: str) -> None:
    if len(rows) < count:
        raise ValueError(f"query: {name} needs at least {count} rows, got {len(rows)}")
