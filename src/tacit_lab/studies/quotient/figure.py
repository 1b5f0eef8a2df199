"""Codebook, quotient and noise: at equal certified nats, and as the attack rises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit_lab.studies.quotient.study import NAMES, Released, certified_at, groups, releases

BOOK, QUOTIENT, NOISE, GREY = "#0072B2", "#009E73", "#D55E00", "#8A8A8A"
COLOURS = {"codebook": BOOK, "quotient": QUOTIENT}
MARKS = {
    "codebook-euclidean": "s", "codebook-behaviour": "D", "codebook-decision": "P",
    "quotient": "o", "quotient-behaviour": "^", "quotient-leakage": "v",
    "quotient-behaviour-leakage": "<", "quotient-quiet": "x", "quotient-behaviour-quiet": "+",
    "clipped-state": "X", "isotropic": "1", "mahalanobis-optimal": "2",
}  # fmt: skip


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the figure, the same for the same numbers."""
    found = [held for held in releases(result["rows"]) if not any(held.numbers[3:5])]
    figure = Figure(figsize=(11.5, 5.6), layout="constrained")
    equal, rising = figure.subplots(1, 2)
    _equal(equal, certified_at(found, result["nats"]), result)
    _rising(rising, found)
    for axes in (equal, rising):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("KL of the prediction, nats (release alone, better reader)")
    figure.legend(*equal.get_legend_handles_labels(), loc="outside lower left", ncols=3,
                  frameon=False, fontsize=9)  # fmt: skip
    with rc_context({"svg.hashsalt": path.stem, "font.size": 10}):
        figure.savefig(path, metadata={"Date": None})


def _equal(axes: Axes, found: list[Released], result: dict[str, Any]) -> None:
    for held in found:
        (kl, low, high), (attack, below, above) = held.kl("B"), held.attack
        size = f", k = {held.numbers[0]:g}" if len(held.numbers) > 1 else ""
        axes.errorbar(
            kl, attack, xerr=[[kl - low], [high - kl]], yerr=[[attack - below], [above - attack]],
            fmt=MARKS[held.kind], color=_colour(held), markersize=6, elinewidth=0.8,
            label=NAMES[held.kind] + size,
        )  # fmt: skip
        if held.bound is not None and held.bound < 1.0:
            axes.plot([kl], [held.bound], "_", color=_colour(held), markersize=12)
    axes.set(ylim=(0, 1.02), ylabel="names one of the bank's prompts (bar: proven at most)")
    axes.set_title(f"Certified at {result['nats']:g} nats: information, or ln of the factor",
                   loc="left", fontsize=10)  # fmt: skip


def _rising(axes: Axes, found: list[Released]) -> None:
    for held in groups(found).values():
        ordered = sorted(held, key=lambda release: release.attack[0])
        if len(ordered) > 1:
            first = ordered[0]
            axes.plot(
                [release.kl("B")[0] for release in ordered],
                [release.attack[0] for release in ordered],
                marker=MARKS[first.kind],
                color=_colour(first),
                linewidth=1.0,
                markersize=5,
            )
            last = ordered[-1]
            axes.annotate(NAMES[first.kind].partition(",")[0], (last.kl("B")[0], last.attack[0]),
                          xytext=(4, 3), textcoords="offset points", fontsize=7.5,
                          color=_colour(first))  # fmt: skip
    axes.set(ylim=(0, 0.45), ylabel="names one of the bank's prompts")
    axes.set_title("What the prediction costs as the attack rises", loc="left", fontsize=10)


def _colour(held: Released) -> str:
    return COLOURS.get(held.kind.partition("-")[0], NOISE)
