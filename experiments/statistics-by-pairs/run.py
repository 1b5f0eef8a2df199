"""Noise of the means of Iris and Rice under each promise, and of queries that do not add up."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.datasets import load_iris

from tacit import Draw, Effort, Rows, Table, prepare
from tacit.releases.promises import Promise
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS

SEED = 20_261
SUCCESSES = (0.55, 0.75)
RANDOM_PAIRINGS = 5
CONFIDENCE = 0.99
# Releases whose numbers are compared with those of the rows drawn.
RELEASES = 1000
NORMAL_95 = 1.959963984540054
QUERIES = ("median", "covariance", "least-squares")
# Draws on which each query is certified; the swaps of a median have the longest tails.
FULL, FAST = dict.fromkeys(QUERIES, 4000), dict.fromkeys(QUERIES, 200)
LONG, LONGER = ("median", "swaps"), 3
QUIET = Effort(trials=0, progress=False)
COLUMNS = ("draw", "sampling", "coins", "replace", "random", "matched")
HEADS = (
    "whole draw", "sampling spread", "DP, coins", "DP, replace", "random pairs", "matched pairs",
)  # fmt: skip


def main() -> int:
    """Run both tables, write their JSON, print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    fast = parser.parse_args().fast
    sizes = FAST if fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    pools = {"Iris": np.asarray(load_iris().data)}
    try:
        rice = data.rice()
        pools["Rice"] = (rice - rice.mean(axis=0)) / rice.std(axis=0)
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
    kept = StoredStudy("statistics-by-pairs", {"sizes": sizes, "longer": LONGER, "seed": SEED})
    means = {
        f"{name} {success}": kept.row(
            f"mean {name} {success}", lambda rows=rows, s=success: means_of(rows, s)
        )
        for name, rows in pools.items()
        for success in SUCCESSES
    }
    queries = {
        query: kept.row(f"query {query}", lambda query=query: query_of(query, pools["Iris"], sizes))
        | kept.row(f"met {query}", lambda query=query: {"met": met_of(query, pools["Iris"])})
        for query in QUERIES
    }
    show(console, means, queries)
    if not fast and len(pools) > 1:
        results = {
            "seed": SEED,
            "simulations": {**sizes, " ".join(LONG): sizes[LONG[0]] * LONGER},
            "confidence": CONFIDENCE,
            "means": means,
            "queries": queries,
        }
        write(RESULTS / "statistics-by-pairs.json", results)
        console.print("written: results/statistics-by-pairs.json")
    return 0


def power(errors: Any) -> float:
    """Root of the noise power: √tr Σ of what is released."""
    return float(np.sqrt(np.square(np.asarray(errors)).sum()))


def errors_of(
    query: str, rows: np.ndarray, promise: Promise, effort: Effort = QUIET, rng: int | None = None
) -> float:
    """Return √tr Σ of a release, prepared and not drawn."""
    prepared = prepare(query, rows, promise, effort, cost="squared", rng=rng)
    return power([entry.error for entry in prepared.expected])


def means_of(rows: np.ndarray, success: float) -> dict[str, float]:
    """Return √tr Σ of the mean of half the rows under every promise."""
    started = time.perf_counter()
    matched = errors_of("mean", rows, Rows(success=success))
    seconds = time.perf_counter() - started
    half = rows[: len(rows) // 2]
    bounds = np.stack([rows.min(axis=0), rows.max(axis=0)], axis=1)
    # noise for declared bounds does not depend on the rows, only on their number
    table = Table(success=success, bounds=bounds.tolist(), adjacency="replace")
    replace, random = errors_of("mean", half, table), Rows(success=success, pairs="random")
    drawn = [
        errors_of("mean", rows, random, rng=SEED + number) for number in range(RANDOM_PAIRINGS)
    ]
    return {
        "draw": errors_of("mean", rows, Draw(success=success), rng=SEED),
        # of the mean of a random half of a finite pool
        "sampling": float(np.sqrt(rows.var(axis=0).sum() / len(rows))),
        # in or out by a coin moves a sum by half of what a replacement does
        "coins": replace / 2.0,
        "replace": replace,
        "random": float(np.mean(drawn)),
        "matched": matched,
        "seconds": seconds,
    }


def query_of(query: str, rows: np.ndarray, sizes: dict[str, int]) -> dict[str, float]:
    """Return √tr Σ of a query that is run as it is, under both ways and by theorem."""
    found: dict[str, float] = {}
    for method in ("swaps", "family", "sums"):
        started = time.perf_counter()
        longer = LONGER if (query, method) == LONG else 1
        found[method] = errors_of(
            query,
            rows,
            Rows(success=SUCCESSES[0], method=method, confidence=CONFIDENCE),
            Effort(simulations=sizes[query] * longer, trials=0, workers=1, progress=False),
            rng=SEED,
        )
        found[f"{method} seconds"] = time.perf_counter() - started
    effort = Effort(simulations=sizes[query], trials=0, workers=1, progress=False)
    found["draw"] = errors_of(query, rows, Draw(success=SUCCESSES[0]), effort, rng=SEED)
    return found


def met_of(query: str, rows: np.ndarray) -> float:
    """Return how far releases by theorem are from the numbers of the rows drawn.

    Of every number the error that 95% of releases keep, over 1.96, as errors are told; then the
    root of their squares.
    """
    promise = Rows(success=SUCCESSES[0], method="sums")
    plan: Any = prepare(query, rows, promise, QUIET, cost="squared").plan
    source = np.random.default_rng(SEED)
    gaps = []
    for _ in range(RELEASES):
        drawn = plan.pairing.draw(source)
        numbers, _ = plan.at(drawn, source)
        gaps.append(np.abs(numbers - plan.query.function(rows[drawn])))
    return power(np.quantile(gaps, 0.95, axis=0) / NORMAL_95)


def show(console: Console, means: dict[str, Any], queries: dict[str, Any]) -> None:
    """Print both tables."""
    console.print("√tr Σ of the mean of half the rows; Rice in standard deviations of each column")
    console.print("".join(f"{head:>17}" for head in ("data, s", *HEADS)), highlight=False)
    for name, row in means.items():
        cells = "".join(f"{row[column]:>17.4g}" for column in COLUMNS)
        console.print(f"{name:>17}{cells}", highlight=False)
    console.print(f"any query of Iris, s = {SUCCESSES[0]}, {CONFIDENCE:.0%} confidence")
    heads = ("query", "whole draw", "swaps", "family", "by theorem", "met")
    console.print("".join(f"{head:>17}" for head in heads), highlight=False)
    for name, row in queries.items():
        cells = "".join(f"{row[key]:>17.4g}" for key in ("draw", "swaps", "family", "sums", "met"))
        console.print(f"{name:>17}{cells}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
