"""The table of the study, beside the published one, in its page of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "training-memorisation.md"
BEGIN, END = "<!-- measured by experiments/memorisation -->", "<!-- end -->"
# Perplexity and exposure of GPT2-small fine-tuned on WikiText-5, by (v, ε): dsi, Table 2.
PUBLISHED = {
    (1, None): (20.7, 2.2), (1, 2.0): (24.3, 0.8), (1, 4.0): (22.9, 0.6), (1, 6.0): (21.8, 1.5),
    (5, None): (20.5, 11.5), (5, 2.0): (24.2, 0.9), (5, 4.0): (23.0, 3.2), (5, 6.0): (22.0, 5.8),
    (10, None): (20.5, 16.0), (10, 2.0): (24.0, 2.4), (10, 4.0): (22.8, 3.8),
    (10, 6.0): (21.9, 8.9),
}  # fmt: skip


def insert(untuned: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Put the table and the verdict of these rows between the marks of the page.

    Args:
        untuned: the row of the model as it was before.
        rows: as the study has them.

    Raises:
        ValueError: the page has no marks.
    """
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"page: expected the marks of the table in {PAGE.name}, got none")
    middle = "\n\n".join(["", *_told(untuned, rows), ""])
    PAGE.write_text(f"{before}{BEGIN}{middle}{END}{after}", encoding="utf-8")


def _told(untuned: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    head = (
        "| v | ε | perplexity | bits in | bits out | 4 of 6 in | 4 of 6 out "
        "| at most | published: perplexity, bits |"
    )
    lines = [head, "|---" * 9 + "|", *(_line(row) for row in rows)]
    complete = [
        told for v in sorted({row["copies"] for row in rows}) if (told := _verdict(v, rows))
    ]
    return ["\n".join(lines), _gained(untuned, rows), *complete]


def _gained(untuned: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Say what fine-tuning gains at all: the room that noise can take."""
    before = untuned["perplexity"]["value"]
    best = min(row["perplexity"]["value"] for row in rows)
    bits = [untuned["bits"][side]["value"] for side in ("learned", "left out")]
    gains = "gains" if best < before else "gains nothing"
    return (
        f"Before fine-tuning the perplexity of the unseen sequences is {before:.1f} and the "
        f"canaries have {bits[0]:.1f} and {bits[1]:.1f} bits by chance. Fine-tuning on so few "
        f"sequences {gains} (best {best:.1f}), so perplexity tells here what the noise breaks, not "
        "what it keeps from being learned; the paper's rows are fine-tuned for perplexity."
    )


def _line(row: dict[str, Any]) -> str:
    bits, recovered = row["bits"], row["recovered"]
    perplexity, exposure = PUBLISHED[row["copies"], row["epsilon"]]
    cells = [
        str(row["copies"]),
        _epsilon(row["epsilon"]),
        f"{row['perplexity']['value']:.1f}",
        *(f"{bits[side]['value']:.1f}" for side in ("learned", "left out")),
        *(f"{recovered[side]['value']:.4f}" for side in ("learned", "left out")),
        "—" if row["bound"] is None else f"{row['bound']:.3f}",
        f"{perplexity}, {exposure}",
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(copies: int, rows: list[dict[str, Any]]) -> str | None:
    """Compare no noise with the least ε at one number of copies, where both were run."""
    theirs = {row["epsilon"]: row for row in rows if row["copies"] == copies}
    noisy = [epsilon for epsilon in theirs if epsilon is not None]
    if None not in theirs or not noisy:
        return None
    least = min(noisy)
    clean, guarded = theirs[None], theirs[least]
    bits = [row["bits"]["learned"]["value"] for row in (clean, guarded)]
    costs = [row["perplexity"]["value"] for row in (clean, guarded)]
    published = [PUBLISHED[copies, epsilon] for epsilon in (None, least)]
    same = (bits[1] < bits[0]) == (published[1][1] < published[0][1])
    same &= (costs[1] > costs[0]) == (published[1][0] > published[0][0])
    return (
        f"v = {copies}, from ε = ∞ to {_epsilon(least)}: exposure {bits[0]:.1f} → {bits[1]:.1f} "
        f"bits (published {published[0][1]} → {published[1][1]}), perplexity {costs[0]:.1f} → "
        f"{costs[1]:.1f} (published {published[0][0]} → {published[1][0]}): "
        f"{'exposure and perplexity move as published' if same else 'not as published'}."
    )


def _epsilon(epsilon: float | None) -> str:
    return "∞" if epsilon is None else f"{epsilon:g}"
