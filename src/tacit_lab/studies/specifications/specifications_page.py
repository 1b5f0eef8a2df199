"""The section on finding models, from experiments/specifications-identification."""

from __future__ import annotations

import math
from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, parts, table
from tacit_lab.studies.specifications.baselines import BASELINES
from tacit_lab.studies.specifications.rows import (
    ObjectiveRow,
    budget,
    missing,
    one,
    percent,
    picked,
)

NAME = "specifications-identification"
# A difference of two shares this many standard errors from 0 is told as one.
ERRORS = 2.0
# What was asked for before it was run: ε, and the share to reach.
ASKED = {1.0: 0.90, 2.0: 0.94, 4.0: 0.95, 8.0: 0.95}
PLAIN, LABEL_FREE = 0.94, 0.90
TASKS = {
    "images": "images",
    "texts": "texts",
    "relabelled": "same inputs, other labels",
    "crossed": "exclusive or of class and inversion",
}


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Finding a model by its specification", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return what was done, each table with its baselines, and a verdict."""
    return [
        filled(story(result)), "",
        "![Identification against ε and rank, and cases where labels' means say little]"
        "(../images/specifications-identification.svg)", "",
        *_budgets(result), *_ranks(result), *_subspaces(result), *_permuted(result),
        *_verdicts(result), *_reuse(result), *_cases(result), filled(verdict(result)), "",
    ]  # fmt: skip


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is measured."""
    sizes = result["sizes"]
    return f"""{result["images"]} learnwares on images (class subsets and label maps of MNIST and
CIFAR-10, plain, turned, inverted, mirrored, noisy, grey or blurred) and {result["texts"]} on texts
(news topics, paragraphs of corpora), drawn by seed {sizes["tasks_seed"]}; a scratch model each. A
user has {sizes["examples"]} balanced records that no developer has, {sizes["draws"]} users a task.
Top-1 is the share of users whose task's learnware has the largest cosine; ± one standard error over
{result["queries"]} users of images. ε is the privacy of a learnware's specification when one of its
n records is replaced, at δ = {result["delta"]:g}; the user's own specification has no noise unless
a row says so. The backbone is `{result["backbones"]["images"]}`, for texts
`{result["backbones"]["texts"]}` on its first 32 tokens; what counts as public of images is the
first 10,000 of each set, of texts paragraphs of the same corpora. PAVE is `tacit.specifications` in
one step; where nothing else is said with factors of rank r = {result["rank"]} and k =
{result["subspace"]} directions of public tasks, a number each. The trivial baselines are means of
the same backbone's features, clipped at a public length, with the noise of the Gaussian mechanism
for sensitivity 2C/n; inner class means are of the inputs of the layers that PAVE describes. The
label histogram looks at no input. It is the shares of the names of classes, which developers and
users share, with the noise for sensitivity √2/n. Where labels are permuted the names are numbers.
Run by
`{result["command"]}` at {result["commit"]}.{missing(result)}"""


def _budgets(result: dict[str, Any]) -> list[str]:
    epsilons = [0.0, *result["sizes"]["epsilons"][::-1]]
    shown = ["PAVE", *BASELINES]
    found: list[str] = []
    for tasks in ("images", "texts"):
        rows = []
        counts = (
            [result["sizes"]["records_texts"]] if tasks == "texts" else result["sizes"]["records"]
        )
        for count in counts:
            for what in shown:
                cells = [
                    _top1(one(result, tasks=tasks, what=what, order="aligned", records=count,
                              **_space(result, what), epsilon=epsilon, user=0.0))
                    for epsilon in epsilons
                ]  # fmt: skip
                if any(cell != "–" for cell in cells):
                    rows.append([f"{count:,}", what, *cells])
        if rows:
            found += table([f"top-1 in percent, {tasks}: n", "", *map(budget, epsilons)], rows)
    return found


def _ranks(result: dict[str, Any]) -> list[str]:
    epsilons = [0.0, *result["sizes"]["epsilons"][::-1]]
    rows = []
    for rank in result["sizes"]["ranks"]:
        for size in (result["subspace"], 0):
            cells = [
                _top1(one(result, tasks="images", what="PAVE", route="aligned", order="aligned",
                          rank=rank, subspace=size, records=1000, epsilon=epsilon, user=0.0))
                for epsilon in epsilons
            ]  # fmt: skip
            agreed = None if size else result["full"].get(str(rank))
            if agreed or any(cell != "–" for cell in cells):
                rows.append([
                    str(rank), str(size or "all"), *cells,
                    f"{agreed['error']:.3f}" if agreed else "–",
                    f"{100 * agreed['same']:.1f}" if agreed else "–",
                ])  # fmt: skip
    return [
        filled("""Accuracy by rank r, in k directions and with all numbers of the factors. The
