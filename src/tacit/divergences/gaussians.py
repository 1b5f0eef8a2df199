"""Rényi and Kullback-Leibler divergence between Gaussians whose covariances differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from tacit._ground.checks import Array, check_psd, positive, symmetric, vector
from tacit._ground.numbers import EPS

# Below it t − ln(1 + t) is its series up to t²²: what is left out is below 1e-21 of the first term.
SERIES_BELOW, SERIES_TERMS = 0.1, 22
# A mean or a covariance leaves the range of Σ₁ where more of it than this lies outside.
SUPPORT_LIMIT = 1e-8
# Units in the last place: of a sum of logarithms and products, per row of an eigensolver (Weyl), of
# a quotient of variances and a logarithm, and of a square over a variance.
SUM_UNITS, SOLVER_UNITS, QUOTIENT_UNITS, SQUARE_UNITS = 16, 8, 4, 8
# Within it ln(1 + e) comes from e; farther out from the logarithms of both variances.
NEAR_ONE = 0.5


class DenseCovariance(Protocol):
    """Anything that can write itself as a d × d matrix."""

    def to_dense(self) -> Array:
        """Return the matrix, exactly."""


MatrixLike: TypeAlias = Array | Sequence[Sequence[float]] | DenseCovariance
VectorLike: TypeAlias = Array | Sequence[float]


def kl_gaussians(mean0: VectorLike, cov0: MatrixLike, mean1: VectorLike, cov1: MatrixLike) -> float:
    """Kullback-Leibler divergence D(N(mean0, cov0) ‖ N(mean1, cov1)) in nats, rounded up.

    ½ [tr(Σ₁⁻¹Σ₀) − d − ln(|Σ₀|/|Σ₁|) + (μ₀−μ₁)ᵀ Σ₁⁻¹ (μ₀−μ₁)]. Singular covariances are taken on
    their common range, found after scaling cov1 to unit diagonal with relative tolerance
    8 d · 2⁻⁵²; the result is inf where the ranges differ or the mean leaves them.

    Args:
        mean0: Mean of the first law, shape (d,).
        cov0: Covariance of the first law, a (d, d) array or an object with ``to_dense()``.
        mean1: Mean of the second law, shape (d,).
        cov1: Covariance of the second law, like ``cov0``.

    Returns:
        The divergence in nats, rounded up by a bound on the rounding error; inf where the first
        law is not absolutely continuous with respect to the second.

    Raises:
        ValueError: Shapes do not agree, a covariance is not symmetric positive semidefinite, or
            an entry is not finite.

    Example:
        >>> round(kl_gaussians([1.0], [[1.0]], [0.0], [[1.0]]), 12)
        0.5

    Source: pave, Lemma 7.12 (its limit at order 1).
    """
    pencil = _pencil(mean0, cov0, mean1, cov1)
    if pencil is None:
        return math.inf
    # ½ Σ (e − ln(1 + e)) + ½ Σ squares: every term is >= 0, so nothing cancels
    return pencil.round_up(pencil.excess() / 2 + pencil.squares / 2)


def renyi_gaussians(
    mean0: VectorLike, cov0: MatrixLike, mean1: VectorLike, cov1: MatrixLike, order: float
) -> float:
    """Rényi divergence D_α(N(mean0, cov0) ‖ N(mean1, cov1)) in nats, rounded up.

    (α/2) (μ₀−μ₁)ᵀ Σ_α⁻¹ (μ₀−μ₁) − ln(|Σ_α| / (|Σ₀|^(1−α) |Σ₁|^α)) / (2(α−1)) with
    Σ_α = (1−α)Σ₀ + αΣ₁. Singular covariances are treated as in `kl_gaussians`.

    Args:
        mean0: Mean of the first law, shape (d,).
        cov0: Covariance of the first law, a (d, d) array or an object with ``to_dense()``.
        mean1: Mean of the second law, shape (d,).
        cov1: Covariance of the second law, like ``cov0``.
        order: α > 0, finite, other than 1.

    Returns:
        The divergence in nats, rounded up by a bound on the rounding error; inf where Σ_α is not
        positive definite on the common range, the ranges differ or the mean leaves them.

    Raises:
        ValueError: As `kl_gaussians`, or ``order`` is not allowed.

    Example:
        >>> round(renyi_gaussians([1.0], [[1.0]], [0.0], [[1.0]], 2.0), 12)
        1.0
        >>> renyi_gaussians([0.0], [[2.0]], [0.0], [[1.0]], 2.0)
        inf

    Source: Gil, Alajaji and Linder (2013), Table 2.
    """
    alpha = positive("order", order)
    if alpha == 1.0:
        raise ValueError(f"order: expected an order other than 1 (use kl_gaussians), got {order!r}")
    pencil = _pencil(mean0, cov0, mean1, cov1)
    if pencil is None:
        return math.inf
    # convex in e: the larger of its values at the two ends of what e can be
    terms = np.maximum(
        _renyi_logs(alpha, pencil.low, pencil.low_logs),
        _renyi_logs(alpha, pencil.high, pencil.high_logs),
    )
    # Σ_α has eigenvalues 1 + (1 − α) e; where one may be 0 the divergence may be infinite
    ratios = 1 + (1 - alpha) * np.stack([pencil.low, pencil.high])
    if not (ratios > 0).all():
        return math.inf
    # the mean's part is divided by the least they can be: upwards
    return pencil.round_up(terms + alpha * pencil.squares / (2 * ratios.min(axis=0)))


@dataclass(frozen=True)
class _Pencil:
    """Σ₀ − Σ₁ and the mean difference where Σ₁ is the identity and Σ₀ diagonal."""

    low: Array  # lower ends of e, the eigenvalues of Σ₁^-½ (Σ₀ − Σ₁) Σ₁^-½
    high: Array
    low_logs: Array  # ln(1 + e)
    high_logs: Array
    squares: Array
    error: float  # relative error of the squares

    def excess(self) -> Array:
        """Upper end of e − ln(1 + e), convex in e."""
        return np.maximum(
            log_excess(self.low, self.low_logs), log_excess(self.high, self.high_logs)
        )

    def round_up(self, terms: Array) -> float:
        """A sum of terms >= 0, rounded up by the error of each."""
        return math.fsum(terms) * (1 + self.error + SUM_UNITS * EPS)


def log_excess(t: Array, logs: Array | None = None) -> Array:
    """t − ln(1 + t) >= 0, to rounding, by its series where the two cancel.

    Args:
        t: > −1, any shape.
        logs: ln(1 + t), or another value of it to be taken away from t; None to compute it.
    """
    # t²(1/2 − t/3 + t²/4 − …): the terms left out are below 0.1²² of the first
    series = np.zeros_like(t)
    for power in range(SERIES_TERMS, 1, -1):
        series = (-1.0) ** power / power + t * series
    # ½ − t/3 + … by Horner's rule; farther out t and ln(1 + t) differ by a digit at least
    near = np.abs(t) < SERIES_BELOW
    if logs is None:
        logs = np.log1p(np.where(near, 0.0, t))
    return np.where(near, t * t * series, t - logs)


def _renyi_logs(alpha: float, e: Array, logs: Array) -> Array:
    """Half of [(1−α) ln(1+e) − ln(1+(1−α)e)]/(α−1), rounded up where α < 1, else to rounding."""
    # with g(t) = t − ln(1 + t): (1−α) ln(1+e) − ln(1+(1−α)e) = g((1−α)e) − (1−α) g(e)
    tilted = (1 - alpha) * e
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second = log_excess(tilted, np.log1p(tilted)) / (alpha - 1), log_excess(e, logs)
    # for α < 1 the first is negative, and cancels all but a share α of the second
    return (first + second + (SUM_UNITS * EPS * (second - first) if alpha < 1 else 0.0)) / 2


def _dense(name: str, value: Any, size: int) -> Array:
    """Return a covariance as a matrix, exactly, or refuse it."""
    dense = value.to_dense() if hasattr(value, "to_dense") else value
    result = symmetric(name, dense, size=size)
    check_psd(name, np.linalg.eigvalsh(result))
    return result


def _pencil(
    mean0: VectorLike, cov0: MatrixLike, mean1: VectorLike, cov1: MatrixLike
) -> _Pencil | None:
    """Whiten by Σ₁; None where the two laws have different supports."""
    first = vector("mean0", mean0)
    second = vector("mean1", mean1, size=first.size)
    sigma0 = _dense("cov0", cov0, first.size)
    sigma1 = _dense("cov1", cov1, first.size)
    shift = first - second
    variances0, variances1 = np.diagonal(sigma0), np.diagonal(sigma1)
    # a coordinate that does not vary must not vary in either law, and must have the same mean
    moving = variances1 > 0
    if ((variances0 > 0) != moving).any() or (shift[~moving] != 0).any():
        return None
    kept = np.ix_(moving, moving)
    sigma0, sigma1, shift = sigma0[kept], sigma1[kept], shift[moving]
    # two diagonals need no eigensolver, and keep every digit
    if not np.any(sigma0 - np.diag(variances0[moving])) and not np.any(
        sigma1 - np.diag(variances1[moving])
    ):
        return _diagonal_pencil(variances0[moving], variances1[moving], shift)
    return _dense_pencil(sigma0, sigma1, shift)


def _diagonal_pencil(variances0: Array, variances1: Array, shift: Array) -> _Pencil:
    """The pencil of diagonal covariances: e = σ₀²/σ₁² − 1, its ends outwards by its rounding."""
    e = (variances0 - variances1) / variances1
    # far from 1 the quotient has lost what the logarithms of both still hold; a lower ln(1 + e)
    # makes e − ln(1 + e) larger
    logs = np.where(
        np.abs(e) < NEAR_ONE,
        np.log1p(np.maximum(e, -NEAR_ONE)),
        np.log(variances0) - np.log(variances1),
    )
    slack, log_slack = QUOTIENT_UNITS * EPS * np.abs(e), QUOTIENT_UNITS * EPS * (1 + np.abs(logs))
    squares = shift / variances1 * shift
    return _Pencil(
        e - slack, e + slack, logs - log_slack, logs - log_slack, squares, SQUARE_UNITS * EPS
    )


def _dense_pencil(sigma0: Array, sigma1: Array, shift: Array) -> _Pencil | None:
    """The pencil of full covariances, its ends outwards; None where the supports may differ."""
    size = shift.size
    # Σ₁ to a unit diagonal: units of the coordinates cost no digits, and eigenvalues compare
    scale = np.sqrt(np.diagonal(sigma1))
    units = np.outer(scale, scale)
    values, vectors = np.linalg.eigh(sigma1 / units)
    positive_part = values > SOLVER_UNITS * size * EPS * values[-1]
    # an eigenvalue is off by c d u of the largest: relatively most where it is least
    error = SOLVER_UNITS * size * EPS * values[-1] / values[positive_part][0]
    shift = shift / scale
    # U Λ^−½ whitens Σ₁ on its range
    basis = vectors[:, positive_part] / np.sqrt(values[positive_part])
    if not positive_part.all():
        # outside that range Σ₀ and the mean must vanish too, to what rounding leaves of them
        null = vectors[:, ~positive_part]
        tolerance = min(error, SUPPORT_LIMIT)
        scaled0 = sigma0 / units
        leaving = np.linalg.norm(null.T @ scaled0 @ null) > tolerance * np.linalg.norm(scaled0)
        if leaving or np.linalg.norm(null.T @ shift) > tolerance * np.linalg.norm(shift):
            return None
    # eigenvalues of Σ₁^−½ (Σ₀ − Σ₁) Σ₁^−½: the difference first, so that equal matrices give 0
    e, rotation = np.linalg.eigh(basis.T @ ((sigma0 - sigma1) / units) @ basis)
    slack = error * float(np.abs(e).max())
    low, high = e - slack, e + slack
    if low[0] <= -1:  # Σ₀ has no certain variance somewhere in the range of Σ₁
        return None
    # the mean's difference in the axes of the pencil
    squares = (rotation.T @ (basis.T @ shift)) ** 2
    return _Pencil(low, high, np.log1p(low), np.log1p(high), squares, error)
