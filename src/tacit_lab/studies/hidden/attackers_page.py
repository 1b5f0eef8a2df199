"""The page on attackers who know more of a prompt, or ask less of it, than the bank's game does."""

from __future__ import annotations

import json
from typing import Any

from tacit_lab.studies.hidden.attackers import CLOSE
from tacit_lab.studies.hidden.middle_page import WORDS
from tacit_lab.studies.places import DOCS, RESULTS
from tacit_lab.studies.reproductions.prose import filled, table

NAME = "hidden-attackers"
LEARNT = "labels of"


def render() -> None:
    """Write the page from the result that is there."""
    result = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))
    page = DOCS / "explanation" / "hidden-attackers.md"
    page.write_text(text(result), encoding="utf-8")


def text(result: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# Attackers who know more, or ask less", "",
        filled(opening(result)), "",
        "## What was found", "",
        *findings(result),
        filled(reading(result)), "",
        "## What it means for someone who stores states", "",
        filled(meaning(result)), "",
        "## How it was made", "",
        filled(made(result)), "",
    ]  # fmt: skip
    return "\n".join(lines).rstrip("\n") + "\n"


def opening(result: dict[str, Any]) -> str:
    """Return which games there are."""
    return f"""A bound on naming one of N equally likely prompts says nothing of an attacker who
knows most of the prompt already, and nothing of one who wants a property of it. Both are usual:
whoever stores the last state of a chat often shows the chat itself, and whoever reads a log asks
what it is about. Such attackers stand in every audit, each with its success *without* the
release beside it:

* **all earlier tokens known.** The attacker runs the model on the likeliest last tokens, so it has
the clean state of each, and weighs them by the exact likelihood of what was released
(`attacks.known_prefix`). No bank (candidate set) is in the game, so no N makes it safe. An audit's
attacker also tries the tokens that public prompts end with, by the best of four laws
(distributions), with the release and without; the tables below are of the model's own
candidates alone.

* **all tokens but one known**, such as the field of a form: in an audit where public prompts are of
one template.

* **an attribute.** The last token or the one before it, the topic of {result["topics"]}, a digit, a
capitalised word inside a sentence, or a column of the user's own table: learnt from releases of
other prompts (`attacks.attributes`), and by the exact posterior over the bank
(`attacks.bank_posterior`).

* **one token known** of the prompt that is named within the bank: the first or the last.

A denoised state is a function of the noisy one, so the attacker is given the noisy one."""


def findings(result: dict[str, Any]) -> list[str]:
    """Return a table for every layer."""
    lines = []
    for clean in result["clean"]:
        layer = clean["layer"]
        rows = [row for row in result["rows"] if row["layer"] == layer]
        lines += [f"### Layer {layer}", "", *_table(clean["guesses"], rows)]
    return lines


def _table(clean: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    shown = [place for place, guess in enumerate(clean) if _printed(guess)]
    heads = ("release", "KL", "agrees", "bank", *(_head(clean[place]) for place in shown))
    blind = ("*without the release*", "", "", "", *(_share(clean[i]["prior"]) for i in shown))
    plain = ("the clean state", "0", "1.00", "1.00", *(_share(clean[i]["success"]) for i in shown))
    target = max(_codes(rows), key=lambda row: row["codewords"])["kl"]
    cells = [
        (
            _name(row, target), f"{row['kl']:.2f}", f"{row['agreement']:.2f}", _share(row["bank"]),
            *(_share(row["guesses"][place]["success"]) for place in shown),
        )
        for row in rows
    ]  # fmt: skip
    return table(heads, [blind, plain, *cells])


def _printed(guess: dict[str, Any]) -> bool:
    """Whether it is guessed with help, or over the bank and one of two that are printed."""
    name: str = guess["name"]
    return bool(guess["knows"]) or name == "token" or name.startswith("topic")


def _head(guess: dict[str, Any]) -> str:
    task = guess["task"].removeprefix("the ")
    if guess["knows"].startswith(LEARNT):
        return f"{task}, learnt"
    return f"{task}, {guess['knows'] or 'over the bank'}"


def _codes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["mechanism"] == "codebook-decision"]


def _name(row: dict[str, Any], target: float) -> str:
    name = WORDS.get(row["mechanism"], row["mechanism"])
    if row["mechanism"] == "argmax":
        return f"{name} (control), {row['occupied']:,} of {row['codewords']:,} occur"
    if row["codewords"] is not None:
        return f"code, {name}, C = {row['codes']:,}"
    read = {"raw": "raw", "wiener": "denoised linearly"}.get(row["reading"], "posterior mean")
    least = " (least)" if _floored(row, target) else ""
    return f"noise, {name}, {read}, K = {row['kl_budget']:.3g}{least}"


def _floored(row: dict[str, Any], target: float) -> bool:
    """Whether the KL of the largest code is below what this reading reaches at the least K."""
    return row["codewords"] is None and row["kl"] > (1 + CLOSE) * target


def _share(ends: list[float]) -> str:
    return f"{ends[0]:.2f}"


