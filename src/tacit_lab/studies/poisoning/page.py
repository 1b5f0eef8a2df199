"""The section on backdoors: Tables 5 and 6 as printed, beside what was run here, with verdicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from scipy.special import stdtrit

from tacit.accounting import gaussian_shift
from tacit.training import bounded_probability
from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table


class Printed(NamedTuple):
    """One row: attack success with the paper's noise, and with isotropic noise of its accuracy."""

    sources: int
    epsilon: float
    accuracy: float
    optimal: float
    isotropic: float
    isotropic_epsilon: float


TABLES: dict[str, tuple[Printed, ...]] = {
    "low-frequency": (
        Printed(10, 8, 75.6, 13.9, 25.6, 2019),
        Printed(10, 4, 65.5, 2.0, 20.2, 575),
        Printed(20, 8, 79.1, 8.4, 16.2, 1661),
        Printed(20, 4, 70.9, 5.3, 11.5, 479),
        Printed(40, 8, 78.4, 6.4, 7.3, 627),
        Printed(40, 4, 73.6, 6.6, 7.2, 312),
        Printed(80, 8, 79.5, 8.9, 8.2, 350),
        Printed(80, 4, 74.1, 6.1, 7.7, 114),
    ),
    "blended": (
        Printed(10, 8, 73.9, 15.7, 9.9, 2019),
        Printed(10, 4, 57.5, 0.1, 9.8, 350),
        Printed(20, 8, 77.9, 7.7, 8.8, 1661),
        Printed(20, 4, 67.1, 1.1, 2.4, 241),
        Printed(40, 8, 78.8, 7.1, 4.1, 627),
        Printed(40, 4, 73.5, 12.3, 5.1, 312),
        Printed(80, 8, 79.3, 3.4, 3.9, 350),
    ),
}
NUMBERS = {"low-frequency": 5, "blended": 6}


def printed(trigger: str, sources: int, epsilon: float) -> Printed | None:
    """Return a printed row, None where the paper has none."""
    found = [r for r in TABLES[trigger] if (r.sources, r.epsilon) == (sources, epsilon)]
    return found[0] if found else None


NAME = "poisoning"
HOLDS, FAILS, NOT_TOLD = "holds", "does not hold", "not told"
CONFIDENCE = 0.95
# ε beyond which (ε, δ) allows an attacker at even odds to be right more than 99.99% of the time.
NEXT_TO_NOTHING = 10.0


class Cell(NamedTuple):
    """What one trigger, number of sources and ε gave; attack success and accuracy are shares."""

    trigger: str
    sources: int
    epsilon: float
    clean: dict[str, Any]
    ways: dict[str, Any]

    def success(self, way: str) -> float:
        """Attack success averaged over runs."""
        return self.mean(way, "success")

    def mean(self, way: str, name: str) -> float:
        """Accuracy or attack success averaged over runs."""
        found = self.ways[way]
        runs = found if isinstance(found, list) else [found]
        return statistics.fmean(run[name][0] for run in runs)

    def told(self, way: str) -> str:
        """Attack success in per cent, with the least and most of several runs."""
        found = self.ways[way]
        if not isinstance(found, list):
            return f"{100 * found['success'][0]:.1f}"
        ends = [100 * run["success"][0] for run in found]
        return f"{100 * self.success(way):.1f} ({min(ends):.1f} to {max(ends):.1f})"


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Backdoors from one of m sources: dsi, Tables 5 and 6", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return the story, the two tables and the verdicts."""
    cells = list(_cells(result))
    return [
        filled(_story(result, cells)),
        "",
        *(line for trigger in result["sizes"]["triggers"] for line in _table(trigger, cells)),
        "### Claims",
        "",
        *table(("claim", "printed", "found here", "verdict"), _verdicts(cells)),
        filled(_how_judged()),
        "",
        filled(_bounds(result, cells)),
        "",
    ]


def _cells(result: dict[str, Any]) -> Iterator[Cell]:
    for row in result["rows"]:
        for epsilon, ways in row["ways"].items():
            yield Cell(row["trigger"], row["sources"], float(epsilon), row["clean"], ways)


