"""From a text, a statistic or a callable to what is computed of a table's columns."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from dataclasses import replace
from typing import Any

from tacit._ground.checks import did_you_mean
from tacit._ground.reprs import shown
from tacit.statistics.queries.counts import (
    Count,
    CumulativeCounts,
    GroupBy,
    Histogram,
    RowCount,
    TwoWayTable,
)
from tacit.statistics.queries.moments import (
    Correlation,
    CovarianceMatrix,
    LeastSquares,
    Mean,
    PrincipalComponents,
    SecondMoments,
    StandardDeviation,
    Sum,
    Variance,
)
from tacit.statistics.queries.quantiles import Median, Quantiles
from tacit.statistics.queries.ratios import Ratio, shares
from tacit.statistics.queries.statistic import (
    Columns,
    Query,
    RowFunction,
    Several,
    SeveralSums,
    Statistic,
    SumQuery,
    SumStatistic,
)
from tacit.statistics.user_code import query_error

BY = " by "
SYNONYMS = {
    "standard-deviation": "std",
    "ols": "least-squares",
    "pca": "principal-components",
    "k-means": "kmeans",
}
# Every statistic that a text may name, and how it is written where it needs more than its name.
WRITTEN = {
    "mean": "mean",
    "std": "std",
    "median": "median",
    "quantiles": "quantiles",
    "covariance": "covariance",
    "least-squares": "least-squares",
    "logistic": "logistic",
    "kmeans": "kmeans",
    "count": "count",
    "rows": "rows",
    "sum": "sum",
    "variance": "variance",
    "correlation": "correlation",
    "second-moments": "second-moments",
    "principal-components": "principal-components",
    "histogram": "histogram:COLUMN",
    "two-way": "two-way:A,B",
    "cumulative": "cumulative:COLUMN:1,2",
    "shares": "shares:COLUMN",
    "ratio": "ratio:A,B",
}
# Those that are no sums: fitted, row by row again.
FITTED = ("logistic", "kmeans")
PLAIN: dict[str, type[Statistic]] = {
    kind.word: kind
    for kind in (
        Count,
        RowCount,
        Median,
        Sum,
        Mean,
        SecondMoments,
        Variance,
        StandardDeviation,
        CovarianceMatrix,
        Correlation,
    )
}


def built_in_queries() -> tuple[str, ...]:
    """Return the names of the built-in statistics, without what follows a colon.

    Example:
        >>> "mean" in built_in_queries(), "histogram" in built_in_queries()
        (True, True)
    """
    return tuple(WRITTEN)


def summable_queries() -> tuple[str, ...]:
    """Return the names of those that add up over rows."""
    return tuple(name for name in WRITTEN if name not in FITTED)


def names_import(query: str) -> bool:
    """Whether a text is ``module:function``, a function of the caller's own.

    Example:
        >>> names_import("mine:middle"), names_import("histogram:age"), names_import("mean")
        (True, False, False)
    """
    head, colon, _ = query.partition(":")
    return bool(colon) and "+" not in query and BY not in query and _word(head) not in WRITTEN


def bind_query(query: Any, columns: Columns, target: str | None = None) -> Query:
    """Return what a text, a statistic or a callable computes of the columns of a table.

    Texts: ``count``, ``sum``, ``mean``, ``second-moments``, ``variance``, ``std``, ``covariance``,
    ``correlation``, ``least-squares``, ``principal-components:2``, ``median``,
    ``quantiles:0.1,0.9``, ``histogram:age`` (categories), ``histogram:age:0,20,40`` (bins),
    ``two-way:sex,region``, ``cumulative:age:20,40``, ``shares:sex``, ``ratio:spent,visits``; each
    with ``by region`` behind it for one of every group; ``logistic`` and ``kmeans:4``, which do not
    add up; several joined by ``+``; or
    ``module:function`` for a function that can be imported.

    Args:
        query: the text, a statistic, several in a sequence, a callable on (n, p) rows, or a
            ``Query`` of any of these.
        columns: the columns of the table.
        target: column that a regression explains; the last one when None.

    Returns:
        A ``SumQuery`` where all of it adds up over rows, any other ``Query`` where not; its names
        are None for a callable, whose numbers are not known by name.

    Raises:
        ValueError: an unknown text, a module, function or column that is not there, or a parameter
            out of range.
        QueryError: a module of the caller's own that raises when it is imported.

    Example:
        >>> bind_query("mean+std", Columns(("height",))).names
        ('mean[height]', 'std[height]')
        >>> isinstance(bind_query("kmeans", Columns(("height",))), SumQuery)
        False
    """
    if isinstance(query, SumQuery):
        return query
    if isinstance(query, Query):
        return _rename(query, columns, target)
    if isinstance(query, str) and query.strip():
        if names_import(query):
            return Query(_import_query(query), None, query, imported=True)
        asked, description = _from_text(query, target), query
    elif callable(query):
        label = getattr(query, "__qualname__", type(query).__qualname__)
        module = getattr(query, "__module__", None)
        return Query(query, None, f"{module}:{label}" if module else str(label))
    else:
        asked = tuple(query) if isinstance(query, (list, tuple)) else (query,)
        if not asked or not all(isinstance(one, Statistic) for one in asked):
            raise ValueError(f"query: expected a text, a statistic or a callable, got {query!r}")
        description = "+".join(map(_describe, asked))
    if target is not None:
        columns.position(target, "target")
    parts = tuple(one.bind(columns) for one in asked)
    names = tuple(name for part in parts for name in part.names())
    if not names:
        raise ValueError(
            f"query: expected at least one number, got none of {description!r}: no column is left"
        )
    twice = next((name for name, many in Counter(names).items() if many > 1), None)
    if isinstance(query, str) and twice is not None:
        raise ValueError(f"query: expected each number once, got {twice} twice in {description!r}")
    sums = tuple(part for part in parts if isinstance(part, SumStatistic))
    if len(sums) < len(parts):
        return Query(Several(parts), names, description)
    return SumQuery(SeveralSums(sums), names, description, False, asked, len(columns.names))


def columns_read(query: Any, target: str | None = None) -> tuple[str, ...] | None:
    """Return the columns that a query names; None where it reads all that there are.

    Raises:
        ValueError: a text that is no query.

    Example:
        >>> columns_read("count"), columns_read("histogram:age:0,30+count by city")
        ((), ('age', 'city'))
        >>> columns_read("mean by city") is None
        True
    """
    if isinstance(query, Query) and not isinstance(query, SumQuery):
        query = query.function
    if isinstance(query, str) and names_import(query):
        return None
    found = _from_text(query, target) if isinstance(query, str) else query
    statistics = found if isinstance(found, (list, tuple)) else [found]
    names: list[str] = []
    for one in statistics:
        read = one.reads() if isinstance(one, Statistic) else None
        if read is None:
            return None
        names += read
    return tuple(dict.fromkeys(names)) if statistics else None


def keys_read(query: Any, target: str | None = None) -> tuple[str, ...]:
    """Return the columns whose categories a query needs: those that it groups rows by, or counts.

    Raises:
        ValueError: a text that is no query.

    Example:
        >>> keys_read("count by city+histogram:sex+mean by age:0,30,60")
        ('city', 'sex')
    """
    if isinstance(query, SumQuery):
        query = query.asked
    elif isinstance(query, Query):
        query = query.function
    if isinstance(query, str):
        query = () if names_import(query) else _from_text(query, target)
    names: list[str] = []
    for one in query if isinstance(query, (list, tuple)) else [query]:
        while isinstance(one, GroupBy):
            names += [one.column] if one.edges is None else []
            one = one.statistic
        if isinstance(one, Ratio):
            one = one.numerator
        if isinstance(one, Histogram) and one.edges is None:
            names.append(one.column)
        if isinstance(one, TwoWayTable):
            both = ((one.first, one.first_edges), (one.second, one.second_edges))
            names += [column for column, edges in both if edges is None]
    return tuple(dict.fromkeys(names))


def _rename(query: Query, columns: Columns, target: str | None) -> Query:
    """Return a query whose function may be a text or a statistic, under the names given."""
    found = bind_query(query.function, columns, target)
    names, own = query.names, found.names
    if names is None:
        names = own
    elif isinstance(names, str) or not all(isinstance(one, str) and one.strip() for one in names):
        raise ValueError(f"names: expected labels, one per output, got {shown(names)}")
    elif len(set(names)) != len(names):
        raise ValueError("names: expected different labels, got one of them twice")
    elif own is not None and len(own) != len(names):
        raise ValueError(f"names: expected {len(own)} labels, one per output, got {len(names)}")
    named = None if names is None else tuple(map(str, names))
    return replace(found, names=named, description=query.description or found.description)


def _describe(statistic: Statistic) -> str:
    if isinstance(statistic, GroupBy):
        return f"{_describe(statistic.statistic)}{BY}{statistic.column}"
    return statistic.word


def _from_text(text: str, target: str | None) -> tuple[Statistic, ...]:
    return tuple(_part(piece.strip(), text, target) for piece in text.split("+"))


def _part(piece: str, text: str, target: str | None) -> Statistic:
    inner, separator, group = piece.rpartition(BY)
    if separator:
        column, _, edges = group.strip().partition(":")
        statistic = one = _part(inner.strip(), text, target)
        while isinstance(one, GroupBy):
            if one.column == column:
                raise ValueError(f"query: expected each column once behind by, got {column} twice")
            one = one.statistic
        return GroupBy(statistic, column, _numbers(edges) if edges else None)
    name, _, rest = group.partition(":")
    name = _word(name)
    if name in PLAIN or name in ("least-squares", "logistic"):
        if rest:
            raise ValueError(f"query: {name} takes no parameter, got {rest!r}")
        return PLAIN[name]() if name in PLAIN else _of_columns(name, target)
    if name in ("kmeans", "principal-components"):
        return _of_count(name, rest)
    if name == "quantiles":
        return Quantiles(_numbers(rest)) if rest else Quantiles()
    if name not in WRITTEN:
        raise _unknown_query(text, name)
    if not rest:
        raise ValueError(f"query: {name} needs a column, as in {name}:NAME, got none")
    if name in ("two-way", "ratio"):
        first, comma, second = (one.strip() for one in rest.partition(","))
        if not comma:
            raise ValueError(f"query: {name} needs two columns, as in {name}:A,B, got {rest!r}")
        two = TwoWayTable(first, second) if name == "two-way" else None
        return two or Ratio(Sum((first,)), Sum((second,)))
    column, _, edges = rest.partition(":")
    if name in ("histogram", "shares"):
        own = _numbers(edges) if edges else None
        return Histogram(column, own) if name == "histogram" else shares(column, own)
    if not edges:
        raise ValueError(f"query: cumulative needs thresholds, as in {name}:{column}:1,2,3")
    return CumulativeCounts(column, _numbers(edges))


def _word(text: str) -> str:
    word = text.strip().lower().replace("_", "-")
    return SYNONYMS.get(word, word)


# What other languages call these: a word is asked back, as it may mean another thing there.
MEANT = {
    "avg": "mean", "average": "mean", "total": "sum", "stdev": "std", "stddev": "std",
    "var": "variance", "cov": "covariance", "corr": "correlation", "hist": "histogram",
    "percentile": "quantiles", "percentiles": "quantiles",
}  # fmt: skip


def _unknown_query(text: str, word: str) -> ValueError:
    known, first = ", ".join(WRITTEN.values()), word.partition(" ")[0]
    near = did_you_mean(MEANT.get(first, word), WRITTEN)
    if word != first and first in WRITTEN:
        near = f"; did you mean {first!r}? Its columns are chosen beside the query (--columns)"
    return ValueError(
        f"query: expected one of {known} (joined by '+'), or module:function, got {text!r}{near}"
    )


def _of_columns(name: str, target: str | None) -> Statistic:
    if name == "least-squares":
        return LeastSquares(target)
    # read where it is asked for, and scipy's optimisers with it
    from tacit.statistics.queries.fitted import Logistic

    return Logistic(target)


def _of_count(name: str, rest: str) -> Statistic:
    what, least = ("centroids", 1) if name == "kmeans" else ("components", 0)
    if rest and (not rest.isdecimal() or int(rest) < least):
        raise ValueError(f"query: expected a number of {what} >= 1, got {rest!r}")
    if name == "principal-components":
        return PrincipalComponents(int(rest)) if rest else PrincipalComponents()
    from tacit.statistics.queries.fitted import Centroids

    return Centroids(int(rest)) if rest else Centroids()


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(piece) for piece in text.split(","))
    except ValueError:
        raise ValueError(f"query: expected numbers separated by commas, got {text!r}") from None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"query: expected finite numbers, got {text!r}")
    return numbers


def _import_query(query: str) -> RowFunction:
    module_name, _, attribute = query.partition(":")
    if not all(part.isidentifier() for part in f"{module_name}.{attribute}".split(".")):
        raise _unknown_query(query, _word(module_name))
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            unknown = _unknown_query(query, _word(module_name))
            raise ValueError(f"{unknown}; there is no module {missing!r}") from None
        raise query_error(query, error, " while its module was imported") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"query: module {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"query: expected {query!r} to be a function, got {type(found).__name__}")
    function: RowFunction = found
    return function
