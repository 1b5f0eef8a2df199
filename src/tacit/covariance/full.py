"""Covariances given on all d coordinates: isotropic, diagonal, dense."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tacit._ground.checks import (
    Array,
    check_psd,
    integer,
    non_negative,
    positive,
    symmetric,
    vector,
)
from tacit._ground.frozen import array_value, frozen
from tacit.covariance.base import (
    Covariance,
    kept_spectrum,
    relative_rounding,
)
from tacit.covariance.publication import Normals
from tacit.covariance.span import row_norms, uncovered


@dataclass(frozen=True, eq=False)
class Isotropic(Covariance):
    """Σ = variance · I.

    Example:
        >>> Isotropic(4.0, dim=3).mahalanobis([2.0, 0.0, 0.0])
        1.0
    """

    kind: ClassVar[str] = "isotropic"
    variance: float
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", non_negative("variance", self.variance))
        object.__setattr__(self, "dim", integer("dim", self.dim, minimum=1))

    @property
    def rank(self) -> int:
        """Return d, or 0 without noise."""
        return self.dim if self.variance > 0 else 0

    @property
    def rounding(self) -> float:
        """Return ρ of a sum of d terms, rounded up."""
        return relative_rounding(self.dim, 1.0, 1.0)

    def trace(self) -> float:
        """Return d · variance, to rounding."""
        return self.dim * self.variance

    def _draw(self, n: int, normals: Normals) -> Array:
        # σ η, one term a coordinate
        return float(np.sqrt(self.variance)) * normals((n, self.dim))

    def _sizes(self) -> tuple[Array, Array]:
        # a coordinate is one term: nothing cancels
        deviations = np.full(self.dim, np.sqrt(self.variance))
        return deviations, deviations

    def scaled(self, c: float) -> Isotropic:
        return Isotropic(positive("c", c) * self.variance, self.dim)

    def with_floor(self, eta: float) -> Isotropic:
        return Isotropic(self.variance + non_negative("eta", eta), self.dim)

    def to_dense(self) -> Array:
        return self.variance * np.eye(self.dim)

    def diagonal(self) -> Array:
        return np.full(self.dim, self.variance)

    def _squared_distance(self, rows: Array) -> Array:
        # Σ_i z_i²/σ²
        return _diagonal_distance(rows, np.broadcast_to(self.variance, (self.dim,)))

    def _dense_weighted_trace(self, cost: Array) -> float:
        # tr(F σ² I)
        return self.variance * float(np.trace(cost))

    def _fields(self) -> dict[str, Any]:
        return {"variance": self.variance, "dim": self.dim}


@array_value()
class Diagonal(Covariance):
    """Σ = diag(variances); a zero variance leaves that coordinate bare.

    Example:
        >>> Diagonal([1.0, 0.0]).mahalanobis([0.0, 1.0])
        inf
    """

    kind: ClassVar[str] = "diagonal"
    variances: Array

    def __post_init__(self) -> None:
        variances = vector("variances", self.variances)
        if (variances < 0).any():
            raise ValueError(f"variances: expected numbers >= 0, got {float(variances.min())!r}")
        object.__setattr__(self, "variances", frozen(variances))

    @property
    def dim(self) -> int:
        """Dimension d of the noise."""
        return int(self.variances.size)

    @property
    def rank(self) -> int:
        """Number of coordinates with noise."""
        return int(np.count_nonzero(self.variances))

    @property
    def rounding(self) -> float:
        """Return ρ of a sum of d terms, rounded up."""
        return relative_rounding(self.dim, 1.0, 1.0)

    def trace(self) -> float:
        """Return the sum of the variances, to rounding."""
        return float(self.variances.sum())

    def _draw(self, n: int, normals: Normals) -> Array:
        # σ_i η_i, one term a coordinate
        return normals((n, self.dim)) * np.sqrt(self.variances)

    def _sizes(self) -> tuple[Array, Array]:
        # a coordinate is one term: nothing cancels
        deviations = np.sqrt(self.variances)
        return deviations, deviations

    def scaled(self, c: float) -> Diagonal:
        return Diagonal(positive("c", c) * self.variances)

    def with_floor(self, eta: float) -> Diagonal:
        return Diagonal(self.variances + non_negative("eta", eta))

    def to_dense(self) -> Array:
        return np.diag(self.variances)

    def diagonal(self) -> Array:
        return self.variances

    def _squared_distance(self, rows: Array) -> Array:
        return _diagonal_distance(rows, self.variances)

    def _dense_weighted_trace(self, cost: Array) -> float:
        # tr(F diag σ²) = Σ_i F_ii σ_i²
        return float(np.diagonal(cost) @ self.variances)

    def _fields(self) -> dict[str, Any]:
        return {"variances": self.variances.tolist()}


@array_value()
class Dense(Covariance):
    """Σ given as a full symmetric PSD matrix; its rank is that of its correlations.

    An eigenvalue of the correlations at most ``d · 2⁻⁵²`` of the largest is the null space, so
    that a coordinate with little noise is not taken for one without.

    Example:
        >>> Dense([[2.0, 1.0], [1.0, 2.0]]).rank
        2
    """

    kind: ClassVar[str] = "dense"
    matrix: Array
    _scales: Array = field(init=False, repr=False)
    _spectrum: tuple[Array, Array] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", frozen(symmetric("matrix", self.matrix)))
        check_psd("matrix", np.linalg.eigvalsh(self.matrix))
        # correlations D⁻¹ Σ D⁻¹: a coordinate with little noise is resolved like any other
        deviations = np.sqrt(np.maximum(np.diagonal(self.matrix), 0.0))
        scales = np.where(deviations > 0.0, deviations, 1.0)
        try:
            spectrum = kept_spectrum("matrix", self.matrix / scales[:, None] / scales)
        except ValueError:
            # rounding of the large coordinates exceeds the small ones: no scale resolves those
            scales = np.ones_like(scales)
            spectrum = kept_spectrum("matrix", self.matrix)
        object.__setattr__(self, "_scales", scales)
        object.__setattr__(self, "_spectrum", spectrum)

    @property
    def dim(self) -> int:
        """Dimension d of the noise."""
        return int(self.matrix.shape[0])

    @property
    def rank(self) -> int:
        """Number of directions with noise."""
        return int(self._spectrum[0].size)

    @property
    def rounding(self) -> float:
        """Return ρ, that of the eigenvalues kept, rounded up."""
        # ascending: the largest over the least eigenvalue that counts as noise
        values = self._spectrum[0]
        return relative_rounding(self.dim, values[-1], values[0]) if values.size else 0.0

    def trace(self) -> float:
        return float(np.trace(self.matrix))

    def _draw(self, n: int, normals: Normals) -> Array:
        eigenvalues, vectors = self._spectrum
        # D V l^½ η, η ~ N(0, I)
        standard = (normals((n, eigenvalues.size)) * np.sqrt(eigenvalues)) @ vectors.T
        draws: Array = standard * self._scales
        return draws

    def _sizes(self) -> tuple[Array, Array]:
        eigenvalues, vectors = self._spectrum
        # of V l^½ row by row, which is what is drawn, not of Σ as it was given
        deviations = row_norms(vectors * np.sqrt(eigenvalues)) * self._scales
        return deviations, deviations

    def scaled(self, c: float) -> Dense:
        return Dense(positive("c", c) * self.matrix)

    def with_floor(self, eta: float) -> Dense:
        return Dense(self.matrix + non_negative("eta", eta) * np.eye(self.dim))

    def to_dense(self) -> Array:
        return self.matrix

    def diagonal(self) -> Array:
        return np.diagonal(self.matrix)

    def _squared_distance(self, rows: Array) -> Array:
        eigenvalues, vectors = self._spectrum
        # in units of the deviations a row may overflow: then it is farther than any double says
        with np.errstate(over="ignore"):
            scaled = rows / self._scales
        overflown = np.asarray(~np.isfinite(scaled).all(axis=1))
        scaled = np.where(overflown[:, None], 0.0, scaled)
        # ‖l^−½ Vᵀ D⁻¹ z‖², by norms whose squares neither over- nor underflow
        coordinates = scaled @ vectors
        norms = row_norms(coordinates / np.sqrt(eigenvalues))
        # what Vᵀ drops of the row, beyond rounding, has no noise
        bare = uncovered(scaled, scaled - coordinates @ vectors.T, norms) | overflown
        with np.errstate(over="ignore", under="ignore"):
            return np.where(bare, np.inf, norms**2)

    def _dense_weighted_trace(self, cost: Array) -> float:
        # tr(FΣ) = Σ_ij F_ij Σ_ij
        return float(np.vdot(cost, self.matrix))

    def _fields(self) -> dict[str, Any]:
        return {"matrix": self.matrix.tolist()}


def _diagonal_distance(rows: Array, variances: Array) -> Array:
    """Return Σ z²/σ², 0 where z is 0 even where σ is, to rounding."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # z/σ² · z and not z²/σ²: squares of long rows would overflow
        terms = np.where(rows == 0.0, 0.0, rows / variances * rows)
    distances: Array = terms.sum(axis=1)
    return distances
