"""The table of attackers who know more of a prompt or ask less of it, controls among them."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.findings import Audit
from tacit.hidden_states.audit.guesses import GuessPoint
from tacit.hidden_states.audit.points import Point
from tacit.report.hidden.words import READ, setting, share, words
from tacit.text import percent, share_down, significant


@dataclass(frozen=True)
class GuessTable:
    """One row an attacker, one column a release.

    Attributes:
        heads: of the columns, the first for the attacker.
        rows: cells, the first of each naming the attacker.
        chosen: place of the recommended release among the heads; None where there is none.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chosen: int | None


def guess_table(audit: Audit) -> GuessTable | None:
    """Return the table, None where no such attacker was run."""
    shown = _columns(audit)
    if not audit.clean or not shown:
        return None
    heads = ["attacker", "without the release", "the clean state", *map(_head, shown)]
    rows = []
    for place, clean in enumerate(audit.clean):
        cells = [_title(clean), percent(clean.prior.value), share(clean.success)]
        cells += [share(point.guesses[place].success) for point in shown]
        rows.append(tuple(cells))
    chosen = audit.recommendation.point
    here = [place for place, point in enumerate(shown) if point is chosen]
    return GuessTable(tuple(heads), tuple(rows), 3 + here[0] if here else None)


def _columns(audit: Audit) -> list[Point]:
    """The choice, or the best proven release in its place; the control; noise nearest in KL."""
    asked = audit.recommendation.wish.protocol
    read = [
        point
        for point in audit.points
        if point.protocol == asked and len(point.guesses) == len(audit.clean)
    ]
    controls = [point for point in read if mechanism_of(point).control]
    bounded = [p for p in read if p.bound is not None and p not in controls]
    chosen = audit.recommendation.point
    first = [chosen] if chosen in read and chosen is not None else []
    first = first or sorted(bounded, key=lambda point: point.kl.value)[:1]
    found = first + [point for point in controls if point not in first][:1]
    noisy = [point for point in read if point.bound is None and point not in found]
    if noisy and first:
        found.append(min(noisy, key=lambda point: abs(point.kl.value - first[0].kl.value)))
    return found or noisy[:1]


def _head(point: Point) -> str:
    named = (words(point), setting(point), READ.get(point.reading, point.reading))
    return f"{', '.join(named)}: KL {significant(point.kl.value)}"


def _title(guess: GuessPoint) -> str:
    # what learns from codes is another model than what learns from states
    told = f"{guess.task}, by {guess.knows or 'the posterior over the bank'}"
    if guess.covered == 1.0:
        return told
    return f"{told} (among the candidates for {share_down(guess.covered)} of prompts)"
