"""One figure per experiment: bounds solid, measurements points, other people's numbers hollow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from tacit_lab.studies.pac import published, words
from tacit_lab.studies.places import IMAGES

COLOURS = {
    "linear": "#D55E00",
    "exact": "#0072B2",
    "diagonal": "#CC79A7",
    "ours": "#009E73",
    "sr": "#000000",
    "dp": "#56B4E9",
    "shape": "#B8860B",
}
NAMES = {
    "linear": "eigen-allocation (Efficient-PAC, printed)",
    "exact": "log-det optimum",
    "diagonal": "by coordinates",
    "shape": "shape of Σ (Auto-PAC, printed)",
    "ours": "true information",
    "sr": "SR-PAC",
    "dp": "DP",
}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "agnews": "AG-News"}
PRINTED = {"auto": "shape", "efficient": "linear", "sr": "sr"}
GREY = "#6E6E6E"


def draw_logits(results: dict[str, Any]) -> None:
    """Left: noise over eigen-allocation's. Right: what was reached leaks at least so much."""
    dataset = results["dataset"]
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    power, leak = figure.subplots(1, 2)
    _relative_power(power, results)
    _leak(leak, results)
    figure.suptitle(f"{TITLES[dataset]} logits: noise, and what the accuracy gives away", x=0.01,
                    ha="left", fontsize=11)  # fmt: skip
    save(figure, f"pac-{dataset}")


def _relative_power(axes: Axes, results: dict[str, Any]) -> None:
    rows, table = results["rows"], published.TABLES[results["dataset"]]
    for method in ("exact", "diagonal", "ours"):
        line = [(r["beta"], r[method]["noise"] / r["linear"]["noise"]) for r in rows if method in r]
        axes.loglog(*zip(*line, strict=True), color=COLOURS[method], linewidth=1.8)
        low, high = line[-1][0], line[0][0]
        place = math.sqrt(low * high) if method == "diagonal" else low**0.3 * high**0.7
        beta, height = min(line, key=lambda p: abs(math.log(p[0] / place)))
        if method == "ours":
            beta, height = max(line)
        offset, side = ((-6, -3), "right") if method == "ours" else ((5, 5), "left")
        axes.annotate(NAMES[method], (beta, height), xytext=offset, ha=side,
                      textcoords="offset points", color=COLOURS[method], fontsize=9)  # fmt: skip
    axes.axhline(1.0, color=COLOURS["linear"], linewidth=1.8)
    dimension = published.DIMENSIONS[results["dataset"]]
    shaped = [
        published.covariance_shaped(results["output_power"], dimension, r["beta"])
        / r["linear"]["noise"]
        for r in rows
    ]
    axes.loglog([r["beta"] for r in rows], shaped, color=COLOURS["shape"], linewidth=1.8)
    axes.annotate(NAMES["shape"], (0.02, 0.09), xycoords="axes fraction",
                  color=COLOURS["shape"], fontsize=9)  # fmt: skip
    axes.annotate(NAMES["linear"], (0.12, 1.0), xycoords=("axes fraction", "data"), xytext=(0, 4),
                  textcoords="offset points", color=COLOURS["linear"], fontsize=9)  # fmt: skip
    played = [r for r in rows if "sr" in r]
    points = [(r["beta"], r["sr"]["noise"] / r["linear"]["noise"]) for r in played]
    axes.plot(*zip(*points, strict=True), "o", color=COLOURS["sr"], markersize=5)
    ratios = np.array(table["noise_sr"]) / np.array(table["noise_efficient"])
    shown = ratios > 0.0
    axes.plot(np.array(table["beta"])[shown], ratios[shown], "o", mfc="none",
              color=COLOURS["sr"], markersize=5)  # fmt: skip
    axes.annotate("● SR-PAC, run here   ○ SR-PAC, printed", (0.02, 0.03), fontsize=9,
                  xycoords="axes fraction", color=COLOURS["sr"])  # fmt: skip
    axes.set_ylim(bottom=0.5 * axes.get_ylim()[0])
    _budgets(axes, min(table["beta"]), max(table["beta"]))
    axes.set_ylabel("noise power / eigen-allocation's (log scale)")
    axes.spines[["top", "right"]].set_visible(False)


