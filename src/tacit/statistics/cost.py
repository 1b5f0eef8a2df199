"""What noise costs, from what it does to the numbers that are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, choice
from tacit.design.cost import cost_matrix
from tacit.statistics.queries.statistic import SumQuery

# Step of a derivative, in standard deviations of what a row adds.
STEP = 1e-3
# Steps that are taken at once: a few megabytes.
STEPS_TOGETHER = 256
# Weights of every sum on its own beside the numbers, of which the best is taken: where these are
# not linear, noise that the first derivative does not see is not free.
FLOOR, CURVED_FLOORS = 1e-6, (0.1, 1.0, 0.01)
# A variance that is a smaller part of its parts' is their rounding.
CANCELLED = 1e-10
# Variance of whether a row is there, where that is not public.
UNCOUNTED = 0.25
COSTS = ("relative", "squared")
ROWS_TOGETHER = 2**16


@dataclass(frozen=True, eq=False)
class CostFrame:
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
        # D F D = V diag(w) Vᵀ with D_jj = 1/√F_jj, so that no unit of a sum decides what is small;
        # K = D⁻¹ V diag(√w); directions that cost nothing are left out
        priced = np.maximum(np.diagonal(self.costs[0]), 0.0)
        units = np.sqrt(np.where(priced > 0.0, priced, 1.0))
        values, axes = scipy_linalg.eigh(self.costs[0] / units[:, None] / units)
        kept = values > 1e-12 * values[-1]
        return np.asarray(units[:, None] * axes[:, kept] * np.sqrt(values[kept]))


def frame_of(
    query: SumQuery, values: Array, centres: Array, drawn: int, cost: Any, *, counted: bool = True
) -> CostFrame:
    """Return the frame of a query from what every row of the pool adds.

    Args:
        query: what is computed.
        values: (N, k) φ of every row.
        centres: (p,) what was taken from the columns.
        drawn: number of rows drawn, n.
        cost: None or ``"relative"``, ``"squared"``, or weights of the numbers as (d,) or (d, d).
        counted: whether n is public; else a count of all rows is noisy like every other sum.
    """
    # mean and covariance of what rows add: noise is judged near sums of n such rows
    mean = values.mean(axis=0)
    covariance = _covariance(values, mean)
    if not counted:
        # a sum that all rows move alike varies with whether a row is there
        still = np.diagonal(covariance) == 0.0
        covariance = covariance + np.diag(np.where(still, UNCOUNTED * mean**2, 0.0))
    deviations = np.sqrt(np.diagonal(covariance))
    middle = mean * drawn
    known = float(drawn) if counted else None

    def finish(sums: Array) -> Array:
        return query.finish(sums, centres, known, smooth=True)

    # J by central differences, each sum by a step that is small beside what rows add
    jacobian = np.zeros((len(query.names), len(middle)))
    moved = np.flatnonzero(deviations > 0.0)
    for start in range(0, len(moved), STEPS_TOGETHER):
        places = moved[start : start + STEPS_TOGETHER]
        steps = STEP * deviations[places] * drawn
        ahead, behind = np.tile(middle, (2, len(places), 1))
        turn = np.arange(len(places))
        ahead[turn, places] += steps
        behind[turn, places] -= steps
        jacobian[:, places] = (finish(ahead) - finish(behind)).T / (2.0 * steps)
    # the influence of a row on a number is n J (φ − mean φ)
    # n diag(J C Jᵀ): how much each number varies over random draws of n rows
    variances = np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian)
    # what is left of parts that cancel is rounding
    parts = np.square(jacobian) @ np.diagonal(covariance)
    variances = np.where(variances > CANCELLED * parts, variances, 0.0)
    spread = np.sqrt(np.maximum(variances, 0.0) * drawn)
    weights = _weights(cost, spread)
    # F = Jᵀ W J: noise Σ on the sums costs tr(FΣ)
    weighed = jacobian.T @ (
        weights[:, None] * jacobian if weights.ndim == 1 else weights @ jacobian
    )
    # F is positive definite by a share of a cost in which every sum counts on its own
    floor = _floor(weighed, covariance)
    shares = (FLOOR,) if query.linear and counted else CURVED_FLOORS
    costs = tuple(weighed + share * floor for share in shares)
    return CostFrame(jacobian, spread, weights, costs, middle)


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
    if cost_name(cost) == "squared" or not spread.any():
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
    # tr(F C), in equal parts: a variance of C_jj in sum j costs tr(F C)/moving
    total = float(np.einsum("ij,ij->", weighed, covariance))
    # a cost that is all rounding may come out below zero
    share = (total if total > 0.0 else 1.0) / moving.sum()
    each = np.divide(share, variances, out=np.zeros(len(variances)), where=moving)
    return np.diag(each)


def cost_name(cost: Any) -> str:
    """Return a cost that is named: "relative" where none is.

    Raises:
        ValueError: another text.
    """
    return choice("cost", "relative" if cost is None else cost, COSTS)


def prices_of(cost: Any, outputs: Array) -> Array:
    """Return F as (d,): one over the variances of the outputs for "relative", else ones.

    Raises:
        ValueError: another text, or prices that are not one positive number for each output.
    """
    if cost is not None and not isinstance(cost, str):
        given = cost_matrix(cost, outputs.shape[1])
        if given.ndim == 2:
            raise ValueError(
                f"cost: expected {len(given)} prices for a query that does not add up, got a "
                f"matrix of shape {given.shape}"
            )
        return given
    if cost_name(cost) == "squared":
        return np.ones(outputs.shape[1])
    variances = outputs.var(axis=0)
    usual = variances.max(initial=0.0) or 1.0
    return np.asarray(1.0 / np.where(variances > 0.0, variances, usual))


def prices_of_variances(cost: Any, variances: Array) -> Any:
    """Return F of outputs whose variances (d,) may be of any size; None for squared error.

    Raises:
        ValueError: another text, or variances that double precision cannot set beside each other.
    """
    if cost is not None and not isinstance(cost, str):
        return cost
    if cost_name(cost) == "squared" or not variances.any():
        return None
    # a constant output has no scale of its own: any finite price keeps its noise negligible
    scale = np.where(variances > 0.0, variances, variances.max())
    with np.errstate(over="ignore"):
        prices = 1.0 / scale
        if not np.isfinite(prices).all():
            # only the ratios of prices matter; variances below 1e-308 need another unit
            prices = np.ldexp(1.0, np.frexp(scale.max())[1] - 1) / scale
    if not np.isfinite(prices).all():
        raise ValueError(
            "query: expected outputs whose variances are within 1e308 times each other under "
            "cost='relative', got more: choose other units"
        )
    return prices


def cost_note(cost: Any) -> str:
    """Return what noise costs, in words."""
    named = cost is None or isinstance(cost, str)
    return f"cost of noise: {cost_name(cost) if named else 'as given'}"
