"""The least Gaussian noise that covers whatever one row within its bounds can add."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource
from tacit.covariance import Covariance, Diagonal
from tacit.design import worst_case
from tacit.design.listed.simplex import between_points, spans_simplex
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.strength import SLACK
from tacit.statistics.bounded.contributions import (
    Contributions,
    Law,
    changing,
    differences,
    families,
    farthest_distance,
    reach,
)

# The solver keeps budgets to 1e-9; a distance measured by another way may be off by this.
MEASURED_SLACK = 1e-6
# Price of every count on its own, relative to its share of the whole.
FLOOR = 1e-6
# The same beside the dearest of them, where any two kinds of rows are compared.
EVEN = 1e-7


@dataclass(frozen=True, eq=False)
class TableNoise:
    """Independent noise on the counts and on the numbers.

    Attributes:
        size: k, how many sums there are.
        parts: (which sums, the law of the noise on them).
        mu: μ certified.
    """

    size: int
    parts: tuple[Law, ...]
    mu: float

    @property
    def covariance(self) -> Array:
        """Σ of all sums, (k, k)."""
        full = np.zeros((self.size, self.size))
        for chosen, law in self.parts:
            full[np.ix_(chosen, chosen)] = law.to_dense()
        return full

    def release(self, sums: Array, rng: RandomSource) -> Array:
        """Return the sums to publish, each on the grid of its noise."""
        published = sums.copy()
        for chosen, law in self.parts:
            published[chosen] = law.release(sums[chosen], rng=rng)
        return published

    def sample(self, count: int, source: np.random.Generator) -> Array:
        """Return noise vectors for a simulation, (count, k)."""
        noise = np.zeros((count, self.size))
        for chosen, law in self.parts:
            noise[:, chosen] = law.sample(count, source)
        return noise


def table_noise(added: Contributions, mu: float, adjacency: Adjacency, cost: Array) -> TableNoise:
    """Return noise under which one row more, fewer or other lies within μ.

    For a box of half-widths w the least noise is diagonal, ``σ_j² = w_j Σ_k w_k / μ²`` at equal
    prices (``∝ w_j/√F_j`` at prices F); numbers whose conditions exclude each other share one μ.
    Counts take finitely many patterns, for which the noise is designed; μ² is split between both.

    Args:
        added: what a row can add.
        mu: μ > 0.
        adjacency: which tables are neighbours.
        cost: F, (k, k), of which the blocks of counts and of numbers count.

    Source: tr(FΣ) subject to ``Σ w²/σ² <= μ²``, by Cauchy-Schwarz; counts: dsi, Theorem 3.3.
    """
    # a number that costs nothing still has noise: a millionth of the least price keeps σ finite
    prices = np.maximum(np.diagonal(cost), 0.0)
    prices = np.where(prices > 0.0, prices, prices[prices > 0.0].min(initial=1.0) * 1e-6)
    # the law of each part at μ = 1, and what it costs
    laws: list[tuple[npt.NDArray[np.intp], Covariance, float]] = []
    for places, patterns in added.parts:
        # counts that no row changes have no noise
        live = changing(patterns, adjacency)
        if live.any():
            chosen = places[live]
            # F of the counts, positive definite by a floor
            price = cost[np.ix_(chosen, chosen)] + np.diag(prices[chosen] * FLOOR)
            kinds = np.unique(patterns[:, live], axis=0)
            # any two kinds of rows, by their distances; else what a row changes, listed
            simplex = adjacency is Adjacency.REPLACE and spans_simplex(kinds)
            # a bin that no row at random met costs nothing: prices within what the solver holds
            level = price + np.eye(len(price)) * (EVEN * float(np.diagonal(price).max()))
            design = between_points(kinds, level) if simplex else None
            if design is None:
                design = worst_case(differences(kinds, adjacency), 1.0, cost=price)
            laws.append((chosen, design.covariance, design.cost))
    if added.numeric.any():
        chosen = np.flatnonzero(added.numeric)
        # a replaced row moves a number by 2w, one that is added by w: σ is proportional to that
        sigma = _boxes(added, prices)[chosen] * reach(adjacency)
        laws.append((chosen, Diagonal(sigma**2), float(prices[chosen] @ sigma**2)))
    # costs are ∝ 1/μ²: split in the ratio of their roots they sum to the least
    roots = np.sqrt([price for _, _, price in laws])
    shares = (mu * (1.0 - SLACK)) ** 2 * roots / roots.sum()
    parts = tuple(
        (chosen, law.scaled(1.0 / float(share)))
        for (chosen, law, _), share in zip(laws, shares, strict=True)
    )
    noise = TableNoise(added.numeric.size, parts, mu)
    # the farthest row again, by the laws that will be drawn from and not by how they were designed
    farthest = farthest_distance(added, noise.parts, adjacency)
    if farthest > mu**2 * (1.0 + MEASURED_SLACK):
        raise ArithmeticError(
            f"a row lies at squared distance {farthest!r} where {mu**2!r} was designed; nothing is "
            "released"
        )
    return noise


def _boxes(added: Contributions, prices: Array) -> Array:
    """Return σ of every number at μ = 1 when one row moves each by w.

    Families of cells have one μ_f each, with ``Σ μ_f² = 1`` and μ_f² ∝ the root of what the family
    costs at μ_f = 1; every cell of a family may use all of it.
    """
    sigma, costs = np.zeros(len(added.query.terms)), []
    grouped = families(added)
    for family in grouped:
        cost = 0.0
        for cell in family:
            # σ_j² = w_j/√F_j · Σ_k w_k √F_k costs (Σ w √F)² at Σ w²/σ² = 1
            roots = np.sqrt(prices[cell])
            size = float(roots @ added.widths[cell])
            sigma[cell] = np.sqrt(added.widths[cell] / roots * size)
            cost += size**2
        costs.append(cost)
    # Σ cost_f/share_f is least for shares ∝ √cost_f
    shares = np.sqrt(costs) / np.sqrt(costs).sum()
    for family, share in zip(grouped, shares.tolist(), strict=True):
        for cell in family:
            sigma[cell] /= math.sqrt(share)
    return sigma
