"""Designs that spend a KL budget exactly: K = ½ tr(FΣ) nats, F the Fisher information.

All of hidden-state Sections 4–6 and Appendices Q and S. None of them bounds anything by itself: a
covariance of rank below d leaves directions bare, and ``Covariance.mahalanobis`` says infinite
there (hidden-state, Prop. 9).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    array,
    as_float,
    boolean,
    check_psd,
    integer,
    non_negative,
    positive,
    symmetric,
    vector,
)
from tacit.covariance import Covariance, Dense, Diagonal, Isotropic, LowRank
from tacit.design.base import Design
from tacit.linalg import default_tolerance, eigh_psd, generalized_eigh, inverse_sqrt_psd, sqrt_psd

# What a variance may be so that it, its root and its products keep every digit.
SMALLEST_VARIANCE, LARGEST_VARIANCE = 1e-290, 1e290
# How near the budget what is spent may be: a few hundred units in the last place of a trace.
SPENT_TOLERANCE = 1e-13


def isotropic(fisher: ArrayLike, kl_budget: float) -> Design:
    """Same variance in every direction: ``Σ = (2K / tr F) I`` (hidden-state, S.4).

    Args:
        fisher: (d, d) symmetric PSD, or its diagonal (d,).
        kl_budget: K in nats, > 0.

    Returns:
        Design of rank d and cost K.

    Raises:
        ValueError: ``fisher`` is not PSD or is zero, ``kl_budget`` is not positive.

    Example:
        >>> isotropic([1.0, 3.0], kl_budget=2.0).covariance.variance
        1.0
    """
    budget = positive("kl_budget", kl_budget)
    matrix, diagonal = _fisher(fisher)
    with np.errstate(over="ignore"):
        trace = float(diagonal.sum())
    if trace == 0.0:
        raise ValueError("fisher: expected a non-zero matrix, got trace 0")
    # ½ σ² tr F = K
    variance = _representable("fisher, kl_budget", 2 * budget / trace)
    return _spend(Isotropic(float(variance), diagonal.size), matrix, budget, "isotropic")


def ball(fisher: ArrayLike, kl_budget: float, *, diagonal: bool = False) -> Design:
    """Worst case over the Fisher ball ΔᵀFΔ ≤ ρ²: ``Σ = (2K/d) F⁻¹`` (hidden-state, Thm 13, 15).

    With ``diagonal`` the best diagonal covariance, ``(2K/d) diag(F)⁻¹``, for the ball of diag(F).

    Args:
        fisher: (d, d) symmetric positive definite, or its diagonal (d,).
        kl_budget: K in nats, > 0.
        diagonal: use diag(F) only.

    Returns:
        Design of rank d and cost K.

    Raises:
        ValueError: ``fisher`` is singular: along its null space no finite noise is worst-case
            optimal. Add a ridge that you can defend, or release fewer directions.

    Example:
        >>> ball([1.0, 4.0], kl_budget=1.0).covariance.variances
        array([1.  , 0.25])
    """
    budget = positive("kl_budget", kl_budget)
    matrix, values = _fisher(fisher)
    if boolean("diagonal", diagonal) or matrix.ndim == 1:
        _require_positive_diagonal(values)
        # σ_i² = 2K/(d F_ii): each coordinate spends K/d
        with np.errstate(all="ignore"):
            variances = 2 * budget / (values.size * values)
        covariance: Covariance = Diagonal(_representable("fisher, kl_budget", variances))
        return _spend(covariance, matrix, budget, "ball-diagonal")
    # F⁻¹ by its root, whose rank says where F is singular
    root = inverse_sqrt_psd(matrix)
    if root.rank < values.size:
        raise ValueError(
            f"fisher: expected a positive definite matrix, got rank {root.rank} of {values.size} "
            f"(eigenvalues at or below {root.tolerance:.3g} count as zero)"
        )
    covariance = Dense(2 * budget / values.size * (root.root @ root.root))
    return _spend(covariance, matrix, budget, "ball")


def power(fisher_diagonal: ArrayLike, exponent: float, kl_budget: float) -> Design:
    """Diagonal family ``Σ = c diag(F)^-α`` with c set by the budget (hidden-state, Q.11).

    Args:
        fisher_diagonal: (d,) entries > 0 (>= 0 when ``exponent`` is 0).
        exponent: α; 0 is isotropic, 1 is ``ball(..., diagonal=True)``.
        kl_budget: K in nats, > 0.

    Returns:
        Design of rank d and cost K.

    Raises:
        ValueError: an entry is not positive, or ``exponent`` is not finite.

    Example:
        >>> power([1.0, 4.0], 0.5, kl_budget=1.5).covariance.variances
        array([1. , 0.5])
    """
    budget = positive("kl_budget", kl_budget)
    diagonal = vector("fisher_diagonal", fisher_diagonal)
    alpha = as_float("exponent", exponent)
    if not np.isfinite(alpha):
        raise ValueError(f"exponent: expected a finite number, got {alpha!r}")
    _require_positive_diagonal(diagonal, name="fisher_diagonal")
    # Powers of the ratio to the largest entry: c absorbs the scale.
    with np.errstate(all="ignore"):
        shape = (diagonal / diagonal.max()) ** -alpha
        variances = 2 * budget / float(diagonal @ shape) * shape
    covariance = Diagonal(_representable("fisher_diagonal, exponent, kl_budget", variances))
    return _spend(covariance, diagonal, budget, f"power({alpha:g})")


def complement(fisher: ArrayLike, rank: int, kl_budget: float, whiten: bool = False) -> Design:
    """Noise only outside the top Fisher directions: ``σ² P_I``, or whitened ``σ² P_I F† P_I``.

    P_I projects on the complement of the ``rank`` leading eigenvectors of F (hidden-state, 4.1).

    Args:
        fisher: (d, d) symmetric PSD.
        rank: number of leading eigenvectors left without noise, 1 … d − 1.
        kl_budget: K in nats, > 0.
        whiten: weight the complement by F†.

    Returns:
        Design of rank d − ``rank`` at most (whitening also leaves the null space of F bare) and
        cost K.

    Raises:
        ValueError: ``rank`` out of range, or F is zero on the complement, where noise costs
            nothing and no budget fixes it.

    Example:
        >>> complement([[4.0, 0.0], [0.0, 1.0]], rank=1, kl_budget=0.5).covariance.diagonal()
        array([0., 1.])
    """
    budget = positive("kl_budget", kl_budget)
    matrix, values = _fisher(fisher, allow_diagonal=False)
    kept = integer("rank", rank, minimum=1, maximum=values.size - 1)
    # ascending: the leading eigenvectors of F are the last, and stay bare
    eigenvalues, vectors = eigh_psd("fisher", matrix)
    tolerance = default_tolerance(values.size) * float(eigenvalues[-1])
    inside = eigenvalues[: values.size - kept]
    basis = vectors[:, : values.size - kept]
    if inside[-1] <= tolerance:
        raise ValueError(
            f"fisher: expected information outside its {kept} leading directions, got largest "
            f"eigenvalue {inside[-1]:.3g} there, at or below the tolerance {tolerance:.3g}"
        )
    notes: tuple[str, ...] = ()
    shape = np.ones_like(inside)
    # P F† P, without the directions in which F is rounding
    if boolean("whiten", whiten):
        covered = inside > tolerance
        basis, inside = basis[:, covered], inside[covered]
        shape = 1 / inside
        notes = (f"eigenvalues of fisher at or below {tolerance:.3g} counted as zero",)
    # the shape scaled so that ½ tr(FΣ) = K
    core = np.diag(2 * budget / float(inside @ shape) * shape)
    name = "fisher-complement" if whiten else "complement"
    return _spend(LowRank(basis.T, core), matrix, budget, name, notes)


def generalized_eigen(fisher: ArrayLike, spread: ArrayLike, kl_budget: float, rank: int) -> Design:
    """Equal Fisher cost on the top generalised eigenvectors of (spread, F) (hidden-state, 4.1).

    ``Σ = (2K/k) Σ_{i≤k} v_i v_iᵀ`` with ``S v = l F v`` and ``vᵀFv = 1``; k = 1 is Eq. 3.

    Args:
        fisher: (d, d) symmetric positive definite.
        spread: (d, d) symmetric PSD, S.
        kl_budget: K in nats, > 0.
        rank: k, 1 … d.

    Returns:
        Design of rank k and cost K. With k < d it hides nothing from an attacker who knows Σ.

    Raises:
        ValueError: shapes differ, ``fisher`` is singular or ``rank`` out of range.

    Example:
        >>> design = generalized_eigen(np.eye(2), np.diag([3.0, 1.0]), kl_budget=1.0, rank=1)
        >>> design.rank, design.covariance.diagonal()
        (1, array([2., 0.]))
    """
    budget = positive("kl_budget", kl_budget)
    matrix, values = _fisher(fisher, allow_diagonal=False)
    directions = integer("rank", rank, minimum=1, maximum=values.size)
    spread_matrix = symmetric("spread", spread, size=values.size)
    check_psd("spread", np.linalg.eigvalsh(spread_matrix))
    _, vectors = generalized_eigh(spread_matrix, matrix)
    # vᵀFv = 1: each direction costs ½ of its variance
    top = vectors[:, :directions]
    covariance = _from_factor(np.sqrt(2 * budget / directions) * top)
    return _spend(covariance, matrix, budget, f"generalized-eigen({directions})")


def average(
    fisher: ArrayLike,
    spread: ArrayLike,
    kl_budget: float,
    *,
    ridge: float = 0.0,
    floor: float = 0.0,
) -> Design:
    """Least average distance tr(S Σ⁻¹): ``Σ ∝ F^-½ (F^½ S F^½)^½ F^-½`` (hidden-state, Prop. 24).

    F is F + ridge·I in the formula. Then ``floor`` times the mean variance is added to every
    direction, and the sum is rescaled so that ½ tr(FΣ) with the F given is exactly K.

    Args:
        fisher: (d, d) symmetric PSD, positive definite after the ridge.
        spread: (d, d) symmetric PSD, S.
        kl_budget: K in nats, > 0.
        ridge: λ >= 0, in the units of ``fisher``.
        floor: η >= 0, as a fraction of tr(Σ)/d (hidden-state, S.5).

    Returns:
        Design of cost K; rank d with a floor, else the rank of S. ``gap`` is 0 when neither ridge
        nor floor moved it off the optimum, else nan.

    Raises:
        ValueError: shapes differ, a matrix is not PSD, F + ridge·I is singular, S is zero.

    Example:
        >>> average(np.eye(2), np.diag([4.0, 1.0]), kl_budget=1.5).covariance.diagonal()
        array([2., 1.])
    """
    budget = positive("kl_budget", kl_budget)
    matrix, values = _fisher(fisher, allow_diagonal=False)
    ridge, floor = non_negative("ridge", ridge), non_negative("floor", floor)
    spread_matrix = symmetric("spread", spread, size=values.size)
    ridged = matrix + ridge * np.eye(values.size)
    inverse = inverse_sqrt_psd(ridged)
    if inverse.rank < values.size:
        raise ValueError(
            f"fisher: expected F + ridge I positive definite, got rank {inverse.rank} of "
            f"{values.size} with ridge {ridge:g}"
        )
    eigenvalues, vectors = eigh_psd("spread", spread_matrix)
    if eigenvalues[-1] == 0.0:
        raise ValueError("spread: expected a non-zero matrix, got zeros")
    tolerance = default_tolerance(values.size) * float(eigenvalues[-1])
    covered = eigenvalues > tolerance
    # Singular values of S^½ F^½ keep the rank that (F^½ S F^½)^½ would blur by √rounding.
    _, singular, right = np.linalg.svd(
        (vectors[:, covered] * np.sqrt(eigenvalues[covered])).T @ sqrt_psd(ridged),
        full_matrices=False,
    )
    # F^-½ V diag(s)^½: (F^½ S F^½)^½ = V diag(s) Vᵀ
    factor = inverse.root @ (right.T * np.sqrt(singular))
    notes: tuple[str, ...] = ()
    if not covered.all():
        notes = (f"eigenvalues of spread at or below {tolerance:.3g} counted as zero",)
    covariance = _from_factor(factor)
    covariance = covariance.with_floor(floor * covariance.trace() / values.size)
    # what the shape costs under the F given, not under the ridged one
    used = 0.5 * covariance.weighted_trace(matrix)
    if used == 0.0:
        raise ValueError("fisher: expected information where spread has variance, got none")
    gap = 0.0 if ridge == 0.0 and floor == 0.0 else float("nan")
    return _spend(covariance.scaled(budget / used), matrix, budget, "average", notes, gap)


def _fisher(fisher: Any, *, allow_diagonal: bool = True) -> tuple[Array, Array]:
    """Return F as given (matrix or diagonal) and its diagonal, checked PSD."""
    given = array("fisher", fisher, ndim=(1, 2) if allow_diagonal else 2)
    if given.ndim == 1:
        diagonal = given
        if (diagonal < 0).any():
            raise ValueError(f"fisher: expected entries >= 0, got {float(diagonal.min())!r}")
        return diagonal, diagonal
    # a matrix is checked for its eigenvalues, a diagonal for its entries
    checked = symmetric("fisher", given)
    check_psd("fisher", np.linalg.eigvalsh(checked))
    return checked, np.diagonal(checked)


def _from_factor(factor: Array) -> Covariance:
    """Return A Aᵀ: dense at full rank, else in the span of the columns of A."""
    if factor.shape[0] == factor.shape[1]:
        return Dense(factor @ factor.T)
    # a basis of the range with a small core, so that no d × d matrix is formed
    orthonormal, triangle = np.linalg.qr(factor)
    return LowRank(orthonormal.T, triangle @ triangle.T)


def _require_positive_diagonal(diagonal: Array, *, name: str = "fisher") -> None:
    if (diagonal <= 0).any():
        where = int(np.argmin(diagonal))
        raise ValueError(
            f"{name}: expected diagonal entries > 0, got {float(diagonal[where])!r} at {where}"
        )


def _representable(name: str, variances: Any) -> Any:
    """Return variances that double precision holds, with every digit.

    Raises:
        ValueError: one is 0, infinite, or too small for its digits.
    """
    # what is no number of full precision now would spend another budget later
    least, most = float(np.min(variances)), float(np.max(variances))
    if not SMALLEST_VARIANCE <= least <= most <= LARGEST_VARIANCE:
        raise ValueError(
            f"{name}: expected variances between {SMALLEST_VARIANCE:g} and {LARGEST_VARIANCE:g}, "
            f"got {least:.3g} to {most:.3g}"
        )
    return variances


def _spend(
    covariance: Covariance,
    fisher: Array,
    budget: float,
    method: str,
    notes: tuple[str, ...] = (),
    gap: float = 0.0,
) -> Design:
    """Rescale away the last rounding so that ½ tr(FΣ) is the budget, and wrap up."""
    # K = ½ tr(FΣ): one scaling, for what rounding has left of it
    spent = 0.5 * covariance.weighted_trace(fisher)
    if not np.isclose(spent, budget, rtol=SPENT_TOLERANCE, atol=0.0):
        covariance = covariance.scaled(budget / spent)
    cost = 0.5 * covariance.weighted_trace(fisher)
    return Design(covariance, cost, gap, method, np.empty(0), 0, notes=notes)
