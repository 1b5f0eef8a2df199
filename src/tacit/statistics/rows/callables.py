"""Any query by pairs, with confidence: by expected swaps, or by a declared family of draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit._ground.random import uniform_index
from tacit.attacks import MembershipAttack, membership_attack, swap_attack
from tacit.design.base import Design
from tacit.information.concentration import confidence_share
from tacit.releases.outputs import check_spread
from tacit.statistics.cost import prices_of
from tacit.statistics.pairs.pairing import Pairing
from tacit.statistics.persons import RowsOfPersons
from tacit.statistics.prepared import StatisticRequest
from tacit.statistics.queries.statistic import Query
from tacit.statistics.rows.coins import Halves, swaps_of
from tacit.statistics.rows.family import (
    certified_family_scale,
    declared_halves,
    expected_scale,
    family_of,
)
from tacit.statistics.rows.swaps import certified_scale, dense, shape_noise
from tacit.statistics.simulation import silent_output, simulate, spread_over_halves

Way = Literal["swaps", "family"]
# Of the draws, and at least, that only choose the shape of the noise.
PILOT_SHARE, SMALLEST_PILOT = 0.25, 40
# Simulated releases of a family: to find about the size, and to certify one.
PILOT_RELEASES, CERTIFIED_RELEASES = 2000, 20_000
# Evaluations of the query that a pilot of swaps may ask for before it is left out.
MOST_EVALUATIONS = 2_000_000
# Rows that are attacked.
ATTACKED_ROWS = 2000


@dataclass(frozen=True, eq=False)
class CallablePlan:
    """Everything decided before the draw.

    Attributes:
        query: what is computed.
        rows: the pool.
        pairing: pairs.
        way: ``"swaps"`` or ``"family"``.
        design: the noise.
        success: certified for every row.
        halves: the declared draws, of which one is drawn; None where coins are thrown freely.
        swaps: (m, P, d) of the draws that certified, where coins are thrown freely.
        outputs: (m, d) outputs of some draws, of all declared ones where there are.
        errors: (d,) standard deviations of the noise.
        sampling: (d,) of the numbers over independent draws of as many rows, rounded up.
    """

    query: Query = field(repr=False)
    rows: Array | RowsOfPersons = field(repr=False)
    pairing: Pairing = field(repr=False)
    way: Way
    design: Design = field(repr=False)
    success: float
    halves: Halves | None = field(repr=False)
    swaps: Array | None = field(repr=False)
    outputs: Array = field(repr=False)
    errors: Array
    sampling: Array

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Draw rows and noise; return the numbers and their errors. No coin outlives this."""
        if self.halves is None:
            # a failure is answered by what is the same whatever was drawn
            value = silent_output(
                self.query, self.rows, self.pairing.draw(rng), self.outputs.mean(axis=0)
            )
        else:
            value = self.outputs[uniform_index(len(self.halves), rng)]
        return self.design.release(value, rng=rng), self.errors

    def attack(self, trials: int, source: np.random.Generator) -> MembershipAttack:
        """Run the attacker told every other coin, or those who know the declared draws."""
        if self.halves is None:
            assert self.swaps is not None
            # each flip beside its draw is a pair of candidates, told every other coin
            seen = self.swaps[:trials]
            attack = swap_attack(seen, self.design.covariance, rng=source)
            return attack.with_record(int(self.pairing.members[attack.worst_record, 1]))
        members = self.pairing.members[: ATTACKED_ROWS // 2]
        inside = self.halves.fallen[:, : len(members)] == 1
        attack = membership_attack(
            self.outputs, inside, self.design.covariance, trials=trials, rng=source
        )
        return attack.with_record(int(members[attack.worst_record, 1]))


@dataclass(frozen=True, eq=False)
class _CertificationTask:
    """A query to be certified for pairs: the arguments of ``callable_plan``."""

    request: StatisticRequest
    pairing: Pairing
    success: float
    source: np.random.Generator

    @property
    def failure(self) -> float:
        """Probability with which the certificate may not hold."""
        return 1.0 - confidence_share(self.request.promise.confidence, 1.0)

    @property
    def pilot_draws(self) -> int:
        """Draws that only choose the shape of the noise."""
        return max(SMALLEST_PILOT, int(self.request.effort.simulations * PILOT_SHARE))

    @property
    def affordable(self) -> bool:
        """Whether every coin of every draw may be flipped."""
        evaluations = (self.pilot_draws + self.request.effort.simulations) * (len(self.pairing) + 1)
        return evaluations <= MOST_EVALUATIONS

    def swaps(self, draws: int) -> tuple[Array, Array]:
        """Return outputs of fresh draws, and by how much each flip moves them."""
        query, rows, effort = self.request.query, self.request.pool.units, self.request.effort
        return swaps_of(
            query,
            rows,
            self.pairing,
            draws,
            self.source,
            workers=effort.workers,
            progress=effort.progress,
        )

    def plan(self, way: Way, covariance: Array, **found: Any) -> CallablePlan:
        """Return the plan for noise that is certified."""
        # tr(FΣ), the price of this noise at the spread of the outputs seen
        request, rows = self.request, self.request.pool.units
        prices = prices_of(request.cost, found["outputs"])
        design = Design(
            covariance=dense(covariance),
            cost=float(prices @ np.diagonal(covariance)),
            gap=float("nan"),
            method=way,
            multipliers=np.empty(0),
            iterations=0,
            confidence=request.promise.confidence,
        )
        return CallablePlan(
            query=request.query,
            rows=rows,
            pairing=self.pairing,
            way=way,
            design=design,
            success=self.success,
            errors=np.sqrt(np.diagonal(covariance)),
            sampling=spread_over_halves(
                request.query, rows, self.source, workers=request.effort.workers
            ),
            **found,
        )


class _BySwaps:
    """Coins thrown freely: a pilot's swaps give the shape of the noise, fresh ones its size."""

    def __init__(self, task: _CertificationTask) -> None:
        self.task = task
        outputs, self.swaps = task.swaps(task.pilot_draws)
        self.shape = shape_noise(self.swaps, task.success, prices_of(task.request.cost, outputs))
        self.price = self.shape.price

    def certify(self) -> CallablePlan:
        """Certify on draws that nothing was chosen by."""
        task = self.task
        outputs, fresh = task.swaps(task.request.effort.simulations)
        if not (self.swaps.any() or fresh.any()):
            raise _constant(task.pilot_draws + task.request.effort.simulations)
        # the shape is the pilot's; the least factor that fresh swaps certify gives the size
        law = dense(self.shape.covariance)
        scale = certified_scale(self.swaps, fresh, law, task.success, task.failure)
        return task.plan(
            "swaps", self.shape.covariance * scale, halves=None, swaps=fresh, outputs=outputs
        )


class _ByFamily:
    """Declared draws: their exact posterior, on simulated releases."""

    def __init__(self, task: _CertificationTask) -> None:
        self.task, request, effort = task, task.request, task.request.effort
        halves = declared_halves(task.pairing, effort.simulations, task.source)
        outputs = simulate(
            request.query,
            request.pool.units,
            halves,
            workers=effort.workers,
            progress=effort.progress,
        )
        if check_spread(outputs).all():
            raise _constant(len(halves))
        # the shape is that of the outputs themselves; its size follows from the posterior
        self.family = family_of(halves, outputs, prices_of(task.request.cost, outputs))
        self.size = expected_scale(self.family, task.success, PILOT_RELEASES, task.source)
        self.price = self.family.price * self.size

    def certify(self) -> CallablePlan:
        """Certify on releases that nothing was chosen by."""
        task, family = self.task, self.family
        scale = certified_family_scale(
            family, self.size, task.success, task.failure, CERTIFIED_RELEASES, task.source
        )
        return task.plan(
            "family",
            family.covariance * scale,
            halves=family.halves,
            swaps=None,
            outputs=family.outputs,
        )


def _constant(draws: int) -> ValueError:
    return ValueError(
        "query: expected numbers that change with the rows drawn, got the same for all of "
        f"{draws:,} simulated draws: a number that does not depend on them needs no release"
    )


def callable_plan(
    request: StatisticRequest, pairing: Pairing, success: float, source: np.random.Generator
) -> CallablePlan:
    """Choose the way, design the noise by a pilot, certify it on what the pilot did not see.

    Given all that the pilots saw, either certificate rests on fresh draws alone and may have the
    whole failure probability: which one is asked for needs no share of it.

    Args:
        request: what is asked. The ``method`` of its promise is the way: ``"swaps"``, ``"family"``;
            ``"auto"`` for swaps, which hold against someone who is told every other coin, unless
            they need too many calls of the query; ``"cheaper"`` for the one whose pilot expects
            less noise. Its effort has the draws on which swaps are certified, and of a family.
        pairing: pairs.
        success: s in (½, 1).
        source: of the simulation.

    Raises:
        ValueError: numbers that never change, or so much or little that squares overflow.
    """
    task = _CertificationTask(request, pairing, success, source)
    way = request.promise.method
    if way == "swaps" or (way == "auto" and task.affordable):
        return _BySwaps(task).certify()
    if way == "family" or not task.affordable:
        return _ByFamily(task).certify()
    # pilots see nothing of the draws that certify: choosing by them costs no confidence
    ways: tuple[_BySwaps | _ByFamily, ...] = (_BySwaps(task), _ByFamily(task))
    return min(ways, key=lambda one: one.price).certify()
