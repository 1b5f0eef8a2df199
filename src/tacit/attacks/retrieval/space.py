"""The coordinates in which an attacker measures distance, and the directions that decide first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, matrix, vector
from tacit._ground.numbers import EPS
from tacit._ground.threads import one_thread
from tacit.covariance import Covariance, Diagonal, Factored, Isotropic, LowRank
from tacit.linalg import row_space

TRIANGLE_PANELS = 8
# Below it Σ has a condition number above 1e12 and its eigenvectors are the better coordinates.
LEAST_PIVOT = 1e-6


@dataclass(frozen=True)
class AttackSpace:
    """A linear map x ↦ (x − centre) M, and the directions in which a release carries no noise.

    Attributes:
        centre: (d,), subtracted first, so that rounding is relative to the spread.
        scales: (d,) for a diagonal M, or (d, k) for a dense one.
        triangular: whether a dense M is upper triangular.
        bare: (d, b) orthonormal: a candidate that differs there is ruled out.
    """

    centre: Array
    scales: Array
    triangular: bool = False
    bare: Array | None = None

    @property
    def width(self) -> int:
        """Number k of coordinates."""
        return int(self.scales.shape[-1])

    def apply(self, rows: Array) -> Array:
        """Map rows (n, d) to (n, k)."""
        centred = rows - self.centre
        if self.scales.ndim == 1:
            centred *= self.scales
            return centred
        if self.triangular:
            # Column panels of an upper triangle need only the rows above: 9/16 of a full product.
            edges = np.linspace(0, self.width, TRIANGLE_PANELS + 1).astype(int)
            mapped = np.empty((len(centred), self.width))
            for low, high in pairwise(edges):
                np.matmul(centred[:, :high], self.scales[:high, low:high], out=mapped[:, low:high])
            return mapped
        return centred @ self.scales

    def outside(self, rows: Array) -> Array:
        """Map rows (n, d) to their coordinates in the bare directions, (n, b)."""
        assert self.bare is not None
        return (rows - self.centre) @ self.bare


def euclidean(centre: Array) -> AttackSpace:
    """‖x − c‖."""
    return AttackSpace(centre, np.ones(centre.size))


def weighted(centre: Array, coordinate_weights: Any) -> AttackSpace:
    """``Σ w_i (x_i − c_i)²``."""
    values = vector("coordinate_weights", coordinate_weights, size=centre.size)
    if values.min() < 0 or values.max() == 0:
        raise ValueError(
            "coordinate_weights: expected numbers >= 0 that are not all 0, got "
            f"{values.min():.6g} … {values.max():.6g}"
        )
    return AttackSpace(centre, np.sqrt(values))


def complement(centre: Array, basis: Any) -> AttackSpace:
    """‖P (x − c)‖, P the projector on what is orthogonal to the rows of ``basis``."""
    rows = matrix("basis", basis, columns=centre.size)
    directions = row_space(rows).basis
    if len(directions) >= centre.size:
        raise ValueError(
            f"basis: expected rows that leave a direction of {centre.size}, got rank "
            f"{len(directions)}"
        )
    orthonormal, _ = np.linalg.qr(directions.T, mode="complete")
    return AttackSpace(centre, np.ascontiguousarray(orthonormal[:, len(directions) :]))


def noise_space(centre: Array, covariance: Covariance, floor: float) -> AttackSpace:
    """The coordinates of noise N(0, Σ + floor I); at floor 0 what lies outside Σ is bare."""
    dim = centre.size
    if isinstance(covariance, (Isotropic, Diagonal)):
        return _diagonal(centre, covariance.diagonal() + floor)
    # One LAPACK on one thread: two pools of threads that spin cost more than they gain.
    with one_thread():
        if isinstance(covariance, Factored):
            variances, vectors = _factored_spectrum(covariance)
        else:
            dense = covariance.to_dense() + floor * np.eye(dim)
            inverse = _inverse_root(dense) if floor > 0 or covariance.rank == dim else None
            if inverse is not None:
                return AttackSpace(centre, inverse, triangular=True)
            if isinstance(covariance, LowRank):
                variances, vectors = _low_rank_spectrum(covariance)
            else:
                variances, vectors = np.linalg.eigh(covariance.to_dense())
                variances, vectors = variances[::-1], vectors[:, ::-1]
    kept = dim if floor > 0 else min(covariance.rank, int((variances > 0).sum()))
    scales = np.sqrt(np.maximum(variances[:kept], 0.0) + floor)
    bare = vectors[:, kept:] if kept < dim else None
    return AttackSpace(centre, np.ascontiguousarray(vectors[:, :kept] / scales), bare=bare)


def _diagonal(centre: Array, variances: Array) -> AttackSpace:
    noisy = variances > 0
    scales = np.zeros(centre.size)
    scales[noisy] = 1.0 / np.sqrt(variances[noisy])
    bare = None if noisy.all() else np.eye(centre.size)[:, ~noisy]
    return AttackSpace(centre, scales, bare=bare)


def _inverse_root(dense: Array) -> Array | None:
    """Upper triangular M with M Mᵀ = Σ⁻¹, or None where double precision cannot invert Σ."""
    scales = np.sqrt(np.diagonal(dense))
    if not (scales > 0).all():
        return None
    correlation = dense / np.outer(scales, scales)
    try:
        lower = scipy_linalg.cholesky(correlation, lower=True)
    except scipy_linalg.LinAlgError:
        return None
    inverse: Array = scipy_linalg.solve_triangular(lower, np.diag(1.0 / scales), lower=True)
    if np.abs(np.diagonal(lower)).min() < LEAST_PIVOT:
        return None
    return np.ascontiguousarray(inverse.T)


def _factored_spectrum(covariance: Factored) -> tuple[Array, Array]:
    left, singular, _ = np.linalg.svd(covariance.factor, full_matrices=True)
    variances = np.zeros(covariance.dim)
    variances[: singular.size] = singular**2
    return variances, left


def _low_rank_spectrum(covariance: LowRank) -> tuple[Array, Array]:
    """Eigenvalues, largest first, and eigenvectors; the bare ones orthogonal to the basis itself.

    Those of the dense Σ lean by ε λ_max/λ into directions of variance λ, where there is noise.
    """
    count = len(covariance.basis)
    values, inside = np.linalg.eigh(covariance.core)
    complete, _ = np.linalg.qr(covariance.basis.T, mode="complete")
    variances = np.zeros(covariance.dim)
    variances[:count] = values[::-1]
    vectors = np.hstack([covariance.basis.T @ inside[:, ::-1], complete[:, count:]])
    return variances + covariance.floor, vectors


def range_tolerance(queries: Array, precision: float, centre: Array) -> Array:
    """How far rounding alone may move a released row in a direction without noise, (n,)."""
    size = np.linalg.norm(queries, axis=1) + np.linalg.norm(centre)
    tolerance: Array = (4.0 * precision + 64.0 * centre.size * EPS) * size
    return tolerance
