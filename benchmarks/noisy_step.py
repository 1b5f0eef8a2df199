"""A noisy round against a plain training step, in one run.

B leave-one-out references: per-example gradients, the least noise for their Gram matrix, and one
weighted gradient, with the exact Gram matrix, the last layer's and none. The rounds of all four
alternate and the least CPU time of each counts; the ratio is that to the plain step, forward pass,
backward pass and SGD step included in all. "naive" is the plain step and one plain step of B − 1
examples for every reference, of which the first two are run. Memory is the peak of the process
above its peak over plain steps, each in a process of its own (Linux).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from tests.training.networks import Transformer, losses, resnet20
from torch import Tensor, nn

from tacit.design import Design
from tacit.gradients import per_example
from tacit.training import noisy_coefficients

SQUARED_DISTANCE = 0.01
KINDS = ("exact", "forward", "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        peak(options.models, options.peak, options.batch)
        return
    console = Console()
    rows = []
    for name in options.models.split(","):
        console.print(f"{name}, B = {options.batch} leave-one-out references", highlight=False)
        for row in compare(name, options.batch, options.rounds, options.threads):
            rows.append(row)
            console.print(line(row), highlight=False)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def images(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))


def texts(batch: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, 1024, (batch, 65))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Tensor, Tensor]]]] = {
    "resnet20": (resnet20, images),
    "transformer": (Transformer, texts),
}


def steps(name: str, batch: int) -> dict[str, Callable[[], None]]:
    """The plain step, the noisy rounds and a reference's own step, of one model."""
    torch.manual_seed(0)
    build, make = MODELS[name]
    model, (inputs, targets) = build(), make(batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    membership = ~np.eye(batch, dtype=bool)
    earlier: dict[str, Design] = {}

    def plain(count: int = batch) -> None:
        optimizer.zero_grad()
        losses(model, inputs[:count], targets[:count]).mean().backward()
        optimizer.step()

    def noisy(kind: str) -> None:
        optimizer.zero_grad()
        found = per_example(model, losses, inputs, targets, gram=kind)
        coefficients, earlier[kind] = noisy_coefficients(
            found.gram, membership, SQUARED_DISTANCE, warm_start=earlier.get(kind)
        )
        found.weighted(coefficients)
        optimizer.step()

    every: dict[str, Callable[[], None]] = {"plain": plain}
    for kind in KINDS:
        every[kind] = lambda kind=kind: noisy(kind)
    return every | {"naive": lambda: plain(batch - 1)}


def compare(name: str, batch: int, rounds: int, threads: int) -> list[dict[str, object]]:
    """Time every kind of round, alternating."""
    runs = steps(name, batch)
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for turn in range(rounds + 1):
        for kind, run in runs.items():
            start = time.process_time()
            run()
            if turn:
                times[kind].append(time.process_time() - start)
    least = {kind: min(found) for kind, found in times.items()}
    least["naive"] = least["plain"] + batch * least["naive"]
    memory = {kind: peak_of(name, kind, batch, threads) for kind in ("plain", *KINDS)}
    return [
        {
            "model": name, "round": kind, "seconds": seconds, "ratio": seconds / least["plain"],
            "ratios": [a / b for a, b in zip(times[kind], times["plain"], strict=True)],
            "megabytes": memory[kind] - memory["plain"] if kind in memory else None,
        }
        for kind, seconds in least.items()
    ]  # fmt: skip


def peak_of(name: str, kind: str, batch: int, threads: int) -> float:
    """Peak memory of a process that runs one kind of round, in MB."""
    command = [sys.executable, "-m", "benchmarks.noisy_step", "--models", name, "--peak", kind]
    command += ["--batch", str(batch), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return float(done.stdout.split()[-1])


def peak(name: str, kind: str, batch: int) -> None:
    run = steps(name, batch)[kind]
    for _ in range(2):
        run()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(float(status.partition("VmHWM:")[2].split()[0]) * 1.024e-3)


def line(row: dict[str, object]) -> str:
    memory = row["megabytes"]
    text = f"{row['round']:10}{row['seconds']:9.3f} s{row['ratio']:9.2f} × plain"
    return text if memory is None else f"{text}{memory:+9.0f} MB"


if __name__ == "__main__":
    main()
