"""General solvers on ``min tr X : [[X, Yᵀ], [Y, C]] ⪰ 0, diag C ≤ 1``, one matrix inequality."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np


@dataclass(frozen=True)
class ConicRun:
    """Solver seconds (without cvxpy's own), gap of C made feasible, violation of C as returned."""

    seconds: float
    gap: float
    violation: float
    status: str


def solve(gram: np.ndarray, lower_bound: float, solver: str, limit: float) -> ConicRun:
    """Solve with SCS or Clarabel; ``lower_bound`` is the certified value to compare with."""
    m = gram.shape[0]
    norms = np.sqrt(np.diagonal(gram))
    unit = float(norms.max())
    values, vectors = np.linalg.eigh(gram / unit**2)
    rows = vectors * np.sqrt(np.maximum(values, 0.0))
    correlation = cp.Variable((m, m), symmetric=True)
    bound = cp.Variable((m, m), symmetric=True)
    problem = cp.Problem(
        cp.Minimize(cp.trace(bound)),
        [cp.bmat([[bound, rows.T], [rows, correlation]]) >> 0, cp.diag(correlation) <= 1],
    )
    options = (
        {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iters": 1_000_000, "time_limit_secs": limit}
        if solver == "SCS"
        else {"time_limit": limit}
    )
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver=solver, **options)
    except cp.error.SolverError:
        return ConicRun(time.perf_counter() - start, np.inf, np.inf, "failed")
    seconds = problem.solver_stats.solve_time or time.perf_counter() - start
    if correlation.value is None:
        return ConicRun(seconds, np.inf, np.inf, problem.status)
    found = (correlation.value + correlation.value.T) / 2
    violation = float(np.diagonal(found).max() - 1)
    return ConicRun(
        seconds, 1 - lower_bound / _feasible_cost(found, gram), violation, problem.status
    )


def _feasible_cost(correlation: np.ndarray, gram: np.ndarray) -> float:
    """Return tr(G C⁻¹) after scaling the diagonal to 1; inf where C is not positive definite."""
    diagonal = np.diagonal(correlation)
    if diagonal.min() <= 0:
        return np.inf
    scaled = correlation / np.sqrt(np.outer(diagonal, diagonal))
    try:
        lower = np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        return np.inf
    return float(np.trace(np.linalg.solve(lower.T, np.linalg.solve(lower, gram))))
