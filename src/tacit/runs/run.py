"""How long something trains, as a frozen value that every training takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, TypeAlias

from tacit._ground.reprs import shown
from tacit._ground.values import Count, Flag, Positive, Spelled, value

Precision: TypeAlias = Literal["float32", "bfloat16", "auto"]
# Of the three ways to say how long, one is given.
BUDGETS = ("steps", "passes", "minutes")


@value
class Run:
    """How long something trains, when it stops, and how it survives a crash.

    Args:
        steps: Steps of the optimizer. Passes or minutes may be given instead.
        passes: Passes over the data.
        minutes: Minutes of the optimization.
        patience: Measurements on held-out data without a better one after which it stops.
        precision: Of products: float32, the same on every machine; bfloat16; or auto, bfloat16
            where the processor has it.
        checkpoint: Folder that survives a crash: the same call goes on from it.
        about: What makes the run what it is beside its settings, such as a digest: texts, numbers,
            arrays; a checkpoint of another run is refused.
        progress: Whether to show a bar on a terminal.

    Example:
        >>> Run(steps=100)
        Run(steps=100)
        >>> Run(steps=5, minutes=1.0)
        Traceback (most recent call last):
        ValueError: steps: expected at most one of steps, passes and minutes, got steps and minutes
    """

    steps: Count | None = None
    passes: Annotated[Count | None, Flag("--epochs")] = None
    minutes: Positive | None = None
    patience: Count | None = None
    precision: Precision | None = None
    checkpoint: Annotated[Any, Spelled("FOLDER", str)] = None
    about: Any = None
    progress: bool = True

    def _together(self) -> None:
        # two budgets would have to say which of them ends the run
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(
                "steps: expected at most one of steps, passes and minutes, got "
                f"{' and '.join(given)}"
            )
        # an empty path is the folder that the process stands in
        place = self.checkpoint
        if place is not None and (place == "" or not isinstance(place, (str, os.PathLike))):
            raise ValueError(f"checkpoint: expected a file path, a folder's, got {shown(place)}")

    def lasting(self, **budget: Any) -> Run:
        """Return the same run, with a budget where it has none."""
        # a budget of the caller's own comes before a default
        has = any(getattr(self, name) is not None for name in BUDGETS)
        return self if has else replace(self, **budget)

    def check_read(self, *read: str) -> None:
        """Refuse a field that a workflow does not read: left as it is, it would say nothing.

        Args:
            read: the fields that it reads; ``progress`` is read everywhere.

        Raises:
            ValueError: another field is given.

        Example:
            >>> Run(steps=3, patience=2).check_read("steps", "checkpoint")
            Traceback (most recent call last):
            ValueError: patience: expected None for a run of this kind, which reads steps, \
checkpoint, got 2
        """
        for field in fields(self):
            # what nobody reads would be obeyed by nobody
            given = getattr(self, field.name)
            if given is not None and field.name not in (*read, "progress"):
                raise ValueError(
                    f"{field.name}: expected None for a run of this kind, which reads "
                    f"{', '.join(read)}, got {shown(given)}"
                )


def check_run(run: Any, read: Sequence[str]) -> Run:
    """Return a run whose fields a workflow reads.

    Raises:
        ValueError: it is no ``Run``, or has another field.
    """
    if not isinstance(run, Run):
        raise ValueError(f"run: expected a tacit.Run, got {type(run).__name__}")
    run.check_read(*read)
    return run
