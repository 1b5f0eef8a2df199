"""Any query by pairs, with confidence: the better of two ways, chosen by a pilot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit._ground.random import uniform_index
from tacit.attacks import MembershipAttack, membership_attack, swap_attack
from tacit.design.base import Design
from tacit.information.concentration import confidence_share
from tacit.statistics.numbers import two_digits_up
from tacit.statistics.pairs import Pairing
from tacit.statistics.queries import Query
from tacit.statistics.rows.coins import Halves, swaps_of
from tacit.statistics.rows.declared import (
    certified_family_scale,
    declared_halves,
    expected_scale,
    family_of,
)
from tacit.statistics.rows.expected import certified_scale, dense, prices_of, shaped
from tacit.statistics.simulation import simulate

Way = Literal["swaps", "family"]
PILOT_SHARE, SMALLEST_PILOT = 0.25, 40
PILOT_RELEASES, CERTIFIED_RELEASES = 2000, 20_000
# Evaluations of the query that a pilot of swaps may ask for before it is left out.
MOST_EVALUATIONS = 2_000_000
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
    """

    query: Query = field(repr=False)
    rows: Array = field(repr=False)
    pairing: Pairing = field(repr=False)
    way: Way
    design: Design = field(repr=False)
    success: float
    halves: Halves | None = field(repr=False)
    swaps: Array | None = field(repr=False)
    outputs: Array = field(repr=False)
    errors: Array

    @property
    def sampling(self) -> Array:
        """Standard deviations of the numbers over draws from the pairs, rounded up."""
        return two_digits_up(self.outputs.std(axis=0))

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Draw rows and noise; return the numbers and their errors. No coin outlives this."""
        if self.halves is None:
            value = simulate(
                self.query, self.rows, _One(self.pairing.draw(rng)), workers=1, progress=False
            )[0]
        else:
            value = self.outputs[uniform_index(len(self.halves), rng)]
        return self.design.release(value, rng=rng), self.errors

    def attacked(self, trials: int, source: np.random.Generator) -> MembershipAttack | None:
        """Run the attacker told every other coin, or those who know the declared draws."""
        if self.halves is None:
            assert self.swaps is not None
            seen = self.swaps[:trials]
            attack = swap_attack(seen, self.design.covariance, rng=source)
            return attack.with_record(int(self.pairing.members[attack.worst_record, 1]))
        members = self.pairing.members[: ATTACKED_ROWS // 2]
        inside = self.halves.fallen[:, : len(members)] == 1
        attack = membership_attack(
            self.outputs, inside, self.design.covariance, trials=trials, rng=source
        )
        return attack.with_record(int(members[attack.worst_record, 1]))


@dataclass(frozen=True)
class _One:
    """One subset, as a family."""

    rows: Any

    def __len__(self) -> int:
        return 1

    def members(self, candidate: int) -> Any:
        del candidate
        return self.rows


def callable_plan(
    query: Query,
    rows: Array,
    pairing: Pairing,
    success: float,
    *,
    way: str,
    cost: Any,
    simulations: int,
    confidence: float,
    source: np.random.Generator,
    workers: int | None,
    progress: bool | None,
) -> CallablePlan:
    """Choose the way by a pilot, design the noise, certify it on what the pilot did not see.

    Args:
        query: what is computed.
        rows: (N, p) the pool.
        pairing: pairs.
        success: s in (½, 1).
        way: ``"swaps"``, ``"family"`` or ``"auto"``.
        cost: of the numbers; None for relative.
        simulations: draws of coins on which swaps are certified, and declared draws of a family.
        confidence: of the certificate.
        source: of the simulation.
        workers: processes.
        progress: whether to show a bar.
    """
    failure = 1.0 - confidence_share(confidence, 1.0)
    options: dict[str, Any] = {"workers": workers, "progress": progress}
    pilot_draws = max(SMALLEST_PILOT, int(simulations * PILOT_SHARE))
    affordable = (pilot_draws + simulations) * (len(pairing) + 1) <= MOST_EVALUATIONS
    fresh: Array | None = None
    price, swaps, shape, family = {"swaps": np.inf, "family": np.inf}, None, None, None
    prices = None
    if way == "swaps" or (way == "auto" and affordable):
        outputs, swaps = swaps_of(query, rows, pairing, pilot_draws, source, **options)
        prices = prices_of(cost, outputs)
        shape = shaped(swaps, success, prices)
        price["swaps"] = shape.price
    if way in ("family", "auto"):
        halves = declared_halves(pairing, simulations, source)
        candidates = simulate(query, rows, halves, **options)
        prices = prices_of(cost, candidates) if prices is None else prices
        family = family_of(halves, candidates, prices)
        size = expected_scale(family, success, PILOT_RELEASES, source)
        price["family"] = family.price * size
    if family is not None and price["family"] <= price["swaps"]:
        scale = certified_family_scale(family, size, success, failure, CERTIFIED_RELEASES, source)
        covariance = family.covariance * scale
        chosen: Way = "family"
        drawn, outputs = family.halves, family.outputs
    else:
        assert shape is not None
        assert swaps is not None
        law = dense(shape.covariance)
        outputs, fresh = swaps_of(query, rows, pairing, simulations, source, **options)
        scale = certified_scale(swaps, fresh, law, success, failure)
        covariance, chosen, drawn = shape.covariance * scale, "swaps", None
    assert prices is not None
    design = Design(
        covariance=dense(covariance),
        cost=float(prices @ np.diagonal(covariance)),
        gap=float("nan"),
        method=chosen,
        multipliers=np.empty(0),
        iterations=0,
        confidence=confidence,
    )
    return CallablePlan(
        query=query,
        rows=rows,
        pairing=pairing,
        way=chosen,
        design=design,
        success=success,
        halves=drawn,
        swaps=fresh,
        outputs=outputs,
        errors=np.sqrt(np.diagonal(covariance)),
    )
