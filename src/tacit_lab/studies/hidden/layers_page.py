"""The section on all layers: verdicts on the hidden-state paper, and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tacit_lab.studies.hidden import published
from tacit_lab.studies.hidden.equal import Equal
from tacit_lab.studies.hidden.measure import DESIGNS
from tacit_lab.studies.hidden.middle_page import WORDS
from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.hidden.study import HiddenStudy
from tacit_lab.studies.hidden.verdicts import gains, verdicts
from tacit_lab.studies.reproductions.prose import filled, rounded_up, table

NAME = "hidden-layers"
THRESHOLDS = (0.5, 0.4, 0.3, 0.2, 0.1)


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "The hidden-state paper on every layer", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return figure, story, verdicts and tables."""
    study = HiddenStudy(result)
    return [
        f"![Every layer](../images/{NAME}.svg)", "",
        filled(story(study)), "",
        *table(
            ("the paper", "printed", "found here", "verdict"),
            ((v.claim, v.printed, v.found, f"**{v.word}**") for v in verdicts(result)),
        ),
        *_counts(study), *_equal(study), *_exponents(study), *_gains(study), *_matched(study),
        *_books(study),
    ]  # fmt: skip


def story(study: HiddenStudy) -> str:
    """Return what was measured and against what."""
    result, figures = study.result, published.FIGURES
    models = sorted({point["model"] for point in figures["sweep"]})
    recipe = result.get("recipe") or {}
    trained = (
        f" (held-out perplexity {recipe['held_out_perplexity']:.1f})"
        if "held_out_perplexity" in recipe
        else ""
    )
    return f"""The paper (arXiv:2605.24042) measures {len(figures["sweep"])} layers of
{", ".join(models)}. Here it is {result["model"]}{trained}: {len(study.layers)} layers of width
{study.layers[0]["width"]}, prompts of {result["length"]} tokens from the
{result["texts"]}, a bank of {result["bank"]:,}, {result["calibration"]:,} public calibration
prompts, KL and agreement on {result["prompts"]:,} prompts, attacks on {result["queries"]:,}
releases. A small model can refute a statement about all models, and can confirm one for itself
alone.

Releases with the same σ, or the same K = ½ tr(FΣ), do not cost the same. Equal KL below is KL that
was *measured*. For each design the budget that should give it was solved for on a first grid
and measured again, and what little remains is interpolated. *Denoised* is the posterior mean of
the noisy state over the calibration states. `src/tacit_lab/studies/hidden/published.json` holds the
paper's own rows ({figures["source"]}; {figures["licence"]}), and they are counted again here."""


def _counts(study: HiddenStudy) -> list[str]:
    rows = []
    for agreement in THRESHOLDS:
        cells = [
            f"{sum(row.inside(agreement) for row in own)} of {len(own)}"
            for own in (study.raw, study.denoised, study.books)
        ]
        theirs = f"{len(published.inside(agreement))} of {len(published.rows()):,}"
        rows.append((f"{agreement:g}", theirs, *cells))
    return [
        "Releases whose likeliest next token stays that often while the attack names at most half "
        "of the prompts:",
        "",
        *table(
            ("agreement at least", "published", "here, raw", "denoised", "codebooks, proven"), rows
        ),
    ]


def _equal(study: HiddenStudy) -> list[str]:
    rows = []
    for facts in study.layers:
        for kl in study.result["targets"]:
            found = [study.equal(facts["layer"], name, kl) for name in DESIGNS]
            if any(found):
                rows.append((str(facts["layer"]), f"{kl:g}", *map(_cell, found)))
    return [
        "Attack / agreement at equal measured KL, states read raw:",
        "",
        *table(("layer", "KL", *(WORDS[name] for name in DESIGNS)), rows),
    ]


