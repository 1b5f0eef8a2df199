"""The canary game on low-rank updates: no noise, M2 and M1, over ranks, beside their bounds."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from tacit.accounting import PrivacyProfile, projected_plus_noise
from tacit.adapters import HeadSteps, NoisyProjection, Schedule
from tacit.gradients.clipping import ClippedMethod
from tacit.gradients.steps import Normal
from tacit_lab.canary_game import CanaryGame, canary_game, play_linear_heads
from tacit_lab.studies.adapters import whole
from tacit_lab.studies.adapters.features import FeatureRecipe, Features, features
from tacit_lab.studies.adapters.two_layers import TwoLayerHeads, TwoLayerTask, losses
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS

SEED, POPULATION = 0, 200
FULL: dict[str, Any] = {
    "models": 200,
    "fitted": {"ranks": [1, 4, 16, 64], "records": 1000, "batch": 50, "rate": 0.004,
               "steps": [300, 600, 1200]},
    "M2": {"ranks": [4, 16, 64], "noise": [0.0, 0.5, 2.0, 8.0]},
    "M1": {"ranks": [16, 64, 256], "noise": [8.0, 32.0]},
    "linear": {"records": 500, "steps": 100, "rate": 0.03, "clip": 1.0},
    "whole": {"ranks": [1, 16], "models": 40, "records": 200, "public": 5000, "epochs": 3,
              "batch": 50, "rate": 0.001, "steps": 100},
}  # fmt: skip
FAST: dict[str, Any] = {
    **FULL, "models": 32,
    "fitted": {**FULL["fitted"], "ranks": [4], "records": 100, "steps": [20, 40]},
    "M2": {"ranks": [4], "noise": [0.0, 2.0]}, "M1": {"ranks": [4], "noise": [2.0]},
    "linear": {**FULL["linear"], "records": 50, "steps": 10},
    "whole": {**FULL["whole"], "ranks": [4], "models": 16, "public": 500, "epochs": 1,
              "steps": 10},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ProjectionPlusNoise(ClippedMethod):
    """M1: a fresh public A_t a step, ``(Σ c_i G_i) A_tᵀ A_t + N(0, s²C²)``."""

    rank: int
    name: ClassVar[str] = "projection plus noise (M1)"
    full: ClassVar[bool] = True
    fresh: ClassVar[bool] = True
    noise: ClassVar[str] = "independent"

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of T steps, A told."""
        step = projected_plus_noise(
            dim=min(schedule.dims), rank=self.rank, sensitivity=1.0, noise_std=noise_multiplier,
            difference_rank=schedule.difference_rank,
        )  # fmt: skip
        return step * schedule.steps

    def step(
        self, total: torch.Tensor, projection: torch.Tensor | None, std: float, normal: Normal
    ) -> torch.Tensor:
        """Return the projected sum with noise in every entry."""
        assert projection is not None
        return super().step(total @ projection.mT @ projection, None, std, normal)


def main() -> int:
    """Play every game, write the JSON, print the table."""
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
        split = data.cifar10()
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    content: dict[str, Any] = {"sizes": sizes, "network": frozen.accuracy}
    content["fitted"] = [
        kept("fitted", sizes).row(str(rank), lambda r=rank: fitted(frozen, r, sizes))
        for rank in sizes["fitted"]["ranks"]
    ]
    for name, kind in (("M2", NoisyProjection), ("M1", ProjectionPlusNoise)):
        content[name] = [
            kept(name, sizes, "linear").row(
                f"{rank} {noise}", lambda k=kind, r=rank, s=noise: linear(frozen, k, r, s, sizes)
            )
            for rank in sizes[name]["ranks"]
            for noise in sizes[name]["noise"]
        ]
    content["whole"] = [
        kept("whole", sizes).row(str(rank), lambda r=rank: networks(split, r, sizes))
        for rank in sizes["whole"]["ranks"]
    ]
    for part in ("fitted", "M2", "M1", "whole"):
        show(console, part, content[part])
    if not asked.fast:
        write(RESULTS / "adapters-canary-game.json", content)
        console.print("written: results/adapters-canary-game.json")
    return 0


def kept(part: str, sizes: dict[str, Any], *more: str) -> StoredStudy:
    """Return the rows of one part, which go on when another part's settings change."""
    settings = {name: sizes[name] for name in ("models", *more)}
    if part in ("fitted", "whole"):
        settings |= {k: v for k, v in sizes[part].items() if k != "ranks"}
    return StoredStudy(f"adapters-canary-game-{part}", settings)


