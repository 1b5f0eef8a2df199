"""A query that adds up: statistics of sums, from values or from a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.sums.counts import Count, CumulativeCounts, Histogram, Quantiles, TwoWayTable
from tacit.statistics.sums.grouped import GroupBy, Several
from tacit.statistics.sums.moments import (
    Correlation,
    Covariance,
    Mean,
    SecondMoments,
    StandardDeviation,
    Sum,
    Variance,
)
from tacit.statistics.sums.regression import LeastSquares, PrincipalComponents
from tacit.statistics.sums.statistic import Columns, Statistic
from tacit.statistics.sums.terms import Term, row_values
from tacit.statistics.sums.totals import Totals

PLAIN: dict[str, type[Statistic]] = {
    "count": Count,
    "sum": Sum,
    "mean": Mean,
    "second-moments": SecondMoments,
    "variance": Variance,
    "std": StandardDeviation,
    "covariance": Covariance,
    "correlation": Correlation,
}
SYNONYMS = {"standard-deviation": "std", "ols": "least-squares", "pca": "principal-components"}
WITH_PARAMETERS = (
    "least-squares",
    "principal-components",
    "median",
    "quantiles",
    "histogram",
    "two-way",
    "cumulative",
)
BY = " by "
NORMAL_95 = 1.959963984540054
# Standard deviation of what is lost to whole numbers.
ROUNDING = 12.0**-0.5


@dataclass(frozen=True, eq=False)
class SumQuery:
    """Statistics of the columns of one table, as one function of sums over rows.

    Attributes:
        statistic: what is computed of the sums.
        description: what it is, in a few words.
        width: p, columns of the table.
    """

    statistic: Several = field(repr=False)
    description: str
    width: int

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The k terms that rows add, each once."""
        return self.statistic.terms()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The d names of the numbers."""
        return self.statistic.names()

    @property
    def linear(self) -> bool:
        """Whether the numbers are linear in the sums when the number of rows is known."""
        return self.statistic.linear

    @cached_property
    def linear_numbers(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers are, (d,)."""
        return self.statistic.linear_numbers

    @cached_property
    def additive_numbers(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers are counts and sums, which add up over tables, (d,)."""
        return self.statistic.additive_numbers

    def told(self, numbers: Array) -> Array:
        """Return numbers (…, d) as they are told: whole where that was asked for."""
        return np.where(self.statistic.rounded, np.rint(numbers), numbers)

    def told_errors(self, errors: Array) -> Array:
        """Return errors (d,) of the numbers as they are told: rounding adds a variance of 1/12."""
        widened = self.statistic.rounded & (errors > 0.0)
        return np.where(widened, np.hypot(errors, ROUNDING), errors)

    def limits(self, bounds: tuple[Array, Array] | None = None) -> Array:
        """Return the (lowest, highest) that each number can be, (d, 2), as ``BoundStatistic``."""
        return self.statistic.limits(bounds)

    @property
    def counting(self) -> bool:
        """Whether rows add zeros and ones only."""
        return all(not one.factors for one in self.terms)

    @cached_property
    def _places(self) -> dict[Term, int]:
        return {one: place for place, one in enumerate(self.terms)}

    def row_values(self, rows: Array, centres: Array) -> Array:
        """Return what every row adds, (n, k)."""
        return row_values(self.terms, rows, centres)

    def finish(
        self,
        sums: Array,
        centres: Array,
        drawn: float | None,
        *,
        bounds: tuple[Array, Array] | None = None,
        smooth: bool = False,
    ) -> Array:
        """Return the numbers (…, d) that follow from the sums (…, k): post-processing.

        Args:
            sums: over the rows drawn, noisy or not.
            centres: (p,) what was taken from the columns.
            drawn: number of rows, None where the noisy count stands for it.
            bounds: declared (lowest, highest) of the columns, (p,) each, that means stay within.
            smooth: read numbers that jump with the sums between the jumps.
        """
        return self.statistic.value(Totals(self._places, sums, centres, drawn, bounds, smooth))

    def bracketed(
        self,
        errors: Array,
        sums: Array,
        drawn: float | None,
        covariance: Array,
        restored: Callable[[Array], Array] = np.asarray,
    ) -> Array:
        """Return errors (d,) of which ±1.96 hold the number of the rows in 95% of releases.

        Those of numbers that jump with the sums, such as quantiles, are found from the noisy sums
        by tests at the jumps, each against the noise of its own gap, and hold the step of the grid;
        others stay.

        Args:
            errors: (d,) of all numbers.
            sums: (k,) noisy.
            drawn: as for ``finish``.
            covariance: (k, k) of their noise.
            restored: the sums of the terms from those that noise is added to; linear.
        """
        nowhere = np.zeros(self.width)

        def gaps(some: Array) -> Array:
            return self.statistic.gaps(Totals(self._places, restored(some), nowhere, drawn))

        found = gaps(sums)
        if not found.size:
            return errors
        # the gaps are affine in the sums: J from unit vectors, variances diag(J Σ Jᵀ)
        jacobian = gaps(np.eye(len(sums))) - gaps(np.zeros(len(sums)))
        variances = np.einsum("kg,kl,lg->g", jacobian, covariance, jacobian, optimize=True)
        ends = self.statistic.ends(found, np.sqrt(np.maximum(variances, 0.0)))
        told = self.told(self.finish(restored(sums), nowhere, drawn))
        reach = np.maximum(told - ends[:, 0], ends[:, 1] - told)
        return np.where(np.isnan(reach), errors, np.maximum(reach, 0.0) / NORMAL_95)

    def possible(self, sums: Array, centres: Array, drawn: float | None, scales: Array) -> Array:
        """Return sums (…, k) near those given which rows can have, as far as numbers tell.

        Args:
            sums: (…, k), noisy.
            centres: (p,) what was taken from the columns.
            drawn: as for ``finish``.
            scales: (k,) standard deviations of the noise.
        """
        return self.statistic.possible(Totals(self._places, sums, centres, drawn), scales)

    def __call__(self, rows: Array) -> Array:
        """Return the numbers of some rows themselves, (d,)."""
        centres = rows.mean(axis=0)
        return self.finish(self.row_values(rows, centres).sum(axis=0), centres, float(len(rows)))


def sum_query(query: Any, columns: Columns, target: str | None = None) -> SumQuery | None:
    """Return the query as one that adds up, None where it is another kind.

    Texts: ``count``, ``sum``, ``mean``, ``second-moments``, ``variance``, ``std``, ``covariance``,
    ``correlation``, ``least-squares``, ``principal-components:2``, ``median``,
    ``quantiles:0.1,0.9``, ``histogram:age`` (categories), ``histogram:age:0,20,40`` (bins),
    ``two-way:sex,region``, ``cumulative:age:20,40``; each with ``by region`` behind it for one of
    every group; several joined by ``+``.

    Args:
        query: the text, a ``Statistic``, or several in a sequence.
        columns: the columns of the table.
        target: column that a regression explains; the last one when None.

    Raises:
        ValueError: a column that is not there, or a parameter out of range.

    Example:
        >>> from tacit.statistics.sums.statistic import Columns
        >>> sum_query("mean+std", Columns(("height",))).names
        ('mean[height]', 'std[height]')
    """
    if isinstance(query, SumQuery):
        return query
    if isinstance(query, str):
        statistics = _from_text(query, target)
        description = query
    else:
        listed = list(query) if isinstance(query, (list, tuple)) else [query]
        statistics = listed if all(isinstance(one, Statistic) for one in listed) else None
        description = "+".join(type(one).__name__.lower() for one in listed)
    if not statistics:
        return None
    parts = Several(tuple(one.bound(columns) for one in statistics))
    if not parts.names():
        raise ValueError(
            f"query: expected at least one number, got none of {description!r}: no column is left"
        )
    return SumQuery(parts, description, len(columns.names))


def columns_read(query: Any, target: str | None = None) -> tuple[str, ...] | None:
    """Return the columns that a query names; None where it reads all that there are.

    Example:
        >>> columns_read("count"), columns_read("histogram:age:0,30+count by city")
        ((), ('age', 'city'))
        >>> columns_read("mean by city") is None
        True
    """
    try:
        found = _from_text(query, target) if isinstance(query, str) else query
    except ValueError:
        # refused when it is prepared
        return None
    statistics = found if isinstance(found, (list, tuple)) else [found]
    names: list[str] = []
    for one in statistics:
        read = one.reads() if isinstance(one, Statistic) else None
        if read is None:
            return None
        names += read
    return tuple(dict.fromkeys(names)) if statistics else None


def known_names() -> tuple[str, ...]:
    """Return the names that a text may use."""
    return (*PLAIN, *WITH_PARAMETERS)


def _from_text(text: str, target: str | None) -> list[Statistic] | None:
    found = [_part(piece.strip(), target) for piece in text.split("+")]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _part(text: str, target: str | None) -> Statistic | None:
    inner, separator, group = text.partition(BY)
    if separator:
        column, _, edges = group.strip().partition(":")
        statistic = _part(inner.strip(), target)
        if statistic is None:
            return None
        return GroupBy(statistic, column, _numbers(edges) if edges else None)
    name, _, parameter = text.partition(":")
    name = name.strip().lower().replace("_", "-")
    name = SYNONYMS.get(name, name)
    if name in PLAIN:
        if parameter:
            raise ValueError(f"query: {name} takes no parameter, got {parameter!r}")
        return PLAIN[name]()
    return _with_parameter(name, parameter, target) if name in WITH_PARAMETERS else None


def _with_parameter(name: str, parameter: str, target: str | None) -> Statistic:
    if name in ("least-squares", "median") and parameter:
        raise ValueError(f"query: {name} takes no parameter, got {parameter!r}")
    if name == "least-squares":
        return LeastSquares(target)
    if name == "median":
        return Quantiles((0.5,))
    if name == "quantiles":
        return Quantiles(_numbers(parameter)) if parameter else Quantiles()
    if name == "principal-components":
        if parameter and not parameter.isdecimal():
            raise ValueError(f"query: expected a number of components, got {parameter!r}")
        return PrincipalComponents(int(parameter) if parameter else 1)
    if not parameter:
        raise ValueError(f"query: {name} needs a column, as in {name}:NAME, got none")
    column, _, edges = parameter.partition(":")
    if name == "histogram":
        return Histogram(column, _numbers(edges) if edges else None)
    if name == "cumulative":
        if not edges:
            raise ValueError(f"query: cumulative needs thresholds, as in {name}:{column}:1,2,3")
        return CumulativeCounts(column, _numbers(edges))
    first, comma, second = parameter.partition(",")
    if not comma:
        raise ValueError(f"query: two-way needs two columns, as in two-way:A,B, got {parameter!r}")
    return TwoWayTable(first.strip(), second.strip())


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(piece) for piece in text.split(","))
    except ValueError:
        raise ValueError(f"query: expected numbers separated by commas, got {text!r}") from None
    if not np.isfinite(numbers).all():
        raise ValueError(f"query: expected finite numbers, got {text!r}")
    return numbers
