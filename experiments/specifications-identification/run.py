"""Identification and reuse by specifications: rank, subspace, ε, label order, trivial baselines."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.specifications import figure, learnwares, reuse, tasks
from tacit_lab.studies.specifications.backbones import NAMES as BACKBONES
from tacit_lab.studies.specifications.backbones import RANK, SIZE
from tacit_lab.studies.specifications.baselines import DELTA, HISTOGRAM
from tacit_lab.studies.specifications.rows import ObjectiveRow, budget, percent
from tacit_lab.studies.specifications.stages import (
    Collection,
    Way,
    agreement,
    gammas,
    histograms,
    identified,
    probe,
    seconds,
    verdicts,
)

REUSE = ("tasks_seed", "transforms", "texts", "draws", "examples", "tested", "recipe")
NAME = "specifications-identification"
COMMAND = f"make experiments NAME={NAME}"
FULL: dict[str, Any] = {
    "tasks_seed": 1, "draws": 4, "examples": 100, "tested": 100, "transforms": 5, "texts": 20,
    "records": [100, 1000, 4000], "ranks": [1, 2, 4, 8], "epsilons": [1.0, 2.0, 4.0, 8.0],
    "subspaces": [8, 24], "records_texts": 400, "cases": 24, "recipe": {},
}  # fmt: skip
FAST: dict[str, Any] = {
    **FULL, "draws": 1, "examples": 20, "tested": 20, "transforms": 1, "texts": 2,
    "records": [100, 1000], "ranks": [1, 2], "epsilons": [4.0], "subspaces": [4],
    "records_texts": 60, "cases": 4,
    "recipe": {"records": 60, "epochs": 1},
}  # fmt: skip


def main() -> int:
    """Run every part that is not yet kept, write the JSON and the figure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is published")
    parser.add_argument("--only", default="", help="compute one collection and publish nothing")
    parser.add_argument("--kept", action="store_true", help="publish what is kept, compute no row")
    parser.add_argument(
        "--histograms", action="store_true", help="compute again the rows of names alone"
    )
    asked = parser.parse_args()
    fast = asked.fast
    torch.set_num_threads(1)
    sizes = FAST if fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        result = (
            with_histograms() if asked.histograms else studied(sizes, asked.only, kept=asked.kept)
        )
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    show(console, result)
    if not fast and not asked.only:
        write_result(RESULTS / f"{NAME}.json", result, "rows")
        figure.draw(result, figure.IMAGES / f"{NAME}.svg")
        console.print(f"written: results/{NAME}.json")
    return 0


def studied(sizes: dict[str, Any], only: str = "", *, kept: bool = False) -> dict[str, Any]:
    """Return the whole result, each part from the cache where it was computed before."""
    draws, drawn = sizes["draws"], collections(sizes)
    images, texts = drawn["images"], drawn["texts"]
    worths = StoredStudy("specifications-reuse", {name: sizes[name] for name in REUSE})
    worth = {
        name: [worths.row(f"{name} {draw}", lambda n=name, d=draw: _worth(n, drawn[n], sizes, d))
               for draw in range(draws)]
        for name in ("images", "texts")
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    missing = 0
    held = {name: Collection(name, drawn[name], sizes, worth.get(name)) for name in drawn}
    for name, collection in held.items():
        if only in ("", name):
            study = StoredStudy(f"{NAME}-{name}", sizes)
            for way in ways(name, sizes):
                if kept and repr(way) not in study.rows:
                    missing += 1
                    continue
                rows += study.row(repr(way), lambda c=collection, w=way: _dicts(identified(c, w)))
    if only:
        return {"rows": rows, "queries": draws * len(images)}
    study = StoredStudy(NAME, sizes)
    pictures = held["images"]
    return {
        "command": COMMAND, "commit": commit(), "sizes": sizes, "delta": DELTA,
        "images": len(images), "texts": len(texts), "queries": draws * len(images),
        "backbones": BACKBONES, "rank": RANK, "subspace": SIZE, "missing": missing,
        "full": study.row("full", lambda: agreement(pictures)),
        "gamma": study.row("gamma", lambda: gammas(pictures)),
        "gamma_records": ["100", "1000"],
        "verdicts": study.row("verdicts", lambda: verdicts(pictures)),
        "seconds": study.row("seconds", lambda: seconds(pictures)),
        "reuse": {
            name: {**reuse.summary(worth[name]),
                   "probe": study.row(f"probe {name}", lambda n=name: probe(held[n]))}
            for name in worth
        },
        "rows": rows,
    }  # fmt: skip


def with_histograms() -> dict[str, Any]:
    """Return the stored result with the rows of the names of classes, which need no network."""
    result = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))
    sizes, rows = result["sizes"], []
    for name, drawn in collections(sizes).items():
        for way in ways(name, sizes):
            if way.route == "baselines":
                rows += _dicts(histograms(Collection(name, drawn, sizes, None), way))
    kept = [row for row in result["rows"] if row["what"] != HISTOGRAM]
    return {**result, "rows": kept + rows, "histograms": commit()}


