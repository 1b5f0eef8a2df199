"""Accuracy on CIFAR-10 when no single image may move the model: four ways, at equal guarantee."""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from tacit import Run
from tacit.training import Beside, Indistinguishable, LocalSteps, OneStep, References
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS

DELTA = 1e-5
FULL = {
    "train": 20_000, "valid": 5_000, "test": 10_000, "batch": 200, "epsilons": [1.0, 2.0, 4.0, 8.0],
    "seeds": [0, 1, 2], "rates": [0.0025, 0.007, 0.02, 0.06], "local": {"steps": 2, "groups": 40},
    "few": 2_000,
}  # fmt: skip
FAST = {
    **FULL, "train": 800, "few": 400, "valid": 200, "test": 500, "epsilons": [4.0], "seeds": [0],
    "rates": [0.06],
}  # fmt: skip
WAYS = ("one step", "isotropic", "DP-SGD", "one step, fewer images", "local steps")
# Local steps run every image's own training: they and their partner have fewer images.
FEWER = ("one step, fewer images", "local steps")
METHODS = {
    "one step": OneStep(),
    "one step, fewer images": OneStep(),
    "isotropic": OneStep(noise="isotropic"),
}
CLIP = 1.0
# Between rates tried.
STEP = 3.0


def main() -> int:
    """Run every way, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sizes = FAST if asked.fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    try:
        split = _split(sizes)
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    found: dict[str, Any] = {}
    for way in asked.ways:
        kept = study(way, sizes)
        best = tuned(way, split, sizes, kept)
        found[way] = {"rate": best}
        for epsilon in sizes["epsilons"]:
            found[way][str(epsilon)] = [
                kept.row(
                    f"{best} {epsilon} {seed}",
                    lambda w=way, e=epsilon, s=seed, r=best: accuracy(
                        w, split, sizes, e, s, r, "test"
                    ),
                )
                for seed in sizes["seeds"]
            ]
            mean = float(np.mean(found[way][str(epsilon)]))
            console.print(f"{way}, ε = {epsilon:g}: {mean:.3f}")
    kept = study("clean", sizes)
    best = tuned("clean", split, sizes, kept)
    clean = [
        kept.row(
            f"{best} {seed}",
            lambda seed=seed: accuracy("clean", split, sizes, 1.0, seed, best, "test"),
        )
        for seed in sizes["seeds"]
    ]
    show(console, found, clean, sizes)
    if not asked.fast and set(asked.ways) == set(WAYS):
        content = {"sizes": sizes, "delta": DELTA, "clean": clean, "ways": found}
        write(RESULTS / "indistinguishable-cifar10.json", content)
        console.print("written: results/indistinguishable-cifar10.json")
    return 0


def study(way: str, sizes: Any) -> StoredStudy:
    """Return the rows of one way, so that several can run side by side."""
    name = way.replace(",", "").replace(" ", "-").lower()
    return StoredStudy(f"indistinguishable-cifar10-{name}", {"sizes": sizes, "delta": DELTA})


def tuned(way: str, split: Any, sizes: Any, kept: StoredStudy) -> float:
    """Return the rate that is best at ε = 4 on held-out images, never one at the grid's end."""

    def tried(rate: float) -> float:
        return kept.row(f"rate {rate}", lambda: accuracy(way, split, sizes, 4.0, 0, rate, "valid"))

    grid = list(sizes["rates"])
    while True:
        best = max(grid, key=tried)
        if sizes["seeds"] == [0] or grid[0] < best < grid[-1]:
            return best
        end = best / STEP if best == grid[0] else best * STEP
        grid = sorted([*grid, float(f"{end:.2g}")])


def network(seed: int) -> torch.nn.Module:
    """Return a CNN of three convolutions with group normalisation."""
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for width, wider in ((3, 16), (16, 32), (32, 64)):
        layers += [
            torch.nn.Conv2d(width, wider, 3, padding=1),
            torch.nn.GroupNorm(4, wider),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(64 * 16, 10))


