"""Matrix square roots of the worst-case dual: ``S(λ) = (Σ λ_i y_i y_iᵀ)^½`` (dsi, Thm 3.3).

With rows y_i in k coordinates the dual of ``min tr Σ : y_iᵀ Σ⁻¹ y_i ≤ 1`` is ``2 tr S − Σ λ_i``;
its best scaling has value ``(tr S)² / Σ λ_i``, a lower bound for every λ ≥ 0. The gradient is
a − 1 with ``a_i = y_iᵀ S⁻¹ y_i``. Everything follows from ``Λ^½ Y = U diag(s) Vᵀ``.
"""

from __future__ import annotations

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
