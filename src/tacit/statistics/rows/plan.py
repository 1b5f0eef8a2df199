"""A query of sums over one row of every pair: what is decided before a coin is thrown."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.attacks import MembershipAttack, group_attack
from tacit.statistics.least_noise import SumNoise, distinct, least_noise
from tacit.statistics.pairs import Pairing, nearest
from tacit.statistics.rows.cost import Frame, frame_of
from tacit.statistics.rows.errors import Sampling, noise_errors, sampling_errors
from tacit.statistics.sums.query import SumQuery
from tacit.statistics.sums.totals import GridValues, on_grid

# Rows that add many more numbers than they have: neighbours are looked up in the rows.
WIDE = 2.0
# Simulated errors by which noises of several shapes are compared.
COMPARED = 400
ATTACKED_ROWS = 2000


@dataclass(frozen=True, eq=False)
class SumPlan:
    """Everything decided before the draw, from the pool alone.

    Attributes:
        query: what is computed.
        pairing: the declared secret.
        values: what every row of the pool adds, exactly.
        centres: (p,) what was taken from the columns.
        frame: the query near what the pool gives.
        noise: on the sums.
        errors: (d,) of the numbers, as ``noise_errors`` has them.
    """

    query: SumQuery
    pairing: Pairing = field(repr=False)
    values: GridValues = field(repr=False)
    centres: Array = field(repr=False)
    frame: Frame = field(repr=False)
    noise: SumNoise = field(repr=False)
    errors: Array

    @cached_property
    def spread(self) -> Sampling:
        """How much the numbers vary over pools and draws from them."""
        return sampling_errors(self.query, self.pairing, self.values, self.frame, self.centres)

    @property
    def sampling(self) -> Array:
        """Standard deviations of the numbers over pools and draws, NaN where they are not known."""
        return np.where(self.spread.known, self.spread.deviations, np.nan)

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Throw the coins, draw the noise, return numbers and errors; no coin outlives this."""
        return self.at(self.pairing.draw(rng), rng), self.errors

    def at(self, drawn: Any, rng: RandomSource) -> Array:
        """Return the numbers for rows that were drawn, with fresh noise."""
        published = self.noise.release(self.values.total(drawn), rng)
        return self.query.finish(published, self.centres, float(len(self.pairing)))

    def attacked(self, trials: int, source: np.random.Generator) -> MembershipAttack | None:
        """Run the attacker who is told every other coin, on the most exposed groups."""
        if self.noise.design is None:
            return None
        members = self.pairing.members
        live = self.values.integers[:, self.noise.live], self.values.exponents[self.noise.live]
        groups = np.ldexp(live[0][members], live[1])
        most = max(1, ATTACKED_ROWS // self.pairing.group_size)
        chosen = np.arange(len(groups))
        if len(groups) > most:
            distances = np.zeros(len(groups))
            for swaps in self.pairing.differences(np.ldexp(live[0], live[1])):
                np.maximum(distances, self._distances(swaps), out=distances)
            chosen = np.sort(np.argsort(-distances, kind="stable")[:most])
        assert self.noise.law is not None
        attack = group_attack(groups[chosen], self.noise.law, trials=trials, rng=source)
        group, place = divmod(attack.worst_record, self.pairing.group_size)
        return attack.with_record(int(members[chosen[group], place]))

    def _distances(self, swaps: Array) -> Array:
        assert self.noise.law is not None
        return np.asarray(self.noise.law.mahalanobis(swaps))


def sum_plan(
    query: SumQuery,
    rows: Array,
    mu: float,
    *,
    pairing: Pairing | None,
    group_size: int,
    cost: Any,
    progress: bool | None,
) -> SumPlan:
    """Pair the rows by what they add, and design the noise for every swap.

    Args:
        query: what is computed.
        rows: (N, p) the pool.
        mu: μ > 0 that every swap has to keep.
        pairing: groups to use; None for the nearest in what noise costs.
        group_size: k of the groups, where they are to be found.
        cost: as ``frame_of`` takes it.
        progress: whether to show a bar.
    """
    centres = np.median(rows, axis=0)
    added = query.row_values(rows, centres)
    values = on_grid(added)
    exact = values.values
    size = group_size if pairing is None else pairing.group_size
    drawn = len(rows) // size if pairing is None else len(pairing)
    frame = frame_of(query, exact, centres, max(drawn, 1), cost)
    if pairing is None:
        pairing = _nearest(query, rows, added, frame, size, progress)
    if pairing.left_out.size:
        # a row that is never drawn sets neither the grid nor the cost
        added = np.array(added)
        added[pairing.left_out] = 0.0
        values = on_grid(added)
        exact = values.values
        inside = exact[np.sort(pairing.members, axis=None)]
        frame = frame_of(query, inside, centres, max(drawn, 1), cost)
    swaps = pairing.swaps(exact)
    noise = best_noise(
        query, frame, distinct(swaps) if query.counting else swaps, mu, centres, len(pairing)
    )
    errors = noise_errors(query, pairing, values, noise, frame, centres)
    return SumPlan(query, pairing, values, centres, frame, noise, errors)


def _nearest(
    query: SumQuery,
    rows: Array,
    values: Array,
    frame: Frame,
    size: int,
    progress: bool | None,
) -> Pairing:
    """Pair rows that are near in what noise on their sums costs, ``‖F^½ (φ(a) − φ(b))‖``."""
    features = values @ frame.root
    search = None
    if not query.counting and features.shape[1] > WIDE * query.width:
        spread = rows.std(axis=0)
        search = (rows - rows.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    return nearest(features, group_size=size, scaled=False, search=search, progress=progress)


def best_noise(
    query: SumQuery, frame: Frame, swaps: Array, mu: float, centres: Array, drawn: int
) -> SumNoise:
    """Return the noise under which the numbers err least.

    Where these are not linear in the sums the best is what errs least in simulations near what
    the pool gives.
    """
    best: tuple[float, SumNoise] | None = None
    clean = query.finish(frame.middle, centres, float(drawn))
    for cost in frame.costs:
        noise = least_noise(swaps, mu, cost)
        if query.linear or noise.design is None:
            return noise
        noisy = frame.middle + noise.sample(COMPARED, np.random.default_rng(0))
        gaps = query.finish(noisy, centres, float(drawn)) - clean
        weighed = gaps**2 @ frame.weights if frame.weights.ndim == 1 else _weighed(gaps, frame)
        typical = float(np.median(weighed))
        if best is None or typical < best[0]:
            best = (typical, noise)
    assert best is not None
    return best[1]


def _weighed(gaps: Array, frame: Frame) -> Array:
    return np.asarray(np.einsum("ij,jk,ik->i", gaps, frame.weights, gaps))
