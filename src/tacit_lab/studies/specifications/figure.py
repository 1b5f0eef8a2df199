"""Identification against ε and against the rank, and where the labels' means say little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit_lab.studies.specifications.baselines import BASELINES
from tacit_lab.studies.specifications.rows import ObjectiveRow, one, picked

PAVE, GREY = "#D55E00", "#8A8A8A"
SHADES = {100: "#F2B48A", 1000: PAVE, 4000: "#7A3500"}
MARKS = dict(zip(BASELINES, ("s", "^", "v", "D", "x"), strict=True))


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the figure, the same for the same numbers."""
    figure = Figure(figsize=(13.2, 4.6), layout="constrained")
    budgets, ranks, cases = figure.subplots(1, 3)
    _budgets(budgets, result)
    _ranks(ranks, result)
    _cases(cases, result)
    for axes in (budgets, ranks, cases):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(ylim=(0, 1.03), ylabel="first learnware is the one asked for")
    figure.legend(*budgets.get_legend_handles_labels(), loc="outside lower left", ncols=6,
                  frameon=False, fontsize=9)  # fmt: skip
    with rc_context({"svg.hashsalt": path.stem, "font.size": 10}):
        figure.savefig(path, metadata={"Date": None})


def _budgets(axes: Axes, result: dict[str, Any]) -> None:
    epsilons = [*result["sizes"]["epsilons"], 0.0]
    ticks = [f"{value:g}" if value else "none" for value in epsilons]
    for count, colour in SHADES.items():
        rows = [
            one(result, tasks="images", what="PAVE", route="aligned", order="aligned",
                rank=result["rank"], subspace=result["subspace"], records=count, epsilon=epsilon,
                user=0.0)
            for epsilon in epsilons
        ]  # fmt: skip
        _line(axes, rows, color=colour, marker="o", label=f"PAVE, n = {count:,}")
    for name, mark in MARKS.items():
        rows = [
            one(result, tasks="images", what=name, order="aligned", records=1000,
                epsilon=epsilon, user=0.0)
            for epsilon in epsilons
        ]  # fmt: skip
        _line(axes, rows, color=GREY, marker=mark, linestyle="--", label=f"{name}, n = 1,000")
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel("ε of a learnware's specification (δ = 10$^{-5}$)")
    axes.set_title(f"{result['images']} image learnwares", loc="left", fontsize=10)


def _ranks(axes: Axes, result: dict[str, Any]) -> None:
    ranks = result["sizes"]["ranks"]
    ranks = [rank for rank in ranks if picked(result, tasks="images", what="PAVE", rank=rank,
                                              subspace=result["subspace"])]  # fmt: skip
    styles = {1.0: ":", 4.0: "--", 0.0: "-"}
    for epsilon, style in styles.items():
        rows = [
            one(result, tasks="images", what="PAVE", route="aligned", order="aligned", rank=rank,
                subspace=result["subspace"], records=1000, epsilon=epsilon, user=0.0)
            for rank in ranks
        ]  # fmt: skip
        _line(axes, rows, color=PAVE, marker="o", linestyle=style,
              label=f"ε = {epsilon:g}" if epsilon else "no privacy")  # fmt: skip
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", frameon=False, fontsize=9)
    axes.set_xticks(range(len(ranks)), [str(rank) for rank in ranks])
    axes.set_xlabel("rank r, n = 1,000")
    axes.set_title(f"{result['subspace']} directions of factors of rank r", loc="left", fontsize=10)


def _cases(axes: Axes, result: dict[str, Any]) -> None:
    names = ["images", "relabelled", "crossed"]
    ways: list[tuple[str, dict[str, Any], str]] = [
        ("PAVE", {"what": "PAVE", "route": "aligned", "rank": result["rank"],
                  "subspace": result["subspace"]}, PAVE)
    ]  # fmt: skip
    ways += [(name, {"what": name, "subspace": 0}, GREY) for name in BASELINES]
    width = 0.8 / len(ways)
    for at, (label, wanted, colour) in enumerate(ways):
        found = [
            one(result, tasks=name, order="aligned", records=1000, epsilon=0.0, user=0.0,
                **wanted)
            for name in names
        ]  # fmt: skip
        places = np.arange(len(names)) + (at - (len(ways) - 1) / 2) * width
        heights = [row.top1[0] if row else 0.0 for row in found]
        errors = [row.top1[1] if row else 0.0 for row in found]
        shade = 1.0 if colour == PAVE else 0.35 + 0.6 * at / len(ways)
        axes.bar(places, heights, width * 0.9, yerr=errors, color=colour, alpha=shade,
                 error_kw={"elinewidth": 0.8})  # fmt: skip
        axes.annotate(label, (places[-1], heights[-1] + errors[-1]), xytext=(0, 4), rotation=90,
                      ha="center", textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set_xticks(range(len(names)), ["images", "same inputs,\nother labels", "exclusive or"])
    axes.set_title("No privacy, n = 1,000", loc="left", fontsize=10)


def _line(axes: Axes, rows: list[ObjectiveRow | None], **style: Any) -> None:
    places = [at for at, row in enumerate(rows) if row is not None]
    kept = [row for row in rows if row is not None]
    if kept:
        axes.errorbar(places, [row.top1[0] for row in kept], [row.top1[1] for row in kept],
                      markersize=4, linewidth=1.2, elinewidth=0.7, **style)  # fmt: skip
