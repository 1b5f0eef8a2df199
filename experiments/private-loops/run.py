"""Accuracy of one model by the loops of Tacit and of Opacus, at equal guarantee and tuning."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from rich.console import Console

from tacit_lab.studies.loops.encoder import EncoderRecipe
from tacit_lab.studies.loops.measure import TUNING_SEED, reached
from tacit_lab.studies.loops.tasks import TaskSizes, news, photographs
from tacit_lab.studies.loops.ways import CLIP, WAYS, LearningTask
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS

EPSILONS, SEEDS = (1.0, 8.0), (0, 1, 2)
# without any clip large rates diverge
RATES, LOWER = (0.1, 0.3, 1.0), (0.01, 0.03, 0.1)
FULL = {
    "photographs": TaskSizes(train=20_000, tuning=5_000, test=10_000, batch=500, epochs=3),
    "news": TaskSizes(train=15_000, tuning=5_000, test=7_600, batch=250, epochs=2),
}
FAST = {name: TaskSizes(train=400, tuning=100, test=100, batch=50, epochs=1) for name in FULL}
RECIPE, SHORT = EncoderRecipe(), EncoderRecipe(texts=500, words=300, steps=3, heads=2, width=8)


def main() -> int:
    """Tune and train every way, write the JSON, print the accuracies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    parser.add_argument("--tasks", nargs="*", choices=list(FULL), default=list(FULL))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sizes = FAST if asked.fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    found: dict[str, Any] = {}
    try:
        for name in asked.tasks:
            found[name] = studied(name, sizes[name], SHORT if asked.fast else RECIPE, console)
    except (data.MissingDataError, ModuleNotFoundError) as missing:
        console.print(f"skipped: {missing}")
        return 0
    if not asked.fast and set(found) == set(FULL):
        write(RESULTS / "private-loops.json", {"tuning seed": TUNING_SEED, "tasks": found})
        console.print("written: results/private-loops.json")
    return 0


def studied(name: str, sizes: TaskSizes, recipe: EncoderRecipe, console: Console) -> dict[str, Any]:
    """Return what every way reaches on one task."""
    settings = {**asdict(sizes), "rates": RATES, "recipe": asdict(recipe)}
    kept = StoredStudy(f"private-loops-{name}", settings)
    task: LearningTask = photographs(sizes) if name == "photographs" else news(sizes, recipe)
    result: dict[str, Any] = {**settings, "clip": CLIP, "delta": task.delta, "ways": {}}
    result["learned"] = sum(one.numel() for one in task.model(0).parameters() if one.requires_grad)
    start = time.process_time()
    for way in WAYS:
        rates = LOWER if way == "without noise and clip" else RATES
        # without noise there is no promise to keep
        for epsilon in EPSILONS if not way.startswith("without") else (None,):
            row = reached(task, way, epsilon, rates, SEEDS, kept)
            result["ways"].setdefault(way, {})[str(epsilon)] = row
            mean, spent = np.mean(row["accuracies"]), time.process_time() - start
            console.print(
                f"{name}, {way}, ε = {epsilon}: rate {row['rate']}, {mean:.4f} ({spent:.0f} s)"
            )
    return result


if __name__ == "__main__":
    sys.exit(main())
