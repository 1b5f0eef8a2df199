"""Logits of a classifier under five noises per budget, beside the paper's Tables 1, 3 and 4."""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln

from tacit.attacks import bayes
from tacit.attacks.intervals import proportion_interval
from tacit.conversions import fano_information
from tacit.covariance import Covariance, Dense
from tacit.design import Design, gaussian_information, true_information
from tacit.information import mixture
from tacit_lab.stackelberg import (
    FullGaussianNoise,
    StackelbergChecks,
    StackelbergRules,
    estimate_stackelberg,
)
from tacit_lab.studies.pac import figure, page, published
from tacit_lab.studies.pac.data import MissingDataError
from tacit_lab.studies.pac.networks import NetworkLogits, logits
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.reproductions.page import render

SECRETS, SEED = 1_000, 20_260
DRAWS, TRIALS, SAMPLES = 100, 20_000, 100_000
STEPS = 200
CONFIDENCE = 0.99
NEIGHBOUR = 4
# SR-PAC trains a decoder per budget; these are enough to show its curve.
TRAINED = (4.0, 2.0, 1.0, 0.25, 0.02)
FAST = {"secrets": 200, "draws": 20, "trials": 1_000, "samples": 5_000, "steps": 20}
FULL = {"secrets": SECRETS, "draws": DRAWS, "trials": TRIALS, "samples": SAMPLES, "steps": STEPS}


