"""The section on defences without noise: who names a prompt of the store, who reads its tokens."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, parts, table

DEFENCES = "inversion-defences"


def sections() -> list[str]:
    """Return the lines of the section."""
    title = "Hidden states: fewer numbers, product codes and a secret rotation"
    return section(DEFENCES, title, lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return both tables and what they say."""
    named = [row for row in result["rows"] if row["task"] == "named"]
    read = [row for row in result["rows"] if row["task"] == "read"]
    prose = (
        f"Layer {result['layer']} of {result['model']}, states of {result['width']} numbers stored "
        f"without noise, in float32, of {result['store']:,} prompts that the model never saw; "
        f"{result['public']:,} other public prompts fit a defence and are the attacker's. *KL* and "
        "*agrees*: the last state as its owner rebuilds it, earlier positions clean. *named*: "
        f"{result['prompts']} of the prompts, all {result['store']:,} being equally likely "
        "candidates. A pair is a public prompt with what was stored of it; *releases seen* are "
        "what an attacker without one lays beside the public states."
    )
    head = ("T", "stored", "attacker knows", "releases seen", "KL", "agrees", "named")
    tokens = (
        f"Tokens of the same {result['prompts']} prompts, read by networks that learnt for "
        f"{result['minutes']:g} minutes from what the attacker sees; no candidates are given."
    )
    parts = [filled(prose), "", *table(head, map(_named, named))]
    if read:
        columns = ("T", "stored", "attacker knows", "tokens", "last token",
                   "tokens, another prompt's release", "last token, likewise")  # fmt: skip
        parts += [filled(tokens), "", *table(columns, map(_read, read))]
    return [*parts, *filled("\n".join(_verdicts(result, named, read))).split("\n"), ""]


def _named(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(row["length"]), row["release"], _knows(row),
        f"{row['among']:,}", f"{row['kl']:.2f}", f"{row['agreement']:.3f}", _top(row),
    )  # fmt: skip


def _read(row: dict[str, Any]) -> tuple[str, ...]:
    found, blind = row["recovery"], row["baselines"]["permuted"]
    return (
        str(row["length"]), row["release"], _knows(row), _share(found["token_accuracy"]),
        _share(found["by_position"][0]), f"{blind['token_accuracy']['value']:.3f}",
        f"{blind['by_position'][0]['value']:.3f}",
    )  # fmt: skip


def _knows(row: dict[str, Any]) -> str:
    return str(row["knows"]).removeprefix("knows ")


def _top(row: dict[str, Any]) -> str:
    return _share({"value": row["top1"], "low": row["interval"][0], "high": row["interval"][1]})


def _share(held: dict[str, Any]) -> str:
    return f"{held['value']:.3f} [{held['low']:.3f}, {held['high']:.3f}]"


def _verdicts(
    result: dict[str, Any], named: list[dict[str, Any]], read: list[dict[str, Any]]
) -> list[str]:
    longest = [row for row in named if row["length"] == 16]
    turned = [row for row in longest if row["release"] == "rotation"]
    blind = next(row for row in turned if row["knows"] == "no pair")
    laid = [row for row in named if "population" in row["knows"]]
    fewer = [row for row in longest if row["release"] not in ("clean", "rotation")]
    said = [f"{row['release']}: {_top(row)} at KL {row['kl']:.2f}" for row in fewer]
    linked = next(row for row in result["rows"] if row["task"] == "linked")
    found = [
        parts(
            "* **Fewer numbers hide no prompt.** The attacker who computes what each candidate "
            "would leave names, at T = 16:",
            said,
        ),
        "* **A secret rotation is an isometry: its secret is a key of the store, not a noise.** "
        f"An attacker without a pair compares the norm alone, one number, and names {_top(blind)} "
        "of prompts whose candidates it can compute. The norm in float32 tells states apart.",
        parts(
            "* Without a pair, from public states of other prompts and the store alone, the "
            "rotation is found well enough to name:",
            (
                f"{_top(row)} with {row['among']:,} releases seen at T = {row['length']}"
                for row in laid
            ),
        ),
        f"* Of {result['prompts']} prompts stored twice, {linked['linked']} are seen to be by "
        f"whoever compares what is stored; {linked['wrongly']} others are taken for one.",
    ]
    if read:
        both = (
            f"{row['release']} ({_knows(row)}): {_share(row['recovery']['by_position'][0])}"
            for row in read
        )
        opening = (
            "* Without candidates the norm says next to nothing, and the rotation protects only as "
            "far as it stays unknown. Last tokens read back at T = 16:"
        )
        found.append(parts(opening, both))
    return found