def _leak(axes: Axes, results: dict[str, Any]) -> None:
    rows, dataset = results["rows"], results["dataset"]
    table = published.TABLES[dataset]
    betas = np.array([0.01, 12.0])
    top = 4.0
    axes.loglog(betas, betas, color=COLOURS["exact"], linewidth=1.8)
    axes.fill_between(betas, betas, top, color="#F2F2F2", linewidth=0)
    axes.annotate("more than the budget: impossible", (0.03, 0.93), color=GREY, fontsize=9,
                  xycoords="axes fraction")  # fmt: skip
    floor = 0.4 * min(leak for leak in published.leaked(dataset, "auto") if leak > 1e-3)
    for column, method in PRINTED.items():
        leaks = np.array(published.leaked(dataset, column))
        shown = leaks > floor
        marker = {"auto": "s", "efficient": "^", "sr": "o"}[column]
        axes.plot(np.array(table["beta"])[shown], leaks[shown], marker, mfc="none",
                  color=COLOURS[method], markersize=5)  # fmt: skip
    for method in ("ours", "sr"):
        points = [(r["beta"], r[method]["fano"]) for r in rows if method in r]
        points = [p for p in points if p[1] > floor]
        if points:
            axes.plot(*zip(*points, strict=True), "o", color=COLOURS[method], markersize=4)
    labels = (
        ("● true information", COLOURS["ours"]),
        ("● SR-PAC, run here", COLOURS["sr"]),
        ("○ SR-PAC, printed", COLOURS["sr"]),
        ("□ Auto-PAC, printed", COLOURS["shape"]),
        ("△ Efficient-PAC, printed", COLOURS["linear"]),
    )
    for line, (text, colour) in enumerate(labels):
        axes.annotate(text, (0.52, 0.27 - 0.055 * line), xycoords="axes fraction",
                      color=colour, fontsize=9)  # fmt: skip
    _budgets(axes, min(table["beta"]), max(table["beta"]))
    axes.set_ylim(floor, top)
    axes.set_ylabel("leaked at least (Fano), nats (log scale)")
    axes.spines[["top", "right"]].set_visible(False)


def _budgets(axes: Axes, low: float, high: float) -> None:
    """Mark budgets in plain decimals."""
    marks = [m for m in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0) if low / 1.3 <= m <= 1.2 * high]
    axes.set_xlim(low / 1.3, high * 1.2)
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("budget β, nats (log scale)")


def draw_means(results: dict[str, Any]) -> None:
    """Noise power of the mean over the budget, a panel per table."""
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    tables = results["tables"]
    for axes, dataset in zip(
        figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True
    ):
        rows, table = tables[dataset]["rows"], published.TABLES[dataset]
        betas = [r["beta"] for r in rows]
        for method in ("diagonal", "linear", "exact", "ours"):
            powers = [r[method]["noise"] for r in rows]
            axes.loglog(betas, powers, color=COLOURS[method], linewidth=1.8)
        axes.loglog(betas, [r["dp"]["noise"] for r in rows], color=COLOURS["dp"], linewidth=1.8)
        for text, index, method, shift in (
            ("by coordinates", 4, "diagonal", 8),
            ("log-det optimum and\ntrue information", 3, "exact", -26),
            ("DP, same success", 3, "dp", 8),
        ):
            place = betas[index], rows[index][method]["noise"]
            side = "right" if shift < 0 else "left"
            axes.annotate(text, place, xytext=(0, shift), textcoords="offset points", ha=side,
                          color=COLOURS[method], fontsize=9)  # fmt: skip
        for column, method in {**PRINTED, "dp": "dp"}.items():
            marker = {"auto": "s", "efficient": "^", "sr": "o", "dp": "D"}[column]
            axes.plot(table["beta"], table[f"noise_{column}"], marker, mfc="none",
                      color=COLOURS[method], markersize=5)  # fmt: skip
            axes.annotate(f"{words.PRINTED.get(column, 'DP')}, printed",
                          (table["beta"][0], table[f"noise_{column}"][0]), xytext=(6, -3),
                          textcoords="offset points", color=COLOURS[method],
                          fontsize=8)  # fmt: skip
        axes.set_xlim(0.006, 2.0)
        axes.set_title(f"Mean of half of {dataset.capitalize()}, columns in [0, 1]", loc="left")
        axes.set_xlabel("budget β, nats (log scale)")
        axes.set_ylabel("noise power E‖B‖² (log scale)")
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "pac-means")


def save(figure: Figure, name: str) -> None:
    """Write an SVG that is the same for the same numbers."""
    with rc_context({"svg.hashsalt": name, "font.size": 10}):
        figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
