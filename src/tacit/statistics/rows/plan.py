"""A query of sums over one row of every pair: the least noise that covers every swap."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.attacks import MembershipAttack, group_attack
from tacit.statistics.cost import CostFrame, frame_of
from tacit.statistics.pairs.pairing import Indices, Pairing
from tacit.statistics.persons import RowsOfPersons
from tacit.statistics.queries.statistic import SumQuery
from tacit.statistics.queries.sums import GridValues, on_grid
from tacit.statistics.rows.errors import Sampling, Simulated, noise_errors, sampling_errors
from tacit.statistics.rows.noise import ROWS_TOGETHER, SumNoise, Swaps, distinct, least_noise

# Rows that add many more numbers than they have: neighbours are looked up in the rows.
WIDE = 2.0
# Simulated errors by which noises of several shapes are compared.
COMPARED = 400
# Swaps with more numbers than this are read in blocks.
MANY_ENTRIES = 2**22
# Rows that are attacked: those whose swaps are longest.
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
        drawn: rows that a session drew once for all its answers; secret; None where each release
            draws its own.
        counted: whether the number of rows drawn is public; not where persons are drawn, who have
            several each.
    """

    query: SumQuery
    pairing: Pairing = field(repr=False)
    values: GridValues = field(repr=False)
    centres: Array = field(repr=False)
    frame: CostFrame = field(repr=False)
    noise: SumNoise = field(repr=False)
    errors: Array
    drawn: Indices | None = field(repr=False, default=None)
    counted: bool = True

    @cached_property
    def spread(self) -> Sampling:
        """How much the numbers vary over pools and draws from them."""
        return sampling_errors(self._simulated, self.values, self.frame)

    @property
    def _simulated(self) -> Simulated:
        return Simulated(self.query, self.pairing, self.centres, self.counted)

    @property
    def sampling(self) -> Array:
        """Standard deviations of the numbers over pools and draws, NaN where they are not known."""
        return np.where(self.spread.known, self.spread.deviations, np.nan)

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Throw the coins, draw the noise, return numbers and errors; no coin outlives this."""
        drawn = self.pairing.draw(rng) if self.drawn is None else self.drawn
        return self.at(drawn, rng)

    def at(self, drawn: Any, rng: RandomSource) -> tuple[Array, Array]:
        """Return the numbers for rows that were drawn, with fresh noise, and their errors."""
        published = self.noise.release(self.values.total(drawn), rng)
        count = float(len(drawn)) if self.counted else None
        # all that follows is computed from the published sums: post-processing
        numbers = self.query.finish(published, self.centres, count)
        errors = self.query.bracket(
            self.errors, published, self.centres, count, self.noise.covariance
        )
        return self.query.round_whole(numbers), errors

    def attack(self, trials: int, source: np.random.Generator) -> MembershipAttack | None:
        """Run the attacker who is told every other coin, on the most exposed groups."""
        if self.noise.design is None:
            return None
        # the groups whose rows lie farthest apart under the noise are those that are told best
        members, live = self.pairing.members, self.noise.live
        most = max(1, ATTACKED_ROWS // self.pairing.group_size)
        chosen = np.arange(len(members))
        if len(members) > most:
            steps = range(0, len(members), ROWS_TOGETHER)
            distances = [self._distances(members[at : at + ROWS_TOGETHER]) for at in steps]
            chosen = np.sort(np.argsort(-np.concatenate(distances), kind="stable")[:most])
        # φ of the rows of every group attacked, (groups, k rows, live sums), exact on the grid
        groups = np.ldexp(self.values.integers[members[chosen]], self.values.exponents)[..., live]
        assert self.noise.law is not None
        attack = group_attack(groups, self.noise.law, trials=trials, rng=source)
        group, place = divmod(attack.worst_record, self.pairing.group_size)
        return attack.with_record(int(members[chosen[group], place]))

    def _distances(self, groups: Indices) -> Array:
        """Return the largest squared distance within each of some groups."""
        assert self.noise.law is not None
        added = np.ldexp(self.values.integers[groups], self.values.exponents)[..., self.noise.live]
        pairs = combinations(range(groups.shape[1]), 2)
        # (φ(a) − φ(b))ᵀ Σ⁻¹ (φ(a) − φ(b)) of every two rows of a group; the largest sets its μ²
        apart = [self.noise.law.mahalanobis(added[:, a] - added[:, b]) for a, b in pairs]
        return np.asarray(np.max(apart, axis=0))


def sum_plan(
    query: SumQuery,
    rows: Array,
    mu: float,
    *,
    pairing: Pairing | None,
    group_size: int,
    cost: Any,
    progress: bool | None,
    persons: RowsOfPersons | None = None,
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
        persons: whose the rows are, where persons are paired and drawn with all of theirs.
    """
    # sums of x − c about the medians are short, so that the grid is fine and little cancels
    centres = np.median(rows, axis=0)
    counted = persons is None

    def added() -> Array:
        values = query.row_values(rows, centres)
        return values if persons is None else persons.sums(values)

    values = on_grid(added())
    size = group_size if pairing is None else pairing.group_size
    drawn = len(values.integers) // size if pairing is None else len(pairing)
    frame = frame_of(query, values.values, centres, max(drawn, 1), cost, counted=counted)
    if pairing is None and counted:
        pairing = _nearest(query, rows, centres, frame, size, progress)
    elif pairing is None:
        pairing = _nearest_persons(added() @ frame.root, size, progress)
    if pairing.left_out.size:
        # a row that is never drawn sets neither the grid nor the cost
        some = added()
        some[pairing.left_out] = 0.0
        values = on_grid(some)
        del some
        inside = values.values[np.sort(pairing.members, axis=None)]
        frame = frame_of(query, inside, centres, max(drawn, 1), cost, counted=counted)
        del inside
    # Σ that keeps zᵀ Σ⁻¹ z <= μ² of every swap z = φ(a) − φ(b) of a group
    known = float(len(pairing)) if counted else None
    noise = best_noise(query, frame, _swaps(query, values, pairing), mu, centres, known)
    # what is told before the draw: errors of the numbers near what the pool gives on average
    simulated = Simulated(query, pairing, centres, counted)
    errors = query.widen_whole(noise_errors(simulated, values, noise, frame))
    errors = query.bracket(errors, frame.middle, centres, known, noise.covariance)
    return SumPlan(query, pairing, values, centres, frame, noise, errors, counted=counted)


