"""Accuracy against ε of private linear heads on frozen features, every method tuned alike."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from tacit.accounting import ProjectedSteps
from tacit.accounting.published import lora_theorem_5_multiplier
from tacit.adapters import DPSGD, DPLoRAFA, HeadSteps, NoisyProjection, Schedule, train_heads
from tacit.gradients import ClippedMethod, Method
from tacit_lab.studies.adapters.features import FeatureRecipe, Features, features
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS

DELTA, CLASSES = 1e-4, 10
FULL: dict[str, Any] = {
    "records": 25_000, "tuning": 5_000, "rate": 0.041, "steps": 250, "seeds": 8,
    "epsilons": [0.2, 0.4, 1.0, 2.0, 4.0],
    "clips": [0.1, 0.3, 1.0], "moves": [1.0, 4.0, 16.0],
}  # fmt: skip
FAST: dict[str, Any] = {
    **FULL, "records": 800, "tuning": 400, "steps": 10, "seeds": 2, "epsilons": [1.0],
    "clips": [0.3], "moves": [4.0],
}  # fmt: skip
TUNING_SEED = 1000
# Between neighbours of the grids, and how often a grid goes on beyond its edge.
CLIP_STEP, MOVE_STEP, ROUNDS = 3.0, 4.0, 6
NO_CLIP = 1e9


@dataclass(frozen=True, kw_only=True)
class Way:
    """One row of the table."""

    method: ClippedMethod
    published: bool = False
    directions: bool = False


WAYS = {
    "DP-SGD": Way(method=DPSGD()),
    "M2 exact, r = 64": Way(method=NoisyProjection(rank=64)),
    "M2 exact, r = 256": Way(method=NoisyProjection(rank=256)),
    "M2 published, r = 64": Way(method=NoisyProjection(rank=64), published=True),
    "DP-LoRA-FA, random A, r = 64": Way(method=DPLoRAFA(rank=64)),
    "DP-LoRA-FA, random A, r = 256": Way(method=DPLoRAFA(rank=256)),
    "DP-LoRA-FA, principal A, r = 16": Way(method=DPLoRAFA(rank=16), directions=True),
    "DP-LoRA-FA, principal A, r = 64": Way(method=DPLoRAFA(rank=64), directions=True),
}


@dataclass(frozen=True, eq=False)
class Task:
    """Records to learn from, to tune on, and to report on; features of mean norm 1."""

    private: np.ndarray
    labels: np.ndarray
    tuning: np.ndarray
    tuning_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    @staticmethod
    def of(frozen: Features, sizes: dict[str, Any]) -> Task:
        """Cut the test images into those to tune on, which are public, and the others."""
        cut = sizes["tuning"]
        scale = float(np.linalg.norm(frozen.test[:cut], axis=1).mean())
        count = sizes["records"]
        return Task(
            frozen.private[:count] / scale, frozen.private_labels[:count],
            frozen.test[:cut] / scale, frozen.test_labels[:cut],
            frozen.test[cut:] / scale, frozen.test_labels[cut:],
        )  # fmt: skip

    def directions(self, rank: int) -> np.ndarray:
        """Return the principal directions of the tuning images: A with orthonormal rows."""
        return np.linalg.svd(self.tuning, full_matrices=False)[2][:rank]


def main() -> int:
    """Tune and train every way, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sizes = FAST if asked.fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    recipe = (
        FeatureRecipe(public=500, private=1000, test=1000, epochs=1)
        if asked.fast
        else FeatureRecipe()
    )
    try:
        frozen = features(recipe)
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    task = Task.of(frozen, sizes)
    study = StoredStudy("adapters-frozen-features", {**sizes, "ways": list(WAYS)})
    content: dict[str, Any] = {"sizes": sizes, "delta": DELTA, "network": frozen.accuracy}
    free = Way(method=DPSGD(clip=NO_CLIP))
    content["clean"] = study.row("clean", lambda: reached(task, free, None, sizes))
    content["ways"] = {
        name: {
            str(epsilon): study.row(
                f"{name} {epsilon}", lambda w=way, e=epsilon: reached(task, w, e, sizes)
            )
            for epsilon in sizes["epsilons"]
        }
        for name, way in WAYS.items()
    }
    show(console, content)
    if not asked.fast:
        write(RESULTS / "adapters-frozen-features.json", content)
        console.print("written: results/adapters-frozen-features.json")
    return 0


