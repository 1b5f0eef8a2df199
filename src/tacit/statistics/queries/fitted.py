"""Statistics that are fitted and do not add up: logistic regression and centroids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg as scipy_linalg
from scipy.spatial.distance import cdist
from scipy.special import expit

from tacit._ground.checks import Array
from tacit.statistics.queries.moments import target_place
from tacit.statistics.queries.statistic import BoundStatistic, Columns, Statistic

# Of the last step of Newton's method, relative to the weights, and of steps, at most.
TOLERANCE, MOST_STEPS = 1e-9, 100
# The shortest step that is tried, and by how much rounding may raise the loss.
LEAST_DAMPING, ROUNDING = 1e-6, 1e-12
# Of Lloyd's iteration; a few dozen are usual.
MOST_ITERATIONS = 300


@dataclass(frozen=True)
class Logistic(Statistic):
    """Coefficients of ``P(target = 1) = 1/(1 + exp(−intercept − rows · coefficients))``.

    Minimises ``−log likelihood + ridge/2 ‖coefficients‖²`` by Newton's method with halved steps;
    the intercept is not penalised. The target must be 0 or 1 and take both values.

    Attributes:
        target: name of the column target_place; the last when None.
        ridge: what coefficients cost.
    """

    word: ClassVar[str] = "logistic"

    target: str | None = None
    ridge: float = 1.0

    def bind(self, columns: Columns) -> BoundLogistic:
        """Return the regression of the table's columns.

        Raises:
            ValueError: no such column, or none that explains.
        """
        if len(columns.names) < 2:
            raise ValueError("query: logistic needs a target and at least one more column, got 1")
        return BoundLogistic(columns.names, target_place(columns, self.target), self.ridge)


@dataclass(frozen=True)
class BoundLogistic(BoundStatistic):
    """The regression of the column at one place on all others."""

    labels: tuple[str, ...]
    target: int
    ridge: float

    def names(self) -> tuple[str, ...]:
        """Return ``coef[a]`` for each column but the target, then ``intercept``."""
        names = [f"coef[{name}]" for place, name in enumerate(self.labels) if place != self.target]
        return (*names, "intercept")

    def __call__(self, rows: Array) -> Array:
        """Return (p,): the p − 1 coefficients, then the intercept."""
        features = np.column_stack([np.delete(rows, self.target, axis=1), np.ones(len(rows))])
        response = rows[:, self.target]
        if not np.array_equal(np.unique(response), [0.0, 1.0]):
            raise ValueError(
                "query: logistic needs a target that is 0 or 1 and takes both values, got "
                f"{np.unique(response)[:4].tolist()} on {len(rows)} rows"
            )
        penalty = np.full(features.shape[1], self.ridge)
        penalty[-1] = 0.0
        weights = np.zeros(features.shape[1])
        for _ in range(MOST_STEPS):
            # Newton's step: (Xᵀ diag(p (1 − p)) X + ridge)⁻¹ (Xᵀ (p − y) + ridge w)
            probability = expit(features @ weights)
            slope = features.T @ (probability - response) + penalty * weights
            curvature = (features.T * (probability * (1.0 - probability))) @ features
            step = scipy_linalg.solve(curvature + np.diag(penalty), slope, assume_a="sym")
            if np.abs(step).max() <= TOLERANCE * (1.0 + np.abs(weights).max()):
                result: Array = weights - step
                return result
            weights = weights - _damping(features, response, penalty, weights, step) * step
        raise ValueError(
            f"query: logistic did not converge in {MOST_STEPS} iterations on {len(rows)} rows; "
            "scale the columns to comparable sizes"
        )


def _damping(
    features: Array, response: Array, penalty: Array, weights: Array, step: Array
) -> float:
    """Return the first of 1, ½, ¼, … that does not raise the loss."""

    def loss(candidate: Array) -> float:
        # −log likelihood = Σ ln(1 + e^m) − y m, without overflow
        margin = features @ candidate
        likelihood = np.logaddexp(0.0, margin) - response * margin
        return float(likelihood.sum() + 0.5 * penalty @ candidate**2)

    before, damping = loss(weights), 1.0
    while damping > LEAST_DAMPING and loss(weights - damping * step) > before * (1.0 + ROUNDING):
        damping /= 2.0
    return damping


@dataclass(frozen=True)
class Centroids(Statistic):
    """k-means centroids, in ascending order of the first column (then the second, …).

    Starts from the means of k equal groups along the first principal axis, so the same rows
    always give the same centroids; Lloyd's iteration until no row changes its cluster.

    Attributes:
        count: k.
    """

    word: ClassVar[str] = "kmeans"

    count: int = 3

    def bind(self, columns: Columns) -> BoundCentroids:
        return BoundCentroids(columns.names, self.count)


@dataclass(frozen=True)
class BoundCentroids(BoundStatistic):
    """Centroids of rows with named columns."""

    labels: tuple[str, ...]
    count: int

    def names(self) -> tuple[str, ...]:
        """Return ``centroid1[a]`` per centroid and column."""
        return tuple(
            f"centroid{number}[{name}]"
            for number in range(1, self.count + 1)
            for name in self.labels
        )

    def __call__(self, rows: Array) -> Array:
        """Return (k · p,), centroid by centroid."""
        if len(rows) < self.count:
            raise ValueError(f"query: kmeans:{self.count} needs as many rows, got {len(rows)}")
        # the same start for the same rows, in any order: groups along the first principal axis
        centred = rows - rows.mean(axis=0)
        axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
        axis = axis * np.sign(axis[np.abs(axis).argmax()])
        groups = np.array_split(np.argsort(centred @ axis, kind="stable"), self.count)
        centroids = np.stack([rows[group].mean(axis=0) for group in groups])
        before: Array | None = None
        for _ in range(MOST_ITERATIONS):
            nearest = cdist(rows, centroids, "sqeuclidean").argmin(axis=1)
            if before is not None and np.array_equal(nearest, before):
                break
            sizes = np.bincount(nearest, minlength=self.count)
            for cluster in np.flatnonzero(sizes):
                centroids[cluster] = rows[nearest == cluster].mean(axis=0)
            before = nearest
        order = np.lexsort(centroids.T[::-1])
        return centroids[order].ravel()
