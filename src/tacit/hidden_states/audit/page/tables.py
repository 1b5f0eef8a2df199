"""The tables of an audit: every release measured, and attackers who know more or ask less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.page.words import READ, divergence, setting, share, words
from tacit.hidden_states.audit.points import GuessPoint, Point
from tacit.hidden_states.audit.release import Audit
from tacit.text import percent, share_down, share_up, significant, significant_up

REACHED = ("attack, top 1", "bound", "top 10", "top 100", "last token", "Rényi ε, α = 2")
LEFT = ("protocol", "agreement", "top 5", "KL, nats", "JS, nats", "½ tr(FΣ)", "8 tokens")


@dataclass(frozen=True)
class PointRow:
    """One release.

    Attributes:
        name: its setting and how it is read.
        cells: under ``REACHED``, then under ``LEFT``.
        chosen: whether it is the one recommended.
    """

    name: str
    cells: tuple[str, ...]
    chosen: bool


@dataclass(frozen=True)
class PointGroup:
    """The releases of one mechanism, and what it releases."""

    title: str
    rows: tuple[PointRow, ...]


def point_groups(audit: Audit) -> tuple[PointGroup, ...]:
    """Return a group for each mechanism, in the order in which they were measured."""
    members: dict[str, list[Point]] = {}
    for point in audit.points:
        members.setdefault(point.mechanism, []).append(point)
    return tuple(
        PointGroup(_title(points), tuple(_rows(points, audit.recommendation.point)))
        for points in members.values()
    )


def _title(points: list[Point]) -> str:
    """Say what the mechanism releases, C where it names the number of cells of one point."""
    title, size = words(points[0]), points[0].cells
    return title if size is None else title.replace(f"{size:,}", "C", 1)


def _rows(points: Iterable[Point], chosen: Point | None) -> Iterable[PointRow]:
    for point in points:
        read = READ.get(point.reading, point.reading)
        at = setting(point)
        name = read if at == "–" else f"{at}, {read}"
        yield PointRow(name, (*_reached(point), *_left(point)), point is chosen)


def _reached(point: Point) -> tuple[str, ...]:
    attack = point.best_attack
    return (
        share(attack.top1),
        "none" if point.bound is None else share_up(point.bound),
        percent(attack.top10.value),
        percent(attack.top100.value),
        percent(attack.last_token.value),
        "–" if point.epsilon_nearest is None else significant_up(point.epsilon_nearest),
    )


def _left(point: Point) -> tuple[str, ...]:
    return (
        point.protocol,
        share(point.agreement),
        "–" if point.top5 is None else percent(point.top5.value),
        divergence(point),
        "–" if point.jensen_shannon is None else significant(point.jensen_shannon.value),
        "–" if point.predicted_kl is None else significant(point.predicted_kl),
        "–" if point.generated is None else percent(point.generated.value),
    )


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
        cells = [_attacker(clean), percent(clean.prior.value), share(clean.success)]
        cells += [share(point.guesses[place].success) for point in shown]
        rows.append(tuple(cells))
    chosen = audit.recommendation.point
    here = [place for place, point in enumerate(shown) if point is chosen]
    return GuessTable(tuple(heads), tuple(rows), 3 + here[0] if here else None)


def _columns(audit: Audit) -> list[Point]:
    """The choice, or the best proven release in its place; the control; noise nearest in KL."""
    asked = audit.wish.protocol
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


def _attacker(guess: GuessPoint) -> str:
    # what learns from codes is another model than what learns from states
    told = f"{guess.task}, by {guess.knows or 'the posterior over the bank'}"
    if guess.covered == 1.0:
        return told
    return f"{told} (among the candidates for {share_down(guess.covered)} of prompts)"


RECOMMENDED = Markup('<span class="mark">recommended</span>')


def points_markup(audit: Audit) -> Markup:
    """Return the table of every release measured, which folds into blocks on a narrow screen."""
    heads = (*REACHED, *LEFT)
    # what is left of the prediction begins here
    edge = len(REACHED)
    top = Markup(
        '<thead><tr><td></td><th scope="colgroup" colspan="{}">what attackers reach</th>'
        '<th scope="colgroup" class="left" colspan="{}">what is left of the prediction</th></tr>'
        '<tr><th scope="col">release</th>{}</tr></thead>'
    ).format(edge, len(LEFT), _joined(
        Markup('<th scope="col"{}>{}</th>').format(_class("left", place == edge), head)
        for place, head in enumerate(heads)
    ))  # fmt: skip
    bodies = (
        Markup(
            '<tbody><tr class="group"><th scope="rowgroup" colspan="{}">{}</th></tr>{}</tbody>'
        ).format(1 + len(heads), group.title, _joined(map(_row_markup, group.rows)))
        for group in point_groups(audit)
    )
    return Markup('<div class="stack points"><table>{}{}</table></div>').format(
        top, _joined(bodies)
    )


def _row_markup(row: PointRow) -> Markup:
    cells = (
        Markup('<td data-label="{}"{}>{}</td>').format(
            head, _class("left", place == len(REACHED)), cell
        )
        for place, (head, cell) in enumerate(zip((*REACHED, *LEFT), row.cells, strict=True))
    )
    mark = Markup(" ") + RECOMMENDED if row.chosen else ""
    return Markup('<tr{}><th scope="row">{}{}</th>{}</tr>').format(
        _class("chosen", row.chosen), row.name, mark, _joined(cells)
    )


def guesses_markup(found: GuessTable) -> Markup:
    """Return the table of attackers who know more or ask less."""
    heads = (
        Markup('<th scope="col"{}>{}{}</th>').format(
            _class("chosen", place == found.chosen),
            RECOMMENDED + " " if place == found.chosen else "",
            head,
        )
        for place, head in enumerate(found.heads)
    )
    rows = (
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(row[0], _joined(
            Markup('<td data-label="{}"{}>{}</td>').format(
                found.heads[place], _class("chosen", place == found.chosen), cell
            )
            for place, cell in enumerate(row[1:], start=1)
        ))
        for row in found.rows
    )  # fmt: skip
    return Markup(
        '<div class="stack guesses"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
        "</div>"
    ).format(_joined(heads), _joined(rows))


def _class(name: str, holds: bool) -> Markup:
    return Markup(f' class="{name}"') if holds else Markup("")


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)
