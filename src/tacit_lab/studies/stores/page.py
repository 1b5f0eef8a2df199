"""The page on what a thief of a vector store gets, and its figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit_lab.studies.places import DOCS, IMAGES, RESULTS
from tacit_lab.studies.reproductions.prose import filled, rounded_up, table
from tacit_lab.studies.stores.theft import most_right

NAME = "store-theft"
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
RECOMMENDED = (
    "**Take 8 bits where a name must not be confirmed, 16 where bulk recovery is feared, and a "
    "sealed store over either where single documents are to be found.**"
)


def render() -> None:
    """Write page and figure from the result that is there."""
    result = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))
    draw(result, IMAGES / f"{NAME}.svg")
    (DOCS / "explanation" / f"{NAME}.md").write_text(text(result), encoding="utf-8")


def text(result: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# What a thief of a vector store gets", "",
        filled(OPENING), "",
        filled(RECOMMENDED), "",
        f"![Left: how often each theft succeeds by bits, beside its bound. Right: recall of a "
        f"search.](../images/{NAME}.svg)", "",
        filled(FIGURE), "",
        "## What was found", "",
        *findings(result),
        filled(READERS), "",
        *readers(result),
        filled(reading(result)), "",
        "## How it was made", "",
        filled(made(result)), "",
    ]  # fmt: skip
    return "\n".join(lines).rstrip("\n") + "\n"


OPENING = """A store of codes tells a thief one of `2^b` values about each row. Whatever the
thief knows besides, that multiplies the chance of any guess about the row by at most `2^b`
([why](../explanation/glossary.md#codebook)). Here a thief has the files, the codebook, the
encoder and all of a text but what is asked, and does the best that anyone can with a code. Words
are read by a linear inverter, by a transformer, and by a search for words that encode alike."""
READERS = """Words of a text (F1) by three readers, each below the bound of the words above. A
transformer of two layers is fitted on the public texts in less than a minute; the search asks an
encoder for nothing but vectors of texts."""
FIGURE = """Lines are bounds and points are measured, with 95% intervals over texts. On the
right: ten nearest of a query that are found among decoded codes alone, and by a [sealed
store](../how-to/sealed-store.md) that opens 5% of its documents."""


def reading(result: dict[str, Any]) -> str:
    """Return what the table says of the sizes that are recommended."""
    byte, two, exact = (_rights(result, asked) for asked in ("1 × 256", "2 × 256", "float32"))
    return f"""At 8 bits a name of 1,000 is named {byte["name"]:.1%} of the time and a text
of the list {byte["list"]:.1%}, which is the bound itself: occupied codes divided by N.
At 16 bits the name is named {two["name"]:.1%} of the time and words are read at F1
{two["words"]:.2f} by the best of three readers (float32: {exact["words"]:.2f}), and a text that
the thief holds word by word is told to be there {two["list"]:.0%} of the time.
Digits and names stay below their bounds by what their codes share.
**Rows about one person add up:** eight codes of a name are a code of eight times the bits, so
declare `rows_per_person`. No bound on two near duplicates is below 100%, for one bit tells two
texts apart. What is read of words falls least: a code keeps the topic, which is what it is for.
Every bound is `2^b` times the most that is reached without the store, for a text drawn from those
of the store. For words that is the best list of words for all texts, found exactly."""


def _rights(result: dict[str, Any], asked: str) -> dict[str, float]:
    row = next(row for row in result["rows"] if row["asked"] == asked)
    found = [one["right"] for one in row["thefts"]]
    words = max(one["right"] for one in row["readers"].values())
    return {"name": found[1], "list": found[5], "words": words}


def made(result: dict[str, Any]) -> str:
    """Return how the numbers came about."""
    return f"""`make experiments NAME={NAME}` takes minutes (`--fast` seconds,
`--texts FILE` a text a line of your own). Encoder and residual codebooks are fitted on
{result["public"]:,} public lines ({result["texts"]}), {result["stored"]:,} others are stored,
{result["queries"]} more are searched for. The encoder averages word vectors of 128 numbers, rare
words weighed more. A field is a word at the end of a text of which all else is known, of
{result["known"]} texts (a tenth of them for digits). Its success is the exact mean over all
candidates. Intervals are over the texts of one corpus: the docstrings of an installation with
other packages move a figure by more, a name of 1,000 at 64 bits by a tenth. Words are the 1,000
most common after the first 50; the linear inverter is a ridge regression from decoded vectors,
and words are searched for {result["known"]} texts."""


def findings(result: dict[str, Any]) -> list[str]:
    """Return the table: a row a code, right and bound of each theft, and what searches find."""
    games = [one["game"] for one in result["rows"][0]["thefts"]]
    columns = ["code", "bits", *games, *(f"search: {name}" for name in result["rows"][0]["recall"])]
    rows = []
    for row in result["rows"]:
        thefts = [f"{_share(one['right'])} ≤ {_most(one['most'])}" for one in row["thefts"]]
        found = [f"{value:.3f}" for value in row["recall"].values()]
        rows.append([row["asked"], rounded_up(row["bits"], 1), *thefts, *found])
    blind = [_share(one["blind"]) for one in result["rows"][0]["thefts"]]
    rows.insert(0, ["without the store", "0", *blind, *[""] * len(result["rows"][0]["recall"])])
    return table(columns, rows)


def readers(result: dict[str, Any]) -> list[str]:
    """Return the table of the words that three readers name, with 95% half-widths over texts."""
    read = [row for row in result["rows"] if row["readers"]]
    names = list(read[0]["readers"])
    return table(
        ["code", *names],
        [[row["asked"], *(_read(row["readers"][name]) for name in names)] for row in read],
    )


def _read(one: dict[str, Any]) -> str:
    return f"{one['right']:.3f} ± {one['within']:.3f}"


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the figure, the same for the same numbers."""
    figure = Figure(figsize=(11.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1.0))
    coded = [row for row in result["rows"] if row["asked"] != "float32"]
    bits = [row["bits"] for row in coded]
    for place, colour in enumerate(COLOURS):
        _theft(left, bits, [row["thefts"][place] for row in coded], colour)
    left.set(yscale="log", ylim=(3e-5, 1.5), xlabel="bits of a code", ylabel="the thief is right")
    left.set_title("Theft: points measured, lines bounds", loc="left", fontsize=10)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    for name, colour in zip(coded[0]["recall"], COLOURS[1:], strict=False):
        found = [row["recall"][name] for row in coded]
        right.plot(bits, found, "o", color=colour, markersize=4, label=name)
    right.set(ylim=(0, 1.02), xlabel="bits of a code", ylabel="recall at 10")
    right.set_title("Search", loc="left", fontsize=10)
    right.legend(frameon=False, fontsize=8, loc="lower right")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    with rc_context({"svg.hashsalt": path.stem, "font.size": 10}):
        figure.savefig(path, metadata={"Date": None})


def _theft(axes: Axes, bits: list[float], thefts: list[dict[str, Any]], colour: str) -> None:
    grid = np.linspace(bits[0], bits[-1], 400)
    most = [most_right(thefts[0]["rows"] * b, thefts[0]["blind"]) for b in grid]
    axes.plot(grid, most, color=colour, linewidth=1.2)
    axes.errorbar(
        bits, [one["right"] for one in thefts], [one["within"] for one in thefts], fmt="o",
        color=colour, markersize=4, linewidth=0.8, label=thefts[0]["game"],
    )  # fmt: skip


def _share(value: float) -> str:
    return f"{value:.3g}" if value < 0.01 else f"{value:.3f}"


def _most(value: float) -> str:
    digits = 3 if value >= 0.01 else 5
    return "1" if value >= 1.0 else rounded_up(value, digits)
