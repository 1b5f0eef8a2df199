"""The section on private heads on frozen features, from experiments/adapters-frozen-features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table

NAME = "adapters-frozen-features"
EXACT, PLAIN = "M2 exact, r = 64", "DP-SGD"
PUBLISHED = "M2 published, r = 64"
RANDOM, PRINCIPAL = "DP-LoRA-FA, random A, r = 64", "DP-LoRA-FA, principal A, r = 64"
WIDE, WIDE_RANDOM = "M2 exact, r = 256", "DP-LoRA-FA, random A, r = 256"
# The paper's: its Fig. 3 (right), its Fig. 3 (left) and 4, and what only we compare.
BUDGETS = [(PUBLISHED, PLAIN), (EXACT, PLAIN), (RANDOM, PLAIN)]
RANKS = [(EXACT, RANDOM), (WIDE, WIDE_RANDOM)]
OWN = [(EXACT, PUBLISHED), (PRINCIPAL, RANDOM), (PRINCIPAL, PLAIN)]
# A difference of two means this many standard errors from 0 is told as one.
ERRORS = 2.0


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Private heads on frozen features at equal ε", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return what was done, accuracy, energy and settings of every way, and a verdict."""
    epsilons = [str(value) for value in result["sizes"]["epsilons"]]
    names = [f"ε = {float(value):g}" for value in epsilons]
    return [
        filled(story(result)), "",
        *table(
            ["accuracy in percent", *names],
            [[way, *(_accuracy(found[e]) for e in epsilons)]
             for way, found in result["ways"].items()],
        ),
        filled("""Energy of the noise in one step's move of W, E‖η noise/(q n)‖², at each way's
best rate and clip. Behind the stroke stands by how much the accuracy varies over the rates and
clips that were tried, in percent:"""), "",
        *table(
            ["energy", *names],
            [[way, *(f"{found[e]['energy']:.2g} / {_spread(found[e])}" for e in epsilons)]
             for way, found in result["ways"].items()],
        ),
        filled(verdict(result, epsilons)), "",
    ]  # fmt: skip


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is compared."""
    sizes = result["sizes"]
    return f"""A network trained on 25,000 public images of CIFAR-10 (test accuracy
{100 * result["network"]:.1f}%) gives 512 features. A linear head is trained from zero on
{sizes["records"]:,} private images, q = {sizes["rate"]:g}, T = {sizes["steps"]},
δ = {result["delta"]:g}, gradient descent. Every way's rate and clip are tuned alike for every ε on
{sizes["tuning"]:,} public images, by a grid that goes on until the best lies inside. The numbers
are means ±
standard errors of {sizes["seeds"]} seeds on 5,000 other images. Without noise and clipping:
{_accuracy(result["clean"])}. M2 is the noisy projection with a fresh A each step, by the exact
account and by the published one; the principal A are directions of the public tuning images."""


def verdict(result: dict[str, Any], epsilons: list[str]) -> str:
    """Return which differences exceed their errors."""
    budgets, ranks, own = (
        " ".join(_compared(result["ways"], *pair, epsilons) for pair in pairs)
        for pairs in (BUDGETS, RANKS, OWN)
    )
    count = len(epsilons) * len(BUDGETS + RANKS + OWN)
    return f"""**Verdict.** In Fig. 3 (right) of the paper M2, by the published account, is above
DP-SGD at small ε, and DP-LoRA-FA at even smaller ones. At large ε DP-SGD is level or slightly
above. There DP-SGD's rate is a recommended one, and the others' are tuned. Here: {budgets}
Fig. 3 (left) and 4 have M2 consistently above DP-LoRA-FA with a random A, most at small ranks.
Here: {ranks} Beside the paper: {own} These are {count} comparisons, of which about
{0.05 * count:.0f} would pass two standard errors by chance. The errors are of the seeds, with the
images and what was tuned fixed."""


def _compared(ways: dict[str, Any], first: str, second: str, epsilons: list[str]) -> str:
    above: list[str] = []
    below: list[str] = []
    for epsilon in epsilons:
        one, other = (_values(ways[name][epsilon]) for name in (first, second))
        error = math.hypot(_error(one), _error(other))
        difference = one.mean() - other.mean()
        if abs(difference) > ERRORS * error:
            (above if difference > 0 else below).append(f"{epsilon} ({difference:+.2f})")
    parts = []
    if above:
        parts.append(f"above {second} at ε = {', '.join(above)}")
    if below:
        parts.append(f"below {second} at ε = {', '.join(below)}")
    if not parts:
        return f"{first} differs from {second} at no ε by more than two standard errors."
    if len(above) + len(below) < len(epsilons):
        parts.append("within two standard errors elsewhere")
    return f"{first} is {', '.join(parts)}."


def _values(row: dict[str, Any]) -> np.ndarray:
    return 100 * np.array(row["accuracies"])


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / len(values) ** 0.5


def _accuracy(row: dict[str, Any]) -> str:
    values = _values(row)
    return f"{values.mean():.2f} ± {_error(values):.2f}"


def _spread(row: dict[str, Any]) -> str:
    low, high = row["rates"]
    return f"{100 * (high - low):.0f}"
