"""Ways to make multipliers of the worst-case dual feasible noise, and what each costs.

With S = S(λ) the noise S leaves distances ``a_i = y_iᵀ S⁻¹ y_i``, which are 1 at the optimum only.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.design.listed.roots import Spectrum

NORM_ROUNDING = 8 * EPS
# Nothing is bare where no eigenvalue of S is below this share of their mean.
FLOORLESS = 1e-3
# Floors under S that are tried, as shares of its mean eigenvalue.
FLOOR_SHARES = np.concatenate([[0.0], np.logspace(-9, -1, 17)])


def repaired_cost(rows: Array, multipliers: Array, spectrum: Spectrum) -> float:
    """Return the cost of C ← Δ^-½ C Δ^-½, Δ = diag C: feasible at a gap of second order."""
    scale = np.sqrt(multipliers * spectrum.leverage)
    inverse_root = (spectrum.left.T * scale) @ rows / np.sqrt(spectrum.singular)[:, None]
    return float(np.vdot(inverse_root, inverse_root))


def cheapest_repair(trace: float, leverage: Array, squared: Array) -> tuple[float, float]:
    """Return c and the cost of ``c S + Σ (1 − c/a_i)₊ y_i y_iᵀ``, feasible for every c > 0.

    ``trace`` is tr S, ``leverage`` a and ``squared`` ‖y‖².

    Adding ``e y yᵀ`` to S divides a by 1 + e a and raises no other distance, so short rows are
    mended for their own length instead of scaling all of S. The cost is convex and piecewise
    linear in c, with its minimum at some a_i.
    """
    decreasing = np.argsort(-leverage)
    slope = trace - np.cumsum((squared / leverage)[decreasing])
    crossing = int(np.argmax(slope <= 0)) if slope[-1] <= 0 else decreasing.size - 1
    scale = float(leverage[decreasing[crossing]])
    excess = np.maximum(1 - scale / leverage, 0.0)
    return scale, scale * trace + float(excess @ squared)


def cheapest_floor(multipliers: Array, spectrum: Spectrum, squared: Array) -> tuple[float, float]:
    """Return η and the cost of mending ``S + η I`` by rows, for the η that costs least.

    ``a_i(η) = Σ_k U_ik² s_k² / (λ_i (s_k + η))``: a floor mends what is bare in directions of
    small s for next to nothing, where whole rows would be added for it.
    """
    singular = spectrum.singular
    trace = float(singular.sum())
    mean = trace / singular.size
    if float(singular.min()) > FLOORLESS * mean:
        return 0.0, cheapest_repair(trace, spectrum.leverage, squared)[1]
    floors = FLOOR_SHARES * mean
    shares = singular[:, None] ** 2 / (singular[:, None] + floors)
    leverage = (spectrum.left**2 @ shares) / multipliers[:, None]
    costs = [
        cheapest_repair(trace + singular.size * float(floor), leverage[:, place], squared)[1]
        for place, floor in enumerate(floors)
    ]
    best = int(np.argmin(costs))
    return float(floors[best]), costs[best]


def mended_root(rows: Array, spectrum: Spectrum, floor: float = 0.0) -> Array:
    """Return L with rows of norm ≤ 1 and ``L Lᵀ = Y Σ⁻¹ Yᵀ``, Σ = c (S + floor · I) mended by rows.

    What counts is measured on the noise itself, so that a rough spectrum costs no more than its
    own error.
    """
    right = spectrum.right
    assert right is not None
    base = np.sqrt(spectrum.singular + floor)[:, None] * right.T
    triangle = scipy_linalg.qr(base, mode="r", check_finite=False)[0][: rows.shape[1]]
    root = scipy_linalg.solve_triangular(triangle, rows.T, trans="T", check_finite=False).T
    leverage = np.einsum("ij,ij->i", root, root)
    squared = np.einsum("ij,ij->i", rows, rows)
    touched = leverage > 0
    scale, _ = cheapest_repair(float(np.vdot(base, base)), leverage[touched], squared[touched])
    excess = np.zeros_like(leverage)
    excess[touched] = np.maximum(1 - scale / leverage[touched], 0.0)
    mended = excess > 0
    if mended.any():
        added = np.sqrt(excess[mended])[:, None] * rows[mended]
        stacked = np.vstack([np.sqrt(scale) * triangle, added])
        triangle = scipy_linalg.qr(stacked, mode="r", check_finite=False)[0][: rows.shape[1]]
        root = scipy_linalg.solve_triangular(triangle, rows.T, trans="T", check_finite=False).T
    return _within(root)


def _within(root: Array) -> Array:
    """Return the rows scaled by one factor, so that the longest has norm 1 at most."""
    largest = float(np.sqrt(np.einsum("ij,ij->i", root, root)).max()) * (1 + NORM_ROUNDING)
    return root / largest


def unit_rows(rows: Array) -> Array:
    """Return rows scaled down to norm 1, less the rounding of a norm, where they are longer."""
    norms: Array = np.sqrt((rows**2).sum(axis=1))
    scaled: Array = rows / np.maximum(norms * (1 + NORM_ROUNDING), 1.0)[:, None]
    return scaled