def _story(result: dict[str, Any], cells: list[Cell]) -> str:
    sizes = result["sizes"]
    start = next(iter(result["pretrained"].values()))["accuracy"][0]
    clean = [100 * row["clean"]["accuracy"][0] for row in result["rows"]]
    honest = [100 * row["reference"]["success"][0] for row in result["rows"]]
    plain = [100 * row["clean"]["success"][0] for row in result["rows"]]
    runs = {way: len(cells[0].ways[way]) for way in ("optimal", "references")}
    every = [run["success"] for cell in cells for run in cell.ways["optimal"]]
    widest = 100 * max(max(high - value, value - low) for value, low, high in every)
    alpha, norm, kept = sizes["alpha"], sizes["norm"], sizes["frequencies"]
    return f"""
Reduced scale, so only directions compare with the paper. There: PreAct-ResNet-18 pre-trained on
CIFAR-100, 50,000 images, 50 phases of 10 iterations. Here: a network of 26,378 parameters with
group normalisation, pre-trained without noise on {sizes["public"]:,} other training images of
CIFAR-10 ({100 * start:.1f}% of the test images right), then {sizes["rounds"]} rounds of one step on
{sizes["batch"]} of {sizes["train"]:,} images. Momentum is {sizes["momentum"]}, rate
{sizes["rate"]};
the cone has {sizes["angle"]:g}°, which the paper does not state.

Source 0 hides its trigger in all of its images and labels them airplane: squares of random colours
with α = {alpha}, or a random pattern of norm {norm:g} in the {kept} × {kept} lowest frequencies,
strong ones, so that they work at all in so few steps. Attack success is the share of
{sizes["test"]:,} test images, airplanes aside, that are named airplanes with the trigger. The
interval of one run over those images (Clopper and Pearson, 95%) is {widest:.1f} points or less on
either side. There are {runs["optimal"]} runs with the least noise and {runs["references"]} of the
reference without source 0 under the same noise; in brackets the least and the most. Everything
else is one run, with the intervals in the JSON. δ = 1e-5. {_not_run(cells)}

Without noise the model is right on {min(clean):.1f} to {max(clean):.1f}% of the clean images, and
the trigger works on {min(plain):.1f} to {max(plain):.1f}%; trained without source 0 it names
{min(honest):.1f} to {max(honest):.1f}% of the triggered images airplanes.
"""


def _table(trigger: str, cells: list[Cell]) -> list[str]:
    columns = (
        "m", "ε", "accuracy", "attack success", "its references", "no noise",
        "isotropic, that accuracy", "its ε", "isotropic, that ε: accuracy / success",
        "printed: accuracy, success / isotropic, its ε",
    )  # fmt: skip
    rows = []
    for cell in cells:
        if cell.trigger != trigger:
            continue
        theirs = printed(trigger, cell.sources, cell.epsilon)
        equal, matched = cell.ways["isotropic"], cell.ways["matched"]
        rows.append(
            (
                str(cell.sources), f"{cell.epsilon:g}",
                f"{100 * cell.mean('optimal', 'accuracy'):.1f}",
                cell.told("optimal"), cell.told("references"),
                f"{100 * cell.clean['success'][0]:.1f}",
                f"{cell.told('matched')} at {100 * matched['accuracy'][0]:.1f}",
                f"{matched['epsilon']:.0f}",
                f"{100 * equal['accuracy'][0]:.1f} / {100 * equal['success'][0]:.1f}",
                "none" if theirs is None else f"{theirs.accuracy}, {theirs.optimal} / "
                f"{theirs.isotropic}, {theirs.isotropic_epsilon:.0f}",
            )
        )  # fmt: skip
    return [f"### Table {NUMBERS[trigger]}: {trigger}, in per cent", "", *table(columns, rows)]


def _how_judged() -> str:
    return f"""
Differences are in percentage points, with Student's {CONFIDENCE:.0%} intervals: here from the
spread of the runs with the least noise, which is taken for what ran once too. For the printed
pairs they come from the spread from row to row, as the paper prints no spread. A claim is not told
where the interval holds 0.
"""


def _not_run(cells: list[Cell]) -> str:
    ran = {(cell.trigger, cell.sources, cell.epsilon) for cell in cells}
    printed_rows = [(name, r.sources, r.epsilon) for name, rows in TABLES.items() for r in rows]
    left = [row for row in printed_rows if row not in ran]
    if not left:
        return "Every printed row was run."
    names = "; ".join(f"{name}, m = {m}, ε = {epsilon:g}" for name, m, epsilon in left)
    return f"Of the {len(printed_rows)} printed rows {len(left)} were not run: {names}."


