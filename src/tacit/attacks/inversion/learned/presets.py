"""How large a learned inverter is and how long it learns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tacit._ground.checks import choice, integer, positive

KINDS = ("right-to-left", "at-once", "forward")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a network that reads prompts.

    Attributes:
        kind: ``"right-to-left"``, ``"forward"`` or ``"at-once"``.
        layers: blocks of a decoder, or layers of the plain network.
        width: numbers of a token.
        heads: of attention, which divide the width.
        memory: M, memory tokens made from a release.
    """

    kind: str = "right-to-left"
    layers: int = 3
    width: int = 256
    heads: int = 4
    memory: int = 8

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS)
        for name in ("layers", "width", "heads", "memory"):
            integer(name, getattr(self, name), minimum=1)
        if self.width % self.heads:
            raise ValueError(f"width: expected a multiple of heads={self.heads}, got {self.width}")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How a network learns.

    Attributes:
        minutes: of computing: on a processor its own time by thread, so that a machine that is
            shared learns as much; on a GPU by the clock.
        steps: optimiser steps in place of a time, for a result that can be repeated.
        batch: fresh windows a step.
        matrix_rate: largest rate of Muon, for the matrices of blocks.
        rate: largest rate of AdamW, for all else.
        patience: evaluations without a better one after which it stops.
        evaluate_every: share of the budget between evaluations, in (0, 1].
        precision: of products in training, or ``"auto"`` for the faster one.
    """

    minutes: float | None = 3.0
    steps: int | None = None
    batch: int = 128
    matrix_rate: float = 0.02
    rate: float = 0.003
    patience: int = 5
    evaluate_every: float = 0.05
    precision: str = "auto"

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.steps is None):
            raise ValueError(
                f"steps: expected either steps or minutes, got steps={self.steps!r} and "
                f"minutes={self.minutes!r}"
            )
        if self.minutes is not None:
            positive("minutes", self.minutes)
        if self.steps is not None:
            integer("steps", self.steps, minimum=1)
        for name in ("batch", "patience"):
            integer(name, getattr(self, name), minimum=1)
        for name in ("matrix_rate", "rate", "evaluate_every"):
            positive(name, getattr(self, name))
        if self.evaluate_every > 1.0:
            raise ValueError(f"evaluate_every: expected at most 1, got {self.evaluate_every:g}")
        choice("precision", self.precision, PRECISIONS)


PRESETS: dict[str, tuple[Shape, Schedule]] = {
    "two-cores": (Shape(), Schedule()),
    # the sizes of the paper's inverter (App. V)
    "gpu": (
        Shape(layers=6, width=512, heads=8, memory=16),
        Schedule(minutes=30.0, batch=512, matrix_rate=0.01, rate=0.001),
    ),
}


def preset(name: str, *, kind: str = "right-to-left", **changes: Any) -> tuple[Shape, Schedule]:
    """Return the shape and the schedule of a preset, of another kind or schedule where told.

    Args:
        name: ``"two-cores"`` or ``"gpu"``.
        kind: of network.
        changes: fields of the schedule; ``steps`` replaces the minutes.

    Raises:
        ValueError: no such preset, or a bad field.

    Example:
        >>> shape, schedule = preset("two-cores", minutes=1.0)
        >>> shape.memory, schedule.minutes
        (8, 1.0)
    """
    shape, schedule = PRESETS[choice("preset", name, tuple(PRESETS))]
    if changes.get("steps") is not None and "minutes" not in changes:
        changes["minutes"] = None
    unknown = sorted(set(changes) - set(Schedule.__dataclass_fields__))
    if unknown:
        raise ValueError(f"{unknown[0]}: expected a field of a schedule, got another name")
    return replace(shape, kind=kind), replace(schedule, **changes)
