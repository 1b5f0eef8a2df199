"""TODO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

# An eigendecomposition of Λ^½ G Λ^½ errs in s by s_max² ε / s: at this ratio by 1% of s itself.
EIGEN_RATIO = 1e-7
# Share of the tolerance that the rounding of tr S may take from the lower bound.
ROUNDING_SHARE = 0.05
ROUGH_SHARE = 0.25


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
        """Return U, s (and V where rows are fewer than coordinates) for one λ > 0."""
        root = np.sqrt(multipliers)
        if self.gram is not None:
            scaled = self.gram * root[:, None] * root
            values, left = scipy_linalg.eigh(scaled, driver="evd", check_finite=False)
            rounding = np.sqrt(values.size) * EPS * float(values[-1])
            singular = np.sqrt(np.maximum(values, rounding))
            error = float((singular - np.sqrt(np.maximum(values - rounding, 0.0))).sum())
            if error <= ROUGH_SHARE * self.rtol * float(singular.sum()):
                rough = bool(values[0] <= EIGEN_RATIO**2 * values[-1])
                return self._finish(multipliers, left, singular, None, error, rough=rough)
            self.gram = None
        left, singular, right = scipy_linalg.svd(
            root[:, None] * self.rows, full_matrices=False, check_finite=False
        )
        singular = np.maximum(singular, EPS**2 * singular[0])
        error = singular.size**1.5 * EPS * singular[0]
        return self._finish(multipliers, left, singular, right.T, error)

    def narrow_spectrum(self, multipliers: Array) -> Spectrum:
        """Return U, s, V from the k×k matrix ``Yᵀ Λ Y``, for many rows in few coordinates."""
        values, right = scipy_linalg.eigh(
            (self.rows.T * multipliers) @ self.rows, driver="evd", check_finite=False
        )
        error = self._trace_error(values)
        if error is None:
            return self.spectrum(multipliers)
        singular = np.sqrt(values)
        left = np.sqrt(multipliers)[:, None] * (self.rows @ (right / singular))
        return self._finish(multipliers, left, singular, right, error)

    def _trace_error(self, values: Array) -> float | None:
        """Return a bound on the rounding in tr S from eigenvalues s², None where it matters."""
        if values[0] <= EIGEN_RATIO**2 * values[-1]:
            return None
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
        leverage = (left**2 @ singular) / multipliers
        trace = float(singular.sum()) - float(error)
        lower_bound = max(trace, 0.0) ** 2 / float(multipliers.sum()) * (1 - 1e-13)
        return Spectrum(left, singular, right, leverage, lower_bound, rough)


KERNEL_TOLERANCE = 0.1
# Rows of N summed at a time, up to the diagonal only.
BAND = 256


def log_hessian(spectrum: Spectrum) -> Array:
    """Return N = ``Σ_q ((U∘w_q) Uᵀ)∘²``, ``Σ_q w_q w_qᵀ ≈ kernel``, summed in single precision."""
    left = spectrum.left.astype(np.float32)
    count = left.shape[0]
    hessian = np.zeros((count, count), np.float32)
    # N is linear in the kernel: scaled here so that single precision cannot overflow.
    for weights in kernel_factors(spectrum.singular / spectrum.singular.max()):
        weighed = left * weights.astype(np.float32)
        for start in range(0, count, BAND):
            stop = min(start + BAND, count)
            product = weighed[start:stop] @ left[:stop].T
            np.square(product, out=product)
            hessian[start:stop, :stop] += product
    for start in range(0, count, BAND):
        stop = min(start + BAND, count)
        hessian[:start, start:stop] = hessian[start:stop, :start].T
    return hessian.astype(np.float64) * float(spectrum.singular.max())


def kernel_factors(singular: Array, tolerance: float = KERNEL_TOLERANCE) -> list[Array]:
    """Return w_q with ``Σ_q w_q w_qᵀ ≈ s_k s_l / (s_k + s_l)`` by pivoted Cholesky.

    Divided by √(s_k s_l) the kernel is ``1 / (2 cosh(ln(s_k/s_l)/2))``: smooth and stationary in
    ln s, so a few terms per decade reach any useful accuracy, for small s as for large.
    """
    relative = np.full(singular.size, 0.5)
    factors: list[Array] = []
    while len(factors) < singular.size and float(relative.max()) > tolerance / 2:
        pivot = int(np.argmax(relative))
        column = np.sqrt(singular * singular[pivot]) / (singular + singular[pivot])
        for factor in factors:
            column = column - factor * factor[pivot]
        column = column / np.sqrt(relative[pivot])
        factors.append(column)
        relative = np.maximum(relative - column**2, 0.0)
    root = np.sqrt(singular)
    return [factor * root for factor in factors]


def regularised_solver(hessian: Array, diagonal: Array) -> Callable[[Array], Array]:
    """Return x ↦ (N + diag)⁻¹ x, Jacobi-scaled, with single-precision rounding regularised."""
    matrix = hessian.copy()
    matrix[np.diag_indices_from(matrix)] += diagonal
    scale = 1 / np.sqrt(np.diagonal(matrix))
    matrix *= scale[:, None]
    matrix *= scale
    for shift in (1e-8, 1e-6, 1e-4, 1e-2):
        matrix[np.diag_indices_from(matrix)] = 1 + shift
        try:
            factor = scipy_linalg.cho_factor(matrix, lower=True, check_finite=False)
        except scipy_linalg.LinAlgError:
            continue
        break
    else:
        return lambda right_side: right_side * scale**2
    return lambda right_side: (
        scale * scipy_linalg.cho_solve(factor, scale * right_side, check_finite=False)
    )


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
