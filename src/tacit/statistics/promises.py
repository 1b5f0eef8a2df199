"""Which promises a statistic may be released under: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tacit.guarantees.base import Guarantee
from tacit.releases.promises import Draw, Promise, Rows, Table, check_promise

# A pool of which half is drawn has at least two rows in and two out.
SMALLEST_POOL = 4
# Every promise, and the module whose ``KEEPING`` says how it is kept, read when it is asked for.
# A line here is all that ``prepare``, a session and ``tacit statistic --protect`` know of one.
PROMISES: Mapping[type[Promise], str] = {
    Rows: "tacit.statistics.rows.workflow",
    Table: "tacit.statistics.bounded.workflow",
    Draw: "tacit.statistics.draws.workflow",
}
# Those that are kept in another way where all rows of a person are hidden together.
OF_PEOPLE: Mapping[type[Promise], str] = {Table: "tacit.statistics.people.keeping"}


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """How a promise is kept.

    Attributes:
        prepare: from a ``StatisticRequest`` to ``PreparedNumbers``.
        counts: from a request to the kind of guarantee that a ledger will count.
        session: ``module:class`` of what answers the questions of a session under it; None where
            there is no session.
        looks: whether names, noise and pairs may depend on the rows, which an attacker may then
            know but for the draw; else they follow from what was declared, and a row that cannot
            be read is left out and refuses nothing.
        fewest: rows at least.
    """

    prepare: Callable[[Any], Any]
    counts: Callable[[Any], type[Guarantee]]
    session: str | None = None
    looks: bool = True
    fewest: int = SMALLEST_POOL


def keeping_of(promise: Any) -> Keeping:
    """Return how a promise is kept.

    Raises:
        ValueError: no statistic is released under it.
    """
    check_promise(promise, *PROMISES)
    rooms = {**PROMISES, **OF_PEOPLE} if getattr(promise, "person", None) else PROMISES
    found: Keeping = import_module(rooms[type(promise)]).KEEPING
    return found


def hides_table(promise: Any) -> bool:
    """Return whether it is hidden that a row is in the table, so that reading tells of none."""
    return not keeping_of(promise).looks


def declared_levels(promise: Any) -> Any:
    """Return the categories that a promise declares, but for those that are to be found."""
    return getattr(promise, "declared_levels", getattr(promise, "levels", None))