def collections(sizes: dict[str, Any]) -> dict[str, list[tasks.StudyTask]]:
    """Return the tasks of every collection."""
    seed = sizes["tasks_seed"]
    return {
        "images": tasks.image_tasks(seed, sizes["transforms"]),
        "texts": tasks.text_tasks()[: sizes["texts"]],
        "relabelled": tasks.relabelled_tasks(seed, sizes["cases"]),
        "crossed": tasks.crossed_tasks(seed, sizes["cases"]),
    }


def ways(name: str, sizes: dict[str, Any]) -> list[Way]:
    """Return how the tasks of a collection are described: every axis about r = 1, n = 1,000."""
    epsilons = (0.0, *sizes["epsilons"])
    some = (0.0, *(value for value in (1.0, 4.0) if value in sizes["epsilons"]))
    ranks = sizes["ranks"]
    if name == "texts":
        return [Way(route, records=sizes["records_texts"], epsilons=epsilons)
                for route in ("aligned", "baselines")]  # fmt: skip
    found = [Way("aligned", epsilons=epsilons), Way("baselines", epsilons=epsilons)]
    if name in ("relabelled", "crossed"):
        return [*found, Way("aligned", rank=ranks[-1], subspace=0, epsilons=some)]
    found += [Way("aligned", rank=1, epsilons=epsilons)]
    found += [Way("aligned", records=100, epsilons=epsilons), Way("baselines", records=100)]
    found += [Way("label-free", order="permuted", epsilons=some)]
    found += [Way("label-free", records=100, order="permuted")]
    found += [Way("aligned", order="permuted"), Way("baselines", order="permuted")]
    found += [Way("aligned", rank=rank, subspace=0, epsilons=epsilons) for rank in (1, ranks[-1])]
    found += [Way("aligned", rank=rank, epsilons=epsilons) for rank in ranks[2:]]
    found += [Way("aligned", subspace=size, epsilons=some) for size in sizes["subspaces"]]
    return found + [
        Way("aligned", records=count, epsilons=epsilons) for count in sizes["records"][2:]
    ]


def _worth(
    name: str, held: list[tasks.StudyTask], sizes: dict[str, Any], draw: int
) -> dict[str, Any]:
    networks = learnwares.models(held, learnwares.LearnwareRecipe(**sizes["recipe"]))
    return reuse.rows(name, held, networks, sizes, draw)


def _dicts(rows: list[ObjectiveRow]) -> list[dict[str, Any]]:
    return [row.to_dict() for row in rows]


def commit() -> str:
    """Return the commit that is checked out, with a mark where files differ from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty=, changed", "--exclude=*"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or "an unknown commit"


def show(console: Console, result: dict[str, Any]) -> None:
    """Print every row."""
    table = Table(title=f"top-1 in percent, {result['queries']} users of images")
    for name in ("tasks", "what", "route", "order", "n", "r", "k", "ε", "top-1", "reuse"):
        table.add_column(name)
    for held in result["rows"]:
        row = ObjectiveRow(**held)
        table.add_row(
            row.tasks, row.what, row.route, row.order, f"{row.records:,}", str(row.rank),
            str(row.subspace or "–"), budget(row.epsilon), percent(row.top1), percent(row.reuse),
        )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
