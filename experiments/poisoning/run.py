"""Backdoors on CIFAR-10 from one malicious source of m: attack success and accuracy, with noise."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from tacit.accounting import gaussian_shift
from tacit.training import Beside, References
from tacit_lab.poisoning import (
    LabelledImages,
    RobustAggregation,
    blended,
    low_frequency,
    pretrain,
    small_network,
)
from tacit_lab.poisoning.sources import Sources
from tacit_lab.poisoning.workflow import PoisonedTraining, measure_trigger
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy
from tacit_lab.studies.places import CACHE, RESULTS

DELTA, TARGET = 1e-5, 0
FULL = {
    "train": 20_000, "public": 10_000, "passes": 4, "test": 1_000, "sources": [10, 20, 40],
    "rounds": 30, "batch": 300, "rate": 0.03, "public_rate": 0.05, "momentum": 0.9, "angle": 90.0,
    "epsilons": [4.0, 8.0], "triggers": ["blended", "low-frequency"], "alpha": 0.4, "norm": 6.0,
    "frequencies": 4, "seeds": {"optimal": 3, "reference": 2}, "isotropic": [3.0, 5.5, 10.0, 30.0],
}  # fmt: skip
FAST = {
    **FULL, "train": 400, "public": 200, "passes": 1, "test": 200, "sources": [4], "rounds": 3,
    "batch": 40, "epsilons": [8.0], "seeds": {"optimal": 1, "reference": 1},
    "isotropic": [16.0, 64.0],
}  # fmt: skip


def main() -> int:
    """Run what is missing, write the JSON, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sizes = FAST if asked.fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    try:
        study = Poisoning(sizes)
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    found = study.run(console)
    show(console, found)
    if not asked.fast:
        content = {"sizes": sizes, "delta": DELTA, "target": TARGET, **found}
        write_result(RESULTS / "poisoning.json", content, "rows")
        console.print("written: results/poisoning.json")
    return 0


