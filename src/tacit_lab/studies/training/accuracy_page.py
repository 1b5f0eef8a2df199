"""The section on accuracy beside references, from experiments/indistinguishable-cifar10."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table
from tacit_lab.studies.reproductions.prose import parts as listed

NAME = "indistinguishable-cifar10"
# dsi, Table 1, ResNet-20: accuracy in percent at δ = 1e-5.
PRINTED = {
    "DP-SGD (Xiao et al., 2023b)": {1: 55.3, 2: 63.1, 4: 72.4, 8: 76.0},
    "DSI local SGD": {1: 57.4, 2: 71.2, 4: 78.7, 8: 83.9},
}
WORDS = {
    "one step": "one step, optimal noise",
    "isotropic": "one step, isotropic noise of the same certificate",
    "one step, fewer images": "one step, optimal noise, fewer images",
    "local steps": "local steps, optimal noise, fewer images",
    "DP-SGD": "DP-SGD (Opacus)",
}


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Training beside references: accuracy on CIFAR-10", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return what was done, ours, the paper's Table 1 and a verdict."""
    sizes = result["sizes"]
    epsilons = [float(value) for value in sizes["epsilons"]]
    heads = ["", *(f"ε = {value:g}" for value in epsilons), "rate"]
    rows = [
        [
            WORDS[way],
            *(_percent(found[str(value)]) for value in epsilons),
            f"{found['rate']:g}",
        ]
        for way, found in result["ways"].items()
    ]
    printed = [
        [name, *(f"{values[int(value)]:.1f}" for value in epsilons), ""]
        for name, values in PRINTED.items()
    ]
    return [
        filled(story(result)), "",
        *table(heads, rows),
        "The paper's Table 1, ResNet-20 of 0.3 M parameters over 3 to 15 passes:", "",
        *table(heads, printed),
        filled(verdict(result, epsilons)), "",
    ]  # fmt: skip


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is compared."""
    sizes = result["sizes"]
    local = sizes["local"]
    return f"""A network of three convolutions (34,058 parameters) is trained for one pass over
{sizes["train"]:,} images in batches of {sizes["batch"]}, δ = {result["delta"]:g}; accuracy in
percent on {sizes["test"]:,} test images, mean ± standard deviation over {len(sizes["seeds"])}
seeds. Without noise it is {_percent(result["clean"])}. Every way's learning rate is the best at
ε = 4 on other images, of a grid by thirds that goes on until the best lies inside. DP-SGD clips
at 1. Local steps run every image's own training ({local["steps"]} steps in {local["groups"]}
sub-groups of each batch), so they have the first {sizes["few"]:,} images only, and one step on as
many stands beside them. Beside
references each image is left out once, and its budget is spent in the one round in which it
takes part."""


def verdict(result: dict[str, Any], epsilons: Sequence[float]) -> str:
    """Return which differences exceed their error."""
    ways = result["ways"]
    told = []
    for other in ("isotropic", "local steps", "DP-SGD"):
        parts, same = [], "one step, fewer images" if other == "local steps" else "one step"
        for value in epsilons:
            difference, error = _difference(ways[same][str(value)], ways[other][str(value)])
            clear = "" if abs(difference) > 2 * error else " (within its error)"
            parts.append(f"{100 * difference:+.1f} ± {100 * error:.1f} at ε = {value:g}{clear}")
        told.append(listed(f"* One step less {WORDS[other]}, in points:", parts))
    return "\n".join(
        [
            "Differences of means with their standard errors over seeds:\n",
            *told,
            "\nThe two promises are not the same. DP-SGD hides each image from whoever sees "
            "everything else, and its accounting is amplified by sampling. Beside references the "
            "data are known. Only the *influence* of an image is bounded, with the noise of "
            "the run either way. Table 1 sets their ε side by side as if they were one.",
        ]
    )


def _percent(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def _difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    errors = [np.var(part, ddof=1) / len(part) for part in (first, second)]
    return float(np.mean(first) - np.mean(second)), math.sqrt(float(sum(errors)))
