"""Noise of the mean at equal success of guessing membership: pairs, tables, and OpenDP, in one run.

``make bench`` runs it; ``python -m benchmarks.statistics --draws 200`` measures OpenDP's noise on
fewer draws. Pairs and OpenDP's mechanisms release the means of half of the rows, and ``Table``
those of all; all know their number. OpenDP's mechanisms, and ``Table``, get the range of the data
themselves as declared bounds, which favours them, and the budget of their columns is split for the
least noise.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import opendp.prelude as dp
from rich.console import Console
from scipy.optimize import brentq
from sklearn.datasets import load_iris

from tacit import Effort, Rows, Table, prepare
from tacit.releases.strength import gaussian_mu
from tacit_lab.studies.pac import data

SUCCESSES = (0.55, 0.75)
LOSSES = 400_000
HEADS = ("data, s", "pairs", "OpenDP Gauss", "ratio", "OpenDP Laplace", "ratio", "table", "ratio")
WIDTHS = (14, 10, 14, 8, 16, 8, 10, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400, help="releases to measure OpenDP on")
    draws = parser.parse_args().draws
    dp.enable_features("contrib", "idealized-numerics")
    console = Console(width=120)
    console.print("√tr Σ of the means, in standard deviations of each column (Iris: cm too)")
    console.print("".join(f"{h:>{w}}" for h, w in zip(HEADS, WIDTHS, strict=True)), highlight=False)
    for name, rows in tables(console).items():
        for success in SUCCESSES:
            console.print(compared(name, rows, success, draws), highlight=False)


def tables(console: Console) -> dict[str, np.ndarray]:
    """Return the pools: Iris as it is and, like Rice, in standard deviations of its columns."""
    iris = np.asarray(load_iris().data)
    found = {"Iris, cm": iris, "Iris": standard(iris)}
    try:
        found["Rice"] = standard(data.rice())
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
    return found


def standard(rows: np.ndarray) -> np.ndarray:
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def compared(name: str, rows: np.ndarray, success: float, draws: int) -> str:
    """Return one line: noise of each method, and how many times that of pairs it is."""
    bounds = np.stack([rows.min(axis=0), rows.max(axis=0)], axis=1)
    half = rows[: len(rows) // 2]
    quiet = Effort(trials=0, progress=False)
    paired = prepare("mean", rows, Rows(success=success), quiet, cost="squared")
    promise = Table(success=success, bounds=bounds.tolist(), adjacency="replace")
    table = prepare("mean", rows, promise, quiet, cost="squared")
    pairs = power([e.error for e in paired.expected])
    others = (
        power(noise_of(half, bounds, gaussian_scales(bounds, success), "gaussian", draws)),
        power(noise_of(half, bounds, laplace_scales(bounds, success), "laplace", draws)),
        power([e.error for e in table.expected]),
    )
    cells = [f"{name} {success}", f"{pairs:.4g}"]
    for noise in others:
        cells += [f"{noise:.4g}", f"{noise / pairs:.1f}"]
    return "".join(f"{c:>{w}}" for c, w in zip(cells, WIDTHS, strict=True))


def power(errors: object) -> float:
    return float(np.sqrt(np.square(np.asarray(errors)).sum()))


def half_widths(bounds: np.ndarray) -> np.ndarray:
    """Return by how much a row moves the sum of each column, less the middle of its bounds."""
    return 0.5 * (bounds[:, 1] - bounds[:, 0])


def gaussian_scales(bounds: np.ndarray, success: float) -> np.ndarray:
    """Scales whose ρ add up to μ²/2: ``σ_j² = w_j Σ w / μ²``."""
    widths = half_widths(bounds)
    return np.sqrt(widths * widths.sum()) / gaussian_mu(success=success)


def laplace_scales(bounds: np.ndarray, success: float) -> np.ndarray:
    """Scales ``b_j ∝ w_j^⅔`` at which the likelihood ratio of all columns is right s of the time.

    The losses of the columns are simulated once, so this calibrates below what Σ ε_j would allow.
    """
    widths = half_widths(bounds)
    shape = widths ** (2 / 3)
    noise = np.random.default_rng(0).laplace(size=(LOSSES, widths.size)) * shape

    def reached(size: float) -> float:
        gaps = np.abs(noise * size + widths) - np.abs(noise * size)
        losses = (gaps / (shape * size)).sum(axis=1)
        return 0.5 + 0.5 * float(np.maximum(-np.expm1(-losses), 0.0).mean())

    size = math.exp(brentq(lambda log: reached(math.exp(log)) - success, -8.0, 12.0, xtol=1e-6))
    return shape * size


def noise_of(
    rows: np.ndarray, bounds: np.ndarray, scales: np.ndarray, kind: str, draws: int
) -> np.ndarray:
    """Return the deviations of OpenDP's means, measured on its own releases."""
    widths, middles = half_widths(bounds), bounds.mean(axis=1)
    found = np.empty((draws, len(scales)))
    for column, scale in enumerate(scales.tolist()):
        width = float(widths[column])
        domain = dp.vector_domain(dp.atom_domain(bounds=(-width, width), nan=False))
        noisy = dp.m.then_gaussian if kind == "gaussian" else dp.m.then_laplace
        space = domain, dp.symmetric_distance()
        mechanism = space >> dp.t.then_sum() >> noisy(scale)
        clamped = np.clip(rows[:, column] - middles[column], -width, width).tolist()
        exact = float(np.sum(clamped))
        for draw in range(draws):
            found[draw, column] = (mechanism(clamped) - exact) / len(rows)
    return np.sqrt(np.square(found).mean(axis=0))


if __name__ == "__main__":
    main()