def reached(task: Task, way: Way, epsilon: float | None, sizes: dict[str, Any]) -> dict[str, Any]:
    """Tune rate and clip on other images, then train once a seed and test."""
    multiplier = 0.0 if epsilon is None else multiplier_of(way, epsilon, task, sizes)
    clips = [way.method.clip] if epsilon is None else list(sizes["clips"])
    tried = tuned(task, way, multiplier, clips, list(sizes["moves"]), sizes, free=epsilon is None)
    clip, move = max(tried, key=tried.__getitem__)
    seeds = list(range(sizes["seeds"]))
    heads = train(task, way, multiplier, [(clip, move)] * len(seeds), seeds, sizes)
    accuracies = heads.accuracy(task.test, task.test_labels)
    step = rate_of(clip, move) / (sizes["rate"] * len(task.private))
    return {
        "multiplier": multiplier, "clip": clip, "move": move,
        "accuracies": accuracies.tolist(), "tuned": float(tried[clip, move]),
        "tried": len(tried), "energy": float((heads.energies * step**2).mean()),
        "rates": [min(tried.values()), max(tried.values())],
    }  # fmt: skip


def tuned(
    task: Task,
    way: Way,
    multiplier: float,
    clips: list[float],
    moves: list[float],
    sizes: dict[str, Any],
    *,
    free: bool,
) -> dict[tuple[float, float], float]:
    """Return the accuracy of every clip and move tried; the grid goes on past its edges."""
    found: dict[tuple[float, float], float] = {}
    for _ in range(ROUNDS):
        new = [(clip, move) for clip in clips for move in moves if (clip, move) not in found]
        heads = train(task, way, multiplier, new, [TUNING_SEED] * len(new), sizes)
        found.update(
            zip(new, heads.accuracy(task.tuning, task.tuning_labels).tolist(), strict=True)
        )
        clip, move = max(found, key=found.__getitem__)
        before = len(clips) + len(moves)
        if not free:
            clips = _wider(clips, clip, CLIP_STEP)
        moves = _wider(moves, move, MOVE_STEP)
        if len(clips) + len(moves) == before or len(task.private) < 1000:
            break
    return found


def train(
    task: Task,
    way: Way,
    multiplier: float,
    settings: list[tuple[float, float]],
    seeds: list[int],
    sizes: dict[str, Any],
) -> Any:
    """Train one head a setting; heads of one seed share samples."""
    rank = getattr(way.method, "rank", 0)
    methods: list[Method] = [replace(way.method, clip=clip) for clip, _ in settings]
    steps = HeadSteps(
        steps=sizes["steps"],
        rates=np.array([rate_of(clip, move) for clip, move in settings]),
        noise_multipliers=multiplier,
        sampling_rate=sizes["rate"],
        projection=task.directions(rank) if way.directions else None,
    )
    return train_heads(
        task.private, task.labels, methods, steps, classes=CLASSES, groups=seeds, rng=seeds[0]
    )


def rate_of(clip: float, move: float) -> float:
    """Return the rate at which a clipped gradient moves by ``move``; without a clip, that."""
    return move if clip == NO_CLIP else move / clip


def multiplier_of(way: Way, epsilon: float, task: Task, sizes: dict[str, Any]) -> float:
    """Return the noise that ε asks for, by the exact account or by the published one."""
    width = task.private.shape[1]
    if way.published:
        rank = way.method.rank  # type: ignore[attr-defined]
        work = ProjectedSteps(
            dim=width, rank=rank, steps=sizes["steps"], sampling_rate=sizes["rate"]
        )
        return lora_theorem_5_multiplier(work, epsilon=epsilon, delta=DELTA)
    schedule = Schedule(
        sampling_rate=sizes["rate"], steps=sizes["steps"], dims=(width,), rank_one=True
    )
    return way.method.noise_multiplier(epsilon, DELTA, schedule)


def _wider(grid: list[float], best: float, step: float) -> list[float]:
    if best == min(grid):
        return [best / step, *grid]
    return [*grid, best * step] if best == max(grid) else grid


def show(console: Console, content: dict[str, Any]) -> None:
    """Print mean accuracies and their standard errors."""
    epsilons = content["sizes"]["epsilons"]
    table = Table(
        title=f"accuracy in percent, δ = {DELTA:g}; noise free {percent(content['clean'])}"
    )
    table.add_column("method")
    for epsilon in epsilons:
        table.add_column(f"ε = {epsilon:g}")
    for name, found in content["ways"].items():
        table.add_row(name, *(percent(found[str(epsilon)]) for epsilon in epsilons))
    console.print(table)


def percent(row: dict[str, Any]) -> str:
    """Return a mean and its standard error."""
    values = 100 * np.array(row["accuracies"])
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


if __name__ == "__main__":
    sys.exit(main())
