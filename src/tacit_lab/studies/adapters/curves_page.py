"""The section on lora-privacy's Figures 1 and 2, from experiments/low-rank-curves."""

from __future__ import annotations

from typing import Any

from tacit.text import significant_up
from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table

NAME = "low-rank-curves"
STORY = f"""The printed curves are the theorems of the paper beside a simulation (Figure 1) and
beside the Gaussian mechanism (Figure 2). Beside them stand here the exact laws, rounded up:
`vector_projection` and `noisy_projection` of `tacit.accounting`, which
[projections and sketches](projections-and-sketches.md) explains. No record is used. Where no number
stands, no ε reaches δ (exact), or the theorem does not apply. Run by
`make experiments NAME={NAME}`, in seconds."""


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Low-rank curves: lora-privacy, Figures 1 and 2", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return both tables and what they say."""
    first, second = result["first"], result["second"]
    alignments = first["alignments"]
    points = {(row["alignment"], row["rank"]): row for row in first["rows"]}
    heads = [f"{kind}, ρ = {one:g}" for one in alignments for kind in ("exact", "Theorem 1")]
    one_vector = [
        [str(rank), *(_epsilon(points[one, rank][kind])
                      for one in alignments for kind in ("exact", "theorem"))]
        for rank in first["ranks"]
    ]  # fmt: skip
    heads_noise = [
        f"{kind}, r = {rank}" for rank in second["ranks"] for kind in ("exact", "Theorem 5")
    ]
    noisy = [
        [f"{row['noise']:g}", _epsilon(row["gaussian"]),
         *(_epsilon(one[kind]) for one in row["ranks"] for kind in ("exact", "theorem"))]
        for row in second["rows"]
    ]  # fmt: skip
    return [
        filled(STORY), "",
        f"Figure 1: ε of one vector's projection, without noise, at δ = {first['delta']:g}, "
        f"d = {first['dim']}.", "",
        *table(["rank", *heads], one_vector),
        f"Figure 2: ε of a noisy projection, at δ = {second['delta']:g}, d = {second['dim']:,}, "
        "‖ΔV‖ = 1.", "",
        *table(["σ", "Gaussian", *heads_noise], noisy),
        filled(verdict(first, second)), "",
    ]  # fmt: skip


def verdict(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Return how far the theorems lie above the laws, and where the curves have their least."""
    held = [row for row in first["rows"] if row["theorem"] is not None]
    apart = sorted(row["theorem"] / row["exact"] for row in held)
    wide = [one["theorem"] / one["exact"] for row in second["rows"] for one in row["ranks"]]
    least = ", ".join(
        f"{_least(first, alignment, 'exact')} and {_least(first, alignment, 'theorem')} "
        f"(ρ = {alignment:g})"
        for alignment in first["alignments"]
    )
    below = all(one["theorem"] < row["gaussian"] for row in second["rows"] for one in row["ranks"])
    told = "below the Gaussian mechanism at every point" if below else "not always below it"
    same = all(
        abs(one["every"] - one["exact"]) < 1e-9 for row in second["rows"] for one in row["ranks"]
    )
    spectra = "The law of a difference of rank one covers every spectrum here." if same else ""
    return f"""**Verdict.** As Figure 1 says, ε falls and then rises with the rank. Among the ranks
here the exact law and Theorem 1 are least at {least}. Theorem 1 prints {apart[0]:.1f} to
{apart[-1]:.0f} times the true ε, Theorem 5 {min(wide):.2f} to {max(wide):.1f} times. In Figure 2
it is {told}. {spectra}"""


def _least(first: dict[str, Any], alignment: float, kind: str) -> int:
    rows = [
        row for row in first["rows"]
        if row["alignment"] == alignment and row[kind] is not None
    ]  # fmt: skip
    return int(min(rows, key=lambda row: row[kind])["rank"])


def _epsilon(value: float | None) -> str:
    return "" if value is None else significant_up(value)