def main(dataset: str) -> int:
    """Run the study of a data set, write its JSON and figure, and render the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is published")
    fast = parser.parse_args().fast
    console = Console(width=None if sys.stdout.isatty() else 132)
    try:
        known = logits(dataset, fast=fast)
    except MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    results = study(dataset, known, FAST if fast else FULL, console)
    show(results, console)
    if not fast:
        write(RESULTS / f"pac-{dataset}.json", results)
        figure.draw_logits(results)
        render()
        console.print(f"written: results/pac-{dataset}.json, its figure, the reproductions page")
    return 0


def study(
    dataset: str, known: NetworkLogits, sizes: dict[str, int], console: Console
) -> dict[str, Any]:
    """Return all numbers of a data set; rows already computed are read back."""
    chosen = np.random.default_rng(SEED).permutation(len(known.labels))[: sizes["secrets"]]
    budgets = published.TABLES[dataset]["beta"]
    if sizes is FAST:
        budgets = budgets[-2:]
    task = _Task(known, chosen, sizes)
    head = {
        "dataset": dataset,
        "recipe": asdict(known.recipe),
        "sizes": sizes,
        "seed": SEED,
        "confidence": CONFIDENCE,
        "test_accuracy": known.accuracy,
        "clean_accuracy": float((task.outputs.argmax(axis=1) == task.labels).mean()),
        "entropy_of_secret": math.log(len(chosen)),
        "output_power": float(np.trace(task.spread)),
        "knn_entropy": task.entropy,
        "gaussian_entropy": task.gaussian_entropy,
    }
    kept = StoredStudy(f"pac-{dataset}", head | {"budgets": budgets})
    rows = []
    for number, beta in enumerate(budgets):
        started = time.perf_counter()
        rows.append(kept.row(repr(beta), partial(task.at, beta)))
        console.print(
            f"{dataset}: {number + 1} of {len(budgets)}, β = {beta:g}, "
            f"{time.perf_counter() - started:.0f} s",
            highlight=False,
        )
    return head | {"rows": rows}


class _Task:
    """The secret, uniform over the chosen test inputs, and what its noises are measured on."""

    def __init__(self, known: NetworkLogits, chosen: np.ndarray, sizes: dict[str, int]) -> None:
        self.all = known.values
        self.outputs, self.labels = known.values[chosen], known.labels[chosen]
        self.sizes = sizes
        self.spread = np.cov(self.outputs.T, bias=True)
        shares = np.bincount(self.labels) / len(chosen)
        present = shares[shares > 0]
        self.label_entropy = float(-(present @ np.log(present)))
        self.classes = known.values.shape[1]
        determinant = np.linalg.slogdet(np.cov(self.all.T))[1]
        self.gaussian_entropy = published.most_entropy(self.classes) + 0.5 * float(determinant)
        # No law of this covariance has more entropy than the Gaussian.
        self.entropy = min(nearest_neighbour_entropy(self.all), self.gaussian_entropy)

    def at(self, beta: float) -> dict[str, Any]:
        """Return noise power, accuracy and both bounds on information of every method."""
        rng = np.random.default_rng([SEED, round(1e4 * beta)])
        row: dict[str, Any] = {"beta": beta}
        for method in ("linear", "exact", "diagonal"):
            design = gaussian_information(self.spread, beta, method=method)
            row[method] = self.measured(design.covariance, rng)
        if beta < math.log(len(self.outputs)):
            design = true_information(self.outputs, beta, confidence=CONFIDENCE, rng=rng)
            row["ours"] = self.measured(design.covariance, rng) | _certificate(design)
        if beta in TRAINED:
            row["sr"] = self.as_published(beta, rng)
        return row

    def as_published(self, beta: float, rng: np.random.Generator) -> dict[str, Any]:
        """Return SR-PAC's noise: Gaussian decoder of the logits, nearest-neighbour H(X)."""
        estimate = estimate_stackelberg(
            self.all,
            self.all,
            mi_budget=beta,
            rules=StackelbergRules(entropy=self.entropy, steps=self.sizes["steps"]),
            checks=StackelbergChecks(samples=1_000),
            rng=rng,
        )
        assert isinstance(estimate.noise, FullGaussianNoise)
        record = self.measured(Dense(estimate.noise.covariance), rng)
        found = {
            "estimated": estimate.estimated_information,
            "refuted": max(record["lower"], record["fano"]) > beta,
        }
        return record | found

    def measured(self, noise: Covariance, rng: np.random.Generator) -> dict[str, Any]:
        """Return what a Gaussian noise costs and leaks, whatever chose it."""
        draws, count = self.sizes["draws"], len(self.outputs)
        hits = 0
        for _ in range(draws):
            noisy = self.outputs + noise.sample(count, rng)
            hits += int((noisy.argmax(axis=1) == self.labels).sum())
        attack = bayes(
            self.outputs, noise, self.labels, trials=self.sizes["trials"], confidence=0.99, rng=rng
        )
        accuracy = hits / (draws * count)
        # Rows are drawn in equal numbers: by Hoeffding (1963), Thm 1, no worse than independently.
        reached = max(accuracy - math.sqrt(math.log(200.0) / (2 * draws * count)),
                      attack.interval[0])  # fmt: skip
        bound = mixture(
            self.outputs, noise, samples=self.sizes["samples"], confidence=CONFIDENCE, rng=rng
        )
        return {
            "noise": float(np.trace(noise.to_dense())),
            "accuracy": accuracy,
            "accuracy_interval": list(proportion_interval(hits, draws * count, 0.95)),
            "label_attack": attack.success,
            "certified": bound.upper,
            "lower": bound.lower,
            "fano": fano_information(min(1.0, reached), self.classes, self.label_entropy),
        }


def _certificate(design: Design) -> dict[str, Any]:
    """Return the design's own certificate; the one measured again on fresh draws stays beside."""
    return {"design_certified": design.information, "method": design.method}


def nearest_neighbour_entropy(rows: np.ndarray) -> float:
    """Differential entropy in nats by Kozachenko and Leonenko, k = 4; an estimate.

    ``ψ(N) − ψ(k) + ln V_d + d mean(ln r_k)``, r_k the distance to the k-th neighbour.
    """
    count, size = rows.shape
    distances = cKDTree(rows).query(rows, k=NEIGHBOUR + 1)[0][:, NEIGHBOUR]
    ball = 0.5 * size * math.log(math.pi) - float(gammaln(size / 2 + 1))
    logs = np.log(distances[distances > 0.0])
    return float(digamma(count) - digamma(NEIGHBOUR) + ball + size * logs.mean())


def show(results: dict[str, Any], console: Console) -> None:
    """Print the table of the page."""
    for line in page.logits_table(results):
        console.print(line, highlight=False, soft_wrap=True)
