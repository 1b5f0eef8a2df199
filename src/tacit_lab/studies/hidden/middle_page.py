"""The section on the empty middle, from the points of experiments/empty-middle."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tacit import codec
from tacit.hidden_states import Point
from tacit_lab.studies.hidden.guarded import TRIES, GuardedRow
from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.places import IMAGES
from tacit_lab.studies.reproductions.prose import filled, parts, rounded_up, table

NAME = "empty-middle"
WORDS = {
    "isotropic": "isotropic",
    "inverse-fisher": "inverse Fisher",
    "inverse-fisher-diagonal": "inverse Fisher, diagonal",
    "mahalanobis-optimal": "Mahalanobis-optimal",
    "codebook-euclidean": "states, Euclidean",
    "codebook-fisher": "states, Fisher",
    "codebook-behaviour": "output KL",
    "codebook-decision": "output KL, guarding the decision",
    "argmax": "likeliest token",
    "raw": "raw",
    "posterior-mean": "posterior mean",
    "wiener": "Wiener filter",
    "trained": "trained denoiser",
    "posterior-behaviour": "posterior prediction",
}


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "The empty middle of hidden states", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return figure, story, claims and a table per family."""
    points = [codec.read(Point, entry, "point") for entry in result["points"]]
    noise = [point for point in points if point.bound is None]
    books = [point for point in points if point.bound is not None]
    shown = (
        [f"![Attack over agreement](../images/{NAME}.svg)", ""]
        if (IMAGES / f"{NAME}.svg").is_file()
        else []
    )
    return [
        *shown, filled(story(result, noise, books)), "",
        *claims(result["claims"]),
        *_noise(noise), *_books(books),
        *_guarded([GuardedRow.from_dict(entry) for entry in result.get("guarded", ())]),
    ]  # fmt: skip


def story(result: dict[str, Any], noise: list[Point], books: list[Point]) -> str:
    """Return what was measured, and how many releases lie in the middle."""
    first = (noise + books)[0]
    counts = [
        f"{sum(p.in_middle for p in own)} of {len(own)} noisy releases "
        + ("read raw" if reading == "raw" else f"read by the {WORDS.get(reading, reading)}")
        + f" (protocol {own[0].protocol})"
        for reading, own in _groups(noise, "reading").items()
    ] + [
        f"{sum(p.in_middle for p in own)} of {len(own)} codebooks under protocol {protocol}"
        for protocol, own in _groups(books, "protocol").items()
    ]
    return f"""The state of the last token at layer {result["layer"]} of {_model(result)} is
released for prompts of its texts ({result["texts"]}); the attacker chooses among
{result["bank"]:,} of them, the public calibration has {result["calibration"]:,} others.
*Agreement* and KL are measured on {first.prompts:,} prompts: does the likeliest next token stay
the same, and how far does the prediction move? Under protocol A the consumer also holds the clean
earlier positions, under B the release alone. The *middle* is an agreement of ½ or more at an
attack of ½ or less, for a codebook at a proven bound of ½ or less. In it
lie:{parts("", counts)}"""


def _model(result: dict[str, Any]) -> str:
    recipe = result.get("recipe")
    if not recipe:
        return str(result["model"])
    minutes = recipe["seconds"] / 60.0
    settings = recipe["settings"]
    return (
        f"a GPT of {settings['layers']} layers and width {settings['width']}, trained "
        f"{minutes:.0f} minutes ({recipe['steps']:,} steps) to a held-out perplexity of "
        f"{recipe['held_out_perplexity']:.1f},"
    )


def claims(entries: Iterable[dict[str, Any]]) -> list[str]:
    """Return the table of what was expected and what was found."""
    return table(
        ("claim", "found", "verdict"),
        ((e["claim"], e["found"], "holds" if e["holds"] else "**does not hold**") for e in entries),
    )


