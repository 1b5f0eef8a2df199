"""The steps of a run: to its budget or until held-out data stop it, and through crashes."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch

from tacit.compute import progress_bar
from tacit.runs.folder import RunFolder
from tacit.runs.run import Run

# What a stored state holds.
STATE_FIELDS = {"progress", "parts", "best"}
# Between two stored states: a lost minute costs less than writing more often.
SECONDS_BETWEEN_STATES = 60.0


class Stateful(Protocol):
    """What of a run is stored, and put back when it goes on: a module, an optimizer, a source."""

    def state_dict(self) -> Any:
        """Return tensors and plain values, in any nesting."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Go on from what ``state_dict`` returned."""


class RandomState:
    """A generator of random numbers as a part of a run."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def state_dict(self) -> torch.Tensor:
        """Return the state of the generator."""
        return self.generator.get_state()

    def load_state_dict(self, state_dict: torch.Tensor) -> None:
        """Go on from a state."""
        self.generator.set_state(state_dict)


@dataclass
class RunProgress:
    """How far a run is.

    Attributes:
        steps: taken.
        spent: of the budget, in its unit: steps, or seconds where it is minutes.
        seconds: of the optimization, earlier processes included.
        best: least value on held-out data.
        stale: measurements since then.
        history: (spent, value) of every measurement.
    """

    steps: int = 0
    spent: float = 0.0
    seconds: float = 0.0
    best: float = math.inf
    stale: int = 0
    history: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class HeldOut:
    """What is measured on held-out data while a run goes, and whose best state is kept.

    Attributes:
        measure: returns the value; less is better.
        every: share of the budget between two measurements.
        part: name of the part whose best state is put back at the end.
    """

    measure: Callable[[], float]
    every: float
    part: str


class Loop:
    """Takes the steps of a run: a ``for`` over it has one step of the training as its body.

    Progress is shown, the state of every part is stored now and then and after the last step, and
    put back when the same run is taken up; with held-out data it stops where they say so, and the
    part that did best on them is put back.

    Args:
        run: its budget, its patience.
        parts: what is stored and put back, by name.
        title: what is being done, for the bar.
        a_pass: steps of one pass, for a budget in passes.
        folder: where states are stored; None for nowhere.
        every: seconds between two of them.
        held_out: what is measured meanwhile; None for nothing.
        clock: seconds of the optimization, for a budget in minutes.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> loop = Loop(Run(steps=3, progress=False), {"model": model}, title="training")
        >>> [here.steps for here in loop], loop.here.steps
        ([0, 1, 2], 3)
    """

    def __init__(
        self,
        run: Run,
        parts: Mapping[str, Stateful],
        *,
        title: str,
        a_pass: int = 1,
        folder: RunFolder | None = None,
        every: float = SECONDS_BETWEEN_STATES,
        held_out: HeldOut | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.run, self.parts, self.folder = run, parts, folder
        self.total, self._unit = _budget(run, a_pass)
        self._title, self._every = title, every
        self._held_out, self._clock = held_out, clock
        self._best: Any = None
        self.here = RunProgress()
        # a run that was begun goes on: its parts are put back before the first step
        state = None if folder is None else folder.state()
        if state is not None:
            self._restore(state)

    @property
    def share(self) -> float:
        """The share of the budget that is spent, 0 … 1."""
        return min(self.here.spent / self.total, 1.0)

    def __iter__(self) -> Iterator[RunProgress]:
        """Yield how far the run is before every step that is left."""
        # seconds of earlier processes count as spent
        here, before, start = self.here, self.here.seconds, self._clock()
        stored, writing, shown = time.monotonic(), 0.0, 0
        whole, title = math.ceil(self.total), f"{self._title}, {self._unit}"
        with progress_bar(whole, title, shown=self.run.progress) as advance:
            # the body of the for is one step
            while not self._done():
                advance(int(here.spent) - shown)
                shown = int(here.spent)
                yield here
                # the step was taken: what was computed before a crash counts as spent too
                here.steps += 1
                here.seconds = before + self._clock() - start
                # a budget in minutes is spent by the clock, any other by steps
                timed = self.run.minutes is not None
                here.spent = min(here.seconds if timed else float(here.steps), self.total)
                self._measure()
                # after the first step, so that a folder that cannot be written is told at once
                # a state that takes long to write comes the more rarely
                late = time.monotonic() - stored > self._every * max(1.0, writing)
                if self.folder is not None and (here.steps == 1 or late or self._done()):
                    began = time.monotonic()
                    self.folder.save(self._state())
                    stored = time.monotonic()
                    writing = stored - began
            advance(int(here.spent) - shown)
        if self._held_out is not None and self._best is not None:
            # the state that did best on held-out data, not the last
            self.parts[self._held_out.part].load_state_dict(self._best)

    def _done(self) -> bool:
        # without patience nothing stops it early
        patience = math.inf if self.run.patience is None else self.run.patience
        return self.here.spent >= self.total or self.here.stale >= patience

    def _measure(self) -> None:
        """Measure on held-out data where it is due, and keep the state that did best."""
        here, held_out = self.here, self._held_out
        if held_out is None:
            return
        # every so large a share of the budget, and at its end
        due = self.total * held_out.every * (len(here.history) + 1)
        if here.spent < min(due, self.total):
            return
        found = held_out.measure()
        here.history.append((here.spent, found))
        here.stale += 1
        # the first is the best so far, whatever it is
        if found < here.best or self._best is None:
            here.best, here.stale = found, 0
            self._best = copy.deepcopy(self.parts[held_out.part].state_dict())

    def _state(self) -> dict[str, Any]:
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        return {"progress": asdict(self.here), "parts": parts, "best": self._best}

    def _restore(self, state: Mapping[str, Any]) -> None:
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
            self.here, self._best = RunProgress(**state["progress"]), state["best"]
        except (KeyError, RuntimeError, ValueError, TypeError, AttributeError):
            where = "" if self.folder is None else f" in {self.folder.folder}"
            raise ValueError(
                f"checkpoint: expected the state of this run{where}, got another"
            ) from None


def _budget(run: Run, a_pass: int) -> tuple[float, str]:
    """Return how much there is to spend, and in what it is counted."""
    if run.minutes is not None:
        # seconds
        return 60.0 * run.minutes, "seconds"
    if run.passes is not None:
        # steps of so many passes
        return float(run.passes * a_pass), "steps"
    if run.steps is None:
        raise ValueError("steps: expected one of steps, passes and minutes, got none")
    return float(run.steps), "steps"
