"""Means of Iris and Rice beside Tables 5 and 6, with DP at equal success: reproductions page."""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from scipy.special import ndtri
from sklearn.datasets import load_iris

from tacit.accounting import gaussian
from tacit.attacks import bayes, membership_attack
from tacit.conversions import success_from_information, success_from_profile
from tacit.covariance import Covariance, Dense, Isotropic
from tacit.design import gaussian_information, true_information
from tacit.information import mixture
from tacit.statistics.draws.candidates import CandidateFamily, draw_family, subset_rate
from tacit_lab.stackelberg import StackelbergChecks, StackelbergRules, estimate_stackelberg
from tacit_lab.studies.pac import data, figure, page, protocol, published
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.reproductions.page import render

SEED = 20_260
CONFIDENCE = 0.99
TRAINED = (0.5, 0.0625, 0.0078)
FULL = {"candidates": 2_000, "attacked": 150, "trials": 4_000, "samples": 200_000, "steps": 300}
FAST = {"candidates": 200, "attacked": 20, "trials": 200, "samples": 5_000, "steps": 20}
METHODS = ("linear", "exact", "diagonal")


def main() -> int:
    """Run both tables, write their JSON and figure, and render the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is published")
    fast = parser.parse_args().fast
    sizes = FAST if fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    pools = {"iris": np.asarray(load_iris().data)}
    try:
        pools["rice"] = data.rice()
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
    tables = {name: study(name, rows, sizes, console) for name, rows in pools.items()}
    results = {"seed": SEED, "sizes": sizes, "confidence": CONFIDENCE, "tables": tables}
    for line in page.means_tables(results):
        console.print(line, highlight=False, soft_wrap=True)
    if not fast and len(tables) == len(("iris", "rice")):
        write(RESULTS / "pac-means.json", results)
        figure.draw_means(results)
        render()
        console.print("written: results/pac-means.json, its figure, the reproductions page")
    return 0


def scalings(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the table in the scalings that the paper could mean; it names none."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    return {
        "as it is": rows,
        "[0, 1]": (rows - low) / (high - low),
        "unit variance": (rows - rows.mean(axis=0)) / rows.std(axis=0),
    }


def study(
    dataset: str, rows: np.ndarray, sizes: dict[str, int], console: Console
) -> dict[str, Any]:
    """Return a record per budget, columns in [0, 1], and the power in every scaling."""
    budgets = published.TABLES[dataset]["beta"]
    if sizes is FAST:
        budgets = budgets[::3]
    variants = scalings(rows)
    task = _Task(variants["[0, 1]"], sizes)
    kept = StoredStudy(f"pac-means-{dataset}", {"sizes": sizes, "seed": SEED, "budgets": budgets})
    records = []
    for number, beta in enumerate(budgets):
        started = time.perf_counter()
        records.append(kept.row(repr(beta), lambda beta=beta: task.at(beta)))
        console.print(
            f"{dataset}: {number + 1} of {len(budgets)}, β = {beta:g}, "
            f"{time.perf_counter() - started:.0f} s",
            highlight=False,
        )
    powers = {
        name: [
            {m: gaussian_information(_spread(scaled), b, method=m).cost for m in METHODS}
            for b in budgets
        ]
        for name, scaled in variants.items()
    }
    return {
        "rows": records,
        "pool": list(rows.shape),
        "drawn": task.drawn,
        "scalings": powers,
        "protocol": protocol.powers(dataset, rows, SEED),
    }


def _spread(rows: np.ndarray) -> np.ndarray:
    """Covariance of the mean of a random half: (n − m)/(n m) of the rows', n = 2 m."""
    return np.cov(rows, rowvar=False) / len(rows)


