"""Sums, means, second moments, and what follows: variances, correlations, regressions, axes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from typing import ClassVar, TypeAlias

import numpy as np

from tacit._ground.checks import Array, integer
from tacit.statistics.queries.statistic import (
    ANYTHING,
    NOT_NEGATIVE,
    Bounds,
    Columns,
    Statistic,
    SumStatistic,
)
from tacit.statistics.queries.sums import Condition, Term, Totals, term

Conditions: TypeAlias = tuple[Condition, ...]
Places: TypeAlias = tuple[int, ...]
Limits: TypeAlias = list[tuple[float, float]]

# Of sums that are possible, in deviations of the noise in a variance.
LEAST_VARIANCE = 0.1
# Directions of the columns with less than this share of the largest variance carry no slope.
SMALLEST_SHARE = 1e-10


class MomentStatistic(Statistic):
    """Numbers from the moments of some columns."""

    #: names of the columns; all when None
    columns: tuple[str, ...] | None
    #: 1 for sums, 2 for sums of products too; −2 for squares without other products
    order: ClassVar[int] = 2
    #: whether the numbers are linear in the sums where the number of rows is known
    straight: ClassVar[bool] = False
    #: whether they are sums, which no count divides
    additive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.columns is not None:
            # one name is one column, and what is stored is a tuple
            named = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            object.__setattr__(self, "columns", named)

    def bind(self, columns: Columns) -> BoundMoments:
        """Return the statistic of the table's columns.

        Raises:
            ValueError: no such column.
        """
        places = columns.positions(self.columns)
        return BoundMoments(self, places, tuple(columns.names[place] for place in places))

    @abstractmethod
    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return one name for each number, from the names of the columns."""

    @abstractmethod
    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        """Return the numbers (…, d) of the columns at some places."""

    def of_rows(self, rows: Array) -> Array | None:
        """Return the numbers of rows (n, columns) themselves; None for those of their sums."""
        return None

    def limits(self, places: Places, bounds: Bounds | None) -> Limits:
        """Return what each number can be, from what is declared of the columns."""
        return [ANYTHING] * len(self.names(["?"] * len(places)))


@dataclass(frozen=True)
class BoundMoments(SumStatistic):
    """Numbers from the moments of some columns of the rows that meet conditions.

    Attributes:
        statistic: which ones.
        columns: positions.
        labels: their names.
        suffix: what stands behind every name.
        conditions: which rows count.
    """

    statistic: MomentStatistic
    columns: Places
    labels: tuple[str, ...]
    suffix: str = ""
    conditions: Conditions = ()

    @property
    def linear(self) -> bool:  # type: ignore[override]
        """Whether the numbers are linear in the sums: ratios of noisy counts are not."""
        return self.additive or (self.statistic.straight and not self.conditions)

    @property
    def additive(self) -> bool:  # type: ignore[override]
        """Whether the numbers are sums, which no count divides."""
        return self.statistic.additive

    def terms(self) -> tuple[Term, ...]:
        """Return the count, the sums and the sums of products."""
        products = {
            1: (),
            -2: zip(self.columns, self.columns, strict=True),
            2: combinations_with_replacement(self.columns, 2),
        }[self.statistic.order]
        factors = [(), *((column,) for column in self.columns), *products]
        return tuple(term(self.conditions, some) for some in factors)

    def names(self) -> tuple[str, ...]:
        """Return the names, with the condition behind each."""
        return tuple(name + self.suffix for name in self.statistic.names(self.labels))

    def __call__(self, rows: Array) -> Array:
        """Return the numbers of some rows themselves, (d,)."""
        chosen = np.take(rows, self.columns, axis=1)
        found = None if self.conditions else self.statistic.of_rows(chosen)
        return super().__call__(rows) if found is None else found

    def limits(self, bounds: Bounds | None) -> Array:
        return np.array(self.statistic.limits(self.columns, bounds))

    def value(self, totals: Totals) -> Array:
        return self.statistic.numbers(totals, self.columns, self.conditions)

    def possible(self, totals: Totals, scales: Array) -> Array:
        """Return sums whose covariances are positive: variances are lifted, in units of noise."""
        if self.statistic.order == 1:
            return totals.sums
        squares_alone = self.statistic.order == -2
        together = [(one,) for one in self.columns] if squares_alone else [self.columns]
        sums = totals.sums.copy()
        for columns in together:
            squares = [totals.terms[term(self.conditions, (one, one))] for one in columns]
            count = totals.divisor(self.conditions)[..., None]
            # standard deviations of the noise in the mean squares
            noise = np.maximum(scales[squares], np.finfo(float).tiny) / count
            matrix = totals.central(columns, self.conditions)
            roots = np.sqrt(noise)
            # C + diag(l noise) is positive for l above minus the least eigenvalue of C in its units
            scaled = matrix / (roots[..., :, None] * roots[..., None, :])
            least = np.linalg.eigvalsh(scaled)[..., :1]
            sums[..., squares] += np.maximum(LEAST_VARIANCE - least, 0.0) * noise * count
        return sums

    def within(self, condition: Condition, label: str) -> BoundMoments:
        conditions = tuple(sorted({*self.conditions, condition}))
        return replace(self, conditions=conditions, suffix=f"{self.suffix}{label}")


