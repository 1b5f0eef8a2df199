"""Covariances of noise in a subspace: neither ever forms a d×d matrix to sample or measure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._randomness import standard_normal
from tacit._validation import (
    Array,
    RandomSource,
    integer,
    matrix,
    non_negative,
    positive,
    symmetric,
)
from tacit.covariance.base import Covariance, frozen, infinite_outside, kept_spectrum
from tacit.linalg import default_tolerance


@dataclass(frozen=True, eq=False)
class LowRank(Covariance):
    """Σ = basisᵀ core basis + floor · I, with orthonormal basis rows.

    Args:
        basis: (k, d) with orthonormal rows.
        core: (k, k) symmetric PSD.
        floor: η >= 0 added on all d directions.

    Raises:
        ValueError: rows not orthonormal to 1e-8, core not PSD, k > d, floor < 0.

    Example:
        >>> LowRank([[1.0, 0.0, 0.0]], [[4.0]]).mahalanobis([[2.0, 0, 0], [0, 1.0, 0]])
        array([ 1., inf])
    """

    kind: ClassVar[str] = "low-rank"
    basis: Array
    core: Array
    floor: float = 0.0
    _spectrum: tuple[Array, Array] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        basis = matrix("basis", self.basis)
        k, d = basis.shape
        if k > d:
            raise ValueError(f"basis: expected at most as many rows as columns, got shape {(k, d)}")
        deviation = float(np.abs(basis @ basis.T - np.eye(k)).max())
        if deviation > 1e-8:
            raise ValueError(
                f"basis: expected orthonormal rows, got max|B Bᵀ - I| = {deviation:.3g}"
            )
        core = symmetric("core", self.core, size=k)
        object.__setattr__(self, "basis", frozen(basis))
        object.__setattr__(self, "core", frozen(core))
        object.__setattr__(self, "floor", non_negative("floor", self.floor))
        object.__setattr__(self, "_spectrum", kept_spectrum("core", core))

    @property
    def dim(self) -> int:
        """Dimension d of the noise."""
        return int(self.basis.shape[1])

    @property
    def rank(self) -> int:
        """Rank of the core, or d with a floor."""
        return self.dim if self.floor > 0 else int(self._spectrum[0].size)

    def trace(self) -> float:
        """Return tr core + d · floor."""
        return float(np.trace(self.core)) + self.dim * self.floor

    def sample(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n noise vectors, (n, d), in O(n k d)."""
        eigenvalues, vectors = self._spectrum
        count = integer("n", n, minimum=1)
        source = rng if rng is None else np.random.default_rng(rng)
        normal = standard_normal((count, eigenvalues.size), source)
        draws: Array = (normal * np.sqrt(eigenvalues)) @ (vectors.T @ self.basis)
        if self.floor > 0:
            draws += np.sqrt(self.floor) * standard_normal((count, self.dim), source)
        return draws

    def scaled(self, c: float) -> LowRank:
        """Return c Σ."""
        return LowRank(self.basis, positive("c", c) * self.core, c * self.floor)

    def with_floor(self, eta: float) -> LowRank:
        """Return Σ + η I."""
        return LowRank(self.basis, self.core, self.floor + non_negative("eta", eta))

    def to_dense(self) -> Array:
        """Return Σ as a (d, d) array."""
        dense = self.basis.T @ self.core @ self.basis + self.floor * np.eye(self.dim)
        symmetrised: Array = (dense + dense.T) / 2
        return symmetrised

    def diagonal(self) -> Array:
        """Return the d variances."""
        diagonal: Array = (self.basis * (self.core @ self.basis)).sum(axis=0) + self.floor
        return diagonal

    def _squared_distance(self, rows: Array) -> Array:
        eigenvalues, vectors = self._spectrum
        directions = vectors.T @ self.basis
        coordinates = rows @ directions.T
        residual = rows - coordinates @ directions
        inside = (coordinates**2 / (eigenvalues + self.floor)).sum(axis=1)
        if self.floor > 0:
            full: Array = inside + (residual**2).sum(axis=1) / self.floor
            return full
        return infinite_outside(rows, residual, inside, terms=max(self.basis.shape))

    def _dense_weighted_trace(self, cost: Array) -> float:
        in_core = float(np.vdot(self.basis @ cost @ self.basis.T, self.core))
        return in_core + self.floor * float(np.trace(cost))

    def _fields(self) -> dict[str, Any]:
        return {"basis": self.basis.tolist(), "core": self.core.tolist(), "floor": self.floor}


