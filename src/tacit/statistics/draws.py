"""A release of one declared draw of the pool's rows, certified in nats and not yet drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tacit._ground.checks import (
    Array,
    RandomSource,
    choice,
    generator,
    in_interval,
    integer,
    is_reproducible,
)
from tacit._ground.random import uniform_index
from tacit._ground.reprs import shown
from tacit.attacks import MembershipAttack, membership_attack
from tacit.guarantees import InformationBound, SuccessBound
from tacit.releases.prepared import Expected, Prepared
from tacit.releases.publication import allowed_nats
from tacit.statistics.candidates import draw_family, subset_rate
from tacit.statistics.numbers import remarks
from tacit.statistics.plan import METHODS, Plan, Request, certified_plan
from tacit.statistics.queries import Query
from tacit.statistics.release import StatisticRelease
from tacit.statistics.simulation import simulate

ATTACKED_ROWS = 2000
LESS_NOISE = "protect='rows' hides each row by itself, for far less noise than the whole draw needs"


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawSettings:
    """What a release of a declared draw is prepared with, as ``prepare`` takes it."""

    mi_budget: float | None
    success: float | None
    sampling_rate: float
    method: str
    simulations: int
    rng: RandomSource
    cost: Any
    confidence: float
    names: Sequence[str] | None
    workers: int | None
    progress: bool | None
    attack: bool
    attack_trials: int


def prepare_draw(query: Query, rows: Array, settings: DrawSettings) -> PreparedStatistic:
    """Certify a statistic of a declared draw of the pool, before anything is drawn."""
    choice("method", settings.method, METHODS)
    candidates = integer("simulations", settings.simulations, minimum=2)
    integer("attack_trials", settings.attack_trials, minimum=4)
    rate = subset_rate(
        len(rows),
        in_interval(
            "sampling_rate", settings.sampling_rate, 0.0, 1.0, open_low=True, open_high=True
        ),
        candidates,
    )
    prior = max(float(rate), 1.0 - float(rate))
    budget = allowed_nats(settings.mi_budget, settings.success, prior)
    rng, void = settings.rng, is_reproducible(settings.rng)
    source = generator(rng)
    family = draw_family(len(rows), rate, candidates, source)
    outputs = simulate(query, rows, family, workers=settings.workers, progress=settings.progress)
    named = _output_names(settings.names, query, outputs.shape[1])
    request = Request(
        budget, settings.method, settings.cost, settings.confidence, void, settings.progress
    )
    plan = certified_plan(outputs, family, named, request, source)
    return PreparedStatistic(
        guarantees=(plan.membership, plan.guarantee),
        spends=(plan.guarantee,),
        expected=tuple(
            Expected(name=name, error=float(error))
            for name, error in zip(named, np.sqrt(plan.diagnostics.noise_variance), strict=True)
        ),
        description=query.description,
        query=query.description,
        reproducible=void,
        plan=plan,
        attack=_attacked(plan, settings.attack_trials, source) if settings.attack else None,
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        source=None if rng is None else source,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedStatistic(Prepared[StatisticRelease]):
    """A statistic that is certified and not yet drawn; for the holder of the pool.

    Attributes:
        query: what is computed.
        plan: candidates, their outputs, the noise and what is certified.
        attack: the strongest membership attack on simulated releases; None when none was run.
        seed: the integer seed, when one was given.
        source: the generator that the draw uses; None for the operating system's.
    """

    query: str
    plan: Plan = field(repr=False)
    attack: MembershipAttack | None = field(repr=False)
    seed: int | None
    source: np.random.Generator | None = field(repr=False)

    @property
    def guarantee(self) -> InformationBound:
        """The bound on what the release tells about the draw, in nats."""
        return self.plan.guarantee

    @property
    def membership(self) -> SuccessBound:
        """The bound on guessing whether a row was drawn."""
        return self.plan.membership

    def _drawn(self) -> StatisticRelease:
        values, seen = _draw(self.plan, self.source), self.plan.diagnostics
        errors = np.sqrt(seen.noise_variance)
        told = remarks(self.plan.names, values, errors, seen.sampling)
        if told:
            told.append(LESS_NOISE)
        return StatisticRelease(
            release=values,
            names=self.plan.names,
            guarantee=self.plan.guarantee,
            membership=self.plan.membership,
            design=self.plan.design,
            diagnostics=replace(seen, notes=(*seen.notes, *told)),
            attack=self.attack,
            query=self.query,
            method=self.plan.design.method,
            reproducible=self.reproducible,
            seed=self.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _attacked(plan: Plan, trials: int, source: np.random.Generator) -> MembershipAttack | None:
    """Run the attackers on simulated releases, on at most ``ATTACKED_ROWS`` random rows."""
    if plan.design.method == "constant":
        return None
    pool_rows = plan.family.pool_rows
    rows = np.arange(pool_rows)
    if pool_rows > ATTACKED_ROWS:
        rows = np.sort(source.choice(pool_rows, ATTACKED_ROWS, replace=False))
    measured = membership_attack(
        plan.outputs,
        plan.family.columns(rows),
        plan.design.covariance if plan.design.rank > 0 else None,
        trials=trials,
        rng=source,
    )
    return measured.with_record(int(rows[measured.worst_record]))


def _draw(plan: Plan, rng: np.random.Generator | None) -> Array:
    """Draw the secret and the noise; neither outlives this function."""
    chosen = uniform_index(len(plan.family), rng)
    return plan.design.release(plan.outputs[chosen], rng=rng)


def _output_names(names: Sequence[str] | None, query: Query, size: int) -> tuple[str, ...]:
    if names is None and query.names is None:
        return tuple(f"y{index}" for index in range(size))
    chosen = list(query.names or ()) if names is None else listed(names)
    if not all(isinstance(name, str) and name.strip() for name in chosen):
        raise ValueError(f"names: expected {size} labels, one per output, got {shown(names)}")
    if len(chosen) != size:
        raise ValueError(f"names: expected {size} labels, one per output, got {len(chosen)}")
    if names is not None and len(set(chosen)) != size:
        raise ValueError("names: expected different labels, got one of them twice")
    return tuple(map(str, chosen))


def listed(names: Any) -> list[Any]:
    """Return names in a list; a text is one name."""
    return list(names) if isinstance(names, (list, tuple, np.ndarray)) else [names]