def _verdicts(cells: list[Cell]) -> Iterator[tuple[str, str, str, str]]:
    lower = [cell for cell in cells if cell.success("optimal") < cell.clean["success"][0]]
    found = against_single_runs(cells, [cell.clean["success"][0] for cell in cells])
    yield (
        "noise makes the attack less successful", "Figures 3 and 4",
        f"less in {len(lower)} of {len(cells)} cells; difference {_ends(found)}",
        verdict(found),
    )  # fmt: skip
    fewest, most = (pick(c.sources for c in cells) for pick in (min, max))
    few, many = ([c for c in cells if c.sources == m] for m in (fewest, most))
    ends = [statistics.fmean(c.success("optimal") for c in part) for part in (few, many)]
    found = interval(ends[1] - ends[0], cells, [_number_of_runs(few), _number_of_runs(many)])
    yield (
        "attack success drops as m grows", "Figures 3 and 4",
        f"{100 * ends[0]:.1f}% at m = {fewest}, {100 * ends[1]:.1f}% at m = {most}; "
        f"difference {_ends(found)}",
        verdict(found),
    )  # fmt: skip
    for trigger, rows in TABLES.items():
        theirs = paired([(r.optimal - r.isotropic) / 100 for r in rows])
        means = [
            statistics.fmean(getattr(r, way) for r in rows) for way in ("optimal", "isotropic")
        ]
        part = [cell for cell in cells if cell.trigger == trigger]
        own = [
            100 * statistics.fmean(c.success(way) for c in part) for way in ("optimal", "matched")
        ]
        found = against_single_runs(part, [cell.success("matched") for cell in part])
        yield (
            f"at equal accuracy the least noise defends better than isotropic, {trigger}",
            f"{means[0]:.1f}% against {means[1]:.1f}%, difference {_ends(theirs)}: "
            f"{verdict(theirs)}",
            f"{own[0]:.1f}% against {own[1]:.1f}%, difference {_ends(found)}", verdict(found),
        )  # fmt: skip
    least = min(cell.ways["matched"]["epsilon"] for cell in cells)
    printed_least = min(r.isotropic_epsilon for rows in TABLES.values() for r in rows)
    yield (
        "at equal accuracy isotropic noise proves next to nothing",
        f"ε is {printed_least:.0f} or more", f"ε is {least:.0f} or more",
        HOLDS if least > NEXT_TO_NOTHING else FAILS,
    )  # fmt: skip


def against_single_runs(cells: list[Cell], others: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the mean difference of the least noise from what ran once a cell.

    Cells of one trigger and m may share that one run, so it counts once for them.
    """
    difference = statistics.fmean(
        cell.success("optimal") - other for cell, other in zip(cells, others, strict=True)
    )
    single = len({(cell.trigger, cell.sources) for cell in cells})
    return interval(difference, cells, [_number_of_runs(cells), single])


def interval(difference: float, cells: list[Cell], numbers: Sequence[int]) -> tuple[float, float]:
    """Return Student's interval of a difference of two means of so many runs.

    ± t s √(1/n₁ + 1/n₂), s² the variance of runs with the least noise around their cells' means,
    which is taken for what ran once too: a single run does not tell its own spread.
    """
    runs = [[run["success"][0] for run in cell.ways["optimal"]] for cell in cells]
    freedom = sum(len(found) - 1 for found in runs)
    if freedom < 1:
        return -math.inf, math.inf
    squares = sum((one - statistics.fmean(found)) ** 2 for found in runs for one in found)
    error = math.sqrt(squares / freedom * sum(1.0 / number for number in numbers))
    return _student(difference, error, freedom)


def paired(differences: Sequence[float]) -> tuple[float, float]:
    """Return Student's interval of the mean of differences, one of each printed row."""
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return _student(statistics.fmean(differences), error, len(differences) - 1)


def _student(centre: float, error: float, freedom: int) -> tuple[float, float]:
    half = error * float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    return centre - half, centre + half


def verdict(found: tuple[float, float]) -> str:
    """Return what the interval of a difference, claimed to be negative, says of the claim."""
    low, high = found
    if low <= 0.0 <= high:
        return NOT_TOLD
    return HOLDS if high < 0.0 else FAILS


def _number_of_runs(cells: list[Cell]) -> int:
    return sum(len(cell.ways["optimal"]) for cell in cells)


def _ends(found: tuple[float, float]) -> str:
    low, high = (100 * end for end in found)
    return f"{low:+.1f} to {high:+.1f}"


def _bounds(result: dict[str, Any], cells: list[Cell]) -> str:
    delta = result["delta"]
    told, inside = [], 0
    largest = max(cells, key=lambda cell: cell.success("references"))
    for cell in cells:
        bound = bounded_probability(cell.success("references"), _distance(cell.epsilon, delta))
        inside += cell.success("optimal") <= bound
        told.append(bound)
    spread = max(run["success"][0] for cell in cells for run in cell.ways["references"])
    return f"""
The certificate says of the attack that its success, averaged over the noise, is at most Φ(Φ⁻¹(p) +
μ). Here p is the success against the reference without source 0 *with the noise of this run*. With
p as
measured in these few runs the bound is {100 * min(told):.1f} to {100 * max(told):.1f}%, and the
averages measured are below it in {inside} of {len(cells)} cells. Both sides are estimates from few
runs, whose success differs as widely as the brackets say. p is not the success against honest
sources. The noise is widest along the very gradients that were poisoned. One reference model
that never learned from source 0 named {100 * spread:.1f}% of the triggered images airplanes. The
largest average is {100 * largest.success("references"):.1f}% ({largest.trigger},
m = {largest.sources}, ε = {largest.epsilon:g}). The certificate compares two noisy trainings, one
that saw source 0 and one that did not; it is no promise that the model has no backdoor.
"""


def _distance(epsilon: float, delta: float) -> float:
    """μ of a Gaussian shift that has ε at δ, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (
            (middle, high) if gaussian_shift(middle).epsilon(delta) < epsilon else (low, middle)
        )
    return high