agreement compares the cosines of compact factors with those of the full space, at n = 100 without
noise:"""), "",
        *table(
            ["r", "k", *map(budget, epsilons), "mean error of a cosine",
             "same first as in the full space, percent"],
            rows,
        ),
    ]  # fmt: skip


def _subspaces(result: dict[str, Any]) -> list[str]:
    kept = [row for row in picked(result, tasks="images", what="PAVE", route="aligned",
                                  order="aligned", records=1000, rank=result["rank"])
            if row.subspace]  # fmt: skip
    if not kept:
        return []
    epsilons = sorted({row.epsilon for row in kept})
    rows = []
    for size in sorted({row.subspace for row in kept}):
        cells = [
            _top1(
                next((row for row in kept if row.subspace == size and row.epsilon == value), None)
            )
            for value in epsilons
        ]
        held = result["gamma"].get(str(size), {})
        rows.append([str(size), *cells, *(f"{held[n]:.3g}" if n in held else "–"
                                          for n in result["gamma_records"])])  # fmt: skip
    return [
        filled("""By k, and the covariance stability γ of the last layer's H(D) = UᵀF(D) in k public
directions, the largest over replaced records. γ is *measured* on these data sets; it is no bound,
and no guarantee is made of it."""), "",
        *table(
            ["k, n = 1,000", *map(budget, epsilons),
             *(f"γ measured, n = {int(n):,}" for n in result["gamma_records"])],
            rows,
        ),
    ]  # fmt: skip


def _permuted(result: dict[str, Any]) -> list[str]:
    rows = [
        [row.what, row.route or "–", f"{row.records:,}", budget(row.epsilon), _top1(row)]
        for row in picked(result, tasks="images", order="permuted")
    ]  # fmt: skip
    if not rows:
        return []
    return [
        "Where every user numbers the labels in an order of their own:", "",
        *table(["", "route", "n", "", "top-1 in percent"], rows),
    ]  # fmt: skip


def _verdicts(result: dict[str, Any]) -> list[str]:
    rows = [
        [held["route"], budget(held["epsilon"]), held["what"], f"{held['median']:.2f}",
         percent(held["passed"])]
        for held in result.get("verdicts", [])
    ]  # fmt: skip
    if not rows:
        return []
    return [
        filled(f"""How often the best of a search is told to be a match, by what there is to be
found. The threshold is that of random directions, surpassed in 1 search of 100. It ought to tell
apart tasks of other data. It does not say whether a task of the same data is of use. k =
{result['subspace']}, n = 1,000."""), "",
        *table(["route", "", "there is", "median of the best", "a match, in percent"], rows),
    ]  # fmt: skip


def _reuse(result: dict[str, Any]) -> list[str]:
    rows = []
    for tasks in ("images", "texts"):
        held = result["reuse"][tasks]
        cells = [percent(held[name]) for name in ("best", "mean", "few", "probe")]
        for epsilon in (0.0, 1.0):
            found = one(result, tasks=tasks, what="PAVE", order="aligned", epsilon=epsilon,
                        records=_records(result, tasks), user=0.0,
                        **_space(result, "PAVE"))  # fmt: skip
            cells.append(percent(found.reuse if found else None))
        rows.append([tasks, *cells])
    return [
        filled(f"""Accuracy on the user's task of the learnware that comes first, its labels renamed
by the user's {result["sizes"]["examples"]} examples, against the best learnware for that user
(known only afterwards), the mean of all, a scratch model from the examples alone, and ridge
regression on the backbone's features of the examples:"""), "",
        *table(
            ["accuracy in percent", "best", "mean", "scratch, few", "ridge on features, few",
             "PAVE, no privacy", "PAVE, ε = 1"],
            rows,
        ),
    ]  # fmt: skip


def _cases(result: dict[str, Any]) -> list[str]:
    names = [name for name in TASKS if picked(result, tasks=name)]
    spaces = [(result["rank"], result["subspace"]), (result["sizes"]["ranks"][-1], 0)]
    ways: list[tuple[str, dict[str, Any]]] = [
        (f"PAVE, r = {rank}, k = {size or 'all'}",
         {"what": "PAVE", "route": "aligned", "rank": rank, "subspace": size})
        for rank, size in spaces
    ]  # fmt: skip
    ways += [(name, {"what": name}) for name in BASELINES]
    rows = []
    for label, wanted in ways:
        cells = [
            _top1(one(result, tasks=name, order="aligned", records=_records(result, name),
                      epsilon=epsilon, user=0.0, **wanted))
            for name in names
            for epsilon in (0.0, 4.0)
        ]  # fmt: skip
        if any(cell != "–" for cell in cells):
            rows.append([label, *cells])
    heads = [f"{TASKS[name]}, {budget(value)}" for name in names for value in (0.0, 4.0)]
    return [
        filled(f"""A search for tasks on which PAVE beats the trivial baselines, n = 1,000
(texts {result["sizes"]["records_texts"]:,}): partitions of the same ten classes, and partitions
whose label is flipped on the half of the pictures that is inverted, so that the labels' mean inputs
nearly coincide (both among {result["sizes"]["cases"] // 2} of one data set); top-1 in
percent."""), "",
        *table(["", *heads], rows),
    ]  # fmt: skip


