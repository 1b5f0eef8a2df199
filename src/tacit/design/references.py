"""References of a worst-case design, reduced to what the solver needs: a factor of their Gram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._validation import Array, array, check_psd, non_negative, symmetric, vector
from tacit.linalg import MACHINE_EPSILON, default_tolerance, eigh_psd

Indices: TypeAlias = npt.NDArray[np.signedinteger[Any]]

# Squared Cholesky pivots of the unit-diagonal Gram below this are not resolved by a Gram matrix.
PIVOT_TOLERANCE = 1e-11
COLLINEAR_TOLERANCE = 1e-12


class Cost:
    """A PSD cost F, as ``F = K Kᵀ``; K is only formed when it is needed."""

    def __init__(self, cost: Any, dim: int) -> None:
        self.dim = dim
        self.matrix: Array | None = None
        self._triangle: Array | None = None
        self._definite = True
        given = None if cost is None else array("cost", cost, ndim=(0, 1, 2))
        if given is None:
            self.diagonal = np.ones(dim)
        elif given.ndim == 0:
            self.diagonal = np.full(dim, non_negative("cost", cost))
        elif given.ndim == 1:
            self.diagonal = vector("cost", cost, size=dim)
            if (self.diagonal < 0).any():
                low = float(self.diagonal.min())
                raise ValueError(f"cost: expected entries >= 0, got {low!r}")
        else:
            self.matrix = symmetric("cost", cost, size=dim)
            self.diagonal = np.diagonal(self.matrix)
            try:
                self._triangle = scipy_linalg.cholesky(self.matrix, lower=True, check_finite=False)
            except scipy_linalg.LinAlgError:
                check_psd("cost", np.linalg.eigvalsh(self.matrix))
                self._definite = False
        self._definite = self._definite and bool((self.diagonal > 0).all())
        if not self.diagonal.any():
            raise ValueError("cost: expected a non-zero cost, got zeros")

    @property
    def definite(self) -> bool:
        """Whether every direction has a cost, so that K can be inverted."""
        return self._definite

    def gram(self, rows: Array) -> Array:
        """Return rows F rowsᵀ."""
        if self.matrix is None:
            weighed = rows if (self.diagonal == 1.0).all() else self.weigh(rows)
            result: Array = weighed @ weighed.T
            return result
        product: Array = rows @ self.matrix @ rows.T
        return (product + product.T) / 2

    def weigh(self, rows: Array) -> Array:
        """Return rows K."""
        if self.matrix is None:
            scaled: Array = rows * np.sqrt(self.diagonal)
            return scaled
        if self._triangle is None:
            eigenvalues, vectors = eigh_psd("cost", self.matrix)
            # Rounding in F would grow to its square root here and look like a cost.
            eigenvalues[eigenvalues <= default_tolerance(self.dim) * eigenvalues[-1]] = 0.0
            self._triangle = vectors * np.sqrt(eigenvalues)
        result: Array = rows @ self._triangle
        return result

    def unweigh(self, columns: Array) -> Array:
        """Return K⁻ᵀ columns."""
        if self.matrix is None:
            return columns / np.sqrt(self.diagonal)[:, None]
        solved: Array = scipy_linalg.solve_triangular(
            self._triangle, columns, lower=True, trans="T", check_finite=False
        )
        return solved


@dataclass(frozen=True, eq=False)
class References:
    """Rows z_i/√g_i, sorted by decreasing cost norm, with coordinates Y of ``Y Yᵀ = G``.

    Attributes:
        order: original index of each kept row.
        norms: cost norm of each kept row.
        coordinates: Y, (n, k); k < n when the rows are dependent.
        gram: G, (n, n), or None where it does not resolve the rows and only Y does.
        basis: (d, k) orthonormal columns with ``rows K = Y basisᵀ``; None when Y is triangular or
            only a Gram matrix was given.
        free: original indices of rows that cost nothing to cover.
        merged: original index -> (position in ``order``, coefficient) of collinear rows.
    """

    order: Indices
    norms: Array
    coordinates: Array
    gram: Array | None
    basis: Array | None
    free: Indices
    merged: dict[int, tuple[int, float]]

    @property
    def independent(self) -> bool:
        """Whether the kept rows are linearly independent under the cost."""
        return bool(self.coordinates.shape[0] == self.coordinates.shape[1])


def prepare(rows: Array | None, gram: Array | None, cost: Cost | None) -> References:
    """Sort, merge exactly collinear rows and factor the Gram matrix of what is left.

    With more rows than dimensions no Gram matrix is formed: the rows are dependent anyway.

    Args:
        rows: (m, d) differences divided by the roots of their budgets, or None.
        gram: (m, m) Gram matrix of the same rows under the cost, or None.
        cost: the cost, or None when ``rows`` is.
    """
    wide = rows is not None and rows.shape[0] > rows.shape[1]
    floor: Array | float = 0.0
    if rows is not None and cost is not None:
        gram = None if wide else cost.gram(rows) if gram is None else gram
        largest = float(cost.diagonal.max()) * rows.shape[1] * MACHINE_EPSILON
        floor = np.einsum("ij,ij->i", rows, rows) * largest
        squared = (cost.weigh(rows) ** 2).sum(axis=1) if gram is None else np.diagonal(gram)
    else:
        assert gram is not None
        squared = np.diagonal(gram)
    free = squared <= floor
    order = np.flatnonzero(~free)
    order = order[np.argsort(-squared[order], kind="stable")]
    if order.size == 0:
        empty = np.empty((0, 0))
        return References(order, np.empty(0), empty, empty, None, np.flatnonzero(free), {})
    norms = np.sqrt(squared[order])
    merged: dict[int, tuple[int, float]] = {}
    correlation = None
    if gram is not None:
        correlation = gram[np.ix_(order, order)] / norms[:, None] / norms
        if rows is not None:
            keep, merged = _merge_collinear(rows[order], correlation, order)
            if keep.size < order.size:
                order, norms = order[keep], norms[keep]
                correlation = correlation[np.ix_(keep, keep)]
    coordinates, basis, resolved = _factor(rows, order, norms, correlation, cost)
    kept_gram = None
    if correlation is not None and resolved:
        kept_gram = correlation * norms[:, None] * norms
    return References(order, norms, coordinates, kept_gram, basis, np.flatnonzero(free), merged)


def _merge_collinear(
    rows: Array, correlation: Array, order: Indices
) -> tuple[Indices, dict[int, tuple[int, float]]]:
    """Return the positions kept and, for each row dropped, the longer row it is a multiple of.

    A Gram matrix cannot tell a multiple from a neighbour, so each candidate is compared entry by
    entry; only rounding may separate it from its multiple.
    """
    close = np.tril(np.abs(correlation) >= 1 - COLLINEAR_TOLERANCE, -1)
    keep = np.ones(order.size, dtype=bool)
    merged: dict[int, tuple[int, float]] = {}
    positions: dict[int, tuple[int, float]] = {}
    for i in np.flatnonzero(close.any(axis=1)).tolist():
        for j in np.flatnonzero(close[i] & keep).tolist():
            pivot = int(np.argmax(np.abs(rows[j])))
            ratio = float(rows[i, pivot] / rows[j, pivot])
            rounding = 4 * MACHINE_EPSILON * np.abs(rows[i]).max()
            if np.abs(rows[i] - ratio * rows[j]).max() <= rounding:
                keep[i] = False
                positions[i] = (j, ratio)
                break
    rank_of = np.cumsum(keep) - 1
    for i, (j, ratio) in positions.items():
        merged[int(order[i])] = (int(rank_of[j]), ratio)
    return np.flatnonzero(keep), merged


def _factor(
    rows: Array | None, order: Indices, norms: Array, correlation: Array | None, cost: Cost | None
) -> tuple[Array, Array | None, bool]:
    """Return Y, its basis where it has one, and whether the Gram matrix resolves the rows."""
    n = order.size
    if correlation is not None and (rows is None or n <= rows.shape[1]):
        try:
            triangle = scipy_linalg.cholesky(correlation, lower=True, check_finite=False)
        except scipy_linalg.LinAlgError:
            triangle = None
        if triangle is not None and float(np.diagonal(triangle).min()) ** 2 > PIVOT_TOLERANCE:
            return norms[:, None] * triangle, None, True
    if rows is None or cost is None:
        assert correlation is not None
        eigenvalues, vectors = scipy_linalg.eigh(correlation)
        kept = eigenvalues > n * MACHINE_EPSILON * eigenvalues[-1]
        return norms[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept]), None, False
    unit = cost.weigh(rows[order] / norms[:, None])
    basis, triangle, pivots = scipy_linalg.qr(
        unit.T, mode="economic", pivoting=True, check_finite=False
    )
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > max(unit.shape) * MACHINE_EPSILON * diagonal[0]).sum())
    coordinates = np.empty((n, rank))
    coordinates[pivots] = triangle[:rank].T
    return norms[:, None] * coordinates, basis[:, :rank], False


def checked_gram(gram: Any, rows: int | None) -> Array:
    """Return a Gram matrix given by the caller, checked symmetric PSD."""
    result = symmetric("gram", gram, size=rows)
    if (np.diagonal(result) < 0).any():
        raise ValueError("gram: expected a non-negative diagonal, got a negative entry")
    check_psd("gram", np.linalg.eigvalsh(result))
    return result


def checked_differences(differences: Any) -> Array:
    """Return differences as a finite (m, d) matrix; a vector is one difference."""
    given = array("differences", differences, ndim=(1, 2))
    return given[None, :] if given.ndim == 1 else given
