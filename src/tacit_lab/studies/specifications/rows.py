"""The rows of the study's result and how they are picked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ObjectiveRow:
    """One way to describe learnwares and users, and how well it finds who is asked for.

    Attributes:
        tasks: ``"images"``, ``"texts"``, ``"relabelled"`` or ``"crossed"``.
        what: ``"PAVE"`` or a trivial baseline.
        route: output map of PAVE; empty for a baseline.
        order: ``"aligned"``, or ``"permuted"`` where users number their labels as they like.
        records: n of every learnware.
        rank: r of PAVE, 0 in the full space and for a baseline.
        subspace: k, 0 where none.
        epsilon: of every learnware's specification, 0 without privacy.
        user: ε of the user's own specification, 0 without privacy.
        top1: share of users whose task's learnware comes first, and its standard error.
        reuse: accuracy of the learnware that comes first, and its standard error.
        numbers: how many a specification holds.
    """

    tasks: str
    what: str
    route: str = ""
    order: str = "aligned"
    records: int
    rank: int = 0
    subspace: int = 0
    epsilon: float = 0.0
    user: float = 0.0
    top1: list[float]
    reuse: list[float] | None = None
    numbers: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


def picked(result: dict[str, Any], **wanted: Any) -> list[ObjectiveRow]:
    """Return the rows whose fields are as wanted."""
    rows = [ObjectiveRow(**row) for row in result["rows"]]
    return [row for row in rows if all(getattr(row, k) == v for k, v in wanted.items())]


def one(result: dict[str, Any], **wanted: Any) -> ObjectiveRow | None:
    """Return the only such row, or None where it was not run."""
    found = picked(result, **wanted)
    if len(found) > 1:
        raise ValueError(f"expected one row, got {len(found)} for {wanted}")
    return found[0] if found else None


def percent(value: list[float] | None) -> str:
    """Return a share and its standard error in percent."""
    return "–" if value is None else f"{100 * value[0]:.1f} ± {100 * value[1]:.1f}"


def budget(epsilon: float) -> str:
    """Return ε as the page prints it."""
    return f"ε = {epsilon:g}" if epsilon else "no privacy"


def missing(result: dict[str, Any]) -> str:
    """Return the sentence on what of a study was not run; none where all was."""
    count = result["missing"]
    return (
        f" Of the study's ways {count} have not been run yet; their cells are –." if count else ""
    )
