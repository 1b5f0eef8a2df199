"""Time linear shadow heads trained as one batched model beside the same heads one by one.

    python -m benchmarks.adapter_heads [--heads 64] [--records 2000] [--width 512] [--steps 50]

Prints one JSON object: seconds of each, in turns on one thread, and the ratio of the medians. Each
head has its own memberships, and all of them the same samples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import torch

from tacit.adapters import DPSGD, DPLoRAFA, LoRAFA, Method, NoisyProjection, train_heads

CLASSES = 10
METHODS: dict[str, Method] = {
    "DP-SGD": DPSGD(),
    "DP-LoRA-FA": DPLoRAFA(rank=16),
    "M2": NoisyProjection(rank=16),
    "LoRA-FA": LoRAFA(rank=16),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    source = np.random.default_rng(0)
    rows = source.standard_normal((given.records, given.width))
    labels = source.integers(CLASSES, size=given.records)
    members = source.random((given.heads, given.records)) < 0.5
    print(json.dumps({name: pair(method, rows, labels, members, given)
                      for name, method in METHODS.items()}, indent=1))  # fmt: skip


def pair(method: Method, rows: Any, labels: Any, members: Any, given: Any) -> dict[str, float]:
    """Return the median seconds of both ways and their ratio."""
    settings: dict[str, Any] = {
        "classes": CLASSES, "noise_multipliers": 1.0, "rates": 1.0, "steps": given.steps,
        "sampling_rate": 0.25, "rng": 1,
    }  # fmt: skip

    def together() -> None:
        train_heads(
            rows, labels, [method] * len(members), members=members, groups=[0] * len(members),
            **settings,
        )  # fmt: skip

    def one_by_one() -> None:
        for inside in members:
            train_heads(rows, labels, [method], members=inside[None], **settings)

    times: dict[str, list[float]] = {"together": [], "one by one": []}
    for _ in range(given.rounds):
        for name, work in (("together", together), ("one by one", one_by_one)):
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {**medians, "ratio": medians["one by one"] / medians["together"]}


if __name__ == "__main__":
    main()
