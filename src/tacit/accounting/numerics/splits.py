"""The worst number of eigenvalues at the upper end, without an integral for each."""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import chebyshev

from tacit._ground.checks import Array
from tacit.accounting.numerics.contour import (
    LOG_NOTHING,
    MOST_ROWS,
    CentredLoss,
    Contours,
    log_integrals,
)
from tacit.accounting.numerics.quadrature import Index

NEWTON_STEPS = 20
SHORT_STEP = 0.25  # of the number of eigenvalues
FEW = 40
CHANGE = 1e-10
MARGIN = 10.0  # on the change of an interpolant, where it tells that an interval cannot matter
DEGREE, PARTS = 16, 4


def _fit(degree: int) -> Array:
    """From values at cos(πj/n) to Chebyshev coefficients."""
    angles = math.pi * np.arange(degree + 1) / degree
    return np.asarray(np.linalg.inv(np.cos(np.outer(angles, np.arange(degree + 1)))))


FIT, HALF_FIT = _fit(DEGREE), _fit(DEGREE // 2)


def log_worst_split(high: float, low: float, total: int, dim: int, epsilon: Array) -> Array:
    """Return the largest ln δ(ε) over m of the d eigenvalues at 1 + high and the rest at 1 + low.

    Chernoff's bound on ln δ is concave in m, being a minimum of functions linear in it, so the m at
    which it exceeds a value already reached are an interval, and Newton's steps from outside stay
    outside. On it ln δ, smooth in a real m, is interpolated at Chebyshev points.

    Args:
        high: x > 0.
        low: x in (−1, 0).
        total: Coordinates of each eigenvalue.
        dim: d >= 1.
        epsilon: Finite ε >= 0, shape (n,).

    Returns:
        The maximum over m = 0 … d, shape (n,), upwards by the change of the interpolant.
    """
    ends = [CentredLoss(np.array([x]), np.array([float(total * dim)])) for x in (high, low)]
    worst = np.maximum(*(loss.log_positive(epsilon) for loss in ends))
    splits = _Splits(np.array([high, low]), total, dim)
    for start in range(0, epsilon.size if dim > 1 else 0, MOST_ROWS):
        part = slice(start, start + MOST_ROWS)
        worst[part] = splits.worst(epsilon[part], worst[part])
    return worst


class _Splits:
    """δ with m eigenvalues at 1 + high and d − m at 1 + low, m any real number in [0, d]."""

    def __init__(self, excess: Array, total: int, dim: int):
        self._excess = excess
        self._total = total
        self._dim = dim

    def worst(self, epsilon: Array, reached: Array) -> Array:
        """Return the largest ln δ over m, at least ``reached``."""
        if self._dim <= FEW:
            worst = reached.copy()
            np.maximum.at(worst, *self._rivals(epsilon, reached))
            return worst
        # what is left out adds no more than this
        worst = np.maximum(reached, LOG_NOTHING) + CHANGE
        first, last = self._interval(epsilon, worst)
        rows = np.flatnonzero(last > first)
        middle = np.round((first + last)[rows] / 2)
        worst[rows] = np.maximum(worst[rows], self._logs(middle, epsilon[rows]) + CHANGE)
        first[rows], last[rows] = self._interval(epsilon[rows], worst[rows])
        rows = np.flatnonzero((last >= first) & (worst < 0))
        first, last = first[rows], last[rows]
        while rows.size:
            few = last - first < FEW
            np.maximum.at(worst, *self._each(rows[few], epsilon, first[few], last[few]))
            rows, first, last = rows[~few], first[~few], last[~few]
            largest, change = self._interpolated(epsilon[rows], first, last)
            done = change <= CHANGE
            np.maximum.at(worst, rows[done], (largest + change)[done])
            open_ = ~done & (largest + MARGIN * change > worst[rows])
            rows, first, last = _cut(rows[open_], first[open_], last[open_])
        return np.minimum(worst, 0.0)

    def _rivals(self, epsilon: Array, reached: Array) -> tuple[Index, Array]:
        """ln δ at every m where Chernoff's bound exceeds ``reached``, with the row of each."""
        rows = np.repeat(np.arange(epsilon.size), self._dim - 1)
        uppers = np.tile(np.arange(1.0, self._dim), epsilon.size)
        paths = Contours.through(self._excess, self._counts(uppers), epsilon[rows])
        rivals = np.flatnonzero(paths.log_bound() > reached[rows])
        return rows[rivals], paths.rows(rivals).log_integrals()

    def _each(self, rows: Index, epsilon: Array, first: Array, last: Array) -> tuple[Index, Array]:
        """ln δ at every whole m of the intervals of ``rows``, with the row of each."""
        counts = (last - first + 1).astype(np.intp)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        owner = np.repeat(rows, counts)
        return owner, self._logs(np.repeat(first, counts) + offsets, epsilon[owner])

    def _counts(self, uppers: Array) -> Array:
        return np.asarray(self._total * np.stack([uppers, self._dim - uppers]))

    def _logs(self, uppers: Array, epsilon: Array) -> Array:
        return log_integrals(self._excess, self._counts(uppers), epsilon)

    def _interval(self, epsilon: Array, reached: Array) -> tuple[Array, Array]:
        """The whole m in [1, d − 1] at which Chernoff's bound may exceed ``reached``."""
        first = self._crossing(epsilon, reached, 1.0, 1)
        last = self._crossing(epsilon, reached, self._dim - 1.0, -1)
        return np.ceil(first), np.floor(last)

    def _crossing(self, epsilon: Array, reached: Array, start: float, sign: int) -> Array:
        """Where the bound rises to ``reached``, seen from ``start``; outside [0, d] if never."""
        upper = np.full(epsilon.shape, start)
        end = self._dim + 1.0 if sign > 0 else -1.0
        for _ in range(NEWTON_STEPS):
            at = np.clip(upper, 0.0, self._dim)
            paths = Contours.through(self._excess, self._counts(at), epsilon)
            # at one saddle the bound is a line in m, and stays above what it bounds
            gap = np.where(upper == at, reached - paths.log_bound(), 0.0)
            slopes = paths.slopes()
            slope = sign * self._total * (slopes[0] - slopes[1])
            rising = (gap > 0) & (slope > 0)
            step = np.where(rising, gap / np.where(rising, slope, 1.0), 0.0)
            moved = np.clip(upper + sign * step, -1.0, self._dim + 1.0)
            upper = np.where((gap > 0) & ~rising, end, moved)
            if not (step >= SHORT_STEP).any():
                break
        return upper

    def _interpolated(self, epsilon: Array, first: Array, last: Array) -> tuple[Array, Array]:
        """The largest interpolant at a whole m in [first, last], and what its change adds to it."""
        angles = math.pi * np.arange(DEGREE + 1) / DEGREE
        middle, half = (first + last)[:, None] / 2, (last - first)[:, None] / 2
        uppers = middle + half * np.cos(angles)
        logs = self._logs(uppers.ravel(), np.repeat(epsilon, DEGREE + 1)).reshape(uppers.shape)
        largest, change = np.empty(epsilon.shape), np.empty(epsilon.shape)
        for row, values in enumerate(logs):
            points = (np.arange(first[row], last[row] + 1) - middle[row]) / half[row]
            fine = chebyshev.chebval(points, FIT @ values)
            rough = chebyshev.chebval(points, HALF_FIT @ values[::2])
            largest[row] = fine.max()
            change[row] = (fine + np.abs(fine - rough)).max() - largest[row]
        return largest, change


def _cut(rows: Index, first: Array, last: Array) -> tuple[Index, Array, Array]:
    """Cut intervals of whole numbers into parts."""
    shares = np.arange(PARTS + 1) / PARTS
    edges = np.ceil(first[:, None] + (last - first + 1)[:, None] * shares)
    return np.repeat(rows, PARTS), edges[:, :-1].ravel(), edges[:, 1:].ravel() - 1
