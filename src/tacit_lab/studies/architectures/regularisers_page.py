"""The section on regularisers: margins, M* and attacks at equal KL, and a verdict on each claim."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.architectures.words import verdict_table
from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table

NAME = "regularisers"
# a control's margin of error: attacks on 500 states have a standard error of at most .022
WITHIN = 0.05


def sections() -> list[str]:
    """Return the lines of the section."""
    return section(NAME, "Hidden states: regularisers", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return opening, table and verdicts of a result."""
    rows = {row["key"]: row for row in result["rows"]}
    return [
        filled(opening(result)), "",
        *measured_table(result["rows"]), "",
        *verdict_table(verdicts(rows)), "",
    ]  # fmt: skip


def opening(result: dict[str, Any]) -> str:
    """Return what was trained."""
    scale = result["scale"]
    given = sorted({row["strength"] for row in result["rows"] if row["strength"]}, reverse=True)
    strengths = " or ".join(f"{each:g}" for each in given)
    return f"""A GPT of width {scale["width"]} and {scale["layers"]} layers ({scale["steps"]} steps,
{result["text"]}) is trained for {scale["further"]} further steps with KL(p₀ ‖ p) times
{result["prediction_weight"]} and an objective that is {strengths} nats at the start; *control* has
the same steps without one. *anchor* is the published weight of its internal anchor,
*gauge-fixed* holds states and second moments with weight 1. Margins are soft minima over 8
distractors at layer {scale["layer"]}. The attack is the Bayes attacker's on a bank of
{scale["prompts"]:,}: at the isotropic noise that suits the start, and at noise that costs
{result["kl"]:g} nats as measured of each model itself."""


def _equal(row: dict[str, Any], design: str) -> dict[str, Any]:
    return next(entry for entry in row["equal"] if entry["design"] == design)


def measured_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return everything measured of every training."""
    heads = ("objective", "nats", "loss", "m_B", "m_I", "tr F", "G_Mah", "M*",
             "attack, fixed noise", "attack, equal KL: isotropic", "optimal")  # fmt: skip
    body = [
        (
            row["key"] if row["strength"] is None else row["objective"],
            "–" if not row["strength"] else f"{row['strength']:g}",
            f"{row['loss']:.3f}", f"{row['margin_inside']:.1f}", f"{row['margin_outside']:.1f}",
            f"{row['fisher_trace']:.3g}", f"{row['gain_raw']:.2f}", f"{row['least_signal']:.1f}",
            f"{row['fixed']['attack']:.3f}", f"{_equal(row, 'isotropic')['attack']:.3f}",
            f"{_equal(row, 'mahalanobis-optimal')['attack']:.3f}",
        )
        for row in rows
    ]  # fmt: skip
    return table(heads, body)


def verdicts(rows: dict[str, dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return (claim, printed, found, verdict) for what the rows can say."""
    control = rows.get("control-0")
    found = []
    claims = {
        "hinge": ("The hinge only rescales (AA.3)", "margins × .83 to .44, nothing rearranged"),
        "anisotropic": ("The anisotropic objective inflates m_B (AA.3)", "m_B × 6, PPL × 3.5"),
        "ratio": ("The ratio is never engaged (AA.3)", "2.0 before and after"),
        "anchor": ("The internal anchor weighs too little (AA.3)", "rescaling, × .44"),
        "gauge-fixed": ("A properly weighted anchor with a fixed gauge might succeed (AA.5)",
                        "not run"),
        "margin-depletion": ("Lowering q_B addresses the right variable (Z.7)", "not run"),
    }  # fmt: skip
    for name, (claim, printed) in claims.items():
        row = rows.get(f"{name}-1")
        if control is None or row is None:
            continue
        found.append((claim, printed, _against(control, row), _word(control, row)))
    return found


def _against(control: dict[str, Any], row: dict[str, Any]) -> str:
    margins = [row[key] / control[key] for key in ("margin_inside", "margin_outside")]
    attacks = [
        f"{row['fixed']['attack']:.3f} for {control['fixed']['attack']:.3f} at fixed noise",
        *(
            f"{_equal(row, name)['attack']:.3f} for {_equal(control, name)['attack']:.3f} at equal "
            f"KL, {name}"
            for name in ("isotropic", "mahalanobis-optimal")
        ),
    ]
    return (
        f"m_B × {margins[0]:.2f}, m_I × {margins[1]:.2f}, tr F × "
        f"{row['fisher_trace'] / control['fisher_trace']:.2f}, M* "
        f"{row['least_signal']:.1f} for {control['least_signal']:.1f}, loss "
        f"{row['loss'] - control['loss']:+.3f}; attack " + ", ".join(attacks)
    )


def _word(control: dict[str, Any], row: dict[str, Any]) -> str:
    """Return what is left of it at equal KL, with the better of two kinds of noise."""
    names = ("isotropic", "mahalanobis-optimal")
    gain = min(_equal(control, n)["attack"] for n in names) - min(
        _equal(row, n)["attack"] for n in names
    )
    if gain <= WITHIN:
        return "no gain at equal KL"
    worse = row["loss"] - control["loss"]
    return f"a lower attack, for {worse:+.2f} nats of loss"
