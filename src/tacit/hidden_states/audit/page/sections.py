"""What the page of an audit shows of its own: what to store, the figures and the tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import resources

from markupsafe import Markup, escape

from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.page.figures import (
    candidates_figure,
    curve_figure,
    map_figure,
    spectrum_figure,
)
from tacit.hidden_states.audit.page.tables import guess_table, guesses_markup, points_markup
from tacit.hidden_states.audit.page.words import audit_verdict, size_of_noise, words
from tacit.hidden_states.audit.points import Point
from tacit.hidden_states.audit.release import Audit
from tacit.pages import NARROW, WIDE, Section, Sections, bullets, figure, folded, joined, paragraph
from tacit.releases import Release
from tacit.text import percent


def sections(release: Release[Audit]) -> Sections:
    """Return the verdict on a layer, and what was measured of it."""
    audit, verdict = release.details, audit_verdict(release)
    style = (resources.files("tacit.hidden_states.audit.page") / "page.css").read_text("utf-8")
    parts = [_reasons(audit), _map(audit), _factor(release), _curves(audit)]
    # three figures are in sight; what was measured besides opens where it is asked for
    parts += [_closed(part) for part in (_guesses(audit), _spectra(audit), _points(audit))]
    return Sections(
        parts=tuple(part for part in parts if part is not None),
        lead=verdict.lead,
        rest=verdict.rest,
        instead=True,
        style=Markup(style),
        randomness=f"the seed {audit.seed}; it fixes what was measured here and releases nothing",
    )


def _closed(part: Section | None) -> Section | None:
    """Return a section whose body is shown when it is opened."""
    return None if part is None else replace(part, body=folded("Show", part.body))


def _map(audit: Audit) -> Section:
    """Attack over agreement, the empty middle shaded."""
    alone = audit.wish.protocol == "B"
    holds = "holds the release alone" if alone else "also holds the clean earlier positions"
    times = audit.wish.releases
    seen = f" and who sees {times} releases of each" if times > 1 else ""
    ringed = " Ringed: the release recommended." if audit.recommendation.point else ""
    caption = (
        f"Each mark is one release of the last state at layer {audit.layer}, when the consumer "
        f"{holds} (protocol {audit.wish.protocol}). Points are measurements: the strongest attack "
        "we ran, with 95% intervals both ways. Lines are bounds for an attacker to whom the "
        f"{_bank(audit)} prompts are equally likely{seen}, as wide as the interval of the "
        "agreement; the number of cells, or the name, stands at the best of its size."
        f"{ringed} Shaded: at least half of the use for at most half of the attack. "
        f"{_middle(audit)}"
    )
    return Section("Privacy against use", _figure(partial(map_figure, audit), caption))


def _middle(audit: Audit) -> str:
    """Say how many noisy releases lie in the middle, by how they are read."""
    noisy = [point for point in audit.points if point.bound is None]
    if not noisy:
        return "No noisy release was measured."
    raw = [point for point in noisy if point.reading == "raw"]
    alone = [point for point in noisy if point.protocol == "B"]
    denoised = [point for point in noisy if point.protocol == "A" and point.reading != "raw"]
    inside = [sum(point.in_middle for point in part) for part in (raw, denoised, alone)]
    if audit.wish.protocol == "B":
        return f"Of {len(alone)} noisy releases decoded alone, {inside[2]} lie there."
    left = f" Not drawn: of {len(alone)} decoded from the release alone (protocol B), {inside[2]} "
    return (
        f"Of {len(raw)} noisy releases read as they come, {inside[0]} lie there; of "
        f"{len(denoised)} denoised ones, {inside[1]}." + (f"{left}would." if alone else "")
    )


def _reasons(audit: Audit) -> Section:
    """Why this release, and what was asked for."""
    wish = audit.wish
    times = f" from {wish.releases} releases" if wish.releases > 1 else ""
    most = "" if wish.max_kl is None else f", KL at most {wish.max_kl:g} nats"
    reader = (
        "the consumer holds the clean earlier positions; it says nothing about a system that "
        "stores the release alone"
        if wish.protocol == "A"
        else "the consumer holds the release alone"
    )
    asked = (
        f"Asked for: naming one of {_bank(audit)} equally likely prompts{times} at most "
        f"{wish.max_attack * 100:g}% of the time, agreement at least "
        f"{wish.min_agreement * 100:g}%{most}, protocol {wish.protocol}, in which {reader}."
    )
    body = joined(bullets(audit.recommendation.reasons), paragraph(asked, "aside"))
    return Section("What to store, and why", body)


def _factor(release: Release[Audit]) -> Section | None:
    """What the mechanism says of its theorem, and the factor as a percentage."""
    chosen = release.details.recommendation.point
    if chosen is None or not release.guarantees:
        return None
    parts: list[Markup | None] = []
    if formula := mechanism_of(chosen).formula(chosen):
        caveat = mechanism_of(chosen).caveat(chosen)
        parts.append(Markup('<div class="formulas"><p>{}</p></div>').format(_variables(formula)))
        parts.append(paragraph(_variables(caveat)) if caveat else None)
    if release.leakage is not None:
        caption = Markup(
            "The factor as a percentage: the largest success at naming the prompt among "
            "<var>N</var> equally likely ones, and guessing blind, on logarithmic axes. An "
            "attacker who has fewer candidates left is further to the left; the factor is the "
            "same."
        )
        parts.append(_figure(partial(candidates_figure, release.leakage), caption))
    return Section("What its theorem says", joined(*parts)) if parts else None


def _variables(text: str) -> Markup:
    """Return words with what stands between asterisks as variables."""
    names = re.sub(r"\*([^*]+)\*", r"<var>\1</var>", str(escape(text)))
    return Markup(re.sub(r"\^(<var>\w+</var>)", r"<sup>\1</sup>", names))


def _curves(audit: Audit) -> Section:
    shown = curve_points(audit)
    caption = (
        "Success at naming the prompt when the attacker has narrowed it down to so many "
        "candidates, on a logarithmic axis. With few candidates left, every release gives the "
        "prompt away."
    )
    title = "How the attack depends on what the attacker knows"
    return Section(title, _figure(partial(curve_figure, audit, shown), caption))


def _guesses(audit: Audit) -> Section | None:
    """Attackers who know more of a prompt, or ask less of it."""
    found = guess_table(audit)
    if found is None:
        return None
    limit = ""
    if audit.wish.max_gain is not None:
        limit = (
            " A release is recommended only where attackers of that kind, and those who learnt an "
            f"attribute from other prompts, gain at most {audit.wish.max_gain * 100:g} points over "
            "guessing without the release, at the upper end of the interval."
        )
    aside = (
        "Share of right guesses, with 95% intervals; cells without one are exact for this bank. "
        "The clean state, the likeliest token and the noise nearest in KL are controls. An "
        "attacker who knows all earlier tokens runs the model on the likeliest last tokens. Its "
        f"success does not depend on the bank, and no bound on naming one of {_bank(audit)} "
        f"prompts speaks of it.{limit}"
    )
    body = joined(guesses_markup(found), paragraph(aside, "aside"))
    return Section("Attackers who know more, or ask less", body)


def _spectra(audit: Audit) -> Section | None:
    wide, narrow = (spectrum_figure(audit, width=width) for width in (WIDE, NARROW))
    if wide is None or narrow is None:
        return None
    caption = (
        "Share of the trace along each eigenvector, on a logarithmic axis. Noise is cheap where "
        "the Fisher information is small and useful where prompts differ."
    )
    title = "Where the prediction lives, and where prompts differ"
    return Section(title, figure(wide, narrow, caption))


def _points(audit: Audit) -> Section:
    """Every release measured."""
    times = audit.wish.releases
    codes = f"sequences of {times} codes" if times > 1 else "codes"
    aside = Markup(
        "Attack: top 1 of the strongest attacker among {} candidates. ½ tr(FΣ) predicts the KL "
        "while that is quadratic. The KL beside it is the mean (median; 95% quantile) on "
        "{} held-out prompts. Top 5 is the share of the five likeliest tokens that stay among "
        "them, JS the mean Jensen–Shannon divergence. Rényi ε is over nearest neighbours in "
        "the bank. Cells of too few prompts are removed before anything is coded, so that fewer "
        "than the <var>C</var> asked for may be left. <em>Occur</em> counts the different {} of "
        "the bank. "
        "Prompts have at most {} tokens; {} others were there to fit on."
    ).format(
        _bank(audit), f"{audit.points[0].prompts:,}", codes, audit.length,
        f"{audit.calibration:,}",
    )  # fmt: skip
    body = joined(points_markup(audit), paragraph(aside, "aside"))
    return Section("Every release measured", body, across=True)


def _figure(draw: Callable[..., Markup], caption: str) -> Markup:
    return figure(draw(width=WIDE), draw(width=NARROW), caption)


def _bank(audit: Audit) -> str:
    return f"{audit.points[0].bank:,}"


def curve_points(audit: Audit) -> list[tuple[str, Point]]:
    """Return the releases whose attack curves are drawn: the choice, and what to hold it against.

    The likeliest token stands beside it as the control, and the noise whose agreement, denoised
    where that was measured, is nearest to the choice's: all under the protocol asked for.
    """
    protocol = audit.wish.protocol
    read = [point for point in audit.points if point.protocol == protocol]
    chosen = audit.recommendation.point
    target = 0.5 if chosen is None else chosen.agreement.value
    found = [] if chosen is None else [chosen]
    found += [p for p in read if mechanism_of(p).control and p is not chosen][:1]
    noisy = [p for p in read if p.bound is None and p is not chosen]
    denoised = [p for p in noisy if p.reading != "raw"] or noisy
    if denoised:
        found.append(min(denoised, key=lambda p: abs(p.agreement.value - target)))
    if not found:
        found = read[:1] or list(audit.points[:1])
    return [(_curve_label(point), point) for point in found]


def _curve_label(point: Point) -> str:
    parts = ", ".join(filter(None, (words(point), size_of_noise(point))))
    return f"{parts}: agreement {percent(point.agreement.value)}"
