"""Statistics that are fitted: regressions and centroids, deterministic functions of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg as scipy_linalg
from scipy.spatial.distance import cdist
from scipy.special import expit

from tacit._ground.checks import Array


@dataclass(frozen=True)
class LeastSquares:
    """Coefficients of ``target = intercept + rows · coefficients``, by least squares."""

    target: int

    def __call__(self, rows: Array) -> Array:
        """Return (p,): the p − 1 coefficients, then the intercept."""
        features, response = _split(rows, self.target)
        solution, _, rank, _ = scipy_linalg.lstsq(features, response)
        if rank < features.shape[1]:
            raise ValueError(
                f"query: least squares needs independent columns, got rank {rank} of "
                f"{features.shape[1]} on {len(rows)} rows"
            )
        coefficients: Array = solution
        return coefficients

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``coef[a]`` per column but the target, then ``intercept``."""
        return _coefficient_names(columns, self.target)


@dataclass(frozen=True)
class Logistic:
    """Coefficients of ``P(target = 1) = 1/(1 + exp(−intercept − rows · coefficients))``.

    Minimises ``−log likelihood + ridge/2 ‖coefficients‖²`` by Newton's method with halved steps;
    the intercept is not penalised. The target must be 0 or 1 and take both values.
    """

    target: int
    ridge: float = 1.0
    tolerance: float = 1e-9
    maximum_iterations: int = 100

    def __call__(self, rows: Array) -> Array:
        """Return (p,): the p − 1 coefficients, then the intercept."""
        features, response = _split(rows, self.target)
        if not np.array_equal(np.unique(response), [0.0, 1.0]):
            raise ValueError(
                "query: logistic needs a target that is 0 or 1 and takes both values, got "
                f"{np.unique(response)[:4].tolist()} on {len(rows)} rows"
            )
        penalty = np.full(features.shape[1], self.ridge)
        penalty[-1] = 0.0
        weights = np.zeros(features.shape[1])
        for _ in range(self.maximum_iterations):
            probability = expit(features @ weights)
            slope = features.T @ (probability - response) + penalty * weights
            curvature = (features.T * (probability * (1.0 - probability))) @ features
            step = scipy_linalg.solve(curvature + np.diag(penalty), slope, assume_a="sym")
            if np.abs(step).max() <= self.tolerance * (1.0 + np.abs(weights).max()):
                result: Array = weights - step
                return result
            weights = weights - self._damping(features, response, penalty, weights, step) * step
        raise ValueError(
            f"query: logistic did not converge in {self.maximum_iterations} iterations on "
            f"{len(rows)} rows; scale the columns to comparable sizes"
        )

    def _damping(
        self, features: Array, response: Array, penalty: Array, weights: Array, step: Array
    ) -> float:
        """Return the first of 1, ½, ¼, … that does not raise the loss."""

        def loss(candidate: Array) -> float:
            margin = features @ candidate
            likelihood = np.logaddexp(0.0, margin) - response * margin
            return float(likelihood.sum() + 0.5 * penalty @ candidate**2)

        before, damping = loss(weights), 1.0
        while damping > 1e-6 and loss(weights - damping * step) > before * (1.0 + 1e-12):
            damping /= 2.0
        return damping

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``coef[a]`` per column but the target, then ``intercept``."""
        return _coefficient_names(columns, self.target)


@dataclass(frozen=True)
class Centroids:
    """k-means centroids, in ascending order of the first column (then the second, …).

    Starts from the means of k equal groups along the first principal axis, so the same rows
    always give the same centroids; Lloyd's iteration until no row changes its cluster.
    """

    count: int
    maximum_iterations: int = 300

    def __call__(self, rows: Array) -> Array:
        """Return (k · p,), centroid by centroid."""
        if len(rows) < self.count:
            raise ValueError(f"query: kmeans:{self.count} needs as many rows, got {len(rows)}")
        centroids = self._start(rows)
        before: Array | None = None
        for _ in range(self.maximum_iterations):
            nearest = cdist(rows, centroids, "sqeuclidean").argmin(axis=1)
            if before is not None and np.array_equal(nearest, before):
                break
            sizes = np.bincount(nearest, minlength=self.count)
            for cluster in np.flatnonzero(sizes):
                centroids[cluster] = rows[nearest == cluster].mean(axis=0)
            before = nearest
        order = np.lexsort(centroids.T[::-1])
        return centroids[order].ravel()

    def _start(self, rows: Array) -> Array:
        centred = rows - rows.mean(axis=0)
        axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
        axis = axis * np.sign(axis[np.abs(axis).argmax()])
        groups = np.array_split(np.argsort(centred @ axis, kind="stable"), self.count)
        return np.stack([rows[group].mean(axis=0) for group in groups])

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return ``centroid1[a]`` per centroid and column."""
        return tuple(
            f"centroid{index + 1}[{name}]" for index in range(self.count) for name in columns
        )


def _split(rows: Array, target: int) -> tuple[Array, Array]:
    """Return the features with a column of ones, and the target."""
    features = np.delete(rows, target, axis=1)
    return np.column_stack([features, np.ones(len(rows))]), rows[:, target]


def _coefficient_names(columns: Sequence[str], target: int) -> tuple[str, ...]:
    names = [f"coef[{name}]" for index, name in enumerate(columns) if index != target]
    return (*names, "intercept")
