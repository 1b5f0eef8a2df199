"""Numbers that are certified under a promise and not yet drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol, Self

import numpy as np

from tacit._ground.checks import Array, RandomSource, generator, is_reproducible
from tacit._ground.frozen import read_only
from tacit.attacks import MembershipAttack
from tacit.guarantees import SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.measured import Interval
from tacit.releases.numbers import Numbers
from tacit.releases.prepared import Expected, Prepared
from tacit.releases.promises import Effort
from tacit.releases.release import Attack, Release
from tacit.statistics.details import NumbersDetails, check_power, power_of
from tacit.statistics.pools import Pool
from tacit.statistics.queries.statistic import Query

# Numbers named in a note, at most.
SHOWN_NAMES = 5


class NumbersPlan(Protocol):
    """What is decided before a release of numbers is drawn."""

    @property
    def errors(self) -> Array:
        """Standard deviations of the noise, (d,)."""

    @property
    def sampling(self) -> Array | None:
        """Standard deviations over random draws, (d,), where they may be known."""

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Draw the secret and the noise; return the numbers and their errors, (d,) each."""


@dataclass(frozen=True, kw_only=True)
class ReleaseWords:
    """What a release says of itself beside its numbers.

    Attributes:
        secret: what is hidden.
        method: how the noise was found.
        notes: what may be published beside it.
        remarks: what is for the holder of the table alone.
    """

    secret: str
    method: str
    notes: Sequence[str] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class StatisticRequest:
    """What is to be prepared.

    Attributes:
        query: what is computed of the columns of the pool.
        pool: rows, names, and what was declared.
        promise: what is hidden.
        effort: how much work goes in.
        cost: what noise costs, as ``prepare`` takes it.
        rng: of the simulations and the draw.
    """

    query: Query
    pool: Pool
    promise: Any
    effort: Effort
    cost: Any
    rng: RandomSource

    def source(self) -> np.random.Generator:
        """Return the generator of the simulations."""
        return generator(self.rng)

    def release(
        self,
        kind: str,
        guarantees: Sequence[Guarantee],
        details: NumbersDetails,
        numbers: Numbers,
        words: ReleaseWords,
        attack: MembershipAttack | None = None,
    ) -> Release[Any]:
        """Return the release but for what is drawn: its numbers are zeros until then."""
        bound = next(held for held in guarantees if isinstance(held, SuccessBound))
        exposed = None if attack is None else attack.worst_record
        return Release(
            kind=kind,
            title=self.query.description,
            secret=words.secret,
            method=words.method,
            guarantees=tuple(guarantees),
            details=replace(details, most_exposed=exposed),
            reproducible=is_reproducible(self.rng),
            seed=int(self.rng) if isinstance(self.rng, (int, np.integer)) else None,
            numbers=numbers,
            notes=tuple(words.notes),
            remarks=tuple(words.remarks),
            attacks=() if attack is None else (attack_of(attack, bound.task),),
        )


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedNumbers(Prepared[NumbersDetails]):
    """Numbers that are certified and not yet drawn; for the holder of the table.

    Attributes:
        plan: what was decided.
        planned: the release but for what is drawn.
        source: the generator that the draw uses; None for the operating system's.
        advice: what is said beside noise that is larger than what it hides.
    """

    plan: NumbersPlan = field(repr=False)
    planned: Release[Any] = field(repr=False)
    source: np.random.Generator | None = field(default=None, repr=False)
    advice: str = ""

    @classmethod
    def of(
        cls,
        planned: Release[Any],
        plan: NumbersPlan,
        spends: Guarantee,
        source: np.random.Generator | None,
        advice: str = "",
        **own: Any,
    ) -> Self:
        """Return a plan with the release that it will be.

        Args:
            planned: the release but for what is drawn.
            plan: draws it.
            spends: what the ledger counts.
            source: of the draw, where a seed was given.
            advice: what is said beside noise that is larger than what it hides.
            own: fields that a workflow adds.

        Raises:
            ValueError: errors whose squares double precision does not hold.
        """
        check_power(plan.errors)
        return cls(
            guarantees=planned.guarantees,
            spends=(spends,),
            expected=expected_errors(planned.names, plan.errors),
            description=planned.title,
            reproducible=planned.reproducible,
            plan=plan,
            planned=planned,
            source=source if planned.reproducible else None,
            advice=advice,
            **own,
        )

    @property
    def attack(self) -> Attack | None:
        """The strongest attack on simulated releases, None where none was run."""
        return self.planned.attack

    @property
    def membership(self) -> SuccessBound:
        """The bound on guessing whether a row is in."""
        return self.planned.membership

    def _drawn(self) -> Release[NumbersDetails]:
        values, errors = self.plan.draw(self.source)
        planned = self.planned
        assert planned.numbers is not None
        numbers = replace(planned.numbers, values=values, errors=errors)
        warnings = warnings_of(numbers)
        if warnings and self.advice:
            warnings.append(self.advice)
        return replace(
            planned,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            numbers=numbers,
            details=replace(planned.details, noise_power=power_of(errors)),
            notes=(*planned.notes, *warnings),
        )


def template(
    names: Sequence[str], plan: NumbersPlan, truth: str, limits: Array | None = None
) -> Numbers:
    """Return the numbers as they will be, with zeros for their values.

    Args:
        names: d labels.
        plan: their errors and how much they vary.
        truth: what the interval of the noise holds.
        limits: (d, 2), (lowest, highest) that each can be; None for anything.
    """
    return Numbers(
        names=tuple(names),
        values=np.zeros(len(names)),
        errors=plan.errors,
        sampling=plan.sampling,
        limits=limits,
        truth=truth,
    )


def expected_errors(names: Sequence[str], errors: Array) -> tuple[Expected, ...]:
    """Return the error that every number will have, by name."""
    pairs = zip(names, errors.tolist(), strict=True)
    return tuple(Expected(name=name, error=error) for name, error in pairs)


def attack_of(measured: MembershipAttack, task: str) -> Attack:
    """Return a membership attack as a release has it."""

    def interval(value: float, ends: tuple[float, float]) -> Interval:
        low, high = ends
        return Interval(value=value, low=low, high=high, confidence=measured.confidence)

    return Attack(
        name=measured.name,
        task=task,
        success=interval(measured.success, measured.interval),
        worst=interval(measured.worst_success, measured.worst_interval),
        prior=measured.prior,
        trials=measured.trials,
    )


def warnings_of(numbers: Numbers) -> list[str]:
    """Return a line for numbers whose noise exceeds their spread, and for those beyond themselves.

    They follow from what is published alone.
    """
    lines = []
    wide = [one.name for one in numbers if one.error > (one.sampling or np.inf)]
    if wide:
        lines.append(
            f"noise exceeds the sampling spread of {_some(wide)}: draw more rows, ask for fewer "
            "numbers, or allow a higher success"
        )
    drowned = [one.name for one in numbers if one.error > abs(one.value) > 0.0]
    if drowned:
        lines.append(
            f"noise exceeds the value of {_some(drowned)}: treat the value as near zero, or allow "
            "a higher success"
        )
    return lines


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_NAMES])
    more = len(names) - SHOWN_NAMES
    return shown if more <= 0 else f"{shown} and {more} more"
