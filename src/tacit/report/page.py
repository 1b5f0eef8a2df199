"""The page of a release: what all kinds show, and between it the sections of its own kind."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tacit._ground.files import check_writable, write_text_atomic
from tacit.guarantees import SuccessBound
from tacit.pages import (
    NARROW,
    WIDE,
    Sections,
    SuccessPlot,
    embedded_json,
    rendered,
    success_figure,
    table,
    verdict,
)
from tacit.pages.answers import record_words
from tacit.pages.numbers import numbers_table
from tacit.pages.strength import assumed, not_hidden, strength_table
from tacit.pages.words import attack_words, plus_minus, use_words
from tacit.releases import Provenance, Release
from tacit.releases.kinds import kind_named
from tacit.releases.loading import read_checked
from tacit.text import chance_down, share_nearest, share_up

SHOWN_ROWS = 16
# A page that the JSON of its release would make larger leaves it out: it stays light on a phone.
LARGEST_PAGE = 300_000


def render_report(release: Any) -> str:
    """Return the report on a release as one self-contained HTML page.

    Args:
        release: what a workflow returned, its dictionary, or the path of its file.

    Raises:
        ValueError: when ``release`` is not a release of tacit.
    """
    read = read_checked(release)
    found = read.release
    listed = found.numbers
    own = sections_of(found)
    attacks = None if own.instead else _attacks(found)
    made = found.provenance or Provenance(command="in Python", created=found.created)
    write = partial(
        rendered,
        "tacit.report",
        "page",
        release=found,
        verdict=verdict(found),
        record=record_words(found),
        own=own,
        made=made,
        figures=[] if own.instead else _figures(found),
        numbers=None
        if own.instead or found.numbers is None
        else numbers_table(found.numbers, SHOWN_ROWS),
        sampled=listed is not None and listed.sampling is not None,
        attacks=attacks,
        half_widths=attacks is not None and "±" in attacks,
        use=None if own.instead else _use(found),
        strength=strength_table(found),
        assumed=assumed(found),
        not_hidden=not_hidden(found),
        unchecked=read.unchecked,
        said=_said(found),
    )
    whole = write(json=embedded_json(found.to_dict()))
    return whole if len(whole.encode()) <= LARGEST_PAGE else write(json=None)


def write_report(release: Any, path: str | os.PathLike[str]) -> Path:
    """Write the report on a release to ``path``, whole or not at all.

    Args:
        release: what a workflow returned, its dictionary, or the path of its file.
        path: the HTML file to write; an older one is replaced.

    Returns:
        The absolute path written.

    Raises:
        ValueError: when ``release`` is not a release of tacit or ``path`` cannot be written.
    """
    check_writable("path", path)
    return write_text_atomic("path", path, render_report(release))


def sections_of(release: Release[Any]) -> Sections:
    """Return what the kind of a release shows on its page."""
    place = kind_named(release.kind).sections
    if place is None:
        return Sections()
    module, _, name = place.partition(":")
    found: Sections = getattr(import_module(module), name)(release)
    return found


def _attacks(release: Release[Any]) -> Markup | None:
    if not release.attacks:
        return None
    blind = any(attack.prior is not None for attack in release.attacks)
    head = ["attack", "guesses", "success", *(["without the release"] if blind else []), "trials"]
    rows = []
    for attack in release.attacks:
        words = attack_words(release, attack)
        if attack.worst is not None:
            words += f"; worst record {plus_minus(attack.worst)}"
        words = words.replace(" ± ", "\u00a0±\u00a0")
        prior = "" if attack.prior is None else share_nearest(attack.prior)
        cells = [attack.name, attack.task, words, *([prior] if blind else [])]
        rows.append([*cells, f"{attack.trials:,}"])
    return table("attacks", head, rows, "numbers attacks")


def _use(release: Release[Any]) -> Markup | None:
    if not release.use:
        return None
    rows = [(use.name, use_words(release, use.name), use.better) for use in release.use]
    return table("use", ("measured", "value and interval", "better when"), rows, "numbers")


def _said(release: Release[Any]) -> list[tuple[list[str], str]]:
    """Return the sentences of all guarantees, with the evidence of each once for all it is of."""
    found: list[tuple[list[str], str]] = []
    for held in release.guarantees:
        level = (
            "" if held.confidence is None else f", with probability {chance_down(held.confidence)}"
        )
        evidence = f"Evidence: {held.evidence}{level}. Source: {held.source}."
        if not found or found[-1][1] != evidence:
            found.append(([], evidence))
        found[-1][0].append(held.describe())
    return found


def _figures(release: Release[Any]) -> list[dict[str, Any]]:
    """One figure per bound: the line, and the attacks on the same task as points."""
    found = []
    for bound in release.guarantees:
        if not isinstance(bound, SuccessBound):
            continue
        rows = []
        for attack in release.attacks:
            if attack.task == bound.task:
                rows.append(("attack, every trial", attack.success))
                if attack.worst is not None:
                    rows.append(("attack, worst record", attack.worst))
        plot = SuccessPlot(
            task=bound.task,
            bound=release.success(bound),
            prior=bound.prior,
            void=release.reproducible,
            rows=tuple(rows),
        )
        found.append(
            {
                "task": bound.task,
                "bound": share_up(plot.bound),
                "prior": share_nearest(bound.prior),
                "wide": success_figure(plot, width=WIDE),
                "narrow": success_figure(plot, width=NARROW),
                "measured": bool(rows),
            }
        )
    return found
