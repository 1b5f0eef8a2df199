"""Instance families of worst-case designs: rows z and budgets g, from easy to nasty."""

import numpy as np


def instance(name, m, d, seed=0):
    """Return (differences (m, d), budgets (m,)) of the named family."""
    rng = np.random.default_rng(seed)
    budgets = np.ones(m)
    rows = rng.standard_normal((m, d))
    if name == "decaying":
        rows /= np.arange(1, d + 1)
    elif name == "heavy-tails":
        rows *= rng.standard_t(1.5, (m, 1))
    elif name == "collinear":
        base = rows[: -(-m // 10)]
        rows = np.tile(base, (10, 1))[:m] + 0.01 * rows
    elif name == "duplicates":
        base = rows[: -(-m // 2)]
        rows = np.vstack([base, base * rng.uniform(0.5, 1.5, (base.shape[0], 1))])[:m]
    elif name == "budgets-over-decades":
        budgets = 10.0 ** rng.uniform(-3, 3, m)
    elif name == "low-rank":
        k = max(1, min(m, d) // 4)
        rows = rows[:, :k] @ rng.standard_normal((k, d))
    elif name == "columns-over-decades":
        rows *= np.logspace(0, -4, d)
    elif name != "random":
        raise ValueError(name)
    return rows, budgets


FAMILIES = (
    "random",
    "decaying",
    "heavy-tails",
    "collinear",
    "duplicates",
    "budgets-over-decades",
    "low-rank",
    "columns-over-decades",
)
