"""The directions in which a code of few bits can say something about a vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array

Floats: TypeAlias = npt.NDArray[np.float32]

# Bits by which directions are chosen, for each bit of a code, and directions at least: codes are
# not those of normal vectors, for which one would do, and what is left out is lost.
BITS_PER_BIT, LEAST_WIDTH = 2.0, 192
# a basis that leaves out less than this share of the directions is not worth its product
WORTH_IT = 0.75
# of the largest variance
ROUNDING = 1e-6
# rows that are centred at once
ROWS_TOGETHER = 1024


@dataclass(frozen=True, eq=False)
class Subspace:
    """Where vectors are coded: ``B (x − mean)``, or ``x − mean`` where there is no basis.

    Attributes:
        mean: (d,).
        basis: (r, d) with orthonormal rows, or None.
    """

    mean: Floats
    basis: Floats | None

    @property
    def width(self) -> int:
        """r, numbers that are coded."""
        return len(self.mean) if self.basis is None else len(self.basis)

    def coordinates(self, rows: Floats, unit: float = 1.0) -> Floats:
        """Return the coordinates of rows (n, d) in a unit, (n, r)."""
        found = np.empty((len(rows), self.width), dtype=np.float32)
        # what a row of 10³⁰ overflows to is a code like any other
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(rows), ROWS_TOGETHER):
                part = slice(start, start + ROWS_TOGETHER)
                # centred first, as a far mean would cost the digits of all that differs
                centred = rows[part] - self.mean
                found[part] = centred if self.basis is None else centred @ self.basis.T
                found[part] *= np.float32(1.0 / unit)
        return found


def unit_of(rows: Floats, mean: Floats) -> float:
    """Return a power of two near the largest entry of rows (n, d) less their mean (d,).

    Raises:
        ValueError: a difference that float32 does not hold.
    """
    largest = 0.0
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), ROWS_TOGETHER):
            # max |x − mean|, a block at a time
            part = np.abs(rows[start : start + ROWS_TOGETHER] - mean)
            largest = max(largest, float(part.max()))
    if not math.isfinite(largest):
        raise ValueError(
            "states: expected differences that are finite in float32, got larger ones; divide the "
            "states by a constant"
        )
    return power_near(largest)


def power_near(value: float) -> float:
    """Return the largest power of two up to a number >= 0, within what 1/unit is a float32 of.

    Example:
        >>> power_near(5.0), power_near(0.0)
        (4.0, 1.0)
    """
    # scaling by a power of two rounds nothing
    return 2.0 ** min(max(math.floor(math.log2(value)), -125), 125) if value > 0.0 else 1.0


def principal_subspace(rows: Floats, mean: Floats, unit: float, bits: float) -> Subspace:
    """Return the principal directions about a mean that a code of b bits can use.

    Reverse water-filling spends b bits on the k directions of largest variance λ, with
    ``½ Σ_{i<=k} log2(λ_i/λ_{k+1}) >= 2b`` here: twice the bits, and 192 directions at least that
    have any variance, for rows that are not normal.

    Args:
        rows: (n, d).
        mean: (d,).
        unit: power of two near the largest entry of ``rows − mean``.
        bits: b.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(500, 40)).astype(np.float32)
        >>> rows[:, 3:] *= 1e-9
        >>> principal_subspace(rows, rows.mean(0), 4.0, bits=4.0).width
        3

    Source: Cover and Thomas (2006), Section 10.3.3.
    """
    whole = Subspace(mean, None)
    width = rows.shape[1]
    # λ: eigenvalues of Σ (x − mean)(x − mean)ᵀ in the unit, the largest first
    scatter = np.zeros((width, width))
    for start in range(0, len(rows), ROWS_TOGETHER):
        part = whole.coordinates(rows[start : start + ROWS_TOGETHER], unit)
        scatter += part.T @ part
    values, directions = np.linalg.eigh(scatter)
    kept = _directions(values[::-1], BITS_PER_BIT * bits)
    if kept >= WORTH_IT * width:
        return whole
    return Subspace(mean, np.ascontiguousarray(directions[:, ::-1][:, :kept].T, dtype=np.float32))


def _directions(variances: Array, bits: float) -> int:
    """Return the directions that b bits are spent on, at least one."""
    # what rounding of float32 products leaves of no variance
    seen = int(np.count_nonzero(variances > ROUNDING * variances[0]))
    spent = 0.0
    for count in range(1, seen):
        # the water falls from λ_k to λ_{k+1} in all k directions that it covers
        spent += 0.5 * count * math.log2(float(variances[count - 1]) / float(variances[count]))
        if spent >= bits:
            return min(max(count, LEAST_WIDTH), seen)
    return max(seen, 1)
