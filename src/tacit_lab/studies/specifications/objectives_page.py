"""The section on objectives, from experiments/specifications-objectives."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table
from tacit_lab.studies.specifications.baselines import HISTOGRAM
from tacit_lab.studies.specifications.rows import budget, percent

NAME = "specifications-objectives"
# What was asked for before it was run: of images, without shared names, at ε = 1.
ASKED = 0.85
ORDER = ("labels", "mean", "scatter", HISTOGRAM)
NAMED = {"shared": "shared", "own": "each their own"}
TASKS = {"images": "images", "relabelled": "same inputs, other labels"}


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Which objective finds a model", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return what was done, a table for every kind of tasks, and a verdict."""
    found = [filled(story(result)), ""]
    for tasks, words in TASKS.items():
        columns = [(count, value) for count in result["sizes"]["records"]
                   for value in result["sizes"]["epsilons"]]  # fmt: skip
        rows = [
            [
                NAMED[names],
                what,
                *(percent(top1(result, tasks, names, what, *one)) for one in columns),
            ]
            for names in NAMED
            for what in ORDER
        ]
        heads = [f"n = {count:,}, {budget(value)}" for count, value in columns]
        found += table([f"{words}: names", "", *heads], rows)
    return [*found, filled(verdict(result)), ""]


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is measured."""
    sizes, tasks = result["sizes"], result["tasks"]
    queries = {row["tasks"]: row["queries"] for row in result["rows"]}
    return f"""{tasks["images"]} learnwares on images and {tasks["relabelled"]} whose inputs are the
same and whose labels differ, drawn by seed {sizes["tasks_seed"]}, and {sizes["draws"]} users for
each. Learnwares and users have n balanced records, none in common, and each a specification under
the same ε (δ = {result["delta"]:g}, replacing one record), made by `{result["backbone"]}` with the
subspace that comes with it. Where names are shared, users call a class as developers do (its
digit or object, whatever the picture's transform); where each has their own, in words and an order
of their own, which `scatter` and `mean` do not see. The label histogram looks at no picture. Top-1
in percent, ± one standard error over {queries["images"]} and {queries["relabelled"]} users. Run by
`{result["command"]}`."""


def top1(
    result: dict[str, Any], tasks: str, names: str, what: str, records: int, epsilon: float
) -> list[float]:
    """Return a share and its standard error."""
    wanted = {"tasks": tasks, "names": names, "what": what, "records": records, "epsilon": epsilon}
    (row,) = (row for row in result["rows"] if wanted.items() <= row.items())
    found: list[float] = row["top1"]
    return found


def verdict(result: dict[str, Any]) -> str:
    """Return what was asked for, and when each objective is the right one."""
    few, many = result["sizes"]["records"]
    told = []
    for count in (few, many):
        found = top1(result, "images", "own", "mean", count, 1.0)[0]
        word = "reached" if found >= ASKED else "missed"
        told.append(f"n = {count:,}: {word} ({100 * found:.1f}%)")
    alone = top1(result, "relabelled", "own", "mean", many, 1.0)[0]
    apart = top1(result, "relabelled", "own", "scatter", many, 8.0)[0]
    names = top1(result, "relabelled", "shared", "labels", many, 1.0)[0]
    weak = top1(result, "images", "own", "scatter", few, 1.0)[0]
    return f"""**Verdict.** Without shared names, at ε = 1, {100 * ASKED:.0f}% asked for of `mean`:
{"; ".join(told)}. `scatter` needs a larger ε or more records ({100 * weak:.1f}% at n = {few:,}, ε =
1), and is the only one of the two that tells tasks of the same inputs apart ({100 * apart:.1f}% at
n = {many:,}, ε = 8, where `mean` has {100 * alone:.1f}% at ε = 1). Where names are shared, `labels`
finds {100 * names:.1f}% even of those at n = {many:,}, ε = 1; but so do names without any
picture, so that a search by names is as good wherever names are unlike."""
