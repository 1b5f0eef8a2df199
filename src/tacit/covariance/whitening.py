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
from tacit.covariance.full import Diagonal, Isotropic
from tacit.covariance.low_rank import Factored

ROUNDING_UNITS = 8.0


def whiten(rows: ArrayLike, covariance: Covariance) -> tuple[Array, float]:
    """Return ``A⁻¹ x`` for every row x, with ``Σ = A Aᵀ``, and how far rounding may be off.

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
    scales = np.sqrt(covariance.diagonal())
    scaled = values / scales
    if isinstance(covariance, (Isotropic, Diagonal)):
        return scaled, ROUNDING_UNITS * EPS
    square = isinstance(covariance, Factored) and covariance.rows.shape[0] == covariance.dim
    if isinstance(covariance, Factored) and square:
        factor = covariance.factor / scales[:, None]
        singular = scipy_linalg.svdvals(factor)
    else:
        correlation = covariance.to_dense() / np.outer(scales, scales)
        try:
            factor = scipy_linalg.cholesky(correlation, lower=True)
        except scipy_linalg.LinAlgError:
            return scaled, math.inf
        singular = scipy_linalg.svdvals(factor)
    if singular[-1] <= 0.0:
        return scaled, math.inf
    condition = float(singular[0] / singular[-1])
    error = ROUNDING_UNITS * covariance.dim * EPS * condition**2
    error *= 1.0 + strained(covariance, condition, square=square)
    whitened: Array = scipy_linalg.solve(factor, scaled.T).T
    return whitened, error


def strained(covariance: Covariance, condition: float, *, square: bool) -> float:
    """Return by how many times more than by inverting A its own rounding moves ``A⁻¹ x``.

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
