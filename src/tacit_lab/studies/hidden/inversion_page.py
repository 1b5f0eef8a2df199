"""The section on inverters: what was read back of trajectories and of single states."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table

STATES, TRAJECTORIES = "inversion-states", "inversion"
# what the paper's inverter of one state reached on clean states (Table 30)
PUBLISHED = 0.078


def sections() -> list[str]:
    """Return the lines of both sections."""
    return [
        *section(TRAJECTORIES, "Hidden states: prompts read back from trajectories", trajectories),
        *section(STATES, "Hidden states: prompts read back from one state", states),
    ]


def trajectories(result: dict[str, Any]) -> list[str]:
    """Return the table of all positions, read without training."""
    rows = [
        (released(row), f"{row['measured_kl']:.2f}" if "measured_kl" in row else "",
         str(row["beam"]), share(row, "exact"), share(row, "token_accuracy"))
        for row in result["rows"]
    ]  # fmt: skip
    prose = (
        f"Layer {result['layer']} of {result['model']}, {result['prompts']} prompts of "
        f"{result['length']} tokens that the model never saw, {result['public']:,} public "
        "prompts for a probe in closed form, and no training. Intervals are of 95%, each alone."
    )
    clean = next(row for row in result["rows"] if row["release"] == "clean")
    verdict = (
        "The paper trains a sequence inverter of 57 million parameters that reads 94% of clean "
        "prompts of GPT-2 back as a whole. Without training the decoder reads "
        f"{clean['recovery']['exact']['value']:.1%} here: **the claim that trajectories give "
        "prompts away holds, and needs no learning**."
    )
    verdict += _designs(result["rows"]) + _codes(result["rows"])
    head = ("release of every position", "KL", "prefixes kept", "whole prompts", "tokens")
    return [filled(prose), "", *table(head, rows), filled(verdict), ""]


def _designs(rows: list[dict[str, Any]]) -> str:
    """Say what other designs of noise leave at the KL that was measured of isotropic noise."""
    plain = {
        (row.get("kl_budget"), row["beam"]): row for row in rows if row["release"] == "isotropic"
    }
    others = [row for row in rows if row.get("beam") == 1 and "scale" in row]
    if not others:
        return ""
    same = plain[others[0]["kl_budget"], 1]
    said = ", ".join(f"{row['release']} {share(row, 'exact')}" for row in others)
    return (
        f" At one measured KL, {same['measured_kl']:.2f} nats, the prompts read whole under "
        f"isotropic noise are {share(same, 'exact')}, and under {said}."
    )


def _codes(rows: list[dict[str, Any]]) -> str:
    """Say what codes leave beside isotropic noise at the KL that was measured of them."""
    noise = {row["level_of"]: row for row in rows if "level_of" in row}
    said = [
        f"{_named(row)}, {row['measured_kl']:.2f} nats, {tokens(row):.3f} of the tokens and "
        f"{share(row, 'exact')} of the prompts, beside {tokens(noise[row['release']]):.3f} and "
        f"{share(noise[row['release']], 'exact')}"
        for row in rows
        if row["release"] in noise
    ]
    if not said:
        return ""
    last = next((row["fallback"] for row in rows if "fallback" in row), None)
    tried = (
        f" For codes that depend on predictions, the model's {last} likeliest tokens are tried "
        "where no candidate has the released code; for the other releases the whole "
        "vocabulary is tried."
    )
    return (
        " Codes are read in the place of the last state for their KL, and isotropic noise is "
        f"scaled to it: of {'; of '.join(said)}.{tried if last else ''}"
    )


def states(result: dict[str, Any]) -> list[str]:
    """Return the table of one state, read by learned inverters."""
    rows = [
        (str(row["length"]), row["release"], row["kind"], f"{row['minutes']:g}",
         f"{row['measured_kl']:.2f}", share(row, "token_accuracy"),
         f"{row['recovery']['by_position'][0]['value']:.3f}", share(row, "exact"), permuted(row))
        for row in result["rows"]
    ]  # fmt: skip
    prose = (
        f"Layer {result['layer']} of {result['model']}, {result['prompts']} prompts that neither "
        "the model nor the inverter saw, networks of the size for two cores, minutes of one core. "
        "An "
        "inverter learns from the release that it attacks unless it says clean-trained. "
    )
    head = ("T", "release", "inverter", "minutes", "KL", "tokens", "last token", "whole prompts",
            "tokens, another prompt's release")  # fmt: skip
    return [filled(prose), "", *table(head, rows), *_verdicts(result["rows"]), ""]


def _verdicts(rows: list[dict[str, Any]]) -> list[str]:
    clean = [row for row in rows if row["release"] == "clean" and row["length"] == 16]
    best = max(clean, key=tokens)
    lines = [
        f"* The paper reads {PUBLISHED} of the tokens of 32 from one clean state of GPT-2 and no "
        f"prompt as a whole. Here, of {best['length']} tokens of a small model, "
        f"{tokens(best):.3f}, the last one in {best['recovery']['by_position'][0]['value']:.3f}, "
        f"the first in {best['recovery']['by_position'][-1]['value']:.3f}, and "
        f"{best['recovery']['exact']['value']:.3f} of prompts as a whole: **holds in kind**, one "
        "state gives its end away and little of its beginning."
    ]
    curve = sorted((row for row in clean if row["kind"] == "right-to-left"),
                   key=lambda row: row["minutes"])  # fmt: skip
    if len(curve) > 1:
        said = ", ".join(f"{tokens(row):.3f} after {row['minutes']:g}" for row in curve)
        lines.append(f"* Tokens read by the decoder by minutes of one core: {said}.")
    for row in rows:
        if "verified" in row:
            lines.append(
                f"* Verified by the model, {share(row, 'exact')} of prompts of {row['length']} "
                f"tokens are exact; {row['verified']} are told to be, of which "
                f"{row['verified_right']} are. The paper ran no such attacker."
            )
    pairs = _pairs(rows)
    if pairs:
        noisy = any("codes" not in name for name, _, _ in pairs)
        tried = "noise and codes" if noisy else "only codes"
        said = "; ".join(f"{name} {aware:.3f} against {plain:.3f}" for name, aware, plain in pairs)
        lines.append(
            "* The paper's attackers gain 1.3 to 2 times on noisy states by learning from the "
            f"release; {tried} were tried here. Tokens read by those who learnt from the "
            f"release, and by those who learnt from clean states: {said}."
        )
        order = ", ".join(name for name, _, _ in sorted(pairs, key=lambda pair: pair[1]))
        if len(pairs) > 1:
            lines.append(
                f"* From the least read back to the most, each at the KL in its row: {order}."
            )
    return filled("\n".join(lines)).split("\n")


def _pairs(rows: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the better of both attackers on each release: aware, and clean-trained."""
    found = []
    for name in dict.fromkeys(row["release"] for row in rows if row["release"] != "clean"):
        both = {row["kind"]: tokens(row) for row in rows if row["release"] == name}
        if len(both) == 2:
            found.append((name, both["at-once"], both["at-once, clean-trained"]))
    return found


def tokens(row: dict[str, Any]) -> float:
    """Return the share of tokens that were read."""
    return float(row["recovery"]["token_accuracy"]["value"])


def _named(row: dict[str, Any]) -> str:
    names = {"codes": "Euclidean codes", "likeliest token": "the likeliest next token"}
    return names.get(row["release"], str(row["release"]))


def released(row: dict[str, Any]) -> str:
    """Return the release with its size."""
    if "level_of" in row:
        return f"{row['release']}, at the KL of {_named({'release': row['level_of']})}"
    if "kl_budget" in row:
        return f"{row['release']}, K = {row['kl_budget']:g}"
    return f"{_named(row)}, C = {row['size']:,}" if "size" in row else str(row["release"])


def share(row: dict[str, Any], name: str) -> str:
    """Return a share with its interval."""
    held = row["recovery"][name]
    return f"{held['value']:.3f} [{held['low']:.3f}, {held['high']:.3f}]"


def permuted(row: dict[str, Any]) -> str:
    """Return what was read of another prompt's release, where it was measured."""
    blind = row.get("baselines", {}).get("permuted")
    return "" if blind is None else f"{blind['token_accuracy']['value']:.3f}"