def _nearest_persons(features: Array, size: int, progress: bool | None) -> Pairing:
    """Pair persons that are near in what noise on what they add costs."""
    from tacit.statistics.pairs.matching import nearest

    return nearest(features, group_size=size, scaled=False, progress=progress)


def _nearest(
    query: SumQuery,
    rows: Array,
    centres: Array,
    frame: CostFrame,
    size: int,
    progress: bool | None,
) -> Pairing:
    """Pair rows that are near in what noise on their sums costs, ``‖F^½ (φ(a) − φ(b))‖``."""
    # trees and exchanges are read where pairs are searched for
    from tacit.statistics.pairs.matching import nearest

    # the grid may be coarse beside rows that are not the longest
    features = np.concatenate(
        [
            query.row_values(rows[start : start + ROWS_TOGETHER], centres) @ frame.root
            for start in range(0, len(rows), ROWS_TOGETHER)
        ]
    )
    search = None
    if not query.counting and features.shape[1] > WIDE * query.width:
        # the rows themselves have fewer columns than what they add: neighbours are found in those
        spread = rows.std(axis=0)
        search = (rows - rows.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    return nearest(features, group_size=size, scaled=False, search=search, progress=progress)


def _swaps(query: SumQuery, values: GridValues, pairing: Pairing) -> Swaps:
    """Return what a flip of every group may move the sums by, in blocks where they are many."""
    # z of every two rows of every group, exact: differences of integers on one grid
    swaps = np.concatenate(
        [np.ldexp(gaps, values.exponents) for gaps in pairing.differences(values.integers)]
    )
    if query.counting:
        return distinct(swaps)
    # blocks keep the solver's memory flat: it reads the swaps and holds none of them
    if swaps.size <= MANY_ENTRIES:
        return swaps
    step = MANY_ENTRIES // swaps.shape[1]
    return lambda: (swaps[start : start + step] for start in range(0, len(swaps), step))


def best_noise(
    query: SumQuery,
    frame: CostFrame,
    swaps: Swaps,
    mu: float,
    centres: Array,
    drawn: float | None,
) -> SumNoise:
    """Return the noise under which the numbers err least.

    Where these are not linear in the sums the best is what errs least in simulations near what
    the pool gives: a choice alone, as all of them keep μ.
    """
    best: tuple[float, SumNoise] | None = None
    linear = bool((query.additive_numbers if drawn is None else query.linear_numbers).all())
    clean = query.finish(frame.middle, centres, drawn, smooth=True)
    for cost in frame.costs:
        noise = least_noise(swaps, mu, cost)
        if linear or noise.design is None:
            return noise
        # a choice alone, good for no bound: what is certified is that every candidate keeps μ
        noisy = frame.middle + noise.sample(COMPARED, np.random.default_rng(0))
        gaps = query.finish(noisy, centres, drawn, smooth=True) - clean
        # gᵀ W g of every simulated error, by its median: a few wild ones decide nothing
        weights = frame.weights
        weighed = (
            gaps**2 @ weights
            if weights.ndim == 1
            else np.einsum("ij,jk,ik->i", gaps, weights, gaps)
        )
        typical = float(np.median(weighed))
        if best is None or typical < best[0]:
            best = (typical, noise)
    assert best is not None
    return best[1]
