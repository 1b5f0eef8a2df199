"""Coordinates in which noise of a given covariance is N(0, I)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, matrix
from tacit._ground.numbers import EPS
from tacit.covariance.base import Covariance
from tacit.covariance.coercion import as_covariance
from tacit.covariance.full import Dense, Diagonal, Isotropic
from tacit.covariance.low_rank import Factored, LowRank

# Units in the last place: of a quotient by a deviation, and for each dimension of a factorisation.
ROUNDING_UNITS = 8.0


def whiten(rows: ArrayLike, covariance: Covariance) -> tuple[Array, float]:
    """Return ``A⁻¹ x`` for every row x, with ``Σ = A Aᵀ``, and how far off it is at most.

    The rows returned are exact for a noise covariance Σ' with ``(1 − ρ) Σ ⪯ Σ' ⪯ (1 + ρ) Σ``,
    ``ρ = 8 d 2⁻⁵² κ² (1 + m s)``, κ the condition number of A after scaling to unit variances and
    s the ``strain`` of what A is computed from, of m rows; where A is square ``√d s/κ`` for m s.

    Args:
        rows: (n, d).
        covariance: Σ, of full rank.

    Returns:
        ((n, d), ρ); ρ is inf where double precision cannot invert Σ.

    Raises:
        ValueError: rows of another dimension, or a covariance that is singular.

    Example:
        >>> from tacit.covariance import Diagonal
        >>> whiten([[2.0, 3.0]], Diagonal([4.0, 9.0]))[0].tolist()
        [[1.0, 1.0]]
    """
    covariance = as_covariance("covariance", covariance)
    values = matrix("rows", rows)
    if covariance.dim != values.shape[1] or covariance.rank < covariance.dim:
        raise ValueError(
            f"covariance: expected one of full rank {values.shape[1]}, got rank "
            f"{covariance.rank} of dimension {covariance.dim}"
        )
    # coordinates of unit variance first: κ is that of the correlations
    scales = np.sqrt(covariance.diagonal())
    scaled = values / scales
    # no factorisation: a root and a quotient a number, whatever κ
    if isinstance(covariance, (Isotropic, Diagonal)):
        return scaled, ROUNDING_UNITS * EPS
    # A itself, where it is square, has half the digits to lose of A Aᵀ
    square = isinstance(covariance, Factored) and covariance.rows.shape[0] == covariance.dim
    if isinstance(covariance, Factored) and square:
        factor = covariance.factor / scales[:, None]
        singular = scipy_linalg.svdvals(factor)
    else:
        correlation = covariance.to_dense() / np.outer(scales, scales)
        try:
            factor = scipy_linalg.cholesky(correlation, lower=True)
        # rounding exceeds the least eigenvalue: nothing is claimed of the rows returned
        except scipy_linalg.LinAlgError:
            return scaled, math.inf
        singular = scipy_linalg.svdvals(factor)
    if singular[-1] <= 0.0:
        return scaled, math.inf
    # (1 − ρ) Σ ⪯ Σ' ⪯ (1 + ρ) Σ: a backward error of d units of Σ is κ² as much of its least
    condition = float(singular[0] / singular[-1])
    error = ROUNDING_UNITS * covariance.dim * EPS * condition**2
    # and A, where it was computed, is off by itself
    error *= 1.0 + strained(covariance, condition, square=square)
    whitened: Array = scipy_linalg.solve(factor, scaled.T).T
    return whitened, error


def strained(covariance: Covariance, condition: float, *, square: bool) -> float:
    """Return by how many times more than by inverting A its own rounding moves ``A⁻¹ x``, at most.

    With Â = A + E, ‖E‖ is at most √d m 2⁻⁵³ s for unit variances, and ‖A⁻¹E‖ that times κ; a matrix
    Â Âᵀ is off by d m 2⁻⁵² s, and by that times κ² relative to itself.

    Args:
        covariance: Σ.
        condition: κ.
        square: whether A itself was inverted, not Â Âᵀ.
    """
    if not isinstance(covariance, Factored) or covariance.strain == 0.0:
        return 0.0
    if square:
        return math.sqrt(covariance.dim) * covariance.strain / condition
    return int(covariance.rows.shape[0]) * covariance.strain


def principal_axes(covariance: Covariance) -> tuple[Array, Array]:
    """Return W and A, to rounding, ``Σ = A Aᵀ`` and ``W A = I``: W x has noise N(0, I).

    Nothing is claimed of the rounding of W A: ``design.grid`` certifies by the W that it has.

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
    """Return W and A to rounding, inf where an inverse is no double."""
    if isinstance(covariance, (Isotropic, Diagonal)):
        deviations = np.sqrt(covariance.diagonal())
        if covariance.rank == covariance.dim:
            return 1.0 / deviations, deviations
        # coordinates without noise are left out of W, and A says nothing of them
        kept = np.flatnonzero(deviations)
        selected = np.eye(covariance.dim)[kept]
        return selected / deviations[kept, None], selected.T * deviations[kept]
    scales, basis, deviations = _basis(covariance)
    return basis / deviations[:, None] / scales, (basis * scales).T * deviations


def _basis(covariance: Covariance) -> tuple[Array, Array, Array]:
    """Return scales (d,), orthonormal rows (p, d) and the deviation along each, to rounding.

    The rows are of coordinates scaled to unit variances: one with little noise is resolved like any
    other.
    """
    if isinstance(covariance, Factored):
        # from its factor: Σ itself has lost half the digits
        left, singular, _ = covariance.span.directions
        return covariance.span.scales, left.T, singular
    if isinstance(covariance, LowRank) and covariance.floor == 0.0:
        # Σ = Bᵀ core B, B with orthonormal rows: the core's spectrum is that of Σ, and scaled
        # coordinates would have to be made orthonormal anew
        eigenvalues, vectors = covariance._spectrum
        return np.ones(covariance.dim), vectors.T @ covariance.basis, np.sqrt(eigenvalues)
    dense = covariance if isinstance(covariance, Dense) else Dense(covariance.to_dense())
    eigenvalues, vectors = dense._spectrum
    return dense._scales, vectors.T, np.sqrt(eigenvalues)