def fitted(frozen: Features, rank: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """Train heads of two layers without noise until they fit; play after each number of steps."""
    plan = sizes["fitted"]
    count = plan["records"]
    rows = torch.from_numpy(np.vstack([frozen.private[:count], frozen.canaries[:1]]))
    labels = torch.from_numpy(np.append(frozen.private_labels[:count], 0))
    task = TwoLayerTask(rows, labels, plan["batch"], plan["rate"])
    reference = TwoLayerHeads(
        frozen, task, torch.zeros(1, dtype=torch.bool), rank, torch.Generator().manual_seed(SEED)
    )
    reference.train(plan["steps"][-1])
    label = int(reference.logits(rows[-1:])[0, 0].argmin())
    labels[-1] = label
    inside = torch.arange(sizes["models"]) % 2 == 1
    heads = TwoLayerHeads(frozen, task, inside, rank, torch.Generator().manual_seed(SEED + 1))
    found, done = [], 0
    for steps in plan["steps"]:
        heads.train(steps - done)
        done = steps
        game = canary_game(
            losses(heads.logits(rows[-1:]), labels[-1:])[:, 0],
            inside.numpy(),
            population_losses=losses(heads.logits(_others(frozen, count)), _truth(frozen, count)),
            rng=SEED,
        )
        right = heads.logits(rows[:-1]).argmax(dim=-1) == labels[:-1]
        found.append(
            {"steps": steps, "fit": float(right.double().mean()),
             "accuracy": _tested(heads, frozen), "game": game.to_dict()}
        )  # fmt: skip
    return {"rank": rank, "label": label, "after": found}


def linear(
    frozen: Features, kind: Any, rank: int, noise: float, sizes: dict[str, Any]
) -> dict[str, Any]:
    """Train linear heads on all records at once; the bound is of the steps' composition."""
    plan = sizes["linear"]
    count = plan["records"]
    rows, canary, others, tests = (
        values / np.linalg.norm(values, axis=1, keepdims=True)
        for values in (
            frozen.private[:count],
            frozen.canaries[:1],
            frozen.private[count : count + POPULATION],
            frozen.test[:1000],
        )
    )
    labels, method = frozen.private_labels[:count], kind(rank=rank, clip=plan["clip"])
    taken = HeadSteps(steps=plan["steps"], rates=plan["rate"], noise_multipliers=noise)
    reference = play_linear_heads(
        rows, labels, (canary[0], 0), method, taken, classes=10, models=2, rng=SEED
    )
    label = int(reference.logits(canary)[0, 0].argmin())
    heads = play_linear_heads(
        rows, labels, (canary[0], label), method, taken, classes=10, models=sizes["models"],
        rng=SEED + 1,
    )  # fmt: skip
    schedule = Schedule(
        sampling_rate=1.0, steps=plan["steps"], dims=(rows.shape[1],), rank_one=True
    )
    game: CanaryGame = canary_game(
        heads.losses,
        heads.memberships,
        population_losses=heads.losses_of(
            others, frozen.private_labels[count : count + POPULATION]
        ),
        log_ratios=heads.log_ratios,
        profile=method.profile(noise, schedule) if noise > 0.0 else None,
        rng=SEED,
    )
    return {
        "rank": rank,
        "noise": noise,
        "label": label,
        "accuracy": float(heads.accuracy(tests, frozen.test_labels[:1000]).mean()),
        "game": game.to_dict(),
    }


def networks(split: data.Split, rank: int | None, sizes: dict[str, Any]) -> dict[str, Any]:
    """Train whole networks, each in a process of its own, without noise."""
    plan = sizes["whole"]
    images, labels = torch.from_numpy(split.train), torch.from_numpy(split.train_labels)
    public, count = plan["public"], plan["records"]
    start = whole.pretrained(images[:public], labels[:public], epochs=plan["epochs"], seed=SEED)
    canary = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(SEED))
    private = slice(public, public + count)
    others = slice(public + count, public + count + POPULATION)
    task = whole.WholePlan(
        start=start,
        images=torch.cat([images[private], canary]).contiguous(),
        labels=torch.cat([labels[private], labels.new_zeros(1)]),
        others=images[others].contiguous(),
        other_labels=labels[others],
        rank=rank,
        steps=plan["steps"],
        batch=plan["batch"],
        rate=plan["rate"],
    )
    task.labels[-1] = whole.canary_label(task, np.random.default_rng(SEED))
    inside = np.arange(plan["models"]) % 2 == 1
    found = whole.trained(task, inside, seed=SEED, workers=None)
    game = canary_game(
        found["losses"], inside, population_losses=found["population_losses"], rng=SEED
    )
    return {
        "rank": rank,
        "label": int(task.labels[-1]),
        "accuracy": float(found["accuracy"].mean()),
        "game": game.to_dict(),
    }


def _others(frozen: Features, count: int) -> torch.Tensor:
    return torch.from_numpy(frozen.private[count : count + POPULATION])


def _truth(frozen: Features, count: int) -> torch.Tensor:
    return torch.from_numpy(frozen.private_labels[count : count + POPULATION])


def _tested(heads: TwoLayerHeads, frozen: Features) -> float:
    guesses = heads.logits(torch.from_numpy(frozen.test[:1000])).argmax(dim=-1)
    return float((guesses.numpy() == frozen.test_labels[:1000]).mean())


def show(console: Console, part: str, rows: list[dict[str, Any]]) -> None:
    """Print every attacker's AUC and balanced accuracy beside the bounds."""
    table = Table(title=part)
    for head in ("rank", "noise or steps", "accuracy", "attacker", "AUC", "balanced", "bounds"):
        table.add_column(head)
    for row in rows:
        for after in row.get("after", [row]):
            game = after["game"]
            for name, found in game["played"].items():
                bounds = "—" if game["bound"] is None else f"{game['auc_bound']:.3f} "
                table.add_row(
                    str(row["rank"]),
                    str(row.get("noise", after.get("steps", ""))),
                    f"{after['accuracy']:.3f}",
                    name,
                    f"{found['auc']:.3f}",
                    f"{found['balanced_accuracy']:.3f}",
                    bounds + ("" if game["bound"] is None else f"{game['bound']:.3f}"),
                )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