def _noise(points: list[Point]) -> list[str]:
    """One row per covariance; each reading its agreement and KL beside the same attack."""
    if not points:
        return []
    readings = list(_groups(points, "reading"))
    heads = [f"{WORDS.get(name, name)}: agreement / KL" for name in readings]
    rows = []
    for (mechanism, _, _), own in _releases(points).items():
        best = own[0].best_attack
        by_reading = {point.reading: point for point in own}
        cells = [
            f"{p.agreement.value:.3f} / {p.kl.value:.2f}" if (p := by_reading.get(name)) else ""
            for name in readings
        ]
        rows.append(
            (
                WORDS.get(mechanism, mechanism), _level(own[0]), *cells,
                f"{best.top1.value:.3f} ({best.top1.low:.3f} to {best.top1.high:.3f})",
                f"{best.top10.value:.2f} / {best.top100.value:.2f}",
                f"{best.last_token.value:.2f}", _epsilon(own[0].epsilon_nearest),
            )
        )  # fmt: skip
    alone = dict.fromkeys(
        WORDS.get(point.reading, point.reading) for point in points if point.protocol == "B"
    )
    said = f" Read from the release alone (protocol B): {', '.join(alone)}." if alone else ""
    return [
        filled(
            "Gaussian noise at K = ½ tr(FΣ) nats. Reading a state in another way is "
            "post-processing: attack and ε are those of the release. ε is Rényi's of order 2 over "
            f"nearest pairs of the bank.{said}"
        ),
        "",
        *table(
            ("noise", "level", *heads, "best attack", "first 10 / 100", "last token", "ε"), rows
        ),
    ]


def _books(points: list[Point]) -> list[str]:
    if not points:
        return []
    rows = []
    for (mechanism, _, _), own in _releases(points).items():
        first, by_protocol = own[0], {point.protocol: point for point in own}
        best = first.best_attack
        cells = [
            f"{p.agreement.value:.3f} / {p.kl.value:.2f}" if (p := by_protocol.get(name)) else ""
            for name in ("A", "B")
        ]
        continued = by_protocol.get("A", first).generated
        rows.append(
            (
                WORDS.get(mechanism, mechanism), f"{first.codewords:,}",
                rounded_up(first.bound or 1.0), rounded_up(first.information or 0.0, 2), *cells,
                "" if continued is None else f"{continued.value:.2f}",
                f"{best.top10.value:.2f} / {best.top100.value:.2f}",
                f"{best.last_token.value:.2f}",
            )
        )  # fmt: skip
    return [
        filled(
            "Codebooks: where the prompts of the bank are equally likely, the best attacker names "
            "the right one exactly as often as the bound says, and no attacker more often. For "
            "every other attacker the factor is C. The columns first 10, first 100 and last token "
            "say what this best attacker reaches."
        ),
        "",
        *table(
            (
                "cells by", "C", "success at most", "nats at most", "A: agreement / KL",
                "B: agreement / KL", "8 tokens, A", "first 10 / 100", "last token",
            ),
            rows,
        ),
    ]  # fmt: skip


def _guarded(rows: list[GuardedRow]) -> list[str]:
    """One row per codebook that guards decisions at some cost."""
    if not rows:
        return []
    cells = [
        (
            f"{row.wanted.cells:,}",
            f"{row.wanted.decision_cost:g}" + (", joint" if row.wanted.joint_rounds else ""),
            rounded_up(row.bound),
            *(f"{pair[0]:.3f} / {pair[1]:.2f}" for pair in (row.states, row.tried, row.table)),
            "" if row.generated is None else f"{row.generated:.2f}",
        )
        for row in rows
    ]
    return [
        filled(
            "What raises agreement at a given number of cells: λ nats for every prompt whose "
            "likeliest token is not its cell's, in clustering, training and assignment. *Tried*: "
            f"the sender runs {TRIES} codewords through the layers above and takes the best. "
            "*Joint*: cells are assigned anew by trial and codewords trained again."
        ),
        "",
        *table(
            (
                "C", "λ", "success at most", "A: agreement / KL", "A, tried", "B: agreement / KL",
                "8 tokens, A",
            ),
            cells,
        ),
    ]  # fmt: skip


def _releases(points: Iterable[Point]) -> dict[tuple[str, str, int], list[Point]]:
    found: dict[tuple[str, str, int], list[Point]] = {}
    for point in points:
        found.setdefault((point.mechanism, _level(point), point.draw), []).append(point)
    return found


def _groups(points: Iterable[Point], name: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(getattr(point, name), []).append(point)
    return found


def _level(point: Point) -> str:
    if point.target_epsilon is not None:
        return f"ε = {point.target_epsilon:g}"
    return f"K = {point.kl_budget:g}" if point.kl_budget is not None else f"C = {point.codewords}"


def _epsilon(value: float | None) -> str:
    if value is None:
        return ""
    return "∞" if math.isinf(value) else f"{value:.3g}"