def loss(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each example."""
    return torch.nn.functional.cross_entropy(model(inputs), labels, reduction="none")


def accuracy(
    way: str, split: Any, sizes: Any, epsilon: float, seed: int, rate: float, part: str
) -> float:
    """Train for one pass over the data and return the accuracy on one part."""
    model = network(seed)
    inputs, labels = split["train"]
    if way in FEWER:
        inputs, labels = inputs[: sizes["few"]], labels[: sizes["few"]]
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    batches = order.split(sizes["batch"])
    if way == "DP-SGD":
        _private(model, inputs, labels, sizes, epsilon, seed, rate)
    elif way == "clean":
        optimizer = _sgd(model, rate)
        for batch in batches:
            optimizer.zero_grad()
            loss(model, inputs[batch], labels[batch]).mean().backward()
            optimizer.step()
    else:
        local = way == "local steps"
        promise = Beside(
            references=References.leave_out(len(inputs)), epsilon=epsilon, delta=DELTA,
            participations=1,
        )  # fmt: skip
        run = Indistinguishable(
            model, None if local else _sgd(model, rate), promise, loss=loss,
            run=Run(steps=len(batches)),
            method=_local(sizes, rate) if local else METHODS[way], rng=seed,
        )  # fmt: skip
        for batch in batches:
            run.step((inputs[batch], labels[batch]), batch)
    wanted, truth = split[part]
    with torch.no_grad():
        right = [
            (model(x).argmax(dim=1) == y).sum().item()
            for x, y in zip(wanted.split(1000), truth.split(1000), strict=True)
        ]
    return sum(right) / len(truth)


def _sgd(model: torch.nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def _local(sizes: Any, rate: float) -> LocalSteps:
    return LocalSteps(optimizer=lambda p: torch.optim.SGD(p, lr=rate), **sizes["local"])


def _private(
    model: torch.nn.Module, inputs: Any, labels: Any, sizes: Any, epsilon: float, seed: int,
    rate: float,
) -> None:  # fmt: skip
    """DP-SGD as Opacus does it: Poisson batches, clipped gradients, isotropic noise."""
    from opacus import PrivacyEngine

    warnings.filterwarnings("ignore", module="opacus")
    warnings.filterwarnings("ignore", message="Full backward hook")
    torch.manual_seed(seed)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, labels), batch_size=sizes["batch"]
    )
    engine = PrivacyEngine(accountant="prv")
    wrapped, optimizer, batches = engine.make_private_with_epsilon(
        module=model, optimizer=_sgd(model, rate), data_loader=loader, epochs=1,
        target_epsilon=epsilon, target_delta=DELTA, max_grad_norm=CLIP,
    )  # fmt: skip
    for batch, truth in batches:
        optimizer.zero_grad()
        if len(batch):
            loss(wrapped, batch, truth).mean().backward()
        optimizer.step()


def _split(sizes: Any) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    read = data.cifar10()
    inputs, labels = torch.from_numpy(read.train), torch.from_numpy(read.train_labels)
    first, last = sizes["train"], sizes["train"] + sizes["valid"]
    size = sizes["test"]
    return {
        "train": (inputs[:first], labels[:first]),
        "valid": (inputs[first:last], labels[first:last]),
        "test": (
            torch.from_numpy(read.test)[:size],
            torch.from_numpy(read.test_labels)[:size],
        ),
    }


def show(console: Console, found: Any, clean: Any, sizes: Any) -> None:
    """Print mean accuracies with their spread over the seeds."""
    table = Table(title=f"accuracy, one pass; without noise {np.mean(clean):.3f}")
    for head in ("way", *(f"ε = {e:g}" for e in sizes["epsilons"])):
        table.add_column(head)
    for way, rows in found.items():
        cells = [rows[str(e)] for e in sizes["epsilons"]]
        table.add_row(way, *(f"{np.mean(c):.3f} ± {np.std(c):.3f}" for c in cells))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