def _exponents(study: HiddenStudy) -> list[str]:
    targets = study.result["targets"]
    kl = targets[len(targets) // 2]
    rows = []
    for facts in study.layers:
        layer = facts["layer"]
        found = study.attacks(layer, kl)
        cells = [_share(found.get(alpha)) for alpha in study.family]
        signal = study.best_signal(layer)
        best = [study.best_attack(layer, target) for target in targets]
        rows.append((str(layer), *cells, _numbers([signal]), _numbers(best)))
    heads = [f"α = {alpha:g}" for alpha in study.family]
    shown = ", ".join(f"{target:g}" for target in targets)
    return [
        f"Attack on diag(F)^−α at a measured KL of {kl:g} nats; the α whose worst nearest pair is "
        f"least distinguishable at equal K; the α of the least attack at {shown} nats:",
        "",
        *table(("layer", *heads, "worst pair", "least attack"), rows),
    ]  # fmt: skip


def _gains(study: HiddenStudy) -> list[str]:
    rows = []
    for facts, (layer, predicted, budget, nats) in zip(study.layers, gains(study), strict=True):
        rows.append(
            (
                str(layer), f"{facts['fisher_trace']:.3g}", f"{facts['energy']:.3f}",
                f"{facts['euclidean_gain']:.1f}", f"{facts['mahalanobis_gain']:.2f}",
                f"{predicted:.2f}", _number(budget), _number(nats),
            )
        )  # fmt: skip
    rank = study.layers[0]["rank"]
    return [
        "What isotropic noise costs over the Mahalanobis-optimal release where the attack falls "
        "to ½, beside what G_Mah says of the release with its floor:",
        "",
        *table(
            (
                "layer", "tr F", f"E_{rank}", "G_Euc", "G_Mah", "predicted", "found, in K",
                "found, in measured KL",
            ),
            rows,
        ),
    ]  # fmt: skip


def _matched(study: HiddenStudy) -> list[str]:
    rows = [row for row in study.rows if row.kind == "epsilon"]
    if not rows:
        return []
    names = list(dict.fromkeys(row.mechanism for row in rows))
    levels = list(dict.fromkeys(row.level for row in rows))
    lines_of = []
    for epsilon, level in zip(study.result["epsilons"], levels, strict=True):
        for facts in study.layers:
            own = {
                row.mechanism: row
                for row in rows
                if row.level == level and row.layer == facts["layer"]
            }
            cells = [f"{own[n].attack:.3f} / {own[n].kl:.2f}" for n in names]
            lines_of.append((f"{epsilon:g}", str(facts["layer"]), *cells))
    return [
        "Attack / KL at equal ε (δ = 1e-6, the paper's conversion, nearest pairs of the bank):",
        "",
        *table(("ε", "layer", *(WORDS[name] for name in names)), lines_of),
    ]


def _books(study: HiddenStudy) -> list[str]:
    rows = [row for row in study.rows if row.kind == "codewords"]
    if not rows:
        return []
    releases = dict.fromkeys((row.mechanism, row.level) for row in rows)
    lines_of = []
    for mechanism, level in releases:
        for facts in study.layers:
            own = {
                row.protocol: row
                for row in rows
                if (row.mechanism, row.level, row.layer) == (mechanism, level, facts["layer"])
            }
            cells = [
                f"{row.agreement:.3f} / {row.kl:.2f}" if (row := own.get(protocol)) else ""
                for protocol in ("A", "B")
            ]
            bound = max((row.bound or 0.0) for row in own.values())
            size = "" if mechanism == "argmax" else f"{level:,.0f}"
            lines_of.append(
                (WORDS.get(mechanism, mechanism), size, str(facts["layer"]), rounded_up(bound),
                 *cells)
            )  # fmt: skip
    return [
        "Codebooks: success that no attacker exceeds to whom the prompts of the bank are equally "
        "likely (for every other the factor is C), agreement / KL with the clean earlier "
        "positions (A) and from the code alone (B):",
        "",
        *table(("cells by", "C", "layer", "success at most", "A", "B"), lines_of),
    ]


def _cell(found: Equal | None) -> str:
    return "" if found is None else f"{found.attack:.3f} / {found.agreement:.3f}"


def _share(found: Equal | None) -> str:
    return "" if found is None else f"{found.attack:.3f}"


def _number(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.2f}"


def _numbers(values: Iterable[float | None]) -> str:
    return ", ".join("–" if value is None else f"{value:g}" for value in values)
