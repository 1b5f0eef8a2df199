"""The published solver: dsi, Algorithm 1, with the optimisation techniques of its Appendix C.4."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

STEP, DECAY, RESET = 10.0, 0.1, 20


@dataclass(frozen=True)
class GradientRun:
    """What it reached: seconds, gap after scaling to feasibility, violation before it."""

    seconds: float
    gap: float
    violation: float
    iterations: int


def solve(
    rows: np.ndarray, budgets: np.ndarray, target: float, limit: float, *, helped: bool = False
) -> GradientRun:
    """Run until gap and violation are within ``target`` or ``limit`` seconds have passed.

    As published it starts from λ = 1 on the rows as they are (budgets folded in). ``helped`` gives
    it our scaling (the longest row 1) and our start λ = ‖y‖², exact for orthogonal rows.
    """
    start = time.perf_counter()
    scaled = rows / np.sqrt(budgets)[:, None]
    if helped:
        scaled = scaled / np.linalg.norm(scaled, axis=1).max()
    m, d = scaled.shape
    if m <= d:
        # Lemma 3.2: coordinates in the span, from the Gram matrix.
        values, vectors = np.linalg.eigh(scaled @ scaled.T)
        kept = values > 1e-14 * values[-1]
        scaled = vectors[:, kept] * np.sqrt(values[kept])
    logarithm = np.zeros(m)
    if helped:
        logarithm = np.log(np.linalg.norm(scaled, axis=1) ** 2 + 1e-12)
    step, gap, violation, iteration = STEP, np.inf, np.inf, 0
    loss, leverage, trace = _evaluate(scaled, logarithm)
    while time.perf_counter() - start < limit:
        iteration += 1
        weights = np.exp(np.minimum(logarithm, 600.0))
        violation = float(leverage.max() - 1)
        gap = 1 - (trace**2 / weights.sum()) / (trace * max(leverage.max(), 1e-300))
        # It returns Σ(λ) as it is, so that its constraints must hold as well as its gap.
        if gap <= target and violation <= target:
            break
        if iteration % RESET == 0:
            step = STEP
        gradient = 1 - leverage
        while True:
            candidate = logarithm - step * gradient
            new_loss, new_leverage, new_trace = _evaluate(scaled, candidate)
            if new_loss <= loss or step < 1e-12:
                break
            step *= DECAY
        logarithm, loss, leverage, trace = candidate, new_loss, new_leverage, new_trace
    return GradientRun(time.perf_counter() - start, gap, violation, iteration)


def _evaluate(rows: np.ndarray, logarithm: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Return the loss −(2 tr S − Σλ), the a_i and tr S for λ = exp(logarithm) (Eq. 12–14)."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(np.minimum(logarithm, 600.0))
        if not np.isfinite(weights).all() or weights.max() > 1e200:
            return np.inf, np.ones(rows.shape[0]), 1.0
        values, vectors = np.linalg.eigh((rows.T * weights) @ rows)
    singular = np.sqrt(np.maximum(values, 1e-300))
    leverage = ((rows @ vectors) ** 2) @ (1 / singular)
    return float(weights.sum() - 2 * singular.sum()), leverage, float(singular.sum())
