"""A query of sums over one row of every pair: what is decided before a coin is thrown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.attacks import MembershipAttack, group_attack
from tacit.statistics.least_noise import SumNoise, distinct, least_noise
from tacit.statistics.pairs import Pairing, nearest
from tacit.statistics.rows.cost import Frame, frame_of
from tacit.statistics.spread import two_digits_up
from tacit.statistics.sums.query import SumQuery
from tacit.statistics.sums.totals import GridValues, on_grid

# Rows that add many more numbers than they have: neighbours are looked up in the rows.
WIDE = 2.0
# Simulated errors of the numbers, and simulated draws about which they are: where numbers are not
# linear, as quantiles are, errors differ from draw to draw.
SIMULATED, SIMULATED_DRAWS = 400, 8
NORMAL_95, NORMAL_68_SHARE = 1.959963984540054, 0.6826894921370859
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
        errors: (d,) standard deviations of the noise in the numbers; where these are not linear in
            the sums, the largest over simulated draws of what ±1.96 holds 95% of errors with.
    """

    query: SumQuery
    pairing: Pairing = field(repr=False)
    values: GridValues = field(repr=False)
    centres: Array = field(repr=False)
    frame: Frame = field(repr=False)
    noise: SumNoise = field(repr=False)
    errors: Array

    @property
    def sampling(self) -> Array:
        """Standard deviations of the numbers over pools and draws from them, rounded up.

        With ψ a row's influence on a number, the sum of ``ψ`` over the rows drawn varies by the
        coins, ``Σ_g Var_g ψ`` over groups, and by the pool, ``P² Var ψ / N``. Rows that are alike
        share groups, so that it is less than ``P Var ψ`` of as many rows at random.
        """
        influence = self.values.values @ self.frame.jacobian.T
        grouped = influence[self.pairing.members]
        coins = grouped.var(axis=1).sum(axis=0)
        pool = grouped.reshape(-1, influence.shape[1]).var(axis=0)
        share = len(self.pairing) / self.pairing.group_size
        return two_digits_up(np.sqrt(coins + share * pool))

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
    noise, errors = best_noise(
        query, frame, distinct(swaps) if query.counting else swaps, mu, centres, len(pairing)
    )
    if errors is None:
        errors = errors_over_draws(query, pairing, values, noise, centres)
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
) -> tuple[SumNoise, Array | None]:
    """Return the noise under which the numbers err least, and their errors, (d,).

    The errors are standard deviations where the numbers are linear in the sums, None elsewhere:
    there the best is what errs least in simulations near what the pool gives.
    """
    best: tuple[float, SumNoise] | None = None
    for cost in frame.costs:
        noise = least_noise(swaps, mu, cost)
        if query.linear or noise.design is None:
            covariance = noise.covariance
            variances = np.einsum("ij,jk,ik->i", frame.jacobian, covariance, frame.jacobian)
            return noise, np.sqrt(np.maximum(variances, 0.0))
        gaps = simulated_errors(query, frame.middle, noise, centres, float(drawn))
        weighed = gaps**2 @ frame.weights if frame.weights.ndim == 1 else _weighed(gaps, frame)
        typical = float(np.median(weighed))
        if best is None or typical < best[0]:
            best = (typical, noise)
    assert best is not None
    return best[1], None


def errors_over_draws(
    query: SumQuery, pairing: Pairing, values: GridValues, noise: SumNoise, centres: Array
) -> Array:
    """Return the largest deviations of simulated errors about any of some simulated draws, (d,).

    The draws are simulated from the pool alone, and all of them are given the same noise, so that
    deviations differ by the draw and not by chance.
    """
    source = np.random.default_rng(1)
    found = []
    for _ in range(SIMULATED_DRAWS):
        total = values.total(pairing.draw(source))
        gaps = simulated_errors(query, total, noise, centres, float(len(pairing)))
        found.append(simulated_deviations(gaps))
    return np.asarray(np.max(found, axis=0))


def simulated_errors(
    query: SumQuery, middle: Array, noise: SumNoise, centres: Array, drawn: float
) -> Array:
    """Return what simulated noise does to the numbers, (n, d)."""
    clean = query.finish(middle, centres, drawn)
    simulated = noise.sample(SIMULATED, np.random.default_rng(0))
    return np.stack([query.finish(middle + error, centres, drawn) - clean for error in simulated])


def simulated_deviations(gaps: Array) -> Array:
    """Return deviations of which ±1.96 hold 95% of simulated errors, and ±1 hold 68%, (d,)."""
    ends = np.quantile(np.abs(gaps), [NORMAL_68_SHARE, 0.95], axis=0)
    return np.asarray(np.maximum(ends[0], ends[1] / NORMAL_95))


def _weighed(gaps: Array, frame: Frame) -> Array:
    return np.asarray(np.einsum("ij,jk,ik->i", gaps, frame.weights, gaps))
