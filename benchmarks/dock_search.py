"""Time the dock's search over many specifications: exact, in a batch, and by bits with clients.

    python -m benchmarks.dock_search [--rows 100000] [--width 4096] [--clients 8]

Prints one JSON object. Three kinds of vectors, each with queries of its own: ``clusters`` (rows and
queries about 1,000 shared centres, spectrum falling as 1/√j), ``copies`` (independent rows; a query
is a row with noise of the same length, cosine 0.71) and ``independent`` (rows and queries without
any relation: the hardest, no search is of use there). Recall is that of the 10 most similar against
the exact ones. Times are of the wall, in milliseconds, and of all cores (``cpu``), which others on
the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time

import numpy as np

from tacit_dock.search.quantised import Quantised
from tacit_dock.search.vectors import VectorStore

COUNT, QUERIES, CENTRES, BATCH = 10, 96, 1000, 64
KINDS = ("clusters", "copies", "independent")


def unit(rows):
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


class Source:
    """Rows and queries of one kind."""

    def __init__(self, kind: str, width: int) -> None:
        self.kind, self.width = kind, width
        self.random = np.random.default_rng(KINDS.index(kind))
        self.scale = np.ones(width, dtype=np.float32)
        if kind == "clusters":
            self.scale = (1.0 / np.sqrt(np.arange(1, width + 1))).astype(np.float32)
            self.centres = self.normal(CENTRES) * self.scale

    def normal(self, count):
        return self.random.standard_normal((count, self.width), dtype=np.float32)

    def rows(self, count):
        if self.kind == "clusters":
            near = self.centres[self.random.integers(0, CENTRES, count)]
            return unit(near + 0.5 * self.normal(count) * self.scale)
        return unit(self.normal(count))

    def queries(self, held: VectorStore):
        if self.kind == "copies":
            rows = held.rows_between(0, QUERIES)
            return unit(rows + unit(self.normal(QUERIES)))
        return self.rows(QUERIES)


def filled(source: Source, rows: int) -> VectorStore:
    held = VectorStore(source.width)
    at = 0
    while at < rows:
        for row in source.rows(min(4096, rows - at)):
            held.add(f"{at}", row)
            at += 1
    return held


def timed(task) -> float:
    start = time.perf_counter()
    task()
    return 1000.0 * (time.perf_counter() - start)


def told(task) -> dict[str, float]:
    """Return the times that a task of many queries returns, and the mean of all cores a query."""
    start = time.process_time()
    times = task()
    spent = 1000.0 * (time.process_time() - start)
    return {
        "least": round(min(times), 1),
        "median": round(float(np.median(times)), 1),
        "p95": round(float(np.quantile(times, 0.95)), 1),
        "cpu": round(spent / len(times), 1),
    }


def by_clients(quantised: Quantised, queries, clients: int, count: int = COUNT) -> list[float]:
    """Return the time of each query when so many clients ask, each again at once."""
    times: list[float] = []
    line = threading.Barrier(clients)

    def ask(mine) -> None:
        line.wait()
        for query in mine:
            times.append(timed(lambda query=query: quantised.search(query, count)))

    threads = [threading.Thread(target=ask, args=(queries[i::clients],)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def measured(kind: str, given: argparse.Namespace) -> dict[str, object]:
    source = Source(kind, given.width)
    held = filled(source, given.rows)
    queries = source.queries(held)

    def singly() -> list[float]:
        return [timed(lambda i=i: held.exact(queries[i : i + 1], COUNT)) for i in range(16)]

    def together() -> list[float]:
        each = timed(lambda: held.exact(queries[:BATCH], COUNT)) / BATCH
        return [each] * BATCH

    truth = [[found.id for found in best] for best in held.exact(queries, COUNT)]
    quantised = Quantised(held)
    building = timed(lambda: quantised.search(queries[0], COUNT))
    found = [[one.id for one in quantised.search(query, COUNT)] for query in queries]
    recall = np.mean([len({*a} & {*b}) / COUNT for a, b in zip(truth, found, strict=True)])
    first = np.mean([a[0] == b[0] for a, b in zip(truth, found, strict=True)])
    return {
        "exact, one query": told(singly),
        "exact, each of 64": told(together),
        "by bits, one client": told(lambda: by_clients(quantised, queries, 1)),
        f"by bits, {given.clients} clients": told(
            lambda: by_clients(quantised, queries, given.clients)
        ),
        f"by bits, the first alone, {given.clients} clients": told(
            lambda: by_clients(quantised, queries, given.clients, 1)
        ),
        "recall of 10": round(float(recall), 4),
        "recall of the first": round(float(first), 4),
        "candidates ranked again": quantised.depth,
        "memory of the rows, MB": round(held.nbytes / 1e6, 1),
        "memory of the bits, MB": round(quantised.nbytes / 1e6, 1),
        "seconds to make the bits": round(building / 1000.0, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    given = parser.parse_args()
    found = {kind: measured(kind, given) for kind in given.kinds}
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"cores": os.cpu_count(), "load": load, **found}, indent=2))


if __name__ == "__main__":
    main()
