"""Symmetric positive semidefinite algebra: roots, pseudo-inverses, fidelity and row spaces.

Every function that decides a rank takes the tolerance as an argument and returns the one it used
together with the rank it found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, check_psd, in_interval, matrix, symmetric
from tacit._ground.numbers import EPS


@dataclass(frozen=True, eq=False)
class InverseRoot:
    """A pseudo-inverse, or its square root, with the rank decision behind it.

    ``root`` is the d×d matrix, ``rank`` the number of eigenvalues kept, ``tolerance`` the absolute
    eigenvalue at and below which a direction was treated as the null space.
    """

    root: Array
    rank: int
    tolerance: float


@dataclass(frozen=True, eq=False)
class RowSpace:
    """Orthonormal rows that span the given rows: ``rows ≈ coordinates @ basis``."""

    basis: Array
    coordinates: Array
    rank: int
    tolerance: float


def default_tolerance(size: int) -> float:
    """Relative eigenvalue tolerance ``size · 2⁻⁵²``: the rounding level of an eigensolver."""
    return size * EPS


def eigh_psd(name: str, value: Any) -> tuple[Array, Array]:
    """Return ascending eigenvalues (negative rounding set to 0) and eigenvectors."""
    checked = symmetric(name, value)
    # divide and conquer: eigenvectors orthogonal to rounding however close their eigenvalues
    eigenvalues, vectors = scipy_linalg.eigh(checked, driver="evd")
    check_psd(name, eigenvalues)
    return np.maximum(eigenvalues, 0.0), vectors


def sqrt_psd(a: Any) -> Array:
    """Symmetric square root: the PSD matrix R with R R = a.

    Args:
        a: (d, d) symmetric PSD.

    Returns:
        (d, d) symmetric PSD root.

    Raises:
        ValueError: ``a`` is not square, finite, symmetric or PSD.

    Example:
        >>> sqrt_psd([[4.0, 0.0], [0.0, 9.0]])
        array([[2., 0.],
               [0., 3.]])
    """
    eigenvalues, vectors = eigh_psd("a", a)
    return _compose(vectors, np.sqrt(eigenvalues))


def inverse_sqrt_psd(a: Any, *, rtol: float | None = None) -> InverseRoot:
    """Pseudo-inverse square root of a PSD matrix: ``U diag(l_i^-½ or 0) Uᵀ``.

    Args:
        a: (d, d) symmetric PSD.
        rtol: eigenvalues at or below ``rtol`` times the largest are the null space; default
            ``d · 2⁻⁵²``.

    Returns:
        The root, the rank, and the absolute tolerance used.

    Raises:
        ValueError: ``a`` is not symmetric PSD, or ``rtol`` is outside [0, 1).

    Example:
        >>> inverse_sqrt_psd([[4.0, 0.0], [0.0, 0.0]]).rank
        1
    """
    eigenvalues, vectors = eigh_psd("a", a)
    if rtol is None:
        rtol = default_tolerance(eigenvalues.size)
    in_interval("rtol", rtol, 0.0, 1.0, open_high=True)
    tolerance = rtol * float(eigenvalues[-1])
    # directions at the level of rounding of the largest have no inverse
    keep = eigenvalues > tolerance
    return InverseRoot(
        root=_compose(vectors[:, keep], eigenvalues[keep] ** -0.5),
        rank=int(keep.sum()),
        tolerance=tolerance,
    )


def generalized_eigh(a: Any, b: Any) -> tuple[Array, Array]:
    """Solve ``a v = l b v`` with ``vᵀ b v = 1``, largest l first (hidden-state, Eq. 3).

    Args:
        a: (d, d) symmetric.
        b: (d, d) symmetric positive definite.

    Returns:
        Eigenvalues (d,) descending, and eigenvectors as columns (d, d).

    Raises:
        ValueError: a shape or symmetry is wrong, or ``b`` is not positive definite.

    Example:
        >>> values, vectors = generalized_eigh([[2.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [0.0, 6.0]])
        >>> values
        array([2. , 0.5])
    """
    left = symmetric("a", a)
    right = symmetric("b", b, size=left.shape[0])
    # b is factored: at its rounding level it has no factor
    smallest, largest = np.linalg.eigvalsh(right)[[0, -1]]
    if smallest <= default_tolerance(left.shape[0]) * largest:
        raise ValueError(
            f"b: expected a positive definite matrix, got smallest eigenvalue {smallest:.3g} "
            f"beside largest {largest:.3g}"
        )
    # LAPACK gives ascending eigenvalues
    values, vectors = scipy_linalg.eigh(left, right)
    return values[::-1].copy(), vectors[:, ::-1].copy()


def bures_fidelity(a: Any, b: Any) -> float:
    """Fidelity of two PSD matrices: ``tr (a^½ b a^½)^½`` (hidden-state, Thm 16).

    It is the nuclear norm of ``a^½ b^½``, which is how it is computed: singular values keep the
    small ones that squaring would lose.

    Args:
        a: (d, d) symmetric PSD.
        b: (d, d) symmetric PSD.

    Returns:
        The fidelity, between 0 and √(tr a · tr b).

    Raises:
        ValueError: a shape differs, or a matrix is not symmetric PSD.

    Example:
        >>> round(bures_fidelity([[1.0, 0.0], [0.0, 4.0]], [[9.0, 0.0], [0.0, 1.0]]), 12)
        5.0
    """
    left = sqrt_psd(a)
    symmetric("b", b, size=left.shape[0])
    eigenvalues, vectors = eigh_psd("b", b)
    # tr (a^½ b a^½)^½ = ‖a^½ b^½‖₁: the product is not squared
    return float(scipy_linalg.svdvals(left @ _compose(vectors, np.sqrt(eigenvalues))).sum())


def row_space(rows: Any, *, rtol: float | None = None) -> RowSpace:
    """Orthonormal basis of the span of ``rows`` from their m×m Gram matrix (dsi, Lemma 3.2).

    ``G = rows rowsᵀ = P Q Pᵀ`` and ``basis = Q^-½ Pᵀ rows``; a second pass on the basis itself
    restores the orthogonality that a graded G loses.

    Args:
        rows: (m, d), m may exceed d.
        rtol: singular values at or below ``rtol`` times the largest are dropped; default
            ``√(max(m, d) · 2⁻⁵²)``, the level below which a Gram matrix holds only rounding.

    Returns:
        ``basis`` (k, d), ``coordinates`` (m, k), the rank k and the absolute tolerance.

    Raises:
        ValueError: ``rows`` is not a finite matrix or holds only zeros.

    Example:
        >>> space = row_space([[3.0, 0.0], [6.0, 0.0]])
        >>> space.rank, space.basis.shape
        (1, (1, 2))
    """
    checked = matrix("rows", rows)
    largest_entry = float(np.abs(checked).max())
    if largest_entry == 0.0:
        raise ValueError(f"rows: expected at least one non-zero row, got {checked.shape} zeros")
    if rtol is None:
        rtol = float(np.sqrt(default_tolerance(max(checked.shape))))
    in_interval("rtol", rtol, 0.0, 1.0, open_high=True)
    # entries at most 1: G neither over- nor underflows
    unit = checked / largest_entry
    eigenvalues, vectors = scipy_linalg.eigh(unit @ unit.T, driver="evd")
    # of the rows, whose squares G has: it holds them to √ε
    singular = np.sqrt(np.maximum(eigenvalues, 0.0))
    keep = singular > rtol * singular[-1]
    # Q^−½ Pᵀ rows, and once more with the factor of its own Gram matrix
    basis = (vectors[:, keep] / singular[keep]).T @ unit
    gram = scipy_linalg.cholesky(basis @ basis.T, lower=True)
    basis = scipy_linalg.solve_triangular(gram, basis, lower=True)
    return RowSpace(
        basis=basis,
        coordinates=checked @ basis.T,
        rank=int(keep.sum()),
        tolerance=rtol * float(singular[-1]) * largest_entry,
    )


def _compose(vectors: Array, eigenvalues: Array) -> Array:
    """Return ``U diag(l) Uᵀ``, exactly symmetric."""
    product = (vectors * eigenvalues) @ vectors.T
    result: Array = (product + product.T) / 2
    return result
