"""The section on a language model's adapter with canaries, from experiments/adapters-language."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table

NAME = "adapters-language"


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "A language model's adapter, with canaries", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return what was done, the measurements and a verdict."""
    return [
        filled(story(result)), "",
        *table(
            ["ε", "held-out loss", "bits, learned", "bits, left out", "coins guessed", "at most"],
            [
                [
                    "∞" if row["epsilon"] is None else f"{row['epsilon']:g}",
                    f"{row['loss']['value']:.3f}",
                    *(_interval(part) for part in row["bits"].values()),
                    _interval(row["attack"]),
                    "1" if row["epsilon"] is None else f"{row['certified']:.3f}",
                ]
                for row in result["rows"]
            ],
        ),
        filled(verdict(result)), "",
    ]  # fmt: skip


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is measured."""
    sizes = result["sizes"]
    before = result["rows"][0]["told"].removeprefix("Before training: held-out loss ").rstrip(".")
    before = f"{before} before training"
    text = sizes["text"].replace("_", " ")
    return f"""`tacit/small` (5.8 million parameters) is adapted to {text},
{sizes["records"]:,} records of {sizes["length"]} tokens, by DP-LoRA-FA of rank {sizes["rank"]} on
every linear layer, {sizes["steps"]} steps of {sizes["batch"]} expected records, Adam, δ =
{result["delta"]:g}. The run without noise is the same at a third of the learning rate. Fair coins
put half of {sizes["canaries"]} canaries (a sentence with six secret digits, one copy each) among
them. Held-out loss in nats a token ({before}); exposure in bits, a mean over canaries; coins
guessed by the better of two attackers, beside what the certificate leaves at even odds. One
attacker goes by how far a canary's loss fell, the other by its gradient against what the run
added."""


def verdict(result: dict[str, Any]) -> str:
    """Return what noise costs and what it hides."""
    rows = {row["epsilon"]: row for row in result["rows"]}
    before = float(result["rows"][0]["told"].split("loss ")[1].split()[0])
    gains = ", ".join(
        f"{before - row['loss']['value']:.2f} at ε = {'∞' if eps is None else f'{eps:g}'}"
        for eps, row in rows.items()
    )
    passed = [
        f"{eps:g}"
        for eps, row in rows.items()
        if eps is not None and row["attack"]["low"] > row["certified"]
    ]
    kept = (
        "No attack passes its certificate beyond its interval."
        if not passed
        else f"The attack passes the certificate at ε = {', '.join(passed)}: a bug."
    )
    free = rows[None]
    apart = [name for name, row in rows.items() if _exposed(row)]
    shown = ", ".join("∞" if name is None else f"{name:g}" for name in apart) or "none"
    return f"""**Verdict.** Nats gained: {gains}. Without noise {free["attack"]["value"]:.0%} of the
coins are guessed, by attackers who see the adapter before and after. {kept} Learned canaries are
more exposed than those left out, beyond both intervals, at ε = {shown}; a secret that nobody
learned has 1.4 bits in the mean."""


def _exposed(row: dict[str, Any]) -> bool:
    return bool(row["bits"]["learned"]["low"] > row["bits"]["left out"]["high"])


def _interval(held: dict[str, Any]) -> str:
    return f"{held['value']:.2f} [{held['low']:.2f}, {held['high']:.2f}]"
