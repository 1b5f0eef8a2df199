"""Worst-case noise between any two points of a simplex, such as the bins of a histogram.

Points v_0 … v_m that are affinely independent make n(n − 1)/2 differences in m = n − 1 coordinates,
nearly all of which are active: a dual of that many multipliers is what is slow. Here the squared
distances ``D_ij = (v_i − v_j)ᵀ Σ⁻¹ (v_i − v_j)`` themselves are the variables, as they and Σ⁻¹
determine each other: the budgets are a box ``D ≤ 1``, the cost ``tr FΣ`` is convex in D, and
D = 1 everywhere, which is ``Σ⁻¹ = ½(I + 11ᵀ)`` for a histogram whose rows may be in no bin, is the
optimum unless some of the points are cheap. The few distances that an optimum leaves below 1 are
found by Newton's method on them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.covariance import Factored
from tacit.design.base import Design

# Relative duality gap that is enough, and the largest that is taken.
ENOUGH, LARGEST_GAP = 1e-10, 1e-6
# Newton's steps, those of conjugate gradients in each, and halvings of a step.
NEWTON_STEPS, INNER_STEPS, HALVINGS = 60, 200, 40
# Share of the gradient that conjugate gradients leave at most, and Armijo's share of the decrease.
INNER_SHARE, DECREASE = 0.1, 1e-4
# What a step that is taken back must still leave of a distance: nothing is as near as this.
NEAREST = 1e-9
# Root of the least price beside the largest: below it noise is as good as bare in some direction.
LEAST_PRICE = 1e-4
# Points are independent where no singular value of their differences is below this share.
INDEPENDENT = 1e-6
# Relative, more than the sums of the dual value round.
DUAL_SLACK = 1e-12


def spans_simplex(points: Array) -> bool:
    """Whether (n, k) points are affinely independent, by a margin: good for a choice only."""
    if not 2 <= len(points) <= points.shape[1] + 1:
        return False
    singular = np.linalg.svd(points[1:] - points[0], compute_uv=False)
    return bool(singular[-1] > INDEPENDENT * singular[0])


def between_points(points: Array, cost: Array) -> Design | None:
    """Return the least noise under which any two points lie within distance 1, to rounding.

    None where prices are too many decades apart to reach a gap of ``LARGEST_GAP`` at most, or for
    double precision to measure the distances in these coordinates.

    Args:
        points: (n, k), affinely independent.
        cost: F, (k, k), positive definite.

    Returns:
        The design; its multipliers are those of the pairs of ``np.triu_indices(n, 1)``.

    Source: dsi, Theorem 3.3, in the distances in place of the multipliers.
    """
    # coordinates from v_0 on: z = edges x, where F becomes edgesᵀ F edges
    edges = (points[1:] - points[0]).T
    price = edges.T @ cost @ edges
    try:
        half = scipy_linalg.cholesky(price, check_finite=False)
    except scipy_linalg.LinAlgError:
        return None
    roots = np.diagonal(half)
    if roots.min() < LEAST_PRICE * roots.max():
        return None
    state = _Distances.at(np.ones((len(points), len(points))) - np.eye(len(points)), price, half)
    steps = 0
    while state.gap > ENOUGH and steps < NEWTON_STEPS:
        following = state.step()
        if following is None:
            break
        state, steps = following, steps + 1
    if not state.largest_gap <= LARGEST_GAP:
        return None
    # Σ = edges P⁻¹ edgesᵀ, P = RᵀR; noise mixes the differences themselves, and is bare where they
    # are to the last bit
    return Design(
        covariance=Factored(edges.T, state.root.T),
        cost=state.cost,
        gap=max(state.largest_gap, 0.0),
        method="worst-case",
        multipliers=state.multipliers[np.triu_indices(len(points), 1)],
        iterations=steps,
    )


@dataclass(frozen=True, eq=False)
class _Distances:
    """Squared distances D <= 1 with what follows from them.

    Attributes:
        distances: D, (n, n).
        price: F in the coordinates from v_0 on, (m, m).
        half: H upper triangular with HᵀH = F.
        root: R upper triangular with RᵀR = P, the inverse covariance in these coordinates.
        cost: f = tr FP⁻¹.
        slope: M, (n, n): df = Σ_{i<j} M_ij dD_ij.
        spread: Q, (n, n), P⁻¹ with the point v_0.
    """

    distances: Array
    price: Array
    half: Array
    root: Array
    cost: float
    slope: Array
    spread: Array

    @staticmethod
    def at(distances: Array, price: Array, half: Array) -> _Distances:
        """Return the state at D, to rounding.

        Raises:
            LinAlgError: no points have these distances.
        """
        # 2 x_iᵀ P x_j = |x_i|² + |x_j|² − |x_i − x_j|², with x_0 the origin
        from_first = distances[0, 1:]
        inverse = (from_first[:, None] + from_first - distances[1:, 1:]) / 2
        root = scipy_linalg.cholesky(inverse, check_finite=False)
        covariance = scipy_linalg.cho_solve((root, False), np.eye(len(root)), check_finite=False)
        covariance = (covariance + covariance.T) / 2
        # P = −½ BᵀDB, B the columns e_i − e_0: df = −tr(P⁻¹FP⁻¹ dP) = ½ tr(M dD), M = B P⁻¹FP⁻¹ Bᵀ
        slope = covariance @ price @ covariance
        return _Distances(
            distances,
            price,
            half,
            root,
            float(np.vdot(price, covariance)),
            _with_origin((slope + slope.T) / 2),
            _with_origin(covariance),
        )

    @property
    def multipliers(self) -> Array:
        """λ = max(−M, 0) of the pairs, (n, n), to rounding: any λ >= 0 bounds from below."""
        found = np.maximum(-self.slope, 0.0)
        np.fill_diagonal(found, 0.0)
        return found

    @cached_property
    def gap(self) -> float:
        """The relative duality gap, to rounding: good for a choice only."""
        return self._gap_at(self._trace[0])

    @property
    def largest_gap(self) -> float:
        """The same, rounded up but for the rounding of the cost itself."""
        trace, error = self._trace
        return self._gap_at(max(trace - error, 0.0) * (1 - DUAL_SLACK))

    def _gap_at(self, trace: float) -> float:
        """The gap by weak duality, (tr S)²/Σλ <= tr FΣ of every feasible Σ, to rounding."""
        return 1.0 - trace**2 / (float(self.multipliers.sum()) / 2) / self.cost

    @cached_property
    def _trace(self) -> tuple[float, float]:
        """tr S, S² = H (Σ λ z zᵀ) Hᵀ, and what it is rounded up by at most."""
        multipliers = self.multipliers
        # Σ λ z zᵀ is the Laplacian of the graph of the pairs, without the row of v_0
        laplacian = np.diag(multipliers.sum(axis=1)) - multipliers
        squares = scipy_linalg.eigvalsh(
            self.half @ laplacian[1:, 1:] @ self.half.T, check_finite=False
        )
        # an eigenvalue is off by √n ε s_max², of which the root of a small one is off by far more
        rounding = np.sqrt(squares.size) * EPS * float(squares[-1])
        singular = np.sqrt(np.maximum(squares, 0.0))
        lower = np.sqrt(np.maximum(squares - rounding, 0.0))
        return float(singular.sum()), float((singular - lower).sum())

    def step(self) -> _Distances | None:
        """Return the state after a projected step of Newton's; None where none gets further."""
        # held: at its budget, and cheaper beyond it
        free = (self.distances < 1.0) | (self.slope > 0.0)
        np.fill_diagonal(free, val=False)
        if not free.any():
            return None
        direction = self._direction(free)
        length = 1.0
        for _ in range(HALVINGS):
            # beyond a budget the step ends on it
            moved = np.where(free, np.minimum(self.distances + length * direction, 1.0), 1.0)
            np.fill_diagonal(moved, 0.0)
            change = float(np.vdot(self.slope, moved - self.distances)) / 2
            if change < 0.0 and moved[free].min() > NEAREST:
                try:
                    reached = _Distances.at(moved, self.price, self.half)
                except scipy_linalg.LinAlgError:
                    # no points are so far apart
                    reached = None
                if reached is not None and reached.cost <= self.cost + DECREASE * change:
                    return reached
            length /= 2
        return None

    def _direction(self, free: npt.NDArray[np.bool_]) -> Array:
        """Solve ½(MTQ + QTM) = −M on the free pairs, (n, n): good for a choice only.

        By conjugate gradients, roughly. The second derivative of the cost along T is ½ tr(MTQT), as
        M and Q come from P⁻¹FP⁻¹ and P⁻¹: it is applied by products of matrices, and never formed.
        """
        # of one pair alone: ½(M_ii Q_jj + M_jj Q_ii) + M_ij Q_ij
        slopes, spreads = np.diagonal(self.slope), np.diagonal(self.spread)
        alone = (np.outer(slopes, spreads) + np.outer(spreads, slopes)) / 2
        alone += self.slope * self.spread
        weight = np.where(free, 1.0 / alone, 0.0)
        found = np.zeros_like(weight)
        left = np.where(free, -self.slope, 0.0)
        # as rough as the gap allows: the root of it keeps Newton's steps faster than linear
        enough = min(INNER_SHARE, max(self.gap, 0.0) ** 0.5) * float(np.abs(left).max())
        towards = weight * left
        size = float(np.vdot(left, towards))
        for _ in range(INNER_STEPS):
            image = self.slope @ towards @ self.spread
            image = np.where(free, (image + image.T) / 2, 0.0)
            length = size / float(np.vdot(towards, image))
            found += length * towards
            left = left - length * image
            if float(np.abs(left).max()) <= enough:
                break
            following = weight * left
            size, before = float(np.vdot(left, following)), size
            towards = following + size / before * towards
        return found


def _with_origin(matrix: Array) -> Array:
    """Return B X Bᵀ, (n, n), to rounding: the row and column of v_0 make all sums zero."""
    size = len(matrix) + 1
    whole = np.empty((size, size))
    whole[1:, 1:] = matrix
    whole[0, 1:] = whole[1:, 0] = -matrix.sum(axis=0)
    whole[0, 0] = matrix.sum()
    return whole
