"""The section on private loops beside each other, from experiments/private-loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, parts, table

NAME = "private-loops"
OURS, PEER, TIED = "Tacit", "Opacus", "Tacit, tied noise"
TITLES = {
    "photographs": "CIFAR-10: a head on fixed features",
    "news": "AG-News: adapters of a small encoder",
}


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Private loops beside each other: CIFAR-10 and AG-News", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return what was done, and of each task a table and what it says."""
    found = [filled(story(result)), ""]
    for name, task in result["tasks"].items():
        found += [
            f"### {TITLES[name]}", "",
            filled(MODELS[name](task)), "",
            *table(_heads(task), [_row(way, rows) for way, rows in task["ways"].items()]),
            filled(verdict(task)), "",
        ]  # fmt: skip
    return found


def story(result: dict[str, Any]) -> str:
    """Return what is compared, and what is equal."""
    task = next(iter(result["tasks"].values()))
    seeds = len(task["ways"][OURS]["1.0"]["accuracies"])
    return f"""One model, one optimizer (SGD, momentum 0.9), one clip ({task["clip"]:g}), the same
records, expected batch and passes: trained by `make_private` with `DPSGD`, by Opacus'
`PrivacyEngine` (hooks, Poisson samples, its PRV accountant), and by `make_private` with
`CorrelatedDPSGD(noise=Banded(bands=8, momentum=0.9))` over `CyclicPoisson(classes=8)`. All are
accounted for at (ε, δ = {task["delta"]:g}) and one record that is added or removed;
runs are seeded here, and the tuning is in no account. Every way has its own rate for
every ε: the best of one grid by half decades (seed {result["tuning seed"]}, on records that are
neither trained on nor tested), which goes on where its end is best (a lower grid
without noise and clip). The accuracies are on the test
set, in percent, mean ± half of the range over {seeds} seeds. s is the noise of a step over the
clip, with tied noise before it is tied. Without noise no record is clipped, and the mean gradient
of a batch is or is not. The runs are short: where a private one lies above these, clipping every
record helped more than its noise hurt. Run by `make experiments NAME={NAME}`."""


def _photographs(task: dict[str, Any]) -> str:
    return f"""{task["train"]:,} images, batches of {task["batch"]}, {task["epochs"]} passes,
{task["test"]:,} test images. Moduli of wavelets of two scales and eight directions, averaged over
4 × 4 cells, are fixed; a group norm and a linear layer are learned ({task["learned"]:,}
parameters, the layer from zero)."""


def _news(task: dict[str, Any]) -> str:
    recipe = task["recipe"]
    return f"""{task["train"]:,} articles, batches of {task["batch"]}, {task["epochs"]} passes,
{task["test"]:,} test articles, the first {recipe["length"]} words of each. The encoder (one block
of a transformer, {recipe["width"]} wide, {recipe["words"]:,} words) learned on
{recipe["texts"]:,} lines of Wikipedia, radio news and speeches to name hidden words
({recipe["steps"]} steps), and is frozen. Adapters of rank 8 on all its linear layers (`peft`) and
a head are learned, {task["learned"]:,} parameters. Three settings were chosen after first runs that
were weaker, and are the same for every way: what the encoder gives is standardised (by the articles
of the tuning), the number of articles, and the batch. So was it that batches are clipped in a run
without noise."""


NAMES = {
    "without noise and clip": "without noise and clip",
    "without noise": "without noise, batches clipped",
}
MODELS = {"photographs": _photographs, "news": _news}


def _heads(task: dict[str, Any]) -> list[str]:
    heads = ["", "ε = ∞"]
    for epsilon in task["ways"][OURS]:
        heads += [f"ε = {float(epsilon):g}", "s", "rate"]
    return heads


def _row(way: str, rows: dict[str, Any]) -> list[str]:
    if "None" in rows:
        return [f"{NAMES[way]}, rate {rows['None']['rate']:g}", _accuracy(rows["None"]), *[""] * 6]
    cells = [way, ""]
    for row in rows.values():
        cells += [_accuracy(row), f"{row['multiplier']:.3f}", f"{row['rate']:g}"]
    return cells


def verdict(task: dict[str, Any]) -> str:
    """Return the differences of means, each beside both half ranges."""
    ways = task["ways"]
    told = [
        f"{one} less {other}, in points: "
        + "; ".join(
            f"{_difference(ways[one][epsilon], ways[other][epsilon])} at ε = {float(epsilon):g}"
            for epsilon in ways[OURS]
        )
        for one, other in ((OURS, PEER), (TIED, OURS))
    ]
    opening = (
        "Differences of the means, and whether the runs of both overlap. Rates were chosen by one "
        "run each: where they differ, part of a difference is the luck of that run."
    )
    return parts(opening, told)


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    first, second = (np.array(row["accuracies"]) for row in (one, other))
    apart = first.min() > second.max() or second.min() > first.max()
    # a difference that rounds to nothing has no sign
    points = round(100 * float(first.mean() - second.mean()), 1) + 0.0
    return f"{points:+.1f} ({'apart' if apart else 'overlap'})"


def _accuracy(row: dict[str, Any]) -> str:
    values = 100 * np.array(row["accuracies"])
    return f"{values.mean():.1f} ± {(values.max() - values.min()) / 2:.1f}"
