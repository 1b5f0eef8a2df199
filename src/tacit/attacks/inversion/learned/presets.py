"""How large a learned inverter is and how long it learns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from tacit._ground.checks import choice, integer, positive
from tacit._ground.values import Count, Flag, Positive, value

KINDS = ("right-to-left", "at-once", "forward")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
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
class LearningSchedule:
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


PRESETS: dict[str, tuple[NetworkShape, LearningSchedule]] = {
    "two-cores": (NetworkShape(), LearningSchedule()),
    # the sizes of the paper's inverter (App. V)
    "gpu": (
        NetworkShape(layers=6, width=512, heads=8, memory=16),
        LearningSchedule(minutes=30.0, batch=512, matrix_rate=0.01, rate=0.001),
    ),
}


@value
class InverterFit:
    """Which network reads prompts, and how long it learns.

    Args:
        kind: right-to-left, at-once (every position by itself), or forward; what reads most of one
            state or of all when left out.
        size: Size of the network.
        minutes: Minutes of training; those of the chosen size when left out.
        steps: Steps of training, instead of minutes.
        shortest: Least tokens of a training window, as many as are read unless told.
        checkpoint: Folder that survives a crash: the same command goes on from it.
        shape: Of the network, a ``NetworkShape`` in place of the size's and of the kind.
        schedule: A ``LearningSchedule`` in place of the size's.

    Example:
        >>> shape, schedule = InverterFit(minutes=1.0).planned()
        >>> shape.memory, schedule.minutes
        (8, 1.0)
    """

    panel: ClassVar[str] = "Attacker"

    kind: Literal["right-to-left", "at-once", "forward"] | None = None
    size: Annotated[Literal["two-cores", "gpu"], Flag("--preset")] = "two-cores"
    minutes: Positive | None = None
    steps: Count | None = None
    shortest: Count | None = None
    # a path of any kind
    checkpoint: Any = None
    shape: Any = None
    schedule: Any = None

    def _together(self) -> None:
        if self.minutes is not None and self.steps is not None:
            raise ValueError("steps: expected this or minutes, got both")
        for name, kind in (("shape", NetworkShape), ("schedule", LearningSchedule)):
            given = getattr(self, name)
            if given is not None and not isinstance(given, kind):
                found = type(given).__name__
                raise ValueError(f"{name}: expected a {kind.__name__}, got {found}")

    def planned(self, usual: str = "right-to-left") -> tuple[NetworkShape, LearningSchedule]:
        """Return the shape of the network and its schedule, of the usual kind where none is told.

        Args:
            usual: kind of network where none is told.
        """
        shape, schedule = PRESETS[self.size]
        schedule = schedule if self.schedule is None else self.schedule
        if self.steps is not None:
            schedule = replace(schedule, minutes=None, steps=self.steps)
        elif self.minutes is not None:
            schedule = replace(schedule, minutes=self.minutes, steps=None)
        return self.shape or replace(shape, kind=self.kind or usual), schedule


FIT = InverterFit()
