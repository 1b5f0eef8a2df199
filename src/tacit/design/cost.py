"""What noise costs, and the coordinates in which that is the squared length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, array, positive, symmetric, vector
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Diagonal, Factored

# How much dearer noise is in a protected subspace.
PROTECTION = 100.0


@dataclass(frozen=True)
class CostAxes:
    """Coordinates in which the cost is the identity and the output covariance is diag(ratios)."""

    ratios: Array
    directions: Array | None
    scales: Array

    @staticmethod
    def of(outputs: Array, weights: Array) -> CostAxes:
        """Diagonalise F^½ S F^½; ``directions`` are F^-½ U, None when all is diagonal."""
        if outputs.ndim == 1 and weights.ndim == 1:
            # two diagonals: S_ii F_ii, and no axes to turn
            return CostAxes(outputs * weights, None, weights)
        dense = np.diag(outputs) if outputs.ndim == 1 else outputs
        if weights.ndim == 1:
            # F^½ S F^½ = U diag(r) Uᵀ, and F^-½ U are the axes in which F is the identity
            root = np.sqrt(weights)
            ratios, vectors = scipy_linalg.eigh(root[:, None] * dense * root[None, :])
            return CostAxes(np.maximum(ratios, 0.0), vectors / root[:, None], weights)
        # a dense F is diagonal in axes of its own first: its root is that of a diagonal
        values, axes = scipy_linalg.eigh(weights)
        root = np.sqrt(values)
        rotated = root[:, None] * (axes.T @ dense @ axes) * root[None, :]
        ratios, vectors = scipy_linalg.eigh((rotated + rotated.T) / 2.0)
        # a ratio below 0 is rounding of a direction in which nothing moves
        return CostAxes(np.maximum(ratios, 0.0), axes @ (vectors / root[:, None]), values)

    def covariance(self, spectrum: Array) -> Covariance:
        """Return F^-½ U diag(l) Uᵀ F^-½, in the factored form that is sampled as it stands."""
        if self.directions is None:
            return Diagonal(spectrum / self.scales)
        # A = F^-½ U diag(l)^½, whose rows are drawn as they stand
        return Factored((self.directions * np.sqrt(spectrum)).T)


@dataclass(frozen=True, eq=False)
class ProtectedCost:
    """A cost F for which noise in a task subspace is chosen as if it cost 100 times its mean price.

    What the noise costs is still said under F.

    Args:
        basis: (d, k), columns that span the subspace, or one of them, (d,).
        cost: F: None (squared error), a scalar, (d,) or (d, d).

    Example:
        >>> ProtectedCost([1.0, 0.0]).charged(np.ones(2))
        array([[100.,   0.],
               [  0.,   1.]])
    """

    basis: Any
    cost: Any = None

    def charged(self, prices: Array) -> Array:
        """Return F with 99 times its mean price added, to rounding, on the subspace.

        Args:
            prices: F, (d,) or (d, d).

        Raises:
            ValueError: ``basis`` has another number of rows, or is zero.
        """
        size = len(prices)
        basis = array("basis", self.basis, ndim=(1, 2))
        basis = basis[:, None] if basis.ndim == 1 else basis
        if basis.shape[0] != size or not basis.any():
            raise ValueError(
                f"basis: expected ({size}, k), its columns not all zero, got shape {basis.shape}"
            )
        # an orthonormal basis, of the directions above the rounding of the longest
        vectors, singular, _ = np.linalg.svd(basis, full_matrices=False)
        vectors = vectors[:, singular > size * EPS * singular[0]]
        dense = np.diag(prices) if prices.ndim == 1 else prices
        mean = float(np.trace(dense)) / size
        charged: Array = dense + (PROTECTION - 1.0) * mean * vectors @ vectors.T
        return charged


def cost_matrix(cost: Any, size: int) -> Array:
    """Return F as a positive vector (d,) or a positive definite matrix (d, d)."""
    # squared error
    if cost is None:
        return np.ones(size)
    weights = array("cost", cost, ndim=(0, 1, 2))
    if weights.ndim == 0:
        return np.full(size, positive("cost", cost))
    if weights.ndim == 1:
        smallest = float(vector("cost", weights, size=size).min())
    else:
        weights = symmetric("cost", weights, size=size)
        eigenvalues = scipy_linalg.eigvalsh(weights)
        # less what an eigensolver rounds: a direction that may be free counts as free
        smallest = float(eigenvalues[0] - size * EPS * np.abs(eigenvalues).max())
    if smallest <= 0.0:
        raise ValueError(
            "cost: expected a positive definite cost, got one with a direction of cost "
            f"{max(smallest, 0.0):.3g}: noise there is free, so no least noise exists"
        )
    return weights