@dataclass(frozen=True)
class ColumnMoments(MomentStatistic):
    """Numbers from the moments of some columns, and nothing else.

    Attributes:
        columns: their names; all when None.
    """

    columns: tuple[str, ...] | None = None


class Sum(ColumnMoments):
    """Column sums over the rows drawn.

    Example:
        >>> Sum().bind(Columns(("age", "income"))).names()
        ('sum[age]', 'sum[income]')
    """

    word, order, straight, additive = "sum", 1, True, True

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``sum[a]`` for each column."""
        return _each("sum", columns)

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        return np.stack([totals.total(place, conditions) for place in places], axis=-1)


class Mean(ColumnMoments):
    """Column means.

    Example:
        >>> Mean().bind(Columns(("age", "income")))(np.array([[1.0, 2.0], [3.0, 6.0]]))
        array([2., 4.])
    """

    word, order, straight = "mean", 1, True

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``mean[a]`` for each column."""
        return _each("mean", columns)

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        return np.stack([totals.mean(place, conditions) for place in places], axis=-1)

    def of_rows(self, rows: Array) -> Array | None:
        return np.asarray(rows.mean(axis=0))

    def limits(self, places: Places, bounds: Bounds | None) -> Limits:
        """Return the declared bounds of the columns."""
        return [ANYTHING if bounds is None else (bounds[0][one], bounds[1][one]) for one in places]


class SecondMoments(ColumnMoments):
    """Means of the products of every two columns, row by row of the upper triangle."""

    word, straight = "second-moments", True

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``moment[a,b]`` for every two columns, a column with itself too."""
        return _triangle("moment", columns)

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        pairs = combinations_with_replacement(places, 2)
        return np.stack([totals.raw_product(*pair, conditions) for pair in pairs], axis=-1)


class Variance(ColumnMoments):
    """Column variances, with n − 1; never negative."""

    word, order = "variance", -2

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``variance[a]`` for each column."""
        return _each("variance", columns)

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        return _variances(totals, places, conditions)

    def limits(self, places: Places, bounds: Bounds | None) -> Limits:
        """Return that none is negative."""
        return [NOT_NEGATIVE] * len(places)


