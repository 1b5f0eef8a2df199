"""The page of an audit of hidden states: what the template needs, filled in and written whole."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.findings import Audit
from tacit.hidden_states.audit.points import Point
from tacit.releases.provenance import Provenance
from tacit.report.drawing import NARROW, WIDE
from tacit.report.embedding import embedded_json
from tacit.report.hidden.figures import (
    candidates_figure,
    curve_figure,
    map_figure,
    spectrum_figure,
)
from tacit.report.hidden.guesses import guess_table
from tacit.report.hidden.points import LEFT, REACHED, point_groups
from tacit.report.hidden.words import hidden_verdict, size_of_noise, words
from tacit.text import percent


def render_audit(audit: Audit, provenance: Provenance) -> str:
    """Return the report on an audit of hidden states as one self-contained HTML page.

    Args:
        audit: what ``tacit.hidden_states.audit`` returned.
        provenance: how it was made.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = resources.files("tacit.report")
    page = (folder / "hidden" / "page.html.j2").read_text(encoding="utf-8")
    template = environment.from_string(page)
    style = "".join(
        (folder / name).read_text(encoding="utf-8") for name in ("page.css", "hidden/page.css")
    )
    return template.render(style=Markup(style), **_content(audit, provenance))


def _content(audit: Audit, provenance: Provenance) -> dict[str, Any]:
    shown = compared(audit)
    noisy = [point for point in audit.points if point.bound is None]
    raw = [point for point in noisy if point.reading == "raw"]
    alone = [point for point in noisy if point.protocol == "B"]
    denoised = [point for point in noisy if point.protocol == "A" and point.reading != "raw"]
    return {
        "audit": audit,
        "verdict": hidden_verdict(audit),
        "provenance": provenance,
        "theorem": _theorem(audit.recommendation.point),
        "wish": audit.recommendation.wish,
        "map_wide": map_figure(audit, width=WIDE),
        "map_narrow": map_figure(audit, width=NARROW),
        "spectrum_wide": spectrum_figure(audit, width=WIDE),
        "spectrum_narrow": spectrum_figure(audit, width=NARROW),
        "curve_wide": curve_figure(audit, shown, width=WIDE),
        "curve_narrow": curve_figure(audit, shown, width=NARROW),
        "candidates_wide": candidates_figure(audit, width=WIDE),
        "candidates_narrow": candidates_figure(audit, width=NARROW),
        "raw_count": len(raw),
        "raw_middle": sum(point.in_middle for point in raw),
        "denoised_count": len(denoised),
        "denoised_middle": sum(point.in_middle for point in denoised),
        "alone_count": len(alone),
        "alone_middle": sum(point.in_middle for point in alone),
        "guesses": guess_table(audit),
        "groups": point_groups(audit),
        "reached": REACHED,
        "left": LEFT,
        "bank": audit.points[0].bank,
        "prompts": audit.points[0].prompts,
        "assumptions": list(
            dict.fromkeys(line for held in audit.guarantees for line in held.assumptions)
        ),
        "guarantees": [held.describe() for held in audit.guarantees],
        "sources": list(dict.fromkeys(held.source for held in audit.guarantees)),
        "json": embedded_json({**audit.to_dict(), "provenance": provenance.to_dict()}),
    }


def _theorem(chosen: Point | None) -> tuple[Markup, Markup] | None:
    """Return what the mechanism says of its theorem and what it does not, variables in italics."""
    if chosen is None or not (formula := mechanism_of(chosen).formula(chosen)):
        return None
    return _variables(formula), _variables(mechanism_of(chosen).caveat(chosen))


def _variables(text: str) -> Markup:
    return Markup(re.sub(r"\*([^*]+)\*", r"<var>\1</var>", str(escape(text))))


def compared(audit: Audit) -> list[tuple[str, Point]]:
    """Return the releases whose attack curves are drawn: the choice, and what to hold it against.

    The likeliest token stands beside it as the control, and the noise whose agreement, denoised
    where that was measured, is nearest to the choice's: all under the protocol asked for.
    """
    protocol = audit.recommendation.wish.protocol
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
