"""The least that noise worth one nat leaves of the differences between prompts: M*."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import svdvals

from tacit._ground.checks import Array, non_negative, symmetric, vector
from tacit.linalg import default_tolerance, eigh_psd


@dataclass(frozen=True)
class LeastSignal:
    """M*, the least mean squared signal of a difference of prompts that one nat of noise leaves.

    Attributes:
        value: M* of F and S as they are, where noise along the kernel of F is free.
        ridged: M* where noise costs something in every direction in which prompts differ, >= value.
    """

    value: float
    ridged: float


def least_signal(fisher: ArrayLike, spread: ArrayLike, *, ridge: float = 1e-4) -> LeastSignal:
    """Return M* = (tr (F^½ S F^½)^½)²/2, the infimum of tr(S Σ⁻¹) over noise of ½ tr(FΣ) <= 1 nat.

    With ``Y = F^½ Σ F^½`` and ``C = F^½ S F^½`` the problem is to minimise ``tr(C Y⁻¹)`` at
    ``tr Y = 2K``. By Cauchy and Schwarz ``(tr C^½)² <= tr(C Y⁻¹) tr Y``, with equality at
    ``Y ∝ C^½``, so the least is ``(tr C^½)²/(2K)``: M*/K at K nats. ``tr C^½`` is the nuclear norm
    of ``F^½ S^½``. Under h → Ah, F becomes ``A⁻ᵀFA⁻¹`` and S ``ASAᵀ``, and C keeps its eigenvalues:
    M* does not depend on coordinates, as G_Mah = tr F tr S/(2M*) does.

    For a singular F or S it is the limit of positive definite ones from above, which is the
    infimum. A kernel of F makes noise free there; where it comes of too few prompts, M* is too
    small. Under an A whose singular values are 10⁶ apart, rounding moves M* by a few per cent
    upwards. ``ridged`` is M* of ``F + λ (tr C/d) S⁺``, which also survives h → Ah and is at least
    M*.

    Args:
        fisher: F, (d, d), or (d,) for a diagonal; nats per squared unit of the state.
        spread: S, (d, d), second moment of differences, squared units of the state.
        ridge: λ >= 0, relative to the mean eigenvalue of C.

    Returns:
        M* in squared standard deviations, not below the exact one by rounding, and the ridged one.

    Raises:
        ValueError: a shape differs, a matrix is not symmetric positive semidefinite, λ < 0, or
            M* is out of the range of float64.

    Example:
        >>> found = least_signal([[4.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 9.0]])
        >>> round(found.value, 6), found.ridged > found.value  # (2 · 1 + 1 · 3)²/2
        (12.5, True)

    Source: hidden-state, Prop. 24, Eq. 21 at 𝒦 = 1; the kernel, the ridge and the invariance are
    ours.
    """
    share = non_negative("ridge", ridge)
    given = np.asarray(fisher)
    dense = symmetric("fisher", np.diag(vector("fisher", fisher)) if given.ndim == 1 else fisher)
    width = len(dense)
    differences = symmetric("spread", spread, size=width)
    left, price = _root_above("fisher", dense)
    right, distance = _root_above("spread", differences)
    values = svdvals(left @ right)
    rank = np.linalg.matrix_rank(differences, hermitian=True)
    squares = values**2
    # F + λ (tr C/d) S⁺ adds λ tr C/d to the eigenvalues of C within the range of S
    added = np.where(np.arange(width) < rank, share * squares.sum() / width, 0.0)
    least = _half_square(values, price, distance)
    if min(price, distance) > 0.0 and (least == 0.0 or not np.isfinite(least)):
        raise ValueError(
            "fisher: expected numbers whose product with those of spread is in the range of "
            f"float64, got largest eigenvalues {price:.3g} and {distance:.3g}"
        )
    return LeastSignal(
        least,
        _half_square(np.sqrt(squares + added), price, distance),
    )


def _root_above(name: str, value: Array) -> tuple[Array, float]:
    """Root of a matrix over its largest eigenvalue, raised by its error: M* grows with F and S."""
    eigenvalues, vectors = eigh_psd(name, value)
    largest = float(eigenvalues[-1])
    if largest == 0.0:
        return np.zeros_like(value), 0.0
    raised = eigenvalues / largest + default_tolerance(len(value))
    root: Array = (vectors * np.sqrt(raised)) @ vectors.T
    return root, largest


def _half_square(values: Array, price: float, distance: float) -> float:
    # 1e-12 is above the relative error of a product and of its singular values
    total = float(values.sum())
    return total * total / 2.0 * price * distance * (1.0 + 1e-12)
