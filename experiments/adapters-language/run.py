"""tacit/small fine-tuned by an adapter on a text with canaries: held-out loss, exposure, audit."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from tacit import Run, releases
from tacit.adapters import (
    CanaryAudit,
    DPLoRAFA,
    LoRAFA,
    PoissonSteps,
    TrainingRecords,
    audit_adapter,
    keep_apart,
    load_pretrained,
    read_records,
)
from tacit.attacks import coins
from tacit.measured import Interval
from tacit_lab.memorisation import Canaries, exposures
from tacit_lab.studies.pac import data
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS

DELTA, SEED = 1e-5, 0
FULL: dict[str, Any] = {
    "text": "tiny_shakespeare", "records": 2_000, "held_out": 200, "length": 48, "canaries": 64,
    "rank": 16, "batch": 64, "steps": 100, "rate": 0.01, "clip": 1.0, "samples": 128,
    "epsilons": [None, 8.0, 4.0, 1.0],
}  # fmt: skip
FAST: dict[str, Any] = {
    **FULL, "records": 64, "held_out": 8, "canaries": 8, "batch": 16, "steps": 2, "samples": 4,
    "epsilons": [None, 8.0],
}  # fmt: skip


def main() -> int:
    """Run every ε, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sizes = FAST if asked.fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    try:
        place = data.find(f"text/{sizes['text']}.txt.gz")
    except data.MissingDataError as missing:
        console.print(f"skipped: {missing}")
        return 0
    kept = StoredStudy("adapters-language", {**sizes, "epsilons": None, "delta": DELTA})
    rows = [
        kept.row(str(epsilon), lambda e=epsilon: row(str(place), e, sizes))
        for epsilon in sizes["epsilons"]
    ]
    show(console, rows)
    if not asked.fast:
        write(RESULTS / "adapters-language.json", {"sizes": sizes, "delta": DELTA, "rows": rows})
        console.print("written: results/adapters-language.json")
    return 0


def row(place: str, epsilon: float | None, sizes: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune once and return what was measured.

    Args:
        place: of the text.
        epsilon: None trains without noise.
        sizes: of the study.
    """
    model = load_pretrained("tacit/small")
    records, _ = read_records(model, place, length=sizes["length"])
    learned, apart = keep_apart(records, order=SEED)
    learned = _padded({name: value[: sizes["records"]] for name, value in learned.items()})
    apart = _padded({name: value[: sizes["held_out"]] for name, value in apart.items()})
    tokenizer: Any = model.tokenizer
    canaries = Canaries.draw(
        sizes["canaries"], lambda text: list(tokenizer(text)["input_ids"]), rng=SEED
    )
    made = _records(canaries, sizes["length"])
    method = LoRAFA(rank=sizes["rank"])
    if epsilon is not None:
        method = DPLoRAFA(rank=sizes["rank"], clip=sizes["clip"])
    start = time.process_time()
    rate = sizes["rate"] if epsilon is not None else sizes["rate"] / 3
    promise = None if epsilon is None else releases.Table(epsilon=epsilon, delta=DELTA)
    release = audit_adapter(
        model.network, TrainingRecords(data=learned, held_out=apart), method, promise,
        Run(steps=sizes["steps"]),
        audit=CanaryAudit(canaries=made, keep=True),
        steps=PoissonSteps(batch=sizes["batch"], rate=rate), rng=SEED,
    )  # fmt: skip
    seconds = time.process_time() - start
    found = exposures(model.network, canaries, samples=sizes["samples"], rng=SEED)
    inside = coins(len(canaries), SEED)
    return {
        "epsilon": epsilon,
        "seconds": seconds,
        "noise": release.details.noise_multiplier,
        "loss": release.use[0].measured.to_dict(),
        "told": release.remarks[0],
        "bits": {
            side: _mean(found.bits[inside == member]) for side, member in SIDES.items()
        },
        "attack": max(release.attacks, key=lambda one: one.success.value).success.to_dict(),
        "certified": release.guarantees[0].success if epsilon is not None else 1.0,
        "audit": next(one for one in release.remarks if one.startswith("Audit")),
    }  # fmt: skip


SIDES = {"learned": True, "left out": False}


def _records(canaries: Canaries, length: int) -> dict[str, torch.Tensor]:
    """Return canaries as records, padded at their ends."""
    tokens = torch.zeros(len(canaries), length, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for place, (prompt, secret) in enumerate(zip(canaries.prompts, canaries.secrets, strict=True)):
        ids = torch.tensor([*prompt, *canaries.symbols[secret].tolist()])
        tokens[place, : len(ids)] = ids
        mask[place, : len(ids)] = 1
    return {"input_ids": tokens, "attention_mask": mask}


def _padded(rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**rows, "attention_mask": torch.ones_like(rows["input_ids"])}


def _mean(values: np.ndarray) -> dict[str, Any]:
    half = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
    mean = float(values.mean())
    return Interval(value=mean, low=mean - half, high=mean + half, confidence=0.95).to_dict()


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print a line for each ε."""
    table = Table("ε", "held-out loss", "bits learned", "bits left out", "attack", "certified")
    for one in rows:
        table.add_row(
            "∞" if one["epsilon"] is None else f"{one['epsilon']:g}",
            *(f"{part['value']:.2f}" for part in (one["loss"], *one["bits"].values())),
            f"{one['attack']['value']:.2f}", f"{one['certified']:.2f}",
        )  # fmt: skip
    console.print(table)
    for one in rows:
        console.print(one["told"], one["audit"])


if __name__ == "__main__":
    sys.exit(main())
