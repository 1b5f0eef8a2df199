"""Coordinates of the directions that noise covers, for covariances of any rank."""

from __future__ import annotations

import numpy as np

from tacit._ground.checks import Array
from tacit.covariance.base import Covariance
from tacit.covariance.full import Dense, Diagonal, Isotropic
from tacit.covariance.low_rank import Factored, LowRank


def principal_axes(covariance: Covariance) -> tuple[Array, Array]:
    """Return W and A with ``Σ = A Aᵀ`` and ``W A = I``: W x are coordinates where noise is N(0, I).

    Args:
        covariance: Σ, (d, d), of rank p > 0.

    Returns:
        W, (p, d), and A, (d, p); or the two diagonals, (d,) each, where Σ is diagonal and of full
        rank.

    Raises:
        ValueError: no noise at all, or noise too small for its inverse to be a double.
    """
    if covariance.rank == 0:
        raise ValueError("covariance: expected noise in at least one direction, got none")
    with np.errstate(over="ignore", divide="ignore"):
        forward, backward = _axes(covariance)
    if not (np.isfinite(forward).all() and np.isfinite(backward).all()):
        raise ValueError("covariance: expected noise that double precision can invert")
    return forward, backward


def _axes(covariance: Covariance) -> tuple[Array, Array]:
    if isinstance(covariance, (Isotropic, Diagonal)):
        deviations = np.sqrt(covariance.diagonal())
        if covariance.rank == covariance.dim:
            return 1.0 / deviations, deviations
        kept = np.flatnonzero(deviations)
        selected = np.eye(covariance.dim)[kept]
        return selected / deviations[kept, None], selected.T * deviations[kept]
    scales, basis, deviations = _basis(covariance)
    return basis / deviations[:, None] / scales, (basis * scales).T * deviations


def _basis(covariance: Covariance) -> tuple[Array, Array, Array]:
    """Return scales (d,), orthonormal rows (p, d) of scaled coordinates, the deviation along each.

    Scaled to unit variances, a coordinate with little noise is resolved like any other.
    """
    if isinstance(covariance, Factored):
        left, singular, _ = covariance.span.directions
        return covariance.span.scales, left.T, singular
    if isinstance(covariance, LowRank) and covariance.floor == 0.0:
        eigenvalues, vectors = covariance._spectrum
        return np.ones(covariance.dim), vectors.T @ covariance.basis, np.sqrt(eigenvalues)
    dense = covariance if isinstance(covariance, Dense) else Dense(covariance.to_dense())
    eigenvalues, vectors = dense._spectrum
    return dense._scales, vectors.T, np.sqrt(eigenvalues)
