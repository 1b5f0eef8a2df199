"""The section on the canary game, from experiments/adapters-canary-game."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, rounded_up, table

NAME = "adapters-canary-game"
LOSS, RATIO = "loss of the canary", "every update, the other records known"
LIRA, RMIA = "LiRA on the loss", "RMIA on the loss"
# lora-privacy, Table 1, pre-trained and fine-tuned; Tables 2 and 3: AUC by rank.
PRINTED_1 = {16: 0.9981, 32: 0.9998, 128: 1.0, 256: 1.0, 512: 1.0}
PRINTED_2 = {
    0.1: {16: 0.78, 64: 0.91, 128: 0.96, 256: 0.99, 384: 1.0, 512: 1.0},
    0.5: {16: 0.56, 64: 0.70, 128: 0.74, 256: 0.76, 384: 0.82, 512: 0.86},
}
PRINTED_3 = {32: 0.6192, 63: 0.6877, 128: 0.7154, 512: 0.7767, 800: 0.7861, 1000: 0.8691}


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Low-rank updates in the canary game", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return what was done, the games beside the paper's Tables 1 to 3, and a verdict."""
    return [
        filled(story(result)), "",
        *table(["rank", "steps", "training fit", "loss", "LiRA", "RMIA"], _fitted(result)),
        filled(_printed("The paper's Table 1, AUC by rank:", PRINTED_1)), "",
        filled(f"M2, `(V + s E) AᵀA` at every step; AUC, and balanced accuracy behind the stroke. "
               f"{_game(result)}"), "",
        *table(
            ["rank", "s", "accuracy", "loss", "LiRA", "RMIA", "every update", "certified"],
            _noisy(result["M2"]),
        ),
        filled(_printed("The paper's Table 2, AUC by rank, at noise 0.1:", PRINTED_2[0.1])), "",
        filled(_printed("At noise 0.5:", PRINTED_2[0.5])), "",
        "M1, `V AᵀA + s E`, in the same way:", "",
        *table(
            ["rank", "s", "accuracy", "loss", "LiRA", "RMIA", "every update", "certified"],
            _noisy(result["M1"]),
        ),
        filled(_printed("The paper's Table 3 at noise 0.5, AUC by rank:", PRINTED_3)), "",
        filled(_whole(result)), "",
        *table(["rank", "accuracy", "loss", "LiRA", "RMIA"], [
            [str(row["rank"]), f"{row['accuracy']:.2f}",
             *(_cell(row["game"], name) for name in (LOSS, LIRA, RMIA))]
            for row in result["whole"]
        ]),
        filled(verdict(result)), "",
    ]  # fmt: skip


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is played."""
    sizes = result["sizes"]
    plan, models = sizes["fitted"], sizes["models"]
    return f"""lora-privacy, Appendix F.1: the canary is an image of Gaussian noise with the label
