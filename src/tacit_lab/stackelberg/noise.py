"""Noise laws that the Stackelberg game chooses among: sampled and measured exactly, in NumPy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg
from scipy.special import gammaincinv, gammaln, logsumexp, ndtr

from tacit._ground.checks import Array, RandomSource, array, integer, matrix, positive
from tacit._ground.frozen import array_value, frozen
from tacit._ground.random import standard_normal
from tacit.covariance.publication import grid_of, rounded_sum
from tacit.covariance.span import row_norms

LOG_TWO_PI = math.log(2.0 * math.pi)


@array_value(kw_only=True)
class StackelbergNoise(ABC):
    """A zero-mean noise law B = C · lift in d dimensions, C a law in r <= d coordinates.

    Attributes:
        lift: (r, d), of rank r, units of the output; its rows span the directions that get noise.
    """

    lift: Array

    family: ClassVar[str]

    def __post_init__(self) -> None:
        lift = matrix("lift", self.lift)
        if np.linalg.matrix_rank(lift) < lift.shape[0]:
            raise ValueError(f"lift: expected independent rows, got shape {lift.shape}")
        self._keep("lift", lift)
        self._check(lift.shape[0])

    def _keep(self, name: str, value: Array) -> None:
        object.__setattr__(self, name, frozen(value))

    @abstractmethod
    def _check(self, rank: int) -> None:
        """Validate and freeze the parameters of the law in ``rank`` coordinates."""

    @property
    @abstractmethod
    def coordinate_covariance(self) -> Array:
        """Covariance of C, (r, r)."""

    @abstractmethod
    def sample_coordinates(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n values of C, (n, r)."""

    @abstractmethod
    def pairwise_log_density(self, noisy: Array, centres: Array) -> Array:
        """Return the log density of C at ``noisy_i − centre_j``, (n, N), for (n, r) and (N, r)."""

    @property
    def dim(self) -> int:
        """Dimension d of the output."""
        return int(self.lift.shape[1])

    @property
    def second_moment(self) -> Array:
        """E[noise noiseᵀ], (d, d), units of the output squared: what the noise costs.

        It is no covariance for a certificate of Gaussian noise, which a law that is not Gaussian
        does not keep; ``finite_information`` bounds what this very law tells.
        """
        dense: Array = self.lift.T @ self.coordinate_covariance @ self.lift
        return (dense + dense.T) / 2.0

    def release(self, value: ArrayLike, *, rng: RandomSource = None) -> Array:
        """Return ``value + noise`` to publish, for (d,) or rows (n, d), as ``Design.release`` does.

        The law of the noise is an estimate's, so this promises no bound on what it tells.
        """
        clean = array("value", value, ndim=(1, 2))
        if clean.shape[-1] != self.dim:
            raise ValueError(f"value: expected {self.dim} columns, got shape {clean.shape}")
        rows = np.atleast_2d(clean)
        deviations: Array = np.sqrt(np.diagonal(self.second_moment))
        inner: Array = np.sqrt(np.diagonal(self.coordinate_covariance))
        terms = row_norms(self.lift.T * inner)
        released = rounded_sum(rows, self.sample(len(rows), rng), grid_of(deviations, terms))
        return released.reshape(clean.shape)

    def sample(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n noise vectors, (n, d), for simulation; ``release`` is what publishes."""
        count = integer("n", n, minimum=1)
        drawn: Array = self.sample_coordinates(count, rng) @ self.lift
        return drawn

    def to_dict(self) -> dict[str, Any]:
        """Return family and parameters as values that strict JSON can hold."""
        parameters = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if name in self.__dataclass_fields__
        }
        return {"family": self.family, **parameters}


@array_value(kw_only=True)
class FullGaussianNoise(StackelbergNoise):
    """N(0, Σ) with a full covariance ``Σ = liftᵀ L Lᵀ lift``.

    Attributes:
        lift: (r, d).
        factor: L, (r, r), lower triangular with a positive diagonal.

    Example:
        >>> noise = FullGaussianNoise(lift=np.eye(2), factor=np.diag([1.0, 2.0]))
        >>> noise.covariance.tolist()
        [[1.0, 0.0], [0.0, 4.0]]
    """

    factor: Array

    family: ClassVar[str] = "gaussian"

    @property
    def covariance(self) -> Array:
        """Covariance Σ of the noise, (d, d): that of a Gaussian, which certificates take."""
        return self.second_moment

    def _check(self, rank: int) -> None:
        self._keep("factor", _triangular("factor", self.factor, rank))

    @property
    def coordinate_covariance(self) -> Array:
        """Covariance ``L Lᵀ`` of C, (r, r)."""
        product: Array = self.factor @ self.factor.T
        return product

    def sample_coordinates(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n values of C = L g, (n, r)."""
        drawn: Array = standard_normal((n, self.factor.shape[0]), rng) @ self.factor.T
        return drawn

    def pairwise_log_density(self, noisy: Array, centres: Array) -> Array:
        """Return ``−½‖L⁻¹(y_i − z_j)‖² − ln|L| − (r/2) ln 2π``, (n, N)."""
        return _log_normal(noisy, centres, self.factor)


@array_value(kw_only=True)
class MixtureNoise(StackelbergNoise):
    """A Gaussian mixture ``Σ_k w_k N(μ_k, L_k L_kᵀ)`` with mean zero.

    Attributes:
        lift: (r, d).
        weights: (K,), > 0, sum 1.
        means: (K, r), with ``Σ w_k μ_k = 0``; in coordinates.
        factors: (K, r, r), lower triangular with positive diagonals.

    Example:
        >>> noise = MixtureNoise(
        ...     lift=np.eye(1), weights=np.array([0.5, 0.5]),
        ...     means=np.array([[-1.0], [1.0]]), factors=np.ones((2, 1, 1)),
        ... )
        >>> noise.second_moment.tolist()
        [[2.0]]
    """

    weights: Array
    means: Array
    factors: Array

    family: ClassVar[str] = "mixture"

    def _check(self, rank: int) -> None:
        weights = array("weights", self.weights, ndim=1)
        if (weights <= 0).any() or abs(weights.sum() - 1.0) > 1e-12:
            raise ValueError(f"weights: expected numbers > 0 that sum to 1, got {weights}")
        means, factors = matrix("means", self.means), array("factors", self.factors, ndim=3)
        count = weights.size
        if means.shape != (count, rank) or factors.shape != (count, rank, rank):
            raise ValueError(
                f"means, factors: expected shapes {(count, rank)} and {(count, rank, rank)}, "
                f"got {means.shape} and {factors.shape}"
            )
        if np.abs(weights @ means).max() > 1e-9 * (1.0 + np.abs(means).max()):
            raise ValueError(f"means: expected a weighted mean of zero, got {weights @ means}")
        self._keep("weights", weights)
        self._keep("means", means)
        self._keep("factors", np.stack([_triangular("factors", one, rank) for one in factors]))

    @property
    def coordinate_covariance(self) -> Array:
        """Covariance ``Σ w_k (L_k L_kᵀ + μ_k μ_kᵀ)`` of C, (r, r)."""
        within = np.einsum("k,kij,klj->il", self.weights, self.factors, self.factors)
        between = np.einsum("k,ki,kj->ij", self.weights, self.means, self.means)
        total: Array = within + between
        return total

    def sample_coordinates(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n values of C, (n, r): a component each, then its Gaussian."""
        rank = self.means.shape[1]
        normals = standard_normal((n, rank + 1), rng)
        edges = np.cumsum(self.weights)[:-1]
        chosen = np.searchsorted(edges, ndtr(normals[:, rank]), side="right")
        spread = np.einsum("nij,nj->ni", self.factors[chosen], normals[:, :rank])
        drawn: Array = self.means[chosen] + spread
        return drawn

    def pairwise_log_density(self, noisy: Array, centres: Array) -> Array:
        """Return ``ln Σ_k w_k N(y_i − z_j; μ_k, L_k L_kᵀ)``, (n, N)."""
        parts = [
            math.log(weight) + _log_normal(noisy, centres + mean, factor)
            for weight, mean, factor in zip(self.weights, self.means, self.factors, strict=True)
        ]
        total: Array = logsumexp(np.stack(parts), axis=0)
        return total


@array_value(kw_only=True)
class EllipticalNoise(StackelbergNoise):
    """The generalised Gaussian, density ``∝ exp(−½ q^κ)``, ``q = ‖L⁻¹ c‖²``.

    κ = 1 is the Gaussian, κ = ½ an elliptical Laplace law, κ > 1 has lighter tails.

    Attributes:
        lift: (r, d).
        factor: L, (r, r), lower triangular with a positive diagonal.
        shape: κ > 0.

    Example:
        >>> noise = EllipticalNoise(lift=np.eye(2), factor=np.eye(2), shape=1.0)
        >>> bool(np.allclose(noise.second_moment, np.eye(2)))
        True

    Source: Gómez, Gómez-Villegas and Marín (1998), "A multivariate generalization of the power
    exponential family of distributions".
    """

    factor: Array
    shape: float

    family: ClassVar[str] = "elliptical"

    def _check(self, rank: int) -> None:
        self._keep("factor", _triangular("factor", self.factor, rank))
        object.__setattr__(self, "shape", positive("shape", self.shape))

    @cached_property
    def _radial(self) -> float:
        """``a = r/(2κ)``: ``q^κ / 2`` has the law Gamma(a)."""
        return float(self.factor.shape[0] / (2.0 * self.shape))

    @property
    def coordinate_covariance(self) -> Array:
        """Covariance ``2^{1/κ} Γ(a + 1/κ) / (r Γ(a)) L Lᵀ`` of C, (r, r)."""
        power = 1.0 / self.shape
        log_ratio = power * math.log(2.0) + gammaln(self._radial + power) - gammaln(self._radial)
        ratio = math.exp(log_ratio) / self.factor.shape[0]
        scaled: Array = ratio * (self.factor @ self.factor.T)
        return scaled

    def sample_coordinates(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n values of C, (n, r): a uniform direction times its radius."""
        rank = self.factor.shape[0]
        normals = standard_normal((n, rank + 1), rng)
        directions = normals[:, :rank]
        directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        squares = 2.0 * gammaincinv(self._radial, ndtr(normals[:, rank]))
        radii = squares ** (0.5 / self.shape)
        drawn: Array = (radii[:, None] * directions) @ self.factor.T
        return drawn

    def pairwise_log_density(self, noisy: Array, centres: Array) -> Array:
        """Return ``−½ q^κ + ln(κ Γ(r/2) / (π^{r/2} Γ(a) 2^a |L|))``, (n, N)."""
        rank, shape, radial = self.factor.shape[0], self.shape, self._radial
        constant = (
            math.log(shape)
            + gammaln(rank / 2.0)
            - 0.5 * rank * math.log(math.pi)
            - gammaln(radial)
            - radial * math.log(2.0)
            - float(np.log(np.diagonal(self.factor)).sum())
        )
        density: Array = constant - 0.5 * _squared_distances(noisy, centres, self.factor) ** shape
        return density


def _triangular(name: str, value: Any, rank: int) -> Array:
    checked = matrix(name, value)
    diagonal = np.diagonal(checked)
    if checked.shape != (rank, rank) or np.triu(checked, 1).any() or (diagonal <= 0).any():
        raise ValueError(
            f"{name}: expected a lower triangular matrix of shape {(rank, rank)} with a positive "
            f"diagonal, got shape {checked.shape}"
        )
    return checked


def _log_normal(noisy: Array, centres: Array, factor: Array) -> Array:
    constant = 0.5 * factor.shape[0] * LOG_TWO_PI + float(np.log(np.diagonal(factor)).sum())
    density: Array = -0.5 * _squared_distances(noisy, centres, factor) - constant
    return density


def _squared_distances(noisy: Array, centres: Array, factor: Array) -> Array:
    """Return ``‖L⁻¹(y_i − z_j)‖²``, (n, N)."""
    left = scipy_linalg.solve_triangular(factor, noisy.T, lower=True).T
    right = scipy_linalg.solve_triangular(factor, centres.T, lower=True).T
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
    distances: Array = np.maximum(squares - 2.0 * (left @ right.T), 0.0)
    return distances