@dataclass(frozen=True, eq=False)
class Factored(Covariance):
    """Σ = A Aᵀ with A = rowsᵀ weights: noise that mixes the given rows.

    The noise drawn is ``rowsᵀ (weights η)``, η ~ N(0, I), so the covariance that is certified is
    the one that is sampled, whatever its condition number.

    Args:
        rows: (m, d).
        weights: (m, p).

    Raises:
        ValueError: a shape does not fit or an entry is not finite.

    Example:
        >>> Factored([[3.0, 4.0]], [[2.0]]).mahalanobis([3.0, 4.0])
        0.25
    """

    kind: ClassVar[str] = "factored"
    rows: Array
    weights: Array

    def __post_init__(self) -> None:
        rows = matrix("rows", self.rows)
        weights = matrix("weights", self.weights)
        if weights.shape[0] != rows.shape[0]:
            raise ValueError(
                f"weights: expected {rows.shape[0]} rows, one per row of rows, "
                f"got shape {weights.shape}"
            )
        object.__setattr__(self, "rows", frozen(rows))
        object.__setattr__(self, "weights", frozen(weights))

    @cached_property
    def factor(self) -> Array:
        """A, (d, p)."""
        return self.rows.T @ self.weights

    @cached_property
    def _directions(self) -> tuple[Array, Array, Array]:
        """Left singular vectors (d, k), singular values (k,), right vectors (k, p) of A."""
        left, singular, right = scipy_linalg.svd(self.factor, full_matrices=False)
        keep = singular > default_tolerance(max(self.factor.shape)) * singular[0]
        return left[:, keep], singular[keep], right[keep]

    @property
    def dim(self) -> int:
        """Dimension d of the noise."""
        return int(self.rows.shape[1])

    @property
    def rank(self) -> int:
        """Numerical rank of A."""
        return int(self._directions[1].size)

    def trace(self) -> float:
        """Return ‖A‖²."""
        return float(np.vdot(self.factor, self.factor))

    def sample(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n noise vectors, (n, d), as rowsᵀ (weights η)."""
        normal = standard_normal((integer("n", n, minimum=1), self.weights.shape[1]), rng)
        draws: Array = (normal @ self.weights.T) @ self.rows
        return draws

    def scaled(self, c: float) -> Factored:
        """Return c Σ."""
        return Factored(self.rows, float(np.sqrt(positive("c", c))) * self.weights)

    def with_floor(self, eta: float) -> Covariance:
        """Return Σ + η I, as a low-rank covariance with a floor."""
        left, singular, _ = self._directions
        return LowRank(left.T, np.diag(singular**2), non_negative("eta", eta))

    def to_dense(self) -> Array:
        """Return Σ as a (d, d) array."""
        return self.factor @ self.factor.T

    def diagonal(self) -> Array:
        """Return the d variances."""
        diagonal: Array = (self.factor**2).sum(axis=1)
        return diagonal

    def _squared_distance(self, rows: Array) -> Array:
        left, singular, right = self._directions
        solution = (rows @ left) / singular
        residual = rows - (solution * singular) @ left.T
        inside = (solution**2).sum(axis=1)
        # A direction is covered when A u reproduces z to the backward error of forming A u.
        scale = np.abs(solution @ right) @ np.abs(self.weights.T) @ np.abs(self.rows)
        return infinite_outside(np.abs(rows) + scale, residual, inside, terms=max(self.rows.shape))

    def _dense_weighted_trace(self, cost: Array) -> float:
        return float(np.vdot(self.factor, cost @ self.factor))

    def _fields(self) -> dict[str, Any]:
        return {"rows": self.rows.tolist(), "weights": self.weights.tolist()}