def _first(row: dict[str, Any]) -> dict[str, Any]:
    guess: dict[str, Any] = row["guesses"][0]
    return guess


def reading(result: dict[str, Any]) -> str:
    """Return how the tables are read, with their intervals."""
    half = max((_first(r)["success"][2] - _first(r)["success"][1]) / 2 for r in result["rows"])
    covered = result["clean"][0]["guesses"][0]["covered"]
    return f"""*KL* is the mean KL from the clean prediction in nats, and *agrees* the share of next
tokens that stay, both under protocol A. Noise is scaled to the measured KL of the largest code,
read as it comes, denoised linearly, or by the posterior mean over public states. *Least* is written
where even the least K that was tried costs more than that code. *bank* names one of
{result["bank"]:,} equally likely prompts. *all earlier tokens*
guesses the last of {result["length"]} tokens among the {result["candidates"]} likeliest, for
{result["prompts"]} prompts: the true one was there for {covered:.1%}, and the others count as
failures; 95% intervals are ± {half:.2f} at most. *learnt* guesses from releases of
{result["calibration"]:,} other prompts; *over the bank* has the exact posterior. The last token but
one, a digit and a name over the bank are in the results and not printed."""


def meaning(result: dict[str, Any]) -> str:
    """Return what follows."""
    codes = _codes(result["rows"])
    largest = [r for r in codes if r["codewords"] == max(c["codewords"] for c in codes)]
    least = [r for r in codes if r["codewords"] == min(c["codewords"] for c in codes)]
    noise = [r for r in result["rows"] if r["codewords"] is None]
    blind = [clean["guesses"][0]["prior"][0] for clean in result["clean"]]
    clean = [clean["guesses"][0]["success"][0] for clean in result["clean"]]
    first = [clean["guesses"][1]["prior"][0] for clean in result["clean"]]
    told = [r["guesses"][1]["success"][0] for r in least]
    return f"""* **If the earlier tokens are shown or stored elsewhere, a release of the last state
is a release about the last token.** Without it the model guesses that token for {_range(blind)} of
prompts; a code of {largest[0]["codewords"]:,} cells raises this to
{_range([_first(r)["success"][0] for r in largest])}, one of {least[0]["codewords"]} to
{_range([_first(r)["success"][0] for r in least])}, noise that costs as much KL as the larger code
to {_range([_first(r)["success"][0] for r in noise])}, the clean state to {_range(clean)}. A bank
ten times as large changes none of these.

* **What a code may tell is its number of cells.** Whatever is known besides, the chance of a right
guess grows by at most that factor. A bound of "{least[0]["codewords"]} cells in {result["bank"]:,}"
is for an attacker to whom all prompts of the bank are equally likely. One who knows the first token
is right for {_range(first)} without the code and for {_range(told)} with it.

* **Attributes leak less than identity, and not nothing.** What a prompt ends with is what its last
state is about. Its topic, a digit or a name in it are harder to read off a release when they must
be learnt from other prompts. An attacker who has the bank reads them off the bank.

{_floor(result)}* **Equal KL is not equal privacy.** At the same KL, codes and noise stand in the
tables beside the likeliest token, which agrees most and has a larger KL. Compare along a row
before storing.

* **A secret rotation, fewer numbers or a product code is no noise.** What attackers make of each,
with known pairs and without, stands in
[Attacking a release](attacks.md#states-stored-without-noise).

* **The recommendation of an audit weighs this.** A release is not recommended when an attacker who
knows all earlier tokens, or who learnt an attribute from other prompts, gains more than
`Wish(max_gain=...)`, one half by default, over guessing without the release, at the upper end of
the interval. Attackers whose success falls with the size of the bank are shown, not weighed."""


def _floor(result: dict[str, Any]) -> str:
    """Say where a posterior mean cannot reach the KL of the largest code, and what that costs."""
    found = []
    for clean in result["clean"]:
        rows = [row for row in result["rows"] if row["layer"] == clean["layer"]]
        target = max(_codes(rows), key=lambda row: row["codewords"])["kl"]
        found += [row for row in rows if _floored(row, target)]
    if not found:
        return ""
    layers = " and ".join(str(layer) for layer in sorted({row["layer"] for row in found}))
    return f"""* **A posterior mean over few public states has a floor.** It is a mixture of
{result["calibration"]:,} of them, and at the least K that was tried it still costs
{_range([row["kl"] for row in found])} nats in layers {layers}: more than the larger code. There the
prompt is named in {_range([row["bank"][0] for row in found])} of cases: the KL of a code, and the
privacy of the clean state.

"""


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def made(result: dict[str, Any]) -> str:
    """Return the command and the sizes."""
    layers = ", ".join(str(clean["layer"]) for clean in result["clean"])
    return f"""`make experiments NAME={NAME}` measures layers {layers} of {result["model"]} on
prompts from the {result["texts"]} and writes `experiments/results/{NAME}.json` and this page.
Every number above is from there. The model was trained on the corpus that the prompts are cut
from, so it
guesses the last token better here than on texts of another kind. KL and agreement are of
{result["held_out"]:,} other prompts, held out: nothing is fitted on them and no attacker looks for
them."""
