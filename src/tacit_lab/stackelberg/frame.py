"""Coordinates in which the game is played: outputs and secrets centred and white."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, array, matrix, symmetric

Groups = npt.NDArray[np.int64]

RANK_TOLERANCE = 1e-9
SMALLEST_SCALE, LARGEST_SCALE = 1e-100, 1e100


@dataclass(frozen=True, eq=False)
class RowFrame:
    """Rows as ``rows = mean + coordinates @ lift``, coordinates of mean 0 and covariance I.

    Attributes:
        coordinates: (N, r).
        lift: (r, d).
    """

    coordinates: Array
    lift: Array

    @staticmethod
    def of(name: str, rows: Array) -> RowFrame:
        """Return the frame of the rows; directions in which they agree are left out."""
        largest = float(np.abs(rows).max())
        if not largest <= LARGEST_SCALE:
            raise ValueError(
                f"{name}: expected entries of at most {LARGEST_SCALE:g}, got {largest:.6g}"
            )
        centred = rows - rows.mean(axis=0)
        spread = float(np.abs(centred).max())
        if spread <= max(SMALLEST_SCALE, 1e-12 * largest):
            raise ValueError(
                f"{name}: expected rows that differ, got {len(rows)} rows that agree up to rounding"
            )
        left, singular, right = scipy_linalg.svd(centred / spread, full_matrices=False)
        kept = singular > RANK_TOLERANCE * singular[0]
        root = np.sqrt(len(rows))
        lift = (spread / root) * singular[kept, None] * right[kept]
        return RowFrame(coordinates=left[:, kept] * root, lift=lift)

    @property
    def log_volume(self) -> float:
        """ln of the volume of ``lift``, square: density in rows = density here / volume."""
        return float(np.linalg.slogdet(self.lift)[1])

    def cost(self, weights: Array) -> Array:
        """Return the cost ``lift F liftᵀ`` of noise in coordinates, (r, r)."""
        product: Array = self.lift @ weights @ self.lift.T
        return (product + product.T) / 2.0


def cost_matrix(cost: Any, size: int) -> Array:
    """Return F as (d, d) from None (identity), a scalar, a diagonal (d,) or a matrix (d, d)."""
    if cost is None:
        return np.eye(size)
    weights = array("cost", cost, ndim=(0, 1, 2))
    if weights.ndim == 2:
        return symmetric("cost", cost, size=size)
    if weights.ndim == 1 and weights.shape != (size,):
        raise ValueError(f"cost: expected {size} entries, got shape {weights.shape}")
    return np.diag(np.broadcast_to(weights, size))


def value_groups(secrets: Any, count: int) -> tuple[Array | None, Groups]:
    """Return the secrets as (N, p), None when they are the row numbers, and their distinct values.

    Args:
        secrets: (N, p), (N,) or None.
        count: N.
    """
    if secrets is None:
        return None, np.arange(count, dtype=np.int64)
    rows = array("secrets", secrets, ndim=(1, 2))
    rows = matrix("secrets", rows[:, None] if rows.ndim == 1 else rows)
    if len(rows) != count:
        raise ValueError(f"secrets: expected {count} rows, one per output, got shape {rows.shape}")
    _, groups = np.unique(rows, axis=0, return_inverse=True)
    return rows, groups.reshape(-1).astype(np.int64)


def label_vectors(labels: Any, count: int) -> dict[str, Groups]:
    """Return the labels as integer vectors (N,), by name."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not all(isinstance(name, str) for name in labels):
        raise ValueError(
            "labels: expected a dictionary from names to integer vectors, "
            f"got {type(labels).__name__}"
        )
    checked = {}
    for name, values in labels.items():
        found = array(f"labels[{name!r}]", values, ndim=1)
        if found.shape != (count,) or (found != np.rint(found)).any():
            raise ValueError(
                f"labels[{name!r}]: expected {count} integers, one per output, "
                f"got shape {found.shape}"
            )
        _, numbers = np.unique(found, return_inverse=True)
        checked[name] = numbers.astype(np.int64)
    return checked
