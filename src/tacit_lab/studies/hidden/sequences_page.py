"""The section on networks that read the releases of all positions."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.inversion_page import permuted, released, share, tokens
from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, parts, table

NAME = "inversion-sequences"
# exact match of the paper's sequence inverter on clean GPT-2 prefixes (Sec. 7)
PUBLISHED = 0.94


def sections() -> list[str]:
    """Return the lines of the section."""
    return section(NAME, "Hidden states: prompts read back from trajectories by a network", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return the table of all positions, read by networks that learnt to."""
    rows = [
        (released(row), f"{row['measured_kl']:.2f}", "releases" if row["aware"] else "clean states",
         f"{row['steps']:,}", share(row, "exact"), share(row, "token_accuracy"), permuted(row))
        for row in result["rows"]
    ]  # fmt: skip
    prose = (
        "The prompts, model and layer are those of the section before. They are read by a network "
        f"on the releases of all {result['length']} positions which decodes the first token "
        "first. Training takes "
        f"{result['minutes']:g} minutes of one core for clean states and isotropic noise of "
        f"K = 1, {result['aware']:g} for any other release. The KL is of the last position, "
        "earlier ones as they are. Codes, and what noise is fitted on, are of all positions."
    )
    head = ("release of every position", "KL", "learnt from", "steps", "whole prompts", "tokens",
            "tokens, another prompt's release")  # fmt: skip
    return [filled(prose), "", *table(head, rows), *_verdicts(result["rows"]), ""]


def _verdicts(rows: list[dict[str, Any]]) -> list[str]:
    clean = next(row for row in rows if row["release"] == "clean")
    said = [
        f"* The paper's network reads {PUBLISHED:.0%} of clean prompts whole after 50,000 steps on "
        f"a GPU; this one {share(clean, 'exact')} after {clean['steps']:,}: **holds**, and the "
        "decoder that learns nothing reads as much."
    ]
    fisher = {row["aware"]: row for row in rows if row["release"] == "inverse-fisher-diagonal"}
    if len(fisher) == 2:
        aware, plain = fisher[True], fisher[False]
        low = aware["recovery"]["exact"]["low"] > plain["recovery"]["exact"]["high"]
        verdict = (
            "**at this budget the zero is the attacker's, not the release's**"
            if low
            else "**both alike at this budget**"
        )
        said.append(
            "* The paper: none whole under diagonal inverse-Fisher noise at σ = 5. At a measured "
            f"KL of {aware['measured_kl']:.2f} a network that learnt from clean states reads "
            f"{share(plain, 'exact')} whole, one that learnt from the releases "
            f"{share(aware, 'exact')}: {verdict}."
        )
    pairs = _pairs(rows)
    if pairs:
        opening = (
            "* Tokens read by a network that learnt from the release, and by the one that learnt "
            "from clean states:"
        )
        said.append(parts(opening, (f"{name}: {a:.3f} against {b:.3f}" for name, a, b in pairs)))
    return filled("\n".join(said)).split("\n")


def _pairs(rows: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    found: dict[str, dict[bool, float]] = {}
    for row in rows:
        if row["release"] != "clean":
            found.setdefault(released(row), {})[row["aware"]] = tokens(row)
    return [(name, both[True], both[False]) for name, both in found.items() if len(both) == 2]
