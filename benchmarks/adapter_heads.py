"""Heads trained side by side against one at a time, in one run.

    python -m benchmarks.adapter_heads [--heads 64] [--records 1000] [--rounds 3] [--json FILE]

Shadow heads of a membership attack: each sees half of the records, in an order and with an A of
its own. "alone" is the same training with one head a call; "autograd" is a linear layer of torch
and its SGD on Poisson samples of the same rate, which neither clips nor adds noise. The rounds
alternate, and a ratio is that of medians of CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

from tacit.adapters import DPSGD, DPLoRAFA, HeadSteps, LoRAFA, NoisyProjection, train_heads
from tacit.gradients import Method

CLASSES = 10
METHODS: list[Method] = [
    LoRAFA(rank=16), DPSGD(), DPLoRAFA(rank=16), NoisyProjection(rank=16),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--sampling-rates", default="0.05,1")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=110)
    rows = [
        (method.name, float(rate), compare(options, method, float(rate)))
        for rate in options.sampling_rates.split(",")
        for method in METHODS
    ]
    table = Table(
        title=f"CPU milliseconds a head: {options.heads} heads, {options.steps} steps, "
        f"{options.records} records, d = {options.width}"
    )
    for name in ("method", "q", "side by side", "alone", "ratio", "autograd", "ratio"):
        table.add_column(name)
    for name, rate, times in rows:
        together, alone, plain = (times[way] for way in ("together", "alone", "autograd"))
        figures = together, alone, alone / together, plain, plain / together
        table.add_row(name, f"{rate:g}", *(f"{figure:.1f}" for figure in figures))
    console.print(table, highlight=False)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def compare(options: argparse.Namespace, method: Method, rate: float) -> dict[str, float]:
    """Time every way once a round, in turn; CPU milliseconds a head."""
    source = np.random.default_rng(0)
    rows = source.normal(size=(options.records, options.width)) / options.width**0.5
    labels = source.integers(CLASSES, size=options.records)
    members = source.random((options.heads, options.records)) < 0.5
    noise = 0.0 if isinstance(method, LoRAFA) else 1.0
    few = max(1, options.heads // 8)

    def heads(inside: np.ndarray) -> None:
        steps = HeadSteps(
            steps=options.steps, rates=0.5, noise_multipliers=noise, sampling_rate=rate
        )
        train_heads(
            rows, labels, [method] * len(inside), steps, classes=CLASSES, members=inside, rng=1
        )

    def alone() -> None:
        for one in members[:few]:
            heads(one[None])

    ways: dict[str, tuple[int, Callable[[], None]]] = {
        "together": (options.heads, lambda: heads(members)),
        "alone": (few, alone),
        "autograd": (few, lambda: autograd(rows, labels, members[:few], rate, options.steps)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, (count, way) in ways.items():
            start = time.process_time()
            way()
            times[name].append(1e3 * (time.process_time() - start) / count)
    return {name: statistics.median(found) for name, found in times.items()}


def autograd(
    rows: np.ndarray, labels: np.ndarray, members: np.ndarray, rate: float, steps: int
) -> None:
    """Train one head after the other as torch's own layers are."""
    inputs, truth = torch.from_numpy(rows).float(), torch.from_numpy(labels)
    source = np.random.default_rng(1)
    for inside in members:
        layer = nn.Linear(inputs.shape[1], CLASSES, bias=False)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        for _ in range(steps):
            chosen = np.flatnonzero(inside & (source.random(len(rows)) < rate))
            optimizer.zero_grad()
            loss = functional.cross_entropy(layer(inputs[chosen]), truth[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


if __name__ == "__main__":
    main()
