"""Rényi accounting of Gaussian noise over a list of differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, array, vector
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Dense
from tacit.guarantees import RenyiDP
from tacit.guarantees.base import Evidence


def renyi_over_adjacency(
    differences: ArrayLike, covariance: Covariance | ArrayLike, orders: Sequence[float] | Array
) -> RenyiDP:
    """Return the Rényi guarantee of Gaussian noise over an adjacency set.

    ε(α) = (α/2) max_Δ Δᵀ Σ⁻¹ Δ, for every pair whose difference is listed; inf where Σ does not
    cover a difference. One release of N(h, Σ) is covered; T releases add up.

    Args:
        differences: Differences Δ of neighbours, shape (m, d), or one of shape (d,).
        covariance: Covariance Σ of the noise: a `Covariance` or a (d, d) array.
        orders: Orders α > 1, increasing, shape (k,).

    Returns:
        The guarantee, rounded up.

    Raises:
        ValueError: Shapes do not agree, an entry is not finite, Σ is not symmetric positive
            semidefinite, or the orders are not increasing numbers > 1.

    Example:
        >>> bound = renyi_over_adjacency([[3.0, 0.0], [0.0, 1.0]], [[9.0, 0.0], [0.0, 4.0]], [2, 4])
        >>> [round(epsilon, 9) for epsilon in bound.epsilons]
        [1.0, 2.0]

    Source: hidden-state, Eq. 23.
    """
    rows = np.atleast_2d(array("differences", differences, ndim=(1, 2)))
    alphas = vector("orders", orders)
    noise = (
        covariance
        if isinstance(covariance, Covariance)
        else Dense(array("covariance", covariance, ndim=2))
    )
    if rows.shape[1] != noise.dim:
        raise ValueError(f"differences: expected {noise.dim} columns, got shape {rows.shape}")
    # a zero difference is covered by any noise
    moved = rows[np.any(rows != 0, axis=1)]
    farthest = float(np.max(noise.mahalanobis(moved))) if moved.size else 0.0
    slack = (1 + noise.rounding) * (1 + 8 * EPS)
    evidence: Evidence = "theorem" if math.isinf(farthest) or farthest == 0 else "numerical"
    return RenyiDP(
        orders=tuple(float(alpha) for alpha in alphas),
        epsilons=tuple(float(alpha) / 2 * farthest * slack for alpha in alphas),
        adjacency=f"inputs whose releases differ by one of {rows.shape[0]} listed differences",
        evidence=evidence,
        assumptions=("neighbours differ by one of the listed differences, up to sign",),
        source="hidden-state, Eq. 23",
    )
