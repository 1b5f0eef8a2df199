"""Tables 5 and 6 at the published protocol: a pool of 30 rows, fair coins, columns standardised."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit_lab.studies.pac import published

POOL, DRAWS, POOLS, TRAINING_SHARE = 30, 4_000, 200, 0.8


def powers(dataset: str, rows: np.ndarray, seed: int) -> dict[str, Any]:
    """Return least, median and largest power of both printed rules over pools, by budget.

    Columns are standardised by the training part, of which the pool is 30 rows; each is used where
    its fair coin says so, and the mean of those that are used is released.
    """
    budgets = published.TABLES[dataset]["beta"]
    found = np.array([_pool(rows, budgets, [seed, number]) for number in range(POOLS)])
    ends = np.quantile(found, [0.0, 0.5, 1.0], axis=0)
    return {"pools": POOLS, "auto": ends[:, :, 0].T.tolist(), "efficient": ends[:, :, 1].T.tolist()}


def _pool(rows: np.ndarray, budgets: list[float], seed: list[int]) -> list[tuple[float, float]]:
    rng = np.random.default_rng(seed)
    training = rows[rng.permutation(len(rows))[: int(TRAINING_SHARE * len(rows))]]
    pool = ((training - training.mean(axis=0)) / training.std(axis=0))[:POOL]
    used = rng.random((DRAWS, POOL)) < 0.5
    spread = np.cov((used @ pool / np.maximum(used.sum(axis=1, keepdims=True), 1)).T)
    # (Σ√λ)²/(2β): Efficient-PAC's e_i ∝ √λ_i at ½ Σ λ_i/e_i = β
    roots = float(np.sqrt(np.linalg.eigvalsh(spread).clip(0.0)).sum())
    power = float(np.trace(spread))
    return [
        (published.covariance_shaped(power, len(spread), beta), roots**2 / (2.0 * beta))
        for beta in budgets
    ]
