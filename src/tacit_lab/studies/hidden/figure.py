"""All layers in three panels: the middle, the exponent at equal KL, gains predicted and found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit_lab.studies.hidden import published
from tacit_lab.studies.hidden.study import HiddenStudy
from tacit_lab.studies.hidden.verdicts import gains

NOISE, BOOK, GREY = "#D55E00", "#0072B2", "#8A8A8A"


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the figure, the same for the same numbers."""
    study = HiddenStudy(result)
    figure = Figure(figsize=(13.2, 4.4), layout="constrained")
    middle, exponent, gain = figure.subplots(1, 3)
    _middle(middle, study)
    _exponent(exponent, study)
    _gain(gain, study)
    for axes in (middle, exponent, gain):
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*middle.get_legend_handles_labels(), loc="outside lower left", ncols=4,
                  frameon=False, fontsize=9)  # fmt: skip
    with rc_context({"svg.hashsalt": path.stem, "font.size": 10}):
        figure.savefig(path, metadata={"Date": None})


def _middle(axes: Axes, study: HiddenStudy) -> None:
    axes.axvspan(0.5, 1.0, ymax=0.5 / 1.02, color=BOOK, alpha=0.08, linewidth=0)
    # one mark for all rows of its sweep at the same hundredths
    theirs = sorted({(round(r.agreement, 2), round(r.attack, 2)) for r in published.rows()})
    axes.plot(*zip(*theirs, strict=True), "x", color=GREY, markersize=2.5, label="published, raw")
    for rows, face, name in (
        (study.raw, "white", "noise, read raw"),
        (study.denoised, NOISE, "noise, denoised"),
    ):
        axes.plot(
            [row.agreement for row in rows], [row.attack for row in rows], "o", label=name,
            markersize=3.5, markerfacecolor=face, markeredgecolor=NOISE, markeredgewidth=0.7,
        )  # fmt: skip
    for row in study.books:
        axes.hlines(row.leak, row.agreement_low, row.agreement_high, color=BOOK, linewidth=2.0)
    axes.plot([], [], color=BOOK, linewidth=2.0, label="codebooks, proven")
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of next tokens that stay the same",
             ylabel="attack names the prompt")  # fmt: skip
    axes.set_title("Every layer, every release", loc="left", fontsize=10)


def _exponent(axes: Axes, study: HiddenStudy) -> None:
    targets = study.result["targets"]
    kl = targets[len(targets) // 2]
    colours = colormaps["viridis"].resampled(len(study.layers) + 1)
    for number, facts in enumerate(study.layers):
        found = study.attacks(facts["layer"], kl)
        if not found:
            continue
        axes.plot(list(found), [equal.attack for equal in found.values()], color=colours(number))
        axes.fill_between(list(found), [equal.low for equal in found.values()],
                          [equal.high for equal in found.values()], color=colours(number),
                          alpha=0.15, linewidth=0)  # fmt: skip
        last = max(found)
        axes.annotate(f"layer {facts['layer']}", (last, found[last].attack), xytext=(4, -3),
                      textcoords="offset points", color=colours(number), fontsize=9)  # fmt: skip
    axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 2.35), ylim=(0, 1.02), xlabel="exponent α of diag(F)$^{-α}$",
             ylabel="attack names the prompt")  # fmt: skip
    axes.set_title(f"Diagonal noise that costs {kl:g} nats, measured", loc="left", fontsize=10)


def _gain(axes: Axes, study: HiddenStudy) -> None:
    found = [(layer, p, k, nats) for layer, p, k, nats in gains(study) if k is not None]
    most = max([1.5, *(max(p, k, nats or 0.0) for _, p, k, nats in found)]) * 1.1
    axes.plot([0, most], [0, most], color=GREY, linewidth=0.8)
    for layer, predicted, budget, nats in found:
        axes.plot(predicted, budget, "o", color=NOISE, markersize=5)
        axes.annotate(f"{layer}", (predicted, budget), xytext=(5, -3), fontsize=9,
                      textcoords="offset points", color=NOISE)  # fmt: skip
        if nats is not None:
            axes.plot(predicted, nats, "s", color=BOOK, markersize=5)
    axes.annotate("● budget K   ", (0.03, 0.93), xycoords="axes fraction", color=NOISE, fontsize=9)
    axes.annotate("■ KL measured", (0.03, 0.87), xycoords="axes fraction", color=BOOK, fontsize=9)
    axes.set(xlim=(0, most), ylim=(0, most), xlabel="gain predicted by G_Mah",
             ylabel="isotropic / Mahalanobis-optimal, at attack ½")  # fmt: skip
    axes.set_title("Gain of the Mahalanobis-optimal release", loc="left", fontsize=10)
