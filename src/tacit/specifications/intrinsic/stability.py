"""How far one record moves a covariance: what is proven, what the paper says, what is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from tacit._ground.checks import array, boolean, integer, non_negative, positive

ROUNDED_UP = 1.0 + 1e-14


@dataclass(frozen=True, kw_only=True)
class MeasuredStability:
    """γ as it was on one data set. It is evidence: another data set of this kind may have more.

    Attributes:
        gamma: largest |l − 1| over the replacements that were tried, in both orders.
        records: n.
        tried: how many neighbours.
        evidence: ``"empirical"``, which is no evidence of a guarantee.
    """

    gamma: float
    records: int
    tried: int
    evidence: str = "empirical"


def replacement_difference(longest: float, records: int) -> float:
    """Return ``Δ = 2G/n``, how far one replaced record moves a mean of vectors no longer than G.

    Args:
        longest: G, enforced by clipping.
        records: n.

    Source: pave, Lemma 7.9.
    """
    return 2.0 * positive("longest", longest) / integer("records", records, minimum=1)


def stability_of_lemma_7_8(*, longest: float, shortest: float, difference: float) -> float:
    """Return the paper's ``γ = 2LΔ/μ²``; at 1 or more it says nothing.

    Args:
        longest: L, the largest singular value of any data set's H.
        shortest: μ > 0, the smallest.
        difference: Δ, spectral norm of what one record changes.

    Example:
        >>> round(stability_of_lemma_7_8(longest=1.0, shortest=0.1, difference=0.01), 6)
        2.0

    Source: pave, Lemma 7.8.
    """
    least = positive("shortest", shortest)
    moved = 2.0 * positive("longest", longest) * non_negative("difference", difference)
    # a division at a time: the square of a small number is 0
    return moved / least / least if moved / least < 1e308 * least else math.inf


def stability_of_perturbation(*, shortest: float, difference: float, of_all: bool = False) -> float:
    """Return ``γ = 1/(1 − x)² − 1`` at x = Δ/μ < 1, inf from there on; ``2x + x²`` with ``of_all``.

    With Σ_D^{-½} H_{D'} = Q + E, Q of orthonormal rows and ‖E‖ ≤ x, its singular values are in
    [1 − x, 1 + x] (Weyl). The ratios of D' to D are in [(1 − x)², (1 + x)²] and those of D to D'
    are their inverses; where μ bounds the neighbours too, both are in the first interval.

    Args:
        shortest: μ > 0, the smallest singular value of one data set's H.
        difference: Δ.
        of_all: whether μ bounds that of every data set.

    Example:
        >>> round(stability_of_perturbation(shortest=0.1, difference=0.01), 4)
        0.2346
        >>> round(stability_of_perturbation(shortest=0.1, difference=0.01, of_all=True), 4)
        0.21

    Source: Weyl's inequality, in place of pave, Lemma 7.8.
    """
    share = non_negative("difference", difference) / positive("shortest", shortest)
    if boolean("of_all", of_all):
        return share * (2.0 + share) * ROUNDED_UP
    return math.inf if share >= 1.0 else share * (2.0 - share) / (1.0 - share) ** 2 * ROUNDED_UP


def ratio_under_floor(*, floor: float, difference: float) -> float:
    """Return the largest ratio of neighbours' covariances HHᵀ + λI, exactly:

        sup_h ((h + Δ)² + λ)/(h² + λ) = e^{2 arsinh(x/2)},   x = Δ/√λ.

    Of every direction v, ‖Hᵀv‖ moves by at most Δ‖v‖, and the supremum is over what it was. The
    smallest ratio is the inverse of the largest, by exchanging the two data sets.

    Args:
        floor: λ > 0.
        difference: Δ >= 0.

    Example:
        >>> round(ratio_under_floor(floor=1.0, difference=0.1), 4)
        1.1051

    Source: ours.
    """
    share = non_negative("difference", difference) / math.sqrt(positive("floor", floor))
    exponent = 2.0 * math.asinh(share / 2.0)
    return math.exp(exponent) * (1.0 + 1e-14) if exponent < 700.0 else math.inf


def measured_stability(
    records: ArrayLike, replacements: ArrayLike, *, floor: float = 0.0
) -> MeasuredStability:
    """Return γ over every replacement of every record of one data set.

    Args:
        records: (n, k, m) coordinates of the records; H is their mean.
        replacements: (s, k, m) records that each of them is replaced by.
        floor: λ added to both covariances.

    Returns:
        The ``MeasuredStability``, evidence about this data set alone.

    Raises:
        ValueError: other shapes, or a covariance without full rank.

    Source: pave, Eq. 22, tried on one data set.
    """
    own, others = array("records", records, ndim=3), array("replacements", replacements, ndim=3)
    if own.shape[1:] != others.shape[1:]:
        raise ValueError(
            f"replacements: expected (s, {own.shape[1]}, {own.shape[2]}), got {others.shape}"
        )
    added = non_negative("floor", floor)
    mean = own.mean(axis=0)
    root = _root(mean, added)
    worst = 0.0
    for record in own:
        for other in others:
            changed = mean + (other - record) / len(own)
            worst = max(worst, _deviation(root, changed, added))
    return MeasuredStability(gamma=worst, records=len(own), tried=len(own) * len(others))


def _covariance(mean: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    return np.asarray(mean @ mean.T + floor * np.eye(len(mean)))


def _root(mean: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    covariance = _covariance(mean, floor)
    values = np.linalg.eigvalsh(covariance)
    if values[0] <= len(mean) * np.finfo(float).eps * values[-1]:
        raise ValueError(
            "records: expected a mean of full row rank, or a floor > 0, got one that is singular"
        )
    return np.asarray(np.linalg.cholesky(covariance))


def _deviation(root: NDArray[np.float64], changed: NDArray[np.float64], floor: float) -> float:
    half = scipy.linalg.solve_triangular(root, _covariance(changed, floor), lower=True)
    ratios = np.linalg.eigvalsh(scipy.linalg.solve_triangular(root, half.T, lower=True))
    least = float(ratios.min())
    if least <= 0.0:
        return math.inf
    return max(float(ratios.max()) - 1.0, 1.0 / least - 1.0)