class StandardDeviation(ColumnMoments):
    """Column standard deviations, with n − 1."""

    word, order = "std", -2

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``std[a]`` for each column."""
        return _each("std", columns)

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        return np.sqrt(_variances(totals, places, conditions))

    def of_rows(self, rows: Array) -> Array | None:
        _check_two(rows, self.word)
        return np.asarray(rows.std(axis=0, ddof=1))

    def limits(self, places: Places, bounds: Bounds | None) -> Limits:
        """Return that none is negative."""
        return [NOT_NEGATIVE] * len(places)


class CovarianceMatrix(ColumnMoments):
    """Upper triangle of the covariance matrix, with n − 1, row by row."""

    word = "covariance"

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``cov[a,b]`` for every two columns, a column with itself too."""
        return _triangle("cov", columns)

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        rows, columns = np.triu_indices(len(places))
        return np.asarray(totals.covariance(places, conditions)[..., rows, columns])

    def of_rows(self, rows: Array) -> Array | None:
        _check_two(rows, self.word)
        centred = rows - rows.mean(axis=0)
        upper = np.triu_indices(rows.shape[1])
        return np.asarray((centred.T @ centred / (len(rows) - 1))[upper])

    def limits(self, places: Places, bounds: Bounds | None) -> Limits:
        """Return that none on the diagonal is negative."""
        pairs = combinations_with_replacement(range(len(places)), 2)
        return [NOT_NEGATIVE if i == j else ANYTHING for i, j in pairs]


class Correlation(ColumnMoments):
    """Correlations of every two columns, in [−1, 1], row by row of the upper triangle."""

    word = "correlation"

    def bind(self, columns: Columns) -> BoundMoments:
        """Return the correlations of the table's columns.

        Raises:
            ValueError: fewer than two columns.
        """
        found = super().bind(columns)
        if len(found.columns) < 2:
            raise ValueError("query: correlation needs at least two columns, got one")
        return found

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``corr[a,b]`` for every two columns."""
        return tuple(f"corr[{first},{second}]" for first, second in combinations(columns, 2))

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        """Return the correlations; 0 where a variance is 0."""
        matrix = totals.covariance(places, conditions)
        deviations = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
        rows, columns = np.triu_indices(len(places), 1)
        sizes = deviations[..., rows] * deviations[..., columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            correlations = np.where(sizes > 0.0, matrix[..., rows, columns] / sizes, 0.0)
        # noise may leave a covariance larger than its variances allow
        return np.clip(correlations, -1.0, 1.0)

    def limits(self, places: Places, bounds: Bounds | None) -> Limits:
        """Return that all are within ±1."""
        return [(-1.0, 1.0)] * (len(places) * (len(places) - 1) // 2)


@dataclass(frozen=True)
class LeastSquares(MomentStatistic):
    """Coefficients of ``target = intercept + columns · coefficients``, by least squares.

    Columns that move together to one part in 10⁵ have coefficients of least length; short of that
    these are what the rows say, and their sampling error is as large as rows leave them open.

    Attributes:
        target: name of the column explained; the last when None.
        columns: names of those that explain it; all others when None.
    """

    word: ClassVar[str] = "least-squares"

    target: str | None = None
    columns: tuple[str, ...] | None = None

    def reads(self) -> tuple[str, ...] | None:
        """Return the columns that explain and the one explained, where both are named."""
        named = super().reads()
        return None if named is None or self.target is None else (*named, self.target)

    def bind(self, columns: Columns) -> BoundMoments:
        """Return the regression of the table's columns, the target the last of them.

        Raises:
            ValueError: no such column, or none that explains.
        """
        target = target_place(columns, self.target)
        features = tuple(one for one in columns.positions(self.columns) if one != target)
        if not features:
            raise ValueError("query: least-squares needs a target and at least one more column")
        places = (*features, target)
        return BoundMoments(self, places, tuple(columns.names[place] for place in places))

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``coef[a]`` for each column but the target, then ``intercept``."""
        return (*_each("coef", columns[:-1]), "intercept")

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        """Return the coefficients, then the intercept."""
        matrix = totals.covariance(places, conditions)
        # R, the correlations: columns in any units are solved for alike
        deviations = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
        scales = np.where(deviations > 0.0, deviations, 1.0)
        correlations = matrix / (scales[..., :, None] * scales[..., None, :])
        # R = V diag(w) Vᵀ of those that explain; slopes V diag(1/w) Vᵀ r
        values, axes = np.linalg.eigh(correlations[..., :-1, :-1])
        # noise may leave a direction without variance, or with a negative one
        kept = values > SMALLEST_SHARE * np.maximum(values[..., -1:], SMALLEST_SHARE)
        inverse = np.divide(1.0, values, out=np.zeros_like(values), where=kept)
        along = inverse * np.einsum("...ij,...i->...j", axes, correlations[..., :-1, -1])
        slopes = np.einsum("...ij,...j->...i", axes, along) * scales[..., -1:] / scales[..., :-1]
        # the plane goes through the means
        means = np.stack([totals.mean(place, conditions) for place in places], axis=-1)
        intercept = means[..., -1:] - (means[..., :-1] * slopes).sum(axis=-1, keepdims=True)
        return np.concatenate([slopes, intercept], axis=-1)

    def of_rows(self, rows: Array) -> Array | None:
        """Return the coefficients of rows, whose columns have to be independent."""
        from scipy.linalg import lstsq

        features = np.column_stack([rows[:, :-1], np.ones(len(rows))])
        solution, _, rank, _ = lstsq(features, rows[:, -1])
        if rank < features.shape[1]:
            raise ValueError(
                f"query: least squares needs independent columns, got rank {rank} of "
                f"{features.shape[1]} on {len(rows)} rows"
            )
        return np.asarray(solution)


