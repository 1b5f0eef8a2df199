"""Numbers that are certified under a promise and not yet drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit._ground.frozen import read_only
from tacit.attacks import MembershipAttack
from tacit.guarantees import SuccessBound
from tacit.releases.prepared import Prepared
from tacit.statistics.numbers import NumbersRelease, remarks


class Plan(Protocol):
    """What is decided before a release of numbers is drawn."""

    @property
    def errors(self) -> Array:
        """Standard deviations of the noise, (d,)."""

    @property
    def sampling(self) -> Array | None:
        """Standard deviations over random draws, (d,), where they may be known."""

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Draw the secret and the noise; return the numbers and their errors, (d,) each."""


@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedNumbers(Prepared[NumbersRelease]):
    """Numbers that are certified and not yet drawn; for the holder of the table.

    Attributes:
        plan: what was decided.
        protect: the promise, ``"rows"`` or ``"table"``.
        secret: what is protected.
        method: how the noise was chosen.
        notes: what a reader should know.
        diagnostics: what the design saw.
        attack: the strongest attack on simulated releases; None when none was run.
        limits: (d, 2), (lowest, highest) that each number can be; None for anything.
        seed: the integer seed, when one was given.
        source: the generator that the draw uses; None for the operating system's.
    """

    plan: Plan = field(repr=False)
    protect: str
    secret: str
    method: str
    notes: tuple[str, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict, repr=False)
    attack: MembershipAttack | None = field(default=None, repr=False)
    limits: Array | None = field(default=None, repr=False)
    seed: int | None = None
    source: np.random.Generator | None = field(default=None, repr=False)

    @property
    def membership(self) -> SuccessBound:
        """The bound on guessing whether a row is in."""
        return next(held for held in self.guarantees if isinstance(held, SuccessBound))

    def _drawn(self) -> NumbersRelease:
        values, errors = self.plan.draw(self.source)
        names = tuple(entry.name for entry in self.expected)
        sampling = self.plan.sampling
        spread = np.full(values.size, np.nan) if sampling is None else sampling
        notes = remarks(names, values, errors, spread)
        return NumbersRelease(
            values=values,
            names=names,
            errors=errors,
            sampling=sampling,
            protect=self.protect,
            guarantees=self.guarantees,
            secret=self.secret,
            query=self.description,
            method=self.method,
            notes=(*self.notes, *notes),
            attack=self.attack,
            limits=self.limits,
            diagnostics=self.diagnostics,
            reproducible=self.reproducible,
            seed=self.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
