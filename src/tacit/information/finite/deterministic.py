"""Bounds on the information of a finite secret that need no sampling."""

from __future__ import annotations

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Diagonal
from tacit.information.finite.likelihood import FiniteSecret, posterior
from tacit.information.log_det import information_of_ratios


def pairwise_information(secret: FiniteSecret) -> float:
    """Return ``−Σ_i p_i ln Σ_j p_j exp(−½‖z_i − z_j‖²)``, an upper bound in nats, rounded up.

    Source: Kolchinsky and Tracey, "Estimating mixture entropy with pairwise distances" (2017),
    Eq. 10, with the divergence KL.
    """
    found = posterior(secret, secret.points)
    terms = 0.5 * (secret.points**2).sum(axis=1) - found.log_sum + 2.0 * found.error
    return _raised(float(np.exp(secret.log_weights) @ np.maximum(terms, 0.0)), len(terms))


def gaussian_information(secret: FiniteSecret, scale: float = 1.0) -> float:
    """Return ``½ Σ ln(1 + w/s)`` nats for noise N(0, s I), rounded up, that of S included."""
    count, size = secret.points.shape
    # Each entry of the product of N terms is off by (N + 8) u √(S_ii S_kk) at most.
    slack = (count + size + 8) * EPS * float(secret.eigenvalues.sum())
    return information_of_ratios((secret.eigenvalues + slack) / scale)


def covered(outputs: Array, covariance: Covariance) -> tuple[Array, Covariance] | None:
    """Return outputs and noise in the directions of the noise; None if outputs differ elsewhere.

    Outputs are relative to the first one: what they have in common drowns no difference of theirs.
    Along a coordinate without noise outputs must be equal; a range that is askew is known up to
    the rounding of its basis, which is compared entry by entry.
    """
    moved = outputs - outputs[0]
    if covariance.rank == covariance.dim:
        return moved, covariance
    if covariance.rank == 0 or np.isinf(covariance.mahalanobis(moved)).any():
        return None
    if isinstance(covariance, Diagonal):
        noisy = covariance.diagonal() > 0.0
        return moved[:, noisy], Diagonal(covariance.diagonal()[noisy])
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    scales = np.where(deviations > 0.0, deviations, 1.0)
    correlations = covariance.to_dense() / scales[:, None] / scales
    eigenvalues, vectors = scipy_linalg.eigh((correlations + correlations.T) / 2, driver="evd")
    kept = slice(covariance.dim - covariance.rank, None)
    if eigenvalues[kept][0] <= 0.0:
        return None
    return (moved / scales) @ vectors[:, kept], Diagonal(eigenvalues[kept])


def _raised(value: float, terms: int) -> float:
    return value * (1.0 + (terms + 8) * EPS)