@dataclass(frozen=True)
class PrincipalComponents(MomentStatistic):
    """Variances along the largest principal axes, and the axes, of unit length.

    Attributes:
        count: how many axes.
        columns: names; all when None.
    """

    word: ClassVar[str] = "principal-components"

    count: int = 1
    columns: tuple[str, ...] | None = None

    def bind(self, columns: Columns) -> BoundMoments:
        """Return the components of the table's columns.

        Raises:
            ValueError: more axes than columns.
        """
        found = super().bind(columns)
        integer("count", self.count, minimum=1, maximum=len(found.columns))
        return found

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``variance[pc1]`` … and ``pc1[a]`` …."""
        axes = [f"pc{number}" for number in range(1, self.count + 1)]
        loadings = (f"{axis}[{label}]" for axis in axes for label in columns)
        return (*_each("variance", axes), *loadings)

    def numbers(self, totals: Totals, places: Places, conditions: Conditions) -> Array:
        """Return the variances along the axes, largest first, then the axes."""
        values, axes = np.linalg.eigh(totals.covariance(places, conditions))
        largest = np.argsort(-values, axis=-1, kind="stable")[..., : self.count]
        variances = np.maximum(np.take_along_axis(values, largest, axis=-1), 0.0)
        # an axis has no sign: its longest entry is positive
        shown = np.take_along_axis(axes, largest[..., None, :], axis=-1)
        longest = np.abs(shown).argmax(axis=-2)[..., None, :]
        shown = shown * np.sign(np.take_along_axis(shown, longest, axis=-2))
        flat = np.swapaxes(shown, -1, -2).reshape(*variances.shape[:-1], -1)
        return np.concatenate([variances, flat], axis=-1)

    def limits(self, places: Places, bounds: Bounds | None) -> Limits:
        """Return that no variance is negative and the axes have length 1."""
        return [NOT_NEGATIVE] * self.count + [(-1.0, 1.0)] * (self.count * len(places))


def target_place(columns: Columns, target: str | None) -> int:
    """Return where the column stands that a regression explains; the last when None."""
    return len(columns.names) - 1 if target is None else columns.position(target, "target")


def _each(word: str, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{word}[{label}]" for label in columns)


def _triangle(word: str, columns: Sequence[str]) -> tuple[str, ...]:
    pairs = combinations_with_replacement(columns, 2)
    return tuple(f"{word}[{first},{second}]" for first, second in pairs)


def _variances(totals: Totals, places: Places, conditions: Conditions) -> Array:
    count = totals.divisor(conditions)[..., None]
    unbiased = count / np.maximum(count - 1.0, 1.0)
    # E (x − c)² − (E (x − c))²: about the centre, so that little cancels
    values = [
        totals.product(place, place, conditions) - totals.mean_offset(place, conditions) ** 2
        for place in places
    ]
    return np.maximum(np.stack(values, axis=-1) * unbiased, 0.0)


def _check_two(rows: Array, word: str) -> None:
    if len(rows) < 2:
        raise ValueError(f"query: {word} needs at least 2 rows, got {len(rows)}")
