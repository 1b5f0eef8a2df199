"""Covariances of noise in a subspace: neither ever forms a d×d matrix to sample or measure."""

from __future__ import annotations

import math
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import (
    Array,
    matrix,
    non_negative,
    positive,
    symmetric,
)
from tacit._ground.frozen import array_value, frozen
from tacit.covariance.base import (
    Covariance,
    kept_spectrum,
    relative_rounding,
)
from tacit.covariance.publication import Normals
from tacit.covariance.span import Span, row_norms

# How far B Bᵀ may be from I: what a basis written in single precision keeps to.
ORTHONORMAL = 1e-8


@array_value()
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
        # BBᵀ = I is what makes the core's spectrum that of Σ
        deviation = float(np.abs(basis @ basis.T - np.eye(k)).max())
        if deviation > ORTHONORMAL:
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

    @property
    def rounding(self) -> float:
        """Return ρ, rounded up, with what the rows lack of being orthonormal."""
        values = self._spectrum[0]
        if not values.size:
            return relative_rounding(self.dim, 1.0, 1.0)
        bare = self.floor > 0 and values.size < self.dim
        # of core + floor, or of the floor alone where the core does not reach
        least = self.floor if bare else float(values[0]) + self.floor
        largest = float(values[-1]) + self.floor
        # a basis that is orthonormal up to κ has distances off by 2κ of the largest over the least
        deviation = float(np.linalg.norm(self.basis @ self.basis.T - np.eye(len(self.basis))))
        bent = 2.0 * deviation * (largest / least) if deviation else 0.0
        return relative_rounding(self.dim, largest, least) + bent

    def trace(self) -> float:
        """Return tr core + d · floor, to rounding."""
        # tr(Bᵀ C B) = tr C for orthonormal rows of B
        return float(np.trace(self.core)) + self.dim * self.floor

    def _draw(self, n: int, normals: Normals) -> Array:
        eigenvalues, vectors = self._spectrum
        # Bᵀ V l^½ η + √floor η': two independent draws add up
        mixing = (normals((n, eigenvalues.size)) * np.sqrt(eigenvalues)) @ vectors.T
        draws: Array = mixing @ self.basis
        if self.floor > 0:
            draws += np.sqrt(self.floor) * normals((n, self.dim))
        return draws

    def _sizes(self) -> tuple[Array, Array]:
        eigenvalues, vectors = self._spectrum
        # of each coordinate: what is drawn, and the sum of squares of the terms it is drawn of
        root = vectors * np.sqrt(eigenvalues)
        deviations = row_norms(self.basis.T @ root)
        terms = row_norms(self.basis.T * row_norms(root))
        floor = float(np.sqrt(self.floor))
        return np.hypot(deviations, floor), np.hypot(terms, floor)

    def scaled(self, c: float) -> LowRank:
        return LowRank(self.basis, positive("c", c) * self.core, c * self.floor)

    def with_floor(self, eta: float) -> LowRank:
        return LowRank(self.basis, self.core, self.floor + non_negative("eta", eta))

    def to_dense(self) -> Array:
        # the product of three rounds to two triangles that differ
        dense = self.basis.T @ self.core @ self.basis + self.floor * np.eye(self.dim)
        symmetrised: Array = (dense + dense.T) / 2
        return symmetrised

    def diagonal(self) -> Array:
        # Σ_k B_ki (core B)_ki: no d × d matrix
        diagonal: Array = (self.basis * (self.core @ self.basis)).sum(axis=0) + self.floor
        return diagonal

    def _squared_distance(self, rows: Array) -> Array:
        # without a floor the noise reaches the core's span alone
        if self.floor == 0.0:
            return self._span.squared_distances(rows)
        eigenvalues, vectors = self._spectrum
        # along the core's axes l + floor, in all other directions the floor
        coordinates = (rows @ self.basis.T) @ vectors
        residual = rows - (coordinates @ vectors.T) @ self.basis
        # Σ_k (v_kᵀ B z)²/(l_k + η) + ‖z − Bᵀ V Vᵀ B z‖²/η
        # by norms in units of the deviations: squares underflow before they are divided
        inside = row_norms(coordinates / np.sqrt(eigenvalues + self.floor))
        with np.errstate(over="ignore", under="ignore"):
            distances: Array = inside**2 + (row_norms(residual) / np.sqrt(self.floor)) ** 2
        return distances

    @cached_property
    def _span(self) -> Span:
        """What the core covers, without a floor."""
        eigenvalues, vectors = self._spectrum
        # A = (l^½ Vᵀ B)ᵀ covers what the core does
        mixed = np.sqrt(eigenvalues)[:, None] * (vectors.T @ self.basis)
        return Span(mixed.T, mixed)

    def _dense_weighted_trace(self, cost: Array) -> float:
        # tr(F Bᵀ C B) = ⟨B F Bᵀ, C⟩
        in_core = float(np.vdot(self.basis @ cost @ self.basis.T, self.core))
        return in_core + self.floor * float(np.trace(cost))

    def _fields(self) -> dict[str, Any]:
        return {"basis": self.basis.tolist(), "core": self.core.tolist(), "floor": self.floor}


