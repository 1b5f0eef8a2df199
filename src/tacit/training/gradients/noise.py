"""The coefficients of one noisy step: mean and noise as one weighted sum of gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, RandomSource, symmetric
from tacit._ground.random import released_normal
from tacit.covariance import Factored
from tacit.design import Design, worst_case
from tacit.linalg import MACHINE_EPSILON

# A reference's squared length is taken as at least this share of the longest one's.
FLOOR = 1e-12


def noisy_coefficients(
    gram: ArrayLike | None,
    membership: ArrayLike,
    budgets: ArrayLike,
    *,
    rng: RandomSource = None,
    warm_start: Design | ArrayLike | None = None,
) -> tuple[Array, Design]:
    """Return the coefficients c of a noisy mean gradient ``Σ_i c_i g_i``, drawn for a release.

    The mean gradient without the examples outside of reference R_r differs from the whole one by
    ``z_r = −(1/B) Σ_{j ∉ R_r} g_j = (M g)_r``, the divisor B being the same. With
    ``Gram_z = M G Mᵀ`` the noise ``Σ_r x_r z_r`` of least energy keeps every z_r within its budget,
    and ``c = 1/B + Mᵀ x``. Whether it does depends on the rows of L alone, ``x = D^-½ L⁻ᵀ η``, D
    the budgets: an approximate G costs energy and no guarantee, and ``design.cost`` is then not
    the energy. Without G every x_r is N(0, 1/budget_r) by itself, L = I.

    Args:
        gram: (B, B) inner products of the gradients, or None.
        membership: (references, B) of bool, whether an example is in a reference.
        budgets: (references,) or scalar, largest squared distance of each reference.
        rng: None draws from the operating system; a seed or generator voids the guarantee.
        warm_start: the design of an earlier step with the same references, or multipliers.

    Returns:
        The (B,) coefficients and the design of x, whose factor L they were drawn from.

    Raises:
        ValueError: a shape does not fit, a budget is not positive, an entry is not finite.

    Example:
        >>> coefficients, design = noisy_coefficients(np.eye(3), ~np.eye(3, dtype=bool), 2.0)
        >>> coefficients.shape, round(design.cost, 6)
        ((3,), 0.166667)

    Source: dsi, Thm 3.3 and Alg. 2, with one optimiser step as F.
    """
    inside = _membership(membership)
    count = inside.shape[1]
    # z = M g, M_rj = −[j ∉ R_r]/B
    mixing = np.where(inside, 0.0, -1.0 / count)
    if gram is None:
        design = independent(budgets, len(mixing))
    else:
        products = symmetric("gram", gram, size=count)
        moved = _positive(mixing @ products @ mixing.T, mixing.any(axis=1))
        if not moved.any():
            design = independent(budgets, len(mixing))
        else:
            design = worst_case(None, budgets, gram=moved, warm_start=warm_start)
    return 1.0 / count + draw(design, budgets, rng) @ mixing, design


def independent(budgets: ArrayLike, count: int) -> Design:
    """Return the design with L = I: feasible whatever the differences, its energy unknown.

    Args:
        budgets: scalar or (count,), largest squared distances.
        count: number of references.

    Raises:
        ValueError: a budget is not positive.
    """
    identity = np.eye(count)
    unit = worst_case(None, budgets, gram=identity)
    roots = np.sqrt(np.broadcast_to(np.asarray(budgets, dtype=np.float64), (count,)))
    return Design(
        covariance=Factored(identity, np.diag(roots)),
        cost=math.inf,
        gap=math.nan,
        method="independent",
        multipliers=unit.multipliers,
        iterations=0,
        constraint_factor=identity,
        notes=("the energy of this noise is not known without the Gram matrix",),
    )


def draw(design: Design, budgets: ArrayLike, rng: RandomSource = None) -> Array:
    """Return one draw of x from the design's factor, after checking that factor.

    ``zᵀ(Zᵀ A Aᵀ Z)⁻¹z ≤ g_r ‖L_r‖²`` where row r of ``D^½ L = A⁻ᵀ`` is of the factor that draws.

    Raises:
        RuntimeError: a row of the factor is longer than its budget: nothing was drawn.
    """
    factor = design.factor
    if factor is None:
        return np.zeros(design.covariance.dim)
    roots = np.sqrt(np.broadcast_to(np.asarray(budgets, dtype=np.float64), (len(factor),)))
    drawn = factor.any(axis=1)
    # rows of L as drawn: L D^½ A = I on the references that move
    lower = scipy_linalg.pinv(factor[drawn].T) / roots[drawn]
    excess = float(np.linalg.norm(lower, axis=0).max(initial=0.0)) - 1.0
    if excess > len(factor) ** 2 * MACHINE_EPSILON:
        raise RuntimeError(f"the factor of the noise exceeds a budget by {excess:.3g}")
    return factor @ released_normal((factor.shape[1],), rng)


def _membership(membership: ArrayLike) -> npt.NDArray[np.bool_]:
    values: Any = np.asarray(membership)
    if values.ndim != 2 or values.dtype != np.bool_ or 0 in values.shape:
        raise ValueError(
            "membership: expected (references, examples) of bool, got shape "
            f"{values.shape} of {values.dtype}"
        )
    found: npt.NDArray[np.bool_] = values
    return found


def _positive(gram: Array, moving: npt.NDArray[np.bool_]) -> Array:
    """Return a PSD matrix near a Gram matrix with rounding, no reference that moves left at zero.

    Whatever is changed here costs energy and no guarantee.
    """
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    if values[0] < 0.0:
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        gram = root @ root.T
    gram = np.where(moving[:, None] & moving, (gram + gram.T) / 2, 0.0)
    diagonal = np.diagonal(gram)
    short = moving & (diagonal < FLOOR * diagonal.max())
    return gram + np.diag(np.where(short, FLOOR * diagonal.max(), 0.0))
