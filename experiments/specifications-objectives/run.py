"""Which objective finds the model asked for: names shared or not, both sides under the same ε."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from tacit.specifications import (
    Description,
    ReplacedRecord,
    load_backbone,
    prepare_specification,
    specify,
)
from tacit.specifications.methods import OBJECTIVES
from tacit.specifications.schedule import multiplier_for
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.specifications import tasks
from tacit_lab.studies.specifications.backbones import NAMES
from tacit_lab.studies.specifications.baselines import DELTA, HISTOGRAM, histogram
from tacit_lab.studies.specifications.learnwares import records
from tacit_lab.studies.specifications.measures import Floats, found, share
from tacit_lab.studies.specifications.pictures import LabelledPictures
from tacit_lab.studies.specifications.reuse import USERS
from tacit_lab.studies.specifications.rows import budget, percent
from tacit_lab.studies.specifications.stages import DEVELOPERS
from tacit_lab.studies.specifications.tasks import StudyTask

NAME = "specifications-objectives"
FULL: dict[str, Any] = {
    "tasks_seed": 7, "draws": 2, "records": [300, 1000], "epsilons": [0.0, 8.0, 1.0], "cases": 24,
    "transforms": 5,
}  # fmt: skip
FAST: dict[str, Any] = {
    **FULL, "draws": 1, "records": [60], "epsilons": [8.0], "cases": 4, "transforms": 1,
}  # fmt: skip


def main() -> int:
    """Run every part that is not yet kept, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is published")
    parser.add_argument("--kept", action="store_true", help="write what was run before, run none")
    asked = parser.parse_args()
    fast = asked.fast
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        result = studied(FAST if fast else FULL, kept=asked.kept)
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    table = Table("tasks", "names", "n", "ε", "objective", "top-1")
    for row in result["rows"]:
        cells = (row["tasks"], row["names"], str(row["records"]), budget(row["epsilon"]))
        table.add_row(*cells, row["what"], percent(row["top1"]))
    console.print(table)
    if not fast:
        write_result(RESULTS / f"{NAME}.json", result, "rows")
        console.print(f"written: results/{NAME}.json")
    return 0


def studied(sizes: dict[str, Any], kept: bool = False) -> dict[str, Any]:
    """Return the whole result, each part from the cache where it was computed before.

    With ``kept`` parts that were not are left out and counted as missing.
    """
    seed, study = sizes["tasks_seed"], StoredStudy(NAME, sizes)
    collections = {
        "images": tasks.image_tasks(seed, sizes["transforms"]),
        "relabelled": tasks.relabelled_tasks(seed, sizes["cases"]),
    }
    rows: list[dict[str, Any]] = []
    missing = 0
    for name, count, what in product(collections, sizes["records"], (*OBJECTIVES, HISTOGRAM)):
        for names in ("shared", "own"):
            # names do not enter a scatter or a mean: what is found is what was found before
            told = "shared" if what in ("scatter", "mean") else names
            key = f"{name} {count} {what} {told}"
            if kept and key not in study.rows:
                missing += 1
                continue
            asked = (name, collections[name], count, what, told, sizes)
            found = study.row(key, partial(identified, *asked))
            rows += [{**row, "names": names} for row in found]
    return {
        "command": f"make experiments NAME={NAME}", "sizes": sizes, "delta": DELTA,
        "backbone": NAMES["images"], "rows": rows, "missing": missing,
        "tasks": {name: len(held) for name, held in collections.items()},
    }  # fmt: skip


def identified(
    name: str, held: list[StudyTask], count: int, what: str, names: str, sizes: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return for every ε how often the learnware asked for is the most similar of all.

    Learnwares and users have as many records, none in common, and specifications under the same ε.
    """
    known = sorted({name for task in held for name in task.classes})
    known += [_own(label) for label in range(max(task.labels for task in held))]
    mine = [records(task, count, "private", DEVELOPERS) for task in held]
    # a learnware chooses among those of its own data where all of these have the same inputs
    sources = np.array([task.source if name == "relabelled" else "" for task in held])
    epsilons = sizes["epsilons"]
    learnwares = [
        described(what, part, task.classes, known, epsilons)
        for task, part in zip(held, mine, strict=True)
    ]
    hits: dict[float, list[bool]] = {epsilon: [] for epsilon in epsilons}
    for draw in range(sizes["draws"]):
        for row, task in enumerate(held):
            part = records(task, count, "users", USERS + draw)
            given = task.classes if names == "shared" else _owns(task, draw)
            rivals = np.flatnonzero(sources == sources[row])
            for epsilon, query in described(what, part, given, known, epsilons).items():
                kept = np.stack([learnwares[rival][epsilon] for rival in rivals])
                hits[epsilon].append(rivals[int(found(kept, query[None])[0])] == row)
    return [
        {"tasks": name, "what": what, "names": names, "records": count, "epsilon": epsilon,
         "top1": share(held), "queries": len(held), "numbers": len(learnwares[0][epsilon])}
        for epsilon, held in hits.items()
    ]  # fmt: skip


def described(
    what: str, part: LabelledPictures, names: Any, known: list[str], epsilons: list[float]
) -> dict[float, Floats]:
    """Return the numbers that are released of records for every ε, 0 for no noise.

    What is the same before its noise whatever ε is computed once; every ε then has the noise that
    its own release would have.
    """
    if what == HISTOGRAM:
        rng = np.random.default_rng()
        return {
            value: histogram(part.labels, names, known, epsilon=value or None, rng=rng)
            for value in epsilons
        }
    about, objective = Description(classes=list(names)), OBJECTIVES[what]()
    words, network = np.array(names)[part.labels], load_backbone(NAMES["images"])
    if what == "scatter":
        chosen = {
            value: ReplacedRecord(epsilon=value, delta=DELTA) if value else None
            for value in epsilons
        }
        return {
            value: specify(
                words, part.inputs, promise, objective, about=about, backbone=network
            ).details.specification.vector
            for value, promise in chosen.items()
        }
    made = prepare_specification(words, part.inputs, None, objective, about=about, backbone=network)
    assert made.known is not None
    return {
        value: made.asked.add_noise(
            made.known, len(words), multiplier_for(value, DELTA) if value else 0.0, None
        )
        for value in epsilons
    }


def _own(label: int) -> str:
    return f"mine {label}"


def _owns(task: StudyTask, draw: int) -> list[str]:
    """Return what a user calls the labels who asked no developer, in an order of their own."""
    order = np.random.default_rng([draw, task.labels]).permutation(task.labels)
    return [_own(int(label)) for label in order]


if __name__ == "__main__":
    sys.exit(main())