class Poisoning:
    """The trainings of the study, each kept as soon as it is done."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        self.sizes = sizes
        self.kept = StoredStudy("poisoning", {"sizes": sizes, "delta": DELTA, "target": TARGET})
        read = data.cifar10()
        count, last = sizes["train"], sizes["train"] + sizes["public"]
        # tacit_lab.studies.pac has them in −1 … 1
        train, test = ((part + 1.0) / 2.0 for part in (read.train[:last], read.test))
        self.data = LabelledImages(np.clip(train[:count], 0, 1), read.train_labels[:count])
        self.public = LabelledImages(np.clip(train[count:], 0, 1), read.train_labels[count:last])
        size = sizes["test"]
        self.test = LabelledImages(np.clip(test[:size], 0, 1), read.test_labels[:size])
        shape = self.data.images.shape[1:]
        self.triggers = {
            "blended": blended(shape, alpha=sizes["alpha"]),
            "low-frequency": low_frequency(
                shape, norm=sizes["norm"], frequencies=sizes["frequencies"]
            ),
        }
        self.model = self._pretrained()

    def run(self, console: Console) -> dict[str, Any]:
        """Return every row; those that were done before are not done again."""
        sizes, rows = self.sizes, []
        cells = [(t, m) for m in sizes["sources"] for t in sizes["triggers"]]
        start = {t: self._measured(self.model, t) for t in sizes["triggers"]}
        for trigger, count in cells:
            row: dict[str, Any] = {"trigger": trigger, "sources": count, "ways": {}}
            row["clean"] = self._row(trigger, count, "no noise")
            row["reference"] = self._row(trigger, count, "no noise, honest sources", left_out=0)
            for epsilon in sizes["epsilons"]:
                named = f"{epsilon:g}"
                ways = {
                    "optimal": self._seeds(trigger, count, "optimal", epsilon=epsilon),
                    "references": self._seeds(
                        trigger, count, "reference", left_out=0, epsilon=epsilon
                    ),
                    "isotropic": self._row(
                        trigger, count, "isotropic", epsilon=epsilon, noise="isotropic"
                    ),
                }
                row["ways"][named] = ways
                told = ", ".join(_both(one) for one in ways["optimal"])
                console.print(f"{trigger}, m = {count}, ε = {named}: {told}")
            rows.append(row)
        for row in rows:
            ladder = self._ladder(row["sources"])
            for ways in row["ways"].values():
                ways["matched"] = self._matched(row, _mean(ways["optimal"], "accuracy"), ladder)
        return {"pretrained": start, "rows": rows}

    def _seeds(self, trigger: str, count: int, way: str, **options: Any) -> list[dict[str, Any]]:
        """Return runs with noise of their own."""
        first = 100 * (way == "reference")
        return [
            self._row(trigger, count, way, seed=first + seed, **options)
            for seed in range(self.sizes["seeds"][way])
        ]

    def _ladder(self, count: int) -> list[tuple[float, float]]:
        """Return accuracies of isotropic noise at several μ, without looking at a trigger's ASR."""
        first = self.sizes["triggers"][0]
        return [
            (mu, self._row(first, count, "isotropic", mu=mu, noise="isotropic")["accuracy"][0])
            for mu in self.sizes["isotropic"]
        ]

    def _matched(
        self, row: dict[str, Any], accuracy: float, ladder: list[tuple[float, float]]
    ) -> dict[str, Any]:
        """Train with isotropic noise of about the same accuracy; return its provable ε too."""
        scales = np.log([mu for mu, _ in ladder])
        heights = np.maximum.accumulate([height for _, height in ladder])
        place = int(np.searchsorted(heights, accuracy))
        low, high = max(0, min(place, len(scales) - 1) - 1), min(place, len(scales) - 1)
        rise = heights[high] - heights[low]
        share = 1.0 if rise <= 0 else (accuracy - heights[low]) / rise
        mu = round(
            float(np.exp(scales[low] + np.clip(share, 0, 1) * (scales[high] - scales[low]))), 3
        )
        found = self._row(row["trigger"], row["sources"], "matched", mu=mu, noise="isotropic")
        return {**found, "mu": mu, "epsilon": gaussian_shift(mu).epsilon(DELTA)}

    def _row(
        self, trigger: str, count: int, way: str, *, left_out: int | None = None, seed: int = 0,
        **options: Any,
    ) -> dict[str, Any]:  # fmt: skip
        key = f"{trigger} {count} {way} {options} {left_out} {seed}"

        def train() -> dict[str, Any]:
            budget = {name: options[name] for name in ("epsilon", "mu") if name in options}
            training = self._training(trigger, count, budget or {"mu": 1.0})
            if not options:
                return self._measured(training.without_noise(left_out=left_out), trigger)
            model = training.with_noise(
                left_out=left_out, seed=seed, noise=options.get("noise", "optimal")
            )
            return self._measured(model, trigger)

        return self.kept.row(key, train)

    def _training(self, trigger: str, count: int, budget: dict[str, float]) -> PoisonedTraining:
        sizes = self.sizes
        sources = Sources(
            data=self.data, count=count, batch=sizes["batch"], trigger=self.triggers[trigger],
            target=TARGET,
        )  # fmt: skip
        references = References.leave_out(sources.names)
        delta = DELTA if "epsilon" in budget else None
        return PoisonedTraining(
            model=self.model, optimizer=self._optimizer(sizes["rate"]), sources=sources,
            rounds=sizes["rounds"], method=RobustAggregation(angle=sizes["angle"]),
            promise=Beside(references=references, delta=delta, **budget),
        )  # fmt: skip

    def _measured(self, model: torch.nn.Module, trigger: str) -> dict[str, Any]:
        found = measure_trigger(model, self.test, self.triggers[trigger], TARGET)
        return {
            name: [interval.value, interval.low, interval.high]
            for name, interval in (("accuracy", found.accuracy), ("success", found.success))
        }

    def _pretrained(self) -> torch.nn.Module:
        """Return the network trained on the public part, from the cache where it is."""
        model = small_network(3, 10)
        wanted = ("public", "train", "passes", "public_rate", "momentum")
        named = "-".join(str(self.sizes[name]) for name in wanted)
        path = CACHE / f"poisoning-{named}.pt"
        if path.is_file():
            model.load_state_dict(torch.load(path, weights_only=True))
            return model
        rate = self.sizes["public_rate"]
        pretrain(model, self.public, self._optimizer(rate), passes=self.sizes["passes"])
        path.parent.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path)
        return model

    def _optimizer(self, rate: float) -> Any:
        return lambda p: torch.optim.SGD(p, lr=rate, momentum=self.sizes["momentum"])


def show(console: Console, found: dict[str, Any]) -> None:
    """Print accuracies and attack successes beside each other."""
    table = Table(title="accuracy / attack success, %")
    heads = ("trigger", "m", "ε", "no noise", "optimal", "its references", "isotropic, same ε",
             "isotropic, same accuracy", "its ε")  # fmt: skip
    for head in heads:
        table.add_column(head)
    for row in found["rows"]:
        for epsilon, ways in row["ways"].items():
            table.add_row(
                row["trigger"], str(row["sources"]), epsilon, _both(row["clean"]),
                _means(ways["optimal"]), _means(ways["references"]), _both(ways["isotropic"]),
                _both(ways["matched"]), f"{ways['matched']['epsilon']:.0f}",
            )  # fmt: skip
    console.print(table)


def _both(found: dict[str, Any]) -> str:
    return f"{100 * found['accuracy'][0]:.1f} / {100 * found['success'][0]:.1f}"


def _means(found: list[dict[str, Any]]) -> str:
    accuracy, success = (100 * _mean(found, name) for name in ("accuracy", "success"))
    ends = [100 * one["success"][0] for one in found]
    return f"{accuracy:.1f} / {success:.1f} ({min(ends):.1f} to {max(ends):.1f})"


def _mean(found: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([one[name][0] for one in found]))


if __name__ == "__main__":
    sys.exit(main())
