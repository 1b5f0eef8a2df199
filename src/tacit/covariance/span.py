"""What a noise factor covers, coordinate by coordinate: the least u with A u = z, or none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.linalg import default_tolerance

# A coordinate of z that A u misses by more than this many units in the last place is bare.
COVER_UNITS = 8.0


def row_norms(rows: Array) -> Array:
    """Return the norms of the rows, to rounding; squares neither overflow nor underflow."""
    # in units of the longest entry of each row: squares are of numbers at most 1
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where(largest > 0.0, largest, 1.0)
    norms: Array = unit * np.sqrt(((rows / unit[:, None]) ** 2).sum(axis=1))
    return norms


def uncovered(rows: Array, residual: Array, norms: Array) -> npt.NDArray[np.bool_]:
    """Return which rows have a coordinate that the noise does not reach.

    ``rows`` and ``residual = rows − A u`` are in coordinates where the noise has unit variance:
    entry k of A u is a sum of terms of total size ``‖u‖``, the norm given, at most, and rounding is
    all that may separate it from entry k of the row, however large the row's other entries are.
    """
    size = np.abs(rows) + norms[:, None]
    missed: Array = np.abs(residual) - COVER_UNITS * EPS * size
    return np.asarray(missed.max(axis=1) > 0.0)


@dataclass(frozen=True, eq=False)
class Span:
    """The range of ``A = (lower⁻¹ rows)ᵀ``, from rows that are exact and a triangle.

    Attributes:
        factor: A, (d, p).
        rows: (p, d), what A mixes; exact where A itself is rounded.
        lower: (p, p) lower triangle, or None for the identity.
    """

    factor: Array
    rows: Array
    lower: Array | None = None

    @cached_property
    def deviations(self) -> Array:
        """Standard deviation of the noise in each coordinate, (d,), to rounding."""
        return row_norms(self.factor)

    @cached_property
    def scales(self) -> Array:
        """Deviations, to rounding, 1 where there is no noise at all."""
        # a coordinate without noise is told by its own entry, in its own unit
        scales: Array = np.where(self.deviations > 0.0, self.deviations, 1.0)
        return scales

    @cached_property
    def _independent(self) -> tuple[Array, Array, Array, Array] | None:
        """QR of the rows as unit columns, to rounding, pivots and lengths; None if dependent."""
        # more rows than coordinates depend on each other
        if self.rows.shape[0] > self.rows.shape[1]:
            return None
        # units of the coordinates and lengths of the rows cost no digits: a pivot is a sine
        columns = (self.rows / self.scales).T
        lengths = row_norms(columns.T)
        # a row of zeros has no direction
        if not lengths.all():
            return None
        orthonormal, triangle, pivots = scipy_linalg.qr(
            columns / lengths, mode="economic", pivoting=True, check_finite=False
        )
        # the least pivot is the sine of the angle to the span of the other rows: at rounding level
        # doubles do not tell a row from a sum of the others
        tolerance = default_tolerance(self.rows.shape[1])
        if float(np.abs(np.diagonal(triangle)).min()) <= tolerance:
            return None
        return orthonormal, triangle, pivots, lengths

    @cached_property
    def directions(self) -> tuple[Array, Array, Array]:
        """Singular triplets of A in units of the deviations, to rounding: (d, k), (k,), (k, p)."""
        # with a triangle in between A is rounded and its rows are not: within their span
        unit = self.factor / self.scales[:, None]
        left, singular, right = scipy_linalg.svd(
            unit if self.lower is None else self._row_basis @ unit,
            full_matrices=False,
            check_finite=False,
        )
        # what is at rounding level of the largest covers nothing
        keep = singular > default_tolerance(max(unit.shape)) * singular.max(initial=0.0)
        left = left[:, keep] if self.lower is None else self._row_basis.T @ left[:, keep]
        return left, singular[keep], right[keep]

    @cached_property
    def _row_basis(self) -> Array:
        """Orthonormal rows (k, d) that span the exact rows: rounding of A gives it others."""
        rows = self.rows / self.scales
        rows = rows[rows.any(axis=1)]
        if not rows.size:
            # of zeros alone: they span nothing
            return rows
        _, singular, basis = scipy_linalg.svd(
            rows / row_norms(rows)[:, None], full_matrices=False, check_finite=False
        )
        return np.asarray(basis[singular > default_tolerance(max(rows.shape)) * singular[0]])

    @cached_property
    def rank(self) -> int:
        """Number of directions with noise, as far as double precision tells them apart."""
        if self._independent is not None:
            return int(self.rows.shape[0])
        return int(self.directions[1].size)

    @cached_property
    def _listed(self) -> dict[bytes, int]:
        """Position of each row that A mixes, and of its negative, by its bytes."""
        # −0.0 has other bytes than 0.0: both signs of zero are one
        found = {row.tobytes(): i for i, row in enumerate(0.0 - self.rows)}
        return found | {row.tobytes(): i for i, row in enumerate(self.rows + 0.0)}

    def squared_distances(self, rows: Array) -> Array:
        """Return min ‖u‖² with A u = z for each row z, to rounding, inf where one is left bare."""
        # no noise at all: whatever differs is told apart for certain
        if not self.factor.any():
            return np.where(rows.any(axis=1), np.inf, 0.0)
        with np.errstate(over="ignore"):
            scaled = rows / self.scales
        # A row that overflows here is farther than any double can say.
        overflown = np.asarray(~np.isfinite(scaled).all(axis=1))
        solve = self._by_directions if self._independent is None else self._by_rows
        distances = solve(np.where(overflown[:, None], 0.0, scaled))
        distances[overflown] = np.inf
        for i, row in enumerate(rows + 0.0):
            position = self._listed.get(row.tobytes())
            if position is not None:
                # Row i of what A mixes is A (row i of the triangle), exactly.
                distances[i] = min(distances[i], self._own_distance(position))
        return distances

    def _own_distance(self, position: int) -> float:
        """Return ‖L_i‖² of a row that A mixes, exactly what was designed."""
        return 1.0 if self.lower is None else float(self.lower[position] @ self.lower[position])

    def _by_rows(self, scaled: Array) -> Array:
        """Return the distances of independent rows by their QR, refined once, to rounding."""
        assert self._independent is not None
        orthonormal, triangle, pivots, lengths = self._independent
        columns = self.rows / self.scales / lengths[:, None]

        def solve(target: Array) -> Array:
            found = np.empty((target.shape[0], pivots.size))
            found[:, pivots] = scipy_linalg.solve_triangular(
                triangle, (target @ orthonormal).T, check_finite=False
            ).T
            return found

        mixing = solve(scaled)
        # what the first solution misses is solved again: its error squared
        mixing += solve(scaled - mixing @ columns)
        residual = scaled - mixing @ columns
        # u = L x, x the weights of the rows in z
        weights = mixing / lengths
        white = weights if self.lower is None else weights @ self.lower
        norms = row_norms(white)
        with np.errstate(over="ignore", under="ignore"):
            return np.where(uncovered(scaled, residual, norms), np.inf, norms**2)

    def _by_directions(self, scaled: Array) -> Array:
        """Return the distances by the singular triplets of dependent rows, to rounding."""
        left, singular, right = self.directions
        unit = self.factor / self.scales[:, None]
        # the least u: U s⁻¹ of z's coordinates, refined once by what it misses
        white = ((scaled @ left) / singular) @ right
        residual = scaled - white @ unit.T
        white += ((residual @ left) / singular) @ right
        residual = scaled - white @ unit.T
        norms = row_norms(white)
        with np.errstate(over="ignore", under="ignore"):
            return np.where(uncovered(scaled, residual, norms), np.inf, norms**2)