that a reference model finds least likely, and half of {models} models are trained with it. The
paper trains 2,000 whole networks on 5,000 images of CIFAR-10. Two cores allow heads on frozen
features (d = 512) of a network trained on 25,000 public images ({result["network"]:.1%} of the
test images right), on records that it did not see. Balanced accuracy supposes
that a record is a member with even odds; every threshold is chosen on other models than those it is
measured on. Intervals are
in the result file, for all attackers of a game together at 95%: with {models} models an AUC of 1
has a lower end of {_least(result):.2f}. A difference of two AUCs exceeds its error where it is more
than twice √(AUC (1 − AUC)/{models // 2} each), which is no less than its standard error.

Without noise, both layers of a 512–128–10 head are adapted with A frozen, each model with its own
A and
its own order of {plan["records"]:,} records, batches of {plan["batch"]}, rate {plan["rate"]:g},
momentum 0.9. AUC of three attackers on the loss of the canary; training fit is the share of
the records that the heads class right."""


def verdict(result: dict[str, Any]) -> str:
    """Return what of the paper's tables holds at this scale."""
    last = {row["rank"]: row["after"][-1]["game"]["played"][LOSS]["auc"] for row in _rows(result)}
    high = [auc for rank, auc in last.items() if rank >= 16]
    parts = [
        f"""Table 1 {"holds" if min(high) > 0.99 else "does not hold"} at this scale: without noise
        the loss has an AUC of {min(high):.3f} or more at ranks of 16 and above once the heads are
        fitted. At rank 1 it has {last.get(1, float("nan")):.2f}: so few directions do not fit the
        canary, which is no guarantee (Proposition 2).""",
        _grows(result["M2"], "Table 2", LOSS, "the loss attack"),
        _grows(result["M1"], "Table 3", LOSS, "the loss attack")
        + " The growth that the paper prints is "
        + ("" if _rises(result["M1"]) else "not ")
        + "seen.",
        _grows(result["M1"], "M1 with A told", RATIO, "the attacker who sees every update")
        + """ A smaller rank stretches a record's gradient more, E ‖Mu‖² = 1 + (d + 1)/r, and does
        not hide it from whoever knows A.""",
        _tightness(result),
    ]
    return "\n".join(f"* {' '.join(part.split())}" for part in parts)


def _grows(rows: list[dict[str, Any]], name: str, attacker: str, who: str) -> str:
    """Say at which noises an attacker's AUC grows with the rank, and where beyond its error."""
    told = []
    for noise in sorted({row["noise"] for row in rows if row["noise"] > 0.0}):
        found = [row["game"]["played"][attacker] for row in rows if row["noise"] == noise]
        first, last = found[0], found[-1]
        error = math.hypot(_error(first), _error(last))
        change = last["auc"] - first["auc"]
        told.append(
            f"{first['auc']:.2f} to {last['auc']:.2f} at s = {noise:g} ("
            f"{'within its error' if abs(change) <= 2.0 * error else _way(change)})"
        )
    return (
        f"{name}: from the smallest rank to the largest the AUC of {who} goes from "
        f"{'. It goes from '.join(told)}."
    )


def _rises(rows: list[dict[str, Any]]) -> bool:
    """Whether the AUC of the loss is larger at the largest rank, at every noise."""
    noises = {row["noise"] for row in rows}
    ends = [
        [row["game"]["played"][LOSS]["auc"] for row in rows if row["noise"] == s] for s in noises
    ]
    return all(aucs[-1] > aucs[0] for aucs in ends)


def _way(change: float) -> str:
    return "it grows" if change > 0.0 else "it falls"


def _error(found: dict[str, Any]) -> float:
    """No less than the standard error of an AUC, which is a U-statistic."""
    area, count = found["auc"], min(found["members"], found["non_members"])
    return math.sqrt(area * (1.0 - area) / count)


def _tightness(result: dict[str, Any]) -> str:
    """Say whether a bound was passed, and how near the strongest attacker comes."""
    noisy = [row for part in ("M1", "M2") for row in result[part] if row["noise"] > 0.0]
    refuted = sum(row["game"]["refuted"] for row in noisy)
    reached = [row["game"]["played"][RATIO]["auc"] - row["game"]["auc_bound"] for row in noisy]
    inside = sum(
        row["game"]["played"][RATIO]["auc_interval"][1] >= row["game"]["auc_bound"] for row in noisy
    )
    return f"""{"No attacker passes" if not refuted else f"{refuted} games pass"} a bound beyond its
    interval in {len(noisy)} games with noise. The attacker who sees every update and knows all
    other records is within {max(map(abs, reached)):.2f} of the certified AUC everywhere, and its
interval reaches the bound in {inside}: the account leaves little to gain, and what it certifies
about the loss alone is looser."""


def _fitted(result: dict[str, Any]) -> Iterator[list[str]]:
    for row in _rows(result):
        for after in row["after"]:
            played = after["game"]["played"]
            yield [
                str(row["rank"]),
                f"{after['steps']:,}",
                f"{after['fit']:.2f}",
                *(f"{played[name]['auc']:.3f}" for name in (LOSS, LIRA, RMIA)),
            ]


def _noisy(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    for row in rows:
        game = row["game"]
        bound = "—"
        if game["bound"] is not None:
            bound = f"{rounded_up(game['auc_bound'], 2)} / {rounded_up(game['bound'], 2)}"
        yield [
            str(row["rank"]),
            f"{row['noise']:g}",
            f"{row['accuracy']:.2f}",
            *(_cell(game, name) for name in (LOSS, LIRA, RMIA, RATIO)),
            bound,
        ]


def _cell(game: dict[str, Any], name: str) -> str:
    found = game["played"].get(name)
    return "—" if found is None else f"{found['auc']:.2f} / {found['balanced_accuracy']:.2f}"


def _rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result["fitted"]
    return found


def _least(result: dict[str, Any]) -> float:
    """The lower end of the largest measured AUC of the loss."""
    games = [after["game"] for row in _rows(result) for after in row["after"]]
    return float(max(game["played"][LOSS]["auc_interval"][0] for game in games))


def _game(result: dict[str, Any]) -> str:
    sizes = result["sizes"]
    plan = sizes["linear"]
    return f"""A linear head on features of norm 1, {plan["records"]} records, {plan["steps"]}
    steps of all records, a fresh A at each, gradients clipped to {plan["clip"]:g}, rate
    {plan["rate"]:g} of the sum. s is the standard deviation of the noise over the clip. What is
certified is of the composition of all steps (`NoisyProjection.profile`)."""


def _whole(result: dict[str, Any]) -> str:
    plan = result["sizes"]["whole"]
    return f"""Whole networks without noise, one per process. Each has three convolutions and two
linear layers, pre-trained on {plan["public"]:,} images, every layer's gradient
    projected by its own AᵀA (Eq. 36), {plan["records"]} records, {plan["steps"]} steps of
    {plan["batch"]}, rate {plan["rate"]:g}; {plan["models"]} networks, so the intervals are wide:"""


def _printed(head: str, values: dict[int, float]) -> str:
    return f"{head} {', '.join(f'{auc:g} at {rank}' for rank, auc in values.items())}."
