"""The table of every release measured: what attackers reach first, grouped by mechanism."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tacit.hidden_states.audit.findings import Audit
from tacit.hidden_states.audit.points import Point
from tacit.report.hidden.words import READ, divergence, setting, share, words
from tacit.text import percent, percent_up, significant, significant_up

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
        told = setting(point)
        name = read if told == "–" else f"{told}, {read}"
        yield PointRow(name, (*_reached(point), *_left(point)), point is chosen)


def _reached(point: Point) -> tuple[str, ...]:
    attack = point.best_attack
    return (
        share(attack.top1),
        "none" if point.bound is None else percent_up(point.bound),
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
