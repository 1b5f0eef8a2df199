"""The section on objectives, from experiments/specifications-objectives."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table
from tacit_lab.studies.specifications.baselines import HISTOGRAM
from tacit_lab.studies.specifications.rows import budget, missing, percent

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
                *(percent(top1(result, tasks, names, what, *each)) for each in columns),
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
digit or object, whatever the picture's transform). Elsewhere each has names and an order of their
own, which `scatter` and `mean` do not see. The label histogram looks at no picture. Top-1
in percent, ± one standard error over {queries["images"]} and {queries["relabelled"]} users. Run by
`{result["command"]}`.{missing(result)}"""


def top1(
    result: dict[str, Any], tasks: str, names: str, what: str, records: int, epsilon: float
) -> list[float] | None:
    """Return a share and its standard error, None where that was not run."""
    wanted = {"tasks": tasks, "names": names, "what": what, "records": records, "epsilon": epsilon}
    return next((row["top1"] for row in result["rows"] if wanted.items() <= row.items()), None)


def verdict(result: dict[str, Any]) -> str:
    """Return what was asked for, and when each objective is the right one."""
    few, many = result["sizes"]["records"]
    told = []
    for count in (few, many):
        found = top1(result, "images", "own", "mean", count, 1.0)
        word = "not run" if found is None else "reached" if found[0] >= ASKED else "missed"
        told.append(f"n = {count:,}: {word} ({percent(found)}%)")

    def both(tasks: str, names: str, what: str) -> str:
        pair = (top1(result, tasks, names, what, few, epsilon) for epsilon in (8.0, 1.0))
        return " and ".join(map(percent, pair)) + "%"

    return f"""**Verdict.** Without shared names, at ε = 1, {100 * ASKED:.0f}% asked for of `mean`:
{"; ".join(told)}. At n = {few:,} and ε = 8 and 1 `scatter` finds
{both("images", "own", "scatter")} of them: it needs the larger ε. Among tasks of the same inputs,
where chance finds 1 in 12, it finds {both("relabelled", "own", "scatter")} and `mean`
{both("relabelled", "own", "mean")}. Where names are shared `labels` finds
{both("relabelled", "shared", "labels")} of those; but names without any picture find
{both("relabelled", "shared", HISTOGRAM)}, so a search by names is as good wherever names are
unlike."""
