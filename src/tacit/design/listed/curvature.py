"""Curvature of the worst-case dual in the logarithms of its multipliers.

Minus the Hessian is ``N = Λ H Λ``, ``N_ij = Σ_kl U_ik U_il U_jk U_jl s_k s_l / (s_k + s_l)``, where
``Λ^½ Y = U diag(s) Vᵀ``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit.design.listed.roots import Spectrum

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