@array_value()
class Factored(Covariance):
    """Σ = A Aᵀ with A = rowsᵀ L⁻ᵀ: noise that mixes the given rows.

    The noise drawn is ``rowsᵀ x`` with ``Lᵀ x = η``, η ~ N(0, I), by back substitution: it is a
    linear image of ``Lᵀe_i + η``, so row i lies at squared distance ‖L_i‖² at most, whatever the
    rank of the rows and the condition number of L.

    Args:
        rows: (m, d).
        lower: (m, m) lower triangular L with non-zero diagonal, or None for the identity.

    Raises:
        ValueError: a shape does not fit, an entry is not finite, L is not triangular or singular.

    Example:
        >>> Factored([[3.0, 4.0]], [[0.5]]).mahalanobis([3.0, 4.0])
        0.25
    """

    kind: ClassVar[str] = "factored"
    rows: Array
    lower: Array | None = None

    def __post_init__(self) -> None:
        rows = matrix("rows", self.rows)
        object.__setattr__(self, "rows", frozen(rows))
        if self.lower is None:
            return
        lower = matrix("lower", self.lower, columns=rows.shape[0])
        if lower.shape[0] != rows.shape[0]:
            raise ValueError(f"lower: expected a square matrix, got shape {lower.shape}")
        # back substitution by a triangle with a zero is by no triangle
        if np.any(np.triu(lower, 1)) or not np.all(np.diagonal(lower)):
            raise ValueError("lower: expected a lower triangle with a non-zero diagonal")
        object.__setattr__(self, "lower", frozen(lower))

    @cached_property
    def factor(self) -> Array:
        """A, (d, m), to rounding: see ``strain``."""
        if self.lower is None:
            return self.rows.T
        # L⁻¹ rows: A is its transpose
        solved: Array = scipy_linalg.solve_triangular(self.lower, self.rows, lower=True)
        if not np.isfinite(solved).all():
            raise ValueError("lower: expected a triangle whose noise is finite, got an overflow")
        return solved.T

    @cached_property
    def strain(self) -> float:
        """``‖|L⁻¹| |L|‖``, to rounding, by which that of A grows; 0 where A is the rows.

        Forward substitution solves ``(L + E) a = x`` with ``|E| <= m 2⁻⁵³ |L|`` entry by entry, so
        that each coordinate of A is off by m 2⁻⁵³ times this of its own deviation at most. The
        noise drawn mixes the rows themselves, and is none of it off.
        """
        if self.lower is None:
            return 0.0
        # |L⁻¹| |L| entry by entry, an overflow of which is infinite strain
        with np.errstate(over="ignore", invalid="ignore"):
            inverse = scipy_linalg.solve_triangular(
                self.lower, np.eye(self.rows.shape[0]), lower=True
            )
            product = np.abs(inverse) @ np.abs(self.lower)
        return float(np.linalg.norm(product, 2)) if np.isfinite(product).all() else math.inf

    @cached_property
    def span(self) -> Span:
        """What A covers; the rows are exact where A is rounded."""
        return Span(self.factor, self.rows, self.lower)

    @property
    def dim(self) -> int:
        """Dimension d of the noise."""
        return int(self.rows.shape[1])

    @property
    def rank(self) -> int:
        """Numerical rank of A, in units of each coordinate's own deviation."""
        return self.span.rank

    @property
    def rounding(self) -> float:
        """Return ρ, rounded up, that of solving A u = z in coordinates of unit variance."""
        if not self.factor.any():
            return relative_rounding(self.dim, 1.0, 1.0)
        # κ of A, whose singular values the solution is divided by: of both sides' dimensions
        singular = self.span.directions[1]
        return relative_rounding(2 * max(self.factor.shape), singular[0], singular[-1])

    def trace(self) -> float:
        """Return ‖A‖², to rounding."""
        # tr(A Aᵀ) = Σ A_ij²
        return float(np.vdot(self.factor, self.factor))

    def _draw(self, n: int, normals: Normals) -> Array:
        """Return n noise vectors, (n, d), to rounding, by back substitution with L."""
        mixing = normals((n, self.rows.shape[0]))
        # Lᵀ x = η: x as it is drawn, so that row i is exactly A L_i
        if self.lower is not None:
            mixing = scipy_linalg.solve_triangular(self.lower, mixing.T, lower=True, trans="T").T
        draws: Array = mixing @ self.rows
        return draws

    def _sizes(self) -> tuple[Array, Array]:
        # what is drawn: row by row of A
        deviations = row_norms(self.factor)
        if self.lower is None:
            return deviations, deviations
        # lengths of the rows of L⁻ᵀ: the deviation of each x
        identity = np.eye(self.rows.shape[0])
        mixing = row_norms(scipy_linalg.solve_triangular(self.lower, identity, lower=True).T)
        with np.errstate(over="ignore", invalid="ignore"):
            # |Lᵀ| |x|: what the rounding of the back substitution is relative to, in units of η.
            strain = float(row_norms(self.lower.T * mixing).max())
            return deviations, np.maximum(row_norms(self.rows.T * mixing), strain * deviations)

    def scaled(self, c: float) -> Factored:
        # √c goes to the rows, or to the triangle whose inverse they are multiplied by
        root = float(np.sqrt(positive("c", c)))
        if self.lower is None:
            return Factored(root * self.rows)
        return Factored(self.rows, self.lower / root)

    def with_floor(self, eta: float) -> Covariance:
        """Return Σ + η I, as a low-rank covariance with a floor."""
        # A = U s Vᵀ: Σ = U s² Uᵀ, an orthonormal basis and a core
        left, singular, _ = scipy_linalg.svd(self.factor, full_matrices=False)
        return LowRank(left.T, np.diag(singular**2), non_negative("eta", eta))

    def to_dense(self) -> Array:
        return self.factor @ self.factor.T

    def diagonal(self) -> Array:
        diagonal: Array = (self.factor**2).sum(axis=1)
        return diagonal

    def _squared_distance(self, rows: Array) -> Array:
        return self.span.squared_distances(rows)

    def _dense_weighted_trace(self, cost: Array) -> float:
        # tr(F A Aᵀ) = ⟨A, F A⟩
        return float(np.vdot(self.factor, cost @ self.factor))

    def _fields(self) -> dict[str, Any]:
        lower = None if self.lower is None else self.lower.tolist()
        return {"rows": self.rows.tolist(), "lower": lower}
