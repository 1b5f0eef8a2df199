"""What noise on the sums costs, from what it does to the numbers computed of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, choice
from tacit.design.cost import cost_matrix
from tacit.statistics.sums.query import SumQuery

# Step of a derivative, in standard deviations of what a row adds.
STEP = 1e-3
# Weights of every sum on its own beside the numbers, of which the best is taken: where these are
# not linear, noise that the first derivative does not see is not free.
FLOOR, CURVED_FLOORS = 1e-6, (0.1, 1.0, 0.01)
# Variance of whether a row is there, where that is not public.
UNCOUNTED = 0.25
COSTS = ("relative", "squared")
ROWS_TOGETHER = 2**16


@dataclass(frozen=True, eq=False)
class Frame:
    """A query of sums near what the pool gives on average.

    Attributes:
        jacobian: J, (d, k): derivatives of the numbers by the sums over the rows drawn.
        spread: (d,) standard deviation of each number over random rows of the pool.
        weights: W, the cost of the numbers: (d,) or (d, d).
        costs: F, (k, k) each: ``JᵀWJ`` and a floor, the usual one first.
        middle: (k,) sums over as many rows as are drawn, on average over the pool.
    """

    jacobian: Array
    spread: Array
    weights: Array
    costs: tuple[Array, ...]
    middle: Array

    @property
    def root(self) -> Array:
        """K with ``K Kᵀ = F``, (k, r), for distances between what rows add."""
        values, axes = scipy_linalg.eigh(self.costs[0])
        kept = values > 1e-12 * values[-1]
        return np.asarray(axes[:, kept] * np.sqrt(values[kept]))


def frame_of(
    query: SumQuery, values: Array, centres: Array, drawn: int, cost: Any, *, counted: bool = True
) -> Frame:
    """Return the frame of a query from what every row of the pool adds.

    Args:
        query: what is computed.
        values: (N, k) φ of every row.
        centres: (p,) what was taken from the columns.
        drawn: number of rows drawn, n.
        cost: None or ``"relative"``, ``"squared"``, or weights of the numbers as (d,) or (d, d).
        counted: whether n is public; else a count of all rows is noisy like every other sum.
    """
    mean = values.mean(axis=0)
    covariance = _covariance(values, mean)
    if not counted:
        still = np.diagonal(covariance) == 0.0
        covariance = covariance + np.diag(np.where(still, UNCOUNTED * mean**2, 0.0))
    deviations = np.sqrt(np.diagonal(covariance))
    middle = mean * drawn
    known = float(drawn) if counted else None

    def finish(sums: Array) -> Array:
        return query.finish(sums, centres, known, smooth=True)

    jacobian = np.zeros((len(query.names), len(middle)))
    for place in np.flatnonzero(deviations > 0.0):
        step = STEP * float(deviations[place]) * drawn
        ahead, behind = middle.copy(), middle.copy()
        ahead[place] += step
        behind[place] -= step
        jacobian[:, place] = (finish(ahead) - finish(behind)) / (2.0 * step)
    # the influence of a row on a number is n J (φ − mean φ)
    variances = np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian)
    spread = np.sqrt(np.maximum(variances, 0.0) * drawn)
    weights = _weights(cost, spread)
    weighed = jacobian.T @ (
        weights[:, None] * jacobian if weights.ndim == 1 else weights @ jacobian
    )
    floor = _floor(weighed, covariance)
    shares = (FLOOR,) if query.linear and counted else CURVED_FLOORS
    costs = tuple(weighed + share * floor for share in shares)
    return Frame(jacobian, spread, weights, costs, middle)


def _covariance(values: Array, mean: Array) -> Array:
    """Return the covariance of rows (k, k), some at a time."""
    summed = np.zeros((mean.size, mean.size))
    for start in range(0, len(values), ROWS_TOGETHER):
        gaps = values[start : start + ROWS_TOGETHER] - mean
        summed += gaps.T @ gaps
    return summed / len(values)


def _weights(cost: Any, spread: Array) -> Array:
    """Return W, a vector or a matrix."""
    if cost is not None and not isinstance(cost, str):
        return cost_matrix(cost, spread.size)
    name = "relative" if cost is None else choice("cost", cost, COSTS)
    if name == "squared" or not spread.any():
        return np.ones(spread.size)
    # a number that never changes has no scale of its own: any price keeps its noise small
    scales = np.where(spread > 0.0, spread, spread.max())
    return np.asarray(1.0 / scales**2)


def _floor(weighed: Array, covariance: Array) -> Array:
    """Return the whole cost, in equal parts for every sum on its own."""
    variances = np.diagonal(covariance)
    moving = variances > 0.0
    if not moving.any():
        return np.eye(len(weighed))
    total = float(np.einsum("ij,ij->", weighed, covariance))
    # a cost that is all rounding may come out below zero
    share = (total if total > 0.0 else 1.0) / moving.sum()
    each = np.divide(share, variances, out=np.zeros(len(variances)), where=moving)
    return np.diag(each)