class _Task:
    """The declared halves of a pool, their means, and what noises are measured on."""

    def __init__(self, rows: np.ndarray, sizes: dict[str, int]) -> None:
        rng = np.random.default_rng(SEED)
        self.sizes, self.width = sizes, rows.shape[1]
        rate = subset_rate(len(rows), 0.5, sizes["candidates"])
        self.family: CandidateFamily = draw_family(len(rows), rate, sizes["candidates"], rng)
        inside = self.family.memberships(0, len(self.family)).astype(np.float64)
        self.drawn = int(inside[0].sum())
        self.outputs = inside @ rows / inside.sum(axis=1, keepdims=True)
        self.spread = np.cov(self.outputs.T, bias=True)
        lengths = np.linalg.norm(rows - 0.5, axis=1)
        self.farthest = rows[lengths.argmax()] - 0.5
        attacked = rng.permutation(len(rows))[: sizes["attacked"]]
        self.memberships = self.family.columns(np.sort(attacked))

    def at(self, beta: float) -> dict[str, Any]:
        """Return the power and the attacks of every method at one budget."""
        rng = np.random.default_rng([SEED, round(1e6 * beta)])
        bound = success_from_information(beta, 0.5)
        row: dict[str, Any] = {"beta": beta, "success_bound": bound}
        for method in METHODS:
            design = gaussian_information(self.spread, beta, method=method)
            row[method] = self.measured(design.covariance, rng)
        design = true_information(self.outputs, beta, confidence=CONFIDENCE, rng=rng)
        row["ours"] = self.measured(design.covariance, rng) | {
            "design_certified": design.information,
            "method": design.method,
        }
        row["dp"] = self.private(bound, rng)
        if beta in TRAINED:
            row["sr"] = self.as_published(beta, rng)
        return row

    def private(self, success: float, rng: np.random.Generator) -> dict[str, Any]:
        """Return DP noise of the same success, attacked by one who knows all other memberships.

        Rows are counted from the centre of the unit cube, so that none is longer than ½ √d and
        nothing is clipped; one row more or less moves the sum by that much. With prior ½ the best
        test succeeds with Φ(μ/2), μ = sensitivity/σ, and rows have to be drawn independently.
        """
        radius = 0.5 * math.sqrt(self.width)
        std = radius / (2.0 * float(ndtri(success))) * (1.0 + 1e-9)
        reached = success_from_profile(gaussian(radius, std).delta, 0.5)
        if reached > success:
            raise ArithmeticError(f"DP noise certifies {reached!r}, more than {success!r}")
        noise = Isotropic(std**2, self.width)
        both = np.stack([np.zeros(self.width), self.farthest])
        attack = bayes(both, noise, [0, 1], trials=self.sizes["trials"], confidence=CONFIDENCE,
                       rng=rng)  # fmt: skip
        return {
            "noise": self.width * (std / self.drawn) ** 2,
            "success_bound": reached,
            "worst": attack.success,
            "worst_interval": list(attack.interval),
            "declared": self.measured(Isotropic((std / self.drawn) ** 2, self.width), rng),
        }

    def as_published(self, beta: float, rng: np.random.Generator) -> dict[str, Any]:
        """Return SR-PAC's noise with a Gaussian decoder of the mean."""
        estimate = estimate_stackelberg(
            self.outputs,
            self.outputs,
            mi_budget=beta,
            rules=StackelbergRules(steps=self.sizes["steps"]),
            checks=StackelbergChecks(samples=1_000),
            rng=rng,
        )
        record = self.measured(Dense(estimate.noise.covariance), rng)
        return record | {"estimated": estimate.estimated_information}

    def measured(self, noise: Covariance, rng: np.random.Generator) -> dict[str, Any]:
        """Return what a noise costs, what it certifies, and how the attackers fare."""
        attack = membership_attack(
            self.outputs, self.memberships, noise, trials=self.sizes["trials"],
            confidence=CONFIDENCE, rng=rng,
        )  # fmt: skip
        bound = mixture(
            self.outputs, noise, samples=self.sizes["samples"], confidence=CONFIDENCE, rng=rng
        )
        return {
            "noise": float(np.trace(noise.to_dense())),
            "certified": bound.upper,
            "attack": attack.success,
            "attack_interval": list(attack.interval),
            "worst": attack.worst_success,
            "worst_interval": list(attack.worst_interval),
            "compared": dict(attack.compared),
        }


if __name__ == "__main__":
    sys.exit(main())
