"""The dual of a worst-case design: its value, its curvature, and noise made of its multipliers.

With rows y_i in k coordinates, ``min tr Σ : y_iᵀ Σ⁻¹ y_i ≤ 1`` has the Lagrangian
``tr Σ + Σ λ_i (y_iᵀ Σ⁻¹ y_i − 1)``, least at ``Σ = S(λ) = (Σ λ_i y_i y_iᵀ)^½``, where it is
``2 tr S − Σ λ_i``. By weak duality this bounds the optimum from below for every λ ≥ 0; at the best
scaling of λ it is ``(tr S)² / Σ λ_i``. Its gradient is a − 1 with the distances
``a_i = y_iᵀ S⁻¹ y_i`` that the noise S leaves, which are 1 at the optimum only: a repair makes S
feasible, which bounds the optimum from above. Everything follows from ``Λ^½ Y = U diag(s) Vᵀ``, for
S = V diag(s) Vᵀ and a_i = Σ_k U_ik² s_k/λ_i; (dsi, Thm 3.3).

Minus the Hessian in ln λ is ``N = Λ H Λ``, ``N_ij = Σ_kl U_ik U_il U_jk U_jl s_k s_l/(s_k + s_l)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

Single: TypeAlias = npt.NDArray[np.float32]

# An eigendecomposition of Λ^½ G Λ^½ errs in s by s_max² ε/s: at this ratio by 1% of s itself.
EIGEN_RATIO = 1e-7
# Share of the tolerance that the rounding of tr S may take from the lower bound, by the matrix of
# few coordinates and by that of the rows.
ROUNDING_SHARE, ROUGH_SHARE = 0.05, 0.25
# Relative, more than the sums and products of the dual value round: 400 units in the last place.
DUAL_SLACK = 1e-13
# Relative error of the kernel of the Hessian, which only decides steps.
KERNEL_TOLERANCE = 0.1
# Rows of N summed at a time, up to the diagonal only.
BAND = 256
# Shifts of a unit-diagonal matrix in single precision, from its rounding on.
SHIFTS = (1e-8, 1e-6, 1e-4, 1e-2)
# The shift at which one of many rows is factored in single precision.
SINGLE_SHIFT = 1e-6
# Of a norm: its squares, their sum, the root, and the division by it.
NORM_ROUNDING = 8 * EPS
# Nothing is bare where no eigenvalue of S is below this share of their mean.
FLOORLESS = 1e-3
# Floors under S that are tried, as shares of its mean eigenvalue.
FLOOR_SHARES = np.concatenate([[0.0], np.logspace(-9, -1, 17)])


@dataclass(frozen=True)
class Spectrum:
    """``Λ^½ Y = U diag(s) Vᵀ`` and what follows from it.

    ``rough`` says that the smallest s are rounding: good for a step, not for the noise itself.
    """

    left: Array
    singular: Array
    right: Array | None
    leverage: Array
    lower_bound: float
    rough: bool = False


@dataclass(frozen=True)
class Solution:
    """Multipliers with their spectrum; ``gap`` is the one the iteration saw.

    ``by_diagonal`` says which repair reached it: scaling diag C, or mending ``S + floor · I`` row
    by row.
    """

    multipliers: Array
    spectrum: Spectrum
    gap: float
    iterations: int
    by_diagonal: bool
    floor: float = 0.0


class RootSolver:
    """Spectra of ``Λ^½ Y`` for changing λ, by the cheapest factorisation that is accurate."""

    def __init__(self, rows: Array, gram: Array | None, rtol: float) -> None:
        self.rows = rows
        self.gram = gram
        self.rtol = rtol

    def spectrum(self, multipliers: Array) -> Spectrum:
        """Return U, s for λ > 0, V where rows are few; the dual value is rounded down."""
        root = np.sqrt(multipliers)
        if self.gram is not None:
            # Λ^½ G Λ^½ = U diag(s²) Uᵀ: half of the work of an SVD, at twice the loss of digits
            scaled = self.gram * root[:, None] * root
            values, left = scipy_linalg.eigh(scaled, driver="evd", check_finite=False)
            # an eigenvalue is off by √n ε s_max²; s is raised by that, and taken off the trace
            # below
            rounding = np.sqrt(values.size) * EPS * float(values[-1])
            singular = np.sqrt(np.maximum(values, rounding))
            error = float((singular - np.sqrt(np.maximum(values - rounding, 0.0))).sum())
            if error <= ROUGH_SHARE * self.rtol * float(singular.sum()):
                rough = bool(values[0] <= EIGEN_RATIO**2 * values[-1])
                return self._finish(multipliers, left, singular, None, error, rough=rough)
            # from here on the Gram matrix says too little
            self.gram = None
        left, singular, right = scipy_linalg.svd(
            root[:, None] * self.rows, full_matrices=False, check_finite=False
        )
        # nothing is divided by a rounded zero; n^{1.5} ε s_max bounds what all s together are off
        # by
        singular = np.maximum(singular, EPS**2 * singular[0])
        error = singular.size**1.5 * EPS * singular[0]
        return self._finish(multipliers, left, singular, right.T, error)

    def narrow_spectrum(self, multipliers: Array) -> Spectrum:
        """Return the same with V from ``Yᵀ Λ Y``, (k, k), for many rows in few coordinates."""
        values, right = scipy_linalg.eigh(
            (self.rows.T * multipliers) @ self.rows, driver="evd", check_finite=False
        )
        error = self._trace_error(values)
        if error is None:
            return self.spectrum(multipliers)
        # U = Λ^½ Y V/s
        singular = np.sqrt(values)
        left = np.sqrt(multipliers)[:, None] * (self.rows @ (right / singular))
        return self._finish(multipliers, left, singular, right, error)

    def _trace_error(self, values: Array) -> float | None:
        """Return a bound on the rounding in tr S, rounded up, from s²; None where it matters."""
        if values[0] <= EIGEN_RATIO**2 * values[-1]:
            return None
        # √k ε s_max² in s² is that over 2s in s; twice that is counted
        singular = np.sqrt(values)
        error = np.sqrt(values.size) * EPS * float((values[-1] / singular).sum())
        return error if error <= ROUNDING_SHARE * self.rtol * float(singular.sum()) else None

    @staticmethod
    def _finish(
        multipliers: Array,
        left: Array,
        singular: Array,
        right: Array | None,
        error: float,
        *,
        rough: bool = False,
    ) -> Spectrum:
        """Return the spectrum with its distances, to rounding, and its dual value, rounded down."""
        leverage = (left**2 @ singular) / multipliers
        # tr S less what it may have been rounded up by, squared over Σ λ
        trace = float(singular.sum()) - float(error)
        lower_bound = max(trace, 0.0) ** 2 / float(multipliers.sum()) * (1 - DUAL_SLACK)
        return Spectrum(left, singular, right, leverage, lower_bound, rough)


def log_hessian(spectrum: Spectrum) -> tuple[Single, float]:
    """Return N/σ, ``N = Σ_q ((U∘w_q) Uᵀ)∘²``, ``Σ_q w_q w_qᵀ ≈ kernel``, σ: for a choice only.

    In single precision: N only decides the step, and its sums are most of an iteration's time.
    """
    left = spectrum.left.astype(np.float32)
    count = left.shape[0]
    hessian = np.zeros((count, count), np.float32)
    # N is linear in the kernel: in the unit of the largest s single precision cannot overflow
    unit = float(spectrum.singular.max())
    for weights in kernel_factors(spectrum.singular / unit):
        weighed = left * weights.astype(np.float32)
        for start in range(0, count, BAND):
            stop = min(start + BAND, count)
            product = weighed[start:stop] @ left[:stop].T
            # N_ij = Σ_q (Σ_k w_qk U_ik U_jk)²
            np.square(product, out=product)
            hessian[start:stop, :stop] += product
    for start in range(0, count, BAND):
        stop = min(start + BAND, count)
        # the half above the diagonal is that below it
        hessian[:start, start:stop] = hessian[start:stop, :start].T
    return hessian, unit


def kernel_factors(singular: Array, tolerance: float = KERNEL_TOLERANCE) -> list[Array]:
    """Return w_q with ``Σ_q w_q w_qᵀ ≈ s_k s_l/(s_k + s_l)``, good for a choice only, by Cholesky.

    Divided by √(s_k s_l) the kernel is ``1 / (2 cosh(ln(s_k/s_l)/2))``: smooth and stationary in
    ln s, so a few terms per decade reach any useful accuracy, for small s as for large.
    """
    # what is left of the diagonal, 1/2 everywhere at first
    relative = np.full(singular.size, 0.5)
    factors: list[Array] = []
    while len(factors) < singular.size and float(relative.max()) > tolerance / 2:
        # the largest that is left is the next pivot; its column less what was taken off it before
        pivot = int(np.argmax(relative))
        column = np.sqrt(singular * singular[pivot]) / (singular + singular[pivot])
        for factor in factors:
            column = column - factor * factor[pivot]
        column = column / np.sqrt(relative[pivot])
        factors.append(column)
        relative = np.maximum(relative - column**2, 0.0)
    # times √(s_k s_l) again
    root = np.sqrt(singular)
    return [factor * root for factor in factors]


def regularised_solver(
    hessian: Single, diagonal: Array, *, single: bool = False
) -> Callable[[Array], Array]:
    """Return x ↦ (N + diag)⁻¹ x, Jacobi-scaled and regularised: good for a choice only.

    ``single`` factors in single precision, in half of the time, where that goes.
    """
    # to a unit diagonal, where one shift serves all rows
    scale = 1 / np.sqrt(np.diagonal(hessian) + diagonal)
    tried: list[tuple[float, np.dtype[Any]]] = [(one, np.dtype(np.float64)) for one in SHIFTS]
    if single:
        tried.insert(0, (SINGLE_SHIFT, np.dtype(np.float32)))
    for shift, precision in tried:
        matrix = hessian * scale.astype(precision)[:, None]
        matrix *= scale.astype(precision)
        matrix[np.diag_indices_from(matrix)] = 1 + shift
        try:
            # symmetric: its transpose is the same matrix in the order that LAPACK works in
            factor = scipy_linalg.cho_factor(
                matrix.T, lower=True, overwrite_a=True, check_finite=False
            )
        except scipy_linalg.LinAlgError:
            continue
        break
    else:
        # no shift of these makes it definite: the diagonal alone
        return lambda right_side: right_side * scale**2

    def solve(right_side: Array) -> Array:
        scaled = (scale * right_side).astype(precision)
        solved: Array = scale * scipy_linalg.cho_solve(factor, scaled, check_finite=False)
        return solved

    return solve


def repaired_cost(rows: Array, multipliers: Array, spectrum: Spectrum) -> float:
    """Return the cost of C ← Δ^-½ C Δ^-½, Δ = diag C, to rounding: feasible at a second-order gap.

    C = Y S⁻¹ Yᵀ has the distances a on its diagonal; divided by their roots on both sides it
    has ones. Its noise is not S any more, and costs ``tr G C⁻¹`` with G = Y Yᵀ.
    """
    # C = Λ^-½ U diag(s) Uᵀ Λ^-½, so that C⁻¹ is applied by Uᵀ and 1/√s
    scale = np.sqrt(multipliers * spectrum.leverage)
    inverse_root = (spectrum.left.T * scale) @ rows / np.sqrt(spectrum.singular)[:, None]
    return float(np.vdot(inverse_root, inverse_root))


def cheapest_repair(trace: float, leverage: Array, squared: Array) -> tuple[float, float]:
    """Return c and the cost, to rounding, of ``c S + Σ (1 − c/a_i)₊ y_i y_iᵀ``, feasible for c > 0.

    ``trace`` is tr S, ``leverage`` a and ``squared`` ‖y‖².

    Adding ``e y yᵀ`` to S divides a by 1 + e a and raises no other distance, so short rows are
    mended for their own length instead of scaling all of S. The cost is convex and piecewise
    linear in c, with its minimum at some a_i.
    """
    # the slope in c: tr S − Σ ‖y_i‖²/a_i over the a_i > c; the cost is least where it changes its
    # sign
    decreasing = np.argsort(-leverage)
    slope = trace - np.cumsum((squared / leverage)[decreasing])
    crossing = int(np.argmax(slope <= 0)) if slope[-1] <= 0 else decreasing.size - 1
    scale = float(leverage[decreasing[crossing]])
    excess = np.maximum(1 - scale / leverage, 0.0)
    return scale, scale * trace + float(excess @ squared)


def cheapest_floor(multipliers: Array, spectrum: Spectrum, squared: Array) -> tuple[float, float]:
    """Return the cheapest η and the cost of mending ``S + η I`` by rows, to rounding.

    ``a_i(η) = Σ_k U_ik² s_k² / (λ_i (s_k + η))``: a floor mends what is bare in directions of
    small s for next to nothing, where whole rows would be added for it.
    """
    singular = spectrum.singular
    trace = float(singular.sum())
    mean = trace / singular.size
    # no direction is bare: without a floor
    if float(singular.min()) > FLOORLESS * mean:
        return 0.0, cheapest_repair(trace, spectrum.leverage, squared)[1]
    floors = FLOOR_SHARES * mean
    # all floors at once: a_i(η) as a matrix product
    shares = singular[:, None] ** 2 / (singular[:, None] + floors)
    leverage = (spectrum.left**2 @ shares) / multipliers[:, None]
    costs = [
        cheapest_repair(trace + singular.size * float(floor), leverage[:, place], squared)[1]
        for place, floor in enumerate(floors)
    ]
    best = int(np.argmin(costs))
    return float(floors[best]), costs[best]


def mended_root(rows: Array, spectrum: Spectrum, floor: float = 0.0) -> Array:
    """Return L, rows of norm at most 1, ``L Lᵀ = Y Σ⁻¹ Yᵀ``, Σ = c (S + floor · I) mended by rows.

    What counts is measured on the noise itself, so that a rough spectrum costs no more than its
    own error.
    """
    right = spectrum.right
    assert right is not None
    # S + floor = Bᵀ B with B = diag(s + floor)^½ Vᵀ; its triangle R solves for Y R⁻¹, whose rows
    # have the distances as squared norms
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
        # c S + Σ e_i y_i y_iᵀ stacked: no product of matrices, whose rounding would be of second
        # order
        added = np.sqrt(excess[mended])[:, None] * rows[mended]
        stacked = np.vstack([np.sqrt(scale) * triangle, added])
        triangle = scipy_linalg.qr(stacked, mode="r", check_finite=False)[0][: rows.shape[1]]
        root = scipy_linalg.solve_triangular(triangle, rows.T, trans="T", check_finite=False).T
    return _within(root)


def _within(root: Array) -> Array:
    """Return the rows scaled by one factor, the longest to norm 1 at most: rounded down."""
    largest = float(np.sqrt(np.einsum("ij,ij->i", root, root)).max()) * (1 + NORM_ROUNDING)
    return root / largest


def unit_rows(rows: Array) -> Array:
    """Return rows scaled down to norm at most 1 where they are longer, rounded down."""
    norms: Array = np.sqrt((rows**2).sum(axis=1))
    scaled: Array = rows / np.maximum(norms * (1 + NORM_ROUNDING), 1.0)[:, None]
    return scaled
