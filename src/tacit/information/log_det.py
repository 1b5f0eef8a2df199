"""The Gaussian information ½ logdet(I + S Σ⁻¹), rounded up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, array, check_psd, symmetric
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Diagonal, Factored, Isotropic
from tacit.covariance.coercion import as_covariance
from tacit.covariance.whitening import strained

ROUNDING_UNITS = 8.0


def log_det_information(output_covariance: ArrayLike, covariance: Covariance | ArrayLike) -> float:
    """Bound the information that Gaussian noise lets through: ``½ logdet(I + S Σ⁻¹)``, rounded up.

    Args:
        output_covariance: S, the covariance of the output: (d, d), (d,) for a diagonal one, or a
            ``Covariance``; units of the output squared.
        covariance: Σ, the covariance of the noise.

    Returns:
        Nats, never below the exact value of the formula for the two matrices given; inf where
        the noise leaves a direction bare and S is not zero.

    Raises:
        ValueError: S is not finite, not PSD, or of another dimension than Σ.

    Example:
        >>> information = log_det_information([3.0], Isotropic(1.0, 1))
        >>> 0.0 <= information - math.log(2.0) < 1e-14
        True

    Source: residual-pac, Thm 1, Eq. 2.
    """
    covariance = as_covariance("covariance", covariance)
    checked = output_matrix("output_covariance", output_covariance)
    if checked.shape[0] != covariance.dim:
        raise ValueError(
            f"output_covariance: expected dimension {covariance.dim}, that of the noise, "
            f"got shape {checked.shape}"
        )
    if not checked.any():
        return 0.0
    return information_of_ratios(signal_to_noise(checked, covariance))


def output_matrix(name: str, value: Any) -> Array:
    """Return an output covariance as a PSD matrix (d, d), or as a non-negative vector (d,)."""
    if isinstance(value, (Isotropic, Diagonal)):
        return value.diagonal()
    raw = value.to_dense() if isinstance(value, Covariance) else value
    checked = array(name, raw, ndim=(1, 2))
    if checked.ndim == 1:
        if (checked < 0).any():
            raise ValueError(f"{name}: expected variances >= 0, got {checked.min():.6g}")
        return checked
    checked = symmetric(name, checked)
    check_psd(name, scipy_linalg.eigvalsh(checked))
    return checked


def signal_to_noise(output_covariance: Array, covariance: Covariance) -> Array:
    """Return upper bounds on the eigenvalues of S Σ⁻¹, inf where Σ is singular."""
    computed: Factored | None = None
    if isinstance(covariance, (Isotropic, Diagonal)):
        variances = covariance.diagonal()
        if output_covariance.ndim == 1:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(output_covariance == 0, 0.0, output_covariance / variances)
            return _up(ratios, 2)
        if (variances == 0).any():
            return np.full(covariance.dim, np.inf)
        factor = np.diag(np.sqrt(variances))
    elif isinstance(covariance, Factored) and covariance.rows.shape[0] == covariance.dim:
        factor, computed = covariance.factor, covariance
    elif covariance.rank < covariance.dim:
        return np.full(covariance.dim, np.inf)
    else:
        factor = _lower_factor(covariance)
    dense = np.diag(output_covariance) if output_covariance.ndim == 1 else output_covariance
    return _whitened_eigenvalues(dense, factor, computed)


def information_of_ratios(ratios: Array) -> float:
    """Return ``½ Σ ln(1 + w)``, rounded up."""
    if np.isinf(ratios).any():
        return math.inf
    total = 0.5 * math.fsum(np.log1p(ratios).tolist())
    return float(_up(np.asarray(total), 4))


def _lower_factor(covariance: Covariance) -> Array:
    """Return A with A Aᵀ ⪯ Σ although Cholesky rounds."""
    dense = covariance.to_dense()
    scales = np.sqrt(np.diagonal(dense))
    correlation = dense / np.outer(scales, scales)
    # ‖L Lᵀ − C‖ <= (d + 1) u tr C, and tr C = d (Higham, Thm 10.3).
    slack = ROUNDING_UNITS * covariance.dim * (covariance.dim + 1) * EPS
    # and Σ itself was computed
    slack *= 1.0 + strained(covariance, 1.0, square=False)
    shifted = correlation - slack * np.eye(covariance.dim)
    try:
        lower = scipy_linalg.cholesky(shifted, lower=True)
    except scipy_linalg.LinAlgError:
        return np.zeros_like(dense)
    factor: Array = scales[:, None] * lower
    return factor


def _whitened_eigenvalues(
    output_covariance: Array, factor: Array, computed: Factored | None
) -> Array:
    """Return upper bounds on the eigenvalues of A⁻¹ S A⁻ᵀ, A exact or computed from rows."""
    size = factor.shape[0]
    lengths = np.linalg.norm(factor, axis=1)
    if (lengths == 0.0).any():
        return np.full(size, np.inf)
    rows = factor / lengths[:, None]
    # Scales are taken out first: a change of units changes nothing below.
    scaled = output_covariance / lengths[:, None] / lengths[None, :]
    singular = scipy_linalg.svdvals(rows)
    condition = singular[0] / singular[-1] if singular[-1] > 0.0 else math.inf
    relative = ROUNDING_UNITS * size * EPS * condition**2
    if computed is not None:
        relative *= 1.0 + strained(computed, condition, square=True)
    if not relative < 0.5:
        return np.full(size, np.inf)
    half = scipy_linalg.solve(rows, scaled)
    whitened = scipy_linalg.solve(rows, half.T)
    eigenvalues = scipy_linalg.eigvalsh((whitened + whitened.T) / 2.0)
    # Backward error of the two solves and of the eigensolver: <= c d u κ² ‖W‖.
    slack = relative * float(np.abs(eigenvalues).max())
    bounds: Array = np.maximum(eigenvalues, 0.0) + slack
    return bounds


def _up(values: Array, ulps: int) -> Array:
    """Return values raised by a few units in the last place."""
    raised: Array = values * (1.0 + ulps * EPS)
    return raised