def verdict(result: dict[str, Any]) -> str:
    """Return what was reached of what was asked for, and where PAVE wins or loses."""
    found = [f"**Verdict.** {_reached(result)}", _compared(result), _timed(result)]
    return "\n\n".join(found)


def _reached(result: dict[str, Any]) -> str:
    told = []
    plain = _pave(result, "images", 0.0, count=100)
    told.append(_against("without privacy at n = 100", plain, PLAIN))
    for epsilon, share in ASKED.items():
        told.append(_against(f"at ε = {epsilon:g}, n = 1,000, r = 1",
                             _pave(result, "images", epsilon, rank=1), share))  # fmt: skip
    free = [
        row for row in picked(result, tasks="images", what="PAVE", route="label-free",
                              order="permuted") if not row.epsilon
    ]  # fmt: skip
    best = max(free, key=lambda row: row.top1[0], default=None)
    told.append(_against("with permuted labels by the label-free route", best, LABEL_FREE))
    return parts("Asked for and found:", told)


def _against(name: str, row: ObjectiveRow | None, share: float) -> str:
    if row is None:
        return f"{name}, {100 * share:.0f}% asked for, not run"
    word = "reached" if row.top1[0] >= share else "missed"
    return f"{name}, {100 * share:.0f}% is {word} ({100 * row.top1[0]:.1f}%)"


def _compared(result: dict[str, Any]) -> str:
    told = []
    for name in [name for name in TASKS if picked(result, tasks=name)]:
        for epsilon in (0.0, 4.0):
            ours = max(
                (row for row in picked(result, tasks=name, what="PAVE", route="aligned",
                                       order="aligned", records=_records(result, name),
                                       epsilon=epsilon)),
                key=lambda row: row.top1[0], default=None,
            )  # fmt: skip
            theirs = max(
                (row for what in BASELINES
                 if (row := one(result, tasks=name, what=what, order="aligned", epsilon=epsilon,
                                records=_records(result, name), user=0.0)) is not None),
                key=lambda row: row.top1[0], default=None,
            )  # fmt: skip
            if ours is None or theirs is None:
                continue
            told.append(f"{TASKS[name]}, {budget(epsilon)}: {_difference(ours, theirs)}")
    return parts(
        "The best space of PAVE against the best trivial baseline, both chosen afterwards (a "
        "difference within two standard errors is called level):",
        told,
    )


def _difference(ours: ObjectiveRow, theirs: ObjectiveRow) -> str:
    apart = ours.top1[0] - theirs.top1[0]
    error = math.hypot(ours.top1[1], theirs.top1[1])
    word = "level with" if abs(apart) <= ERRORS * error else "above" if apart > 0 else "below"
    return f"{word} {theirs.what} ({100 * apart:+.1f} points)"


def _timed(result: dict[str, Any]) -> str:
    held = result["seconds"]
    told = [f"{value:.2g} s for {name}" for name, value in held.items()]
    return (
        "A specification takes " + ", ".join(told) + " on one thread (medians of those made here)."
    )


def _pave(
    result: dict[str, Any], tasks: str, epsilon: float, *, rank: int = 0, count: int = 1000
) -> ObjectiveRow | None:
    space = {**_space(result, "PAVE"), **({"rank": rank} if rank else {})}
    return one(result, tasks=tasks, what="PAVE", order="aligned", records=count, epsilon=epsilon,
               user=0.0, **space)  # fmt: skip


def _space(result: dict[str, Any], what: str) -> dict[str, Any]:
    if what != "PAVE":
        return {"rank": 0, "subspace": 0, "route": ""}
    return {"rank": result["rank"], "subspace": result["subspace"], "route": "aligned"}


def _records(result: dict[str, Any], tasks: str) -> int:
    return int(result["sizes"]["records_texts"]) if tasks == "texts" else 1000


def _top1(row: ObjectiveRow | None) -> str:
    return percent(row.top1 if row else None)
