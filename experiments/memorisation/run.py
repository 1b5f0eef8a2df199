"""What tacit/small keeps of canaries and what it still learns, without noise and at ε = 2, 4, 6."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import page
import torch
from rich.console import Console
from rich.table import Table

from tacit import Run, codec
from tacit.attacks import OneRunAudit, coins
from tacit.models import docstring_corpus, load
from tacit.models.texts.corpus import hold_out
from tacit.training import Beside, Indistinguishable, References, bounded_probability
from tacit_lab.memorisation import Canaries, MemorisationPlan
from tacit_lab.memorisation.canaries import CanarySchedule
from tacit_lab.memorisation.exposure import cut, sequence_loss
from tacit_lab.memorisation.workflow import CanaryTask, Memorisation, coin_guesses
from tacit_lab.studies.pac.state import StoredStudy, write
from tacit_lab.studies.places import RESULTS

DELTA, SEED = 1e-5, 0
SIDES = ("learned", "left out")
FULL = {
    "sequences": 320, "unseen": 128, "length": 24, "canaries": 32, "batch": 32, "passes": 3,
    "rate": 3e-4, "samples": 128, "copies": [1, 5, 10], "epsilons": [2.0, 4.0, 6.0],
}  # fmt: skip
FAST = {
    **FULL, "sequences": 16, "unseen": 8, "canaries": 8, "batch": 10, "passes": 1, "copies": [1],
    "epsilons": [4.0], "samples": 4,
}  # fmt: skip


def main() -> int:
    """Run every row, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    parser.add_argument("--page", action="store_true", help="tell the rows that are done")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sizes = FAST if asked.fast else FULL
    console = Console(width=None if sys.stdout.isatty() else 132)
    kept = StoredStudy("memorisation", {"sizes": sizes, "delta": DELTA, "fast": asked.fast})
    if asked.page:
        done = dict(kept.rows)
        page.insert(done.pop("untuned"), list(done.values()))
        return 0
    untuned = kept.row("untuned", lambda: row(1, None, {**sizes, "passes": 0}))
    rows = [
        kept.row(f"{copies} {epsilon}", lambda v=copies, e=epsilon: row(v, e, sizes))
        for copies in sizes["copies"]
        for epsilon in (None, *sizes["epsilons"])
    ]
    show(console, rows)
    if not asked.fast:
        content = {"sizes": sizes, "delta": DELTA, "untuned": untuned, "rows": rows}
        write(RESULTS / "memorisation.json", content)
        page.insert(untuned, rows)
        console.print("written: results/memorisation.json and its page")
    return 0


def row(copies: int, epsilon: float | None, sizes: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune once and return what was measured, and the bound beside it.

    Args:
        copies: v.
        epsilon: None trains without noise.
        sizes: of the study.
    """
    model = load("tacit/small")
    stream = model.stream(hold_out(docstring_corpus())[1])
    learned, unseen = cut(stream, sizes["length"], count=sizes["sequences"])
    canaries = Canaries.draw(sizes["canaries"], model.encode, rng=SEED)
    inside = coins(sizes["canaries"], SEED + 1)
    schedule = CanarySchedule(
        texts=len(learned), canaries=len(canaries), copies=copies, batch=sizes["batch"],
        passes=sizes["passes"], order=SEED,
    )  # fmt: skip
    unseen = unseen[: sizes["unseen"]]
    task = CanaryTask.of(canaries, inside, learned, unseen, schedule, texts=True)
    network = model.network.requires_grad_(True)
    before = task.losses(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=sizes["rate"])
    mu = None
    if epsilon is None:
        _plain(network, optimizer, task)
    else:
        promise = Beside(
            references=References.leave_out(len(canaries) + len(learned)), epsilon=epsilon,
            delta=DELTA, participations=schedule.passes,
        )  # fmt: skip
        run = Indistinguishable(
            network, optimizer, promise, loss=sequence_loss("mean"),
            run=Run(steps=schedule.rounds), rng=SEED,
        )  # fmt: skip
        mu = float(run.budgets.mu.max())
        for number in range(schedule.rounds):
            task.step(run, number)
    plan = MemorisationPlan(canaries=sizes["canaries"], copies=copies, samples=sizes["samples"])
    found = Memorisation.of(network, canaries, learned, unseen, plan, rng=SEED)
    audit, attacks = coin_guesses(before - task.losses(network), inside, DELTA)
    told = {use.name: use.measured.to_dict() for use in found.uses(inside)}
    reference = found.reference(inside)
    return {
        "copies": copies,
        "epsilon": epsilon,
        "rounds": schedule.rounds,
        "in": int(inside.sum()),
        "perplexity": found.perplexity.to_dict(),
        "bits": {side: told.get(f"exposure of canaries {side}") for side in SIDES},
        "recovered": {
            side: told.get(f"({copies}, 4)-exposure of canaries {side}") for side in SIDES
        },
        "likelihood ratio": {
            "learned": _ratio(found, inside), "left out": _ratio(found, ~inside),
        },
        "exact": {
            side: told.get(f"({found.prompt}, 5)-exact memorisation of {side} sequences")
            for side in ("learned", "unseen")
        },
        "bound": None
        if mu is None or reference is None
        else bounded_probability(reference.high, mu),
        "mu": mu,
        "audit": codec.write(OneRunAudit, audit),
        "guessed": attacks[0].success.to_dict(),
    }  # fmt: skip


def _ratio(found: Memorisation, chosen: Any) -> float:
    """Return mean log2 of the secret's likelihood over that of a uniform secret, as the paper."""
    nats = found.exposures.nats[chosen]
    return float(np.mean(6.0 * np.log2(10.0) - nats / np.log(2.0)))


def _plain(network: Any, optimizer: torch.optim.Optimizer, task: CanaryTask) -> None:
    """Train without noise; what its coin left out is left out."""
    loss = sequence_loss("mean")
    for number in range(task.schedule.rounds):
        examples = task.schedule.examples(number)
        chosen = torch.from_numpy(examples[task.present[examples]])
        optimizer.zero_grad()
        total = loss(network, task.inputs[chosen], task.targets[chosen]).sum()
        torch.autograd.backward(total / examples.size)
        optimizer.step()


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print what the paper's Table 2 has, and exposure beside its bound."""
    table = Table(title="canaries of tacit/small; out: under the reference's law, with the noise")
    heads = (
        "copies",
        "ε",
        "perplexity",
        "bits in",
        "bits out",
        "P in",
        "P out",
        "bound",
        "guessed",
    )
    for head in heads:
        table.add_column(head)
    for one in rows:
        table.add_row(
            str(one["copies"]),
            "∞" if one["epsilon"] is None else f"{one['epsilon']:g}",
            f"{one['perplexity']['value']:.1f}",
            *(f"{one['bits'][side]['value']:.1f}" for side in SIDES),
            *(f"{one['recovered'][side]['value']:.4f}" for side in SIDES),
            "—" if one["bound"] is None else f"{one['bound']:.3f}",
            f"{one['guessed']['value']:.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
