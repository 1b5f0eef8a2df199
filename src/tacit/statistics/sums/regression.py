"""Least squares and principal components, computed from means and second moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit._ground.checks import Array, integer
from tacit.statistics.sums.moments import BoundMoments, Conditions, Limits
from tacit.statistics.sums.statistic import (
    NOT_NEGATIVE,
    Bounds,
    Columns,
    Statistic,
    listed,
)
from tacit.statistics.sums.totals import Totals

# Directions of the columns with less than this share of the largest variance carry no slope.
SMALLEST_SHARE = 1e-10


@dataclass(frozen=True)
class LeastSquares(Statistic):
    """Coefficients of ``target = intercept + columns · coefficients``, by least squares.

    Columns that move together to one part in 10⁵ have coefficients of least length; short of that
    these are what the rows say, and their sampling error is as large as rows leave them open.

    Attributes:
        target: name of the column explained; the last when None.
        columns: names of those that explain it; all others when None.
    """

    target: str | None = None
    columns: Sequence[str] | None = None

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the regression of the table's columns.

        Raises:
            ValueError: no such column, or none that explains.
        """
        last = len(columns.names) - 1
        target = last if self.target is None else columns.position(self.target)
        chosen = columns.positions(listed(self.columns))
        features = tuple(place for place in chosen if place != target)
        if not features:
            raise ValueError("query: least-squares needs a target and at least one more column")
        places = (*features, target)
        labels = tuple(columns.names[place] for place in places)
        return BoundMoments(places, labels, 2, _coefficients, _coefficient_names, straight=False)


@dataclass(frozen=True)
class PrincipalComponents(Statistic):
    """Variances along the largest principal axes, and the axes, of unit length.

    Attributes:
        count: how many axes.
        columns: names; all when None.
    """

    count: int = 1
    columns: Sequence[str] | None = None

    def bound(self, columns: Columns) -> BoundMoments:
        """Return the components of the table's columns.

        Raises:
            ValueError: more axes than columns.
        """
        places = columns.positions(listed(self.columns))
        labels = tuple(columns.names[place] for place in places)
        count = integer("count", self.count, minimum=1, maximum=len(places))

        def compute(totals: Totals, chosen: tuple[int, ...], conditions: Conditions) -> Array:
            values, axes = np.linalg.eigh(totals.covariance(chosen, conditions))
            largest = np.argsort(-values, axis=-1, kind="stable")[..., :count]
            variances = np.maximum(np.take_along_axis(values, largest, axis=-1), 0.0)
            shown = np.take_along_axis(axes, largest[..., None, :], axis=-1)
            longest = np.abs(shown).argmax(axis=-2)[..., None, :]
            shown = shown * np.sign(np.take_along_axis(shown, longest, axis=-2))
            flat = np.swapaxes(shown, -1, -2).reshape(*variances.shape[:-1], -1)
            return np.concatenate([variances, flat], axis=-1)

        def names(shown: Sequence[str]) -> tuple[str, ...]:
            numbers = range(1, count + 1)
            return (
                *(f"variance[pc{number}]" for number in numbers),
                *(f"pc{number}[{label}]" for number in numbers for label in shown),
            )

        def limit(chosen: tuple[int, ...], bounds: Bounds | None) -> Limits:
            del bounds
            return [NOT_NEGATIVE] * count + [(-1.0, 1.0)] * (count * len(chosen))

        return BoundMoments(places, labels, 2, compute, names, straight=False, limit=limit)


def _coefficients(totals: Totals, places: tuple[int, ...], conditions: Conditions) -> Array:
    matrix = totals.covariance(places, conditions)
    deviations = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
    scales = np.where(deviations > 0.0, deviations, 1.0)
    correlations = matrix / (scales[..., :, None] * scales[..., None, :])
    values, axes = np.linalg.eigh(correlations[..., :-1, :-1])
    # noise may leave a direction without variance, or with a negative one
    kept = values > SMALLEST_SHARE * np.maximum(values[..., -1:], SMALLEST_SHARE)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=kept)
    along = inverse * np.einsum("...ij,...i->...j", axes, correlations[..., :-1, -1])
    slopes = np.einsum("...ij,...j->...i", axes, along) * scales[..., -1:] / scales[..., :-1]
    means = np.stack([totals.mean(place, conditions) for place in places], axis=-1)
    intercept = means[..., -1:] - (means[..., :-1] * slopes).sum(axis=-1, keepdims=True)
    return np.concatenate([slopes, intercept], axis=-1)


def _coefficient_names(labels: Sequence[str]) -> tuple[str, ...]:
    return (*(f"coef[{label}]" for label in labels[:-1]), "intercept")
