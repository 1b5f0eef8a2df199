"""Time Mahalanobis retrieval beside the machine's own float32 matrix product, in one run.

    python -m benchmarks.retrieval [--bank 50000] [--queries 2000] [--width 768]

Prints one JSON object. ``share of the matrix rate`` counts the products that the task cannot do
without: 2 n N d for the scores and N d² for whitening the bank by a triangle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tacit._ground.threads import one_thread
from tacit.attacks import Mahalanobis, retrieve
from tacit.compute import available_workers
from tacit.covariance import Dense

ROWS = 2048


def matrix_rate(queries: int, width: int, repeats: int) -> float:
    """Best float32 products per second of NumPy: its own threads, or one product per core."""
    source = np.random.default_rng(0)
    left = source.standard_normal((queries, width), dtype=np.float32)
    right = source.standard_normal((4 * ROWS, width), dtype=np.float32)
    work = 2.0 * queries * len(right) * width
    parts = np.array_split(right, 2 * available_workers())

    def together() -> None:
        left @ right.T

    def apart() -> None:
        with one_thread(), ThreadPoolExecutor(available_workers()) as pool:
            list(pool.map(lambda part: (left @ part.T).shape, parts))

    return work / min(seconds(task) for task in (together, apart) for _ in range(repeats))


def seconds(task) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bank", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    source = np.random.default_rng(0)
    shape = (given.bank, given.width)
    bank = source.standard_normal(shape, dtype=np.float32)
    bank *= np.linspace(3.0, 0.1, given.width, dtype=np.float32)
    root = source.standard_normal((given.width, given.width + 32))
    noise = Dense(root @ root.T / 40.0)
    truth = source.choice(given.bank, given.queries, replace=False)
    released = bank[truth] + noise.sample(given.queries, 1)
    found = []

    def attack() -> None:
        found.append(retrieve(bank, released, truth, metric=Mahalanobis(noise, floor=None)))

    pairs = []
    for _ in range(given.repeats):
        rate = matrix_rate(given.queries, given.width, 2)
        pairs.append((seconds(attack), rate))
    scores = 2.0 * given.queries * given.bank * given.width
    whitening = float(given.bank) * given.width**2
    shares = [(scores + whitening) / (taken * rate) for taken, rate in pairs]
    print(
        json.dumps(
            {
                "bank": list(shape),
                "queries": given.queries,
                "cores": available_workers(),
                "top-1": found[0].top1,
                "mean reciprocal rank": found[0].mrr,
                "seconds, best": min(taken for taken, _ in pairs),
                "seconds, median": statistics.median(taken for taken, _ in pairs),
                "float32 matrix rate, GFLOP/s": max(rate for _, rate in pairs) / 1e9,
                "share of the matrix rate, median": statistics.median(shares),
                "share of the matrix rate, scores alone, median": statistics.median(
                    scores / (taken * rate) for taken, rate in pairs
                ),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
