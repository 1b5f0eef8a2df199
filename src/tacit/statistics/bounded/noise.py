"""The least Gaussian noise that covers whatever one row within its bounds can add."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource
from tacit.covariance import Covariance, Diagonal
from tacit.design import worst_case
from tacit.statistics.bounded.contributions import Contributions
from tacit.statistics.strength import SLACK
from tacit.statistics.sums.terms import Condition

MEASURED_SLACK = 1e-6
# Price of every count on its own, relative to its share of the whole.
FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class TableNoise:
    """Independent noise on the counts and on the numbers.

    Attributes:
        size: k, how many sums there are.
        parts: (which sums, the law of the noise on them).
        mu: μ certified.
    """

    size: int
    parts: tuple[tuple[npt.NDArray[np.intp], Covariance], ...]
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


def table_noise(added: Contributions, mu: float, adjacency: str, cost: Array) -> TableNoise:
    """Return noise under which one row more, fewer or other lies within μ.

    For a box of half-widths w the least noise is diagonal, ``σ_j² = w_j Σ_k w_k / μ²`` at equal
    prices (``∝ w_j/√F_j`` at prices F); numbers whose conditions exclude each other share one μ.
    Counts take finitely many patterns, for which the noise is designed; μ² is split between both.

    Args:
        added: what a row can add.
        mu: μ > 0.
        adjacency: ``"add-remove"`` or ``"replace"`` one row.
        cost: F, (k, k), of which the blocks of counts and of numbers count.

    Source: tr(FΣ) subject to ``Σ w²/σ² <= μ²``, by Cauchy-Schwarz; counts: dsi, Theorem 3.3.
    """
    prices = np.maximum(np.diagonal(cost), 0.0)
    prices = np.where(prices > 0.0, prices, prices[prices > 0.0].min(initial=1.0) * 1e-6)
    # the law of each part at μ = 1, and what it costs
    laws: list[tuple[npt.NDArray[np.intp], Covariance, float]] = []
    for places, patterns in added.parts:
        differences = _differences(patterns, adjacency)
        live = (differences != 0.0).any(axis=0)
        if live.any():
            chosen = places[live]
            price = cost[np.ix_(chosen, chosen)] + np.diag(prices[chosen] * FLOOR)
            design = worst_case(differences[:, live], 1.0, cost=price)
            laws.append((chosen, design.covariance, design.cost))
    if added.numeric.any():
        chosen = np.flatnonzero(added.numeric)
        sigma = _boxes(added, prices)[chosen] * _reach(adjacency)
        laws.append((chosen, Diagonal(sigma**2), float(prices[chosen] @ sigma**2)))
    # costs are ∝ 1/μ²: split in the ratio of their roots they sum to the least
    roots = np.sqrt([price for _, _, price in laws])
    shares = (mu * (1.0 - SLACK)) ** 2 * roots / roots.sum()
    parts = tuple(
        (chosen, law.scaled(1.0 / float(share)))
        for (chosen, law, _), share in zip(laws, shares, strict=True)
    )
    noise = TableNoise(added.numeric.size, parts, mu)
    farthest = farthest_distance(added, noise, adjacency)
    if farthest > mu**2 * (1.0 + MEASURED_SLACK):
        raise ArithmeticError(
            f"a row lies at squared distance {farthest!r} where {mu**2!r} was designed; nothing is "
            "released"
        )
    return noise


def farthest_distance(added: Contributions, noise: TableNoise, adjacency: str) -> float:
    """Return an upper bound on the squared distance that one row can make."""
    total = 0.0
    counts = {int(places[0]): (places, patterns) for places, patterns in added.parts}
    owner = {int(place): first for first, (places, _) in counts.items() for place in places}
    for chosen, law in noise.parts:
        if added.numeric[chosen[0]]:
            inverse = np.zeros(added.numeric.size)
            inverse[chosen] = (_reach(adjacency) * added.widths[chosen]) ** 2 / law.diagonal()
            total += sum(max(inverse[cell].sum() for cell in family) for family in families(added))
        else:
            places, patterns = counts[owner[int(chosen[0])]]
            differences = _differences(patterns, adjacency)[:, np.isin(places, chosen)]
            total += float(np.max(law.mahalanobis(differences)))
    return total


def families(added: Contributions) -> list[list[list[int]]]:
    """Return families of cells of numbers: a row adds to one cell of each family at most.

    The numbers of a cell have the same conditions.
    """
    terms = added.query.terms
    cells: dict[tuple[Condition, ...], list[int]] = {}
    for place in np.flatnonzero(added.numeric).tolist():
        cells.setdefault(terms[place].conditions, []).append(place)
    found: list[list[tuple[Condition, ...]]] = []
    for conditions in cells:
        for family in found:
            if all(_exclusive(conditions, other) for other in family):
                family.append(conditions)
                break
        else:
            found.append([conditions])
    return [[cells[conditions] for conditions in family] for family in found]


def _exclusive(first: Sequence[Condition], second: Sequence[Condition]) -> bool:
    return any(one.excludes(other) for one in first for other in second)


def _reach(adjacency: str) -> float:
    """Return by how many half-widths a row, or its replacement, moves a number."""
    return 2.0 if adjacency == "replace" else 1.0


def _differences(patterns: Array, adjacency: str) -> Array:
    """Return what one row, or its replacement, changes of the counts: each once."""
    kinds = np.unique(patterns, axis=0)
    if adjacency == "replace":
        first, second = np.triu_indices(len(kinds), 1)
        kinds = np.unique(kinds[first] - kinds[second], axis=0)
    return kinds if len(kinds) else np.zeros((1, patterns.shape[1]))


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
            roots = np.sqrt(prices[cell])
            size = float(roots @ added.widths[cell])
            sigma[cell] = np.sqrt(added.widths[cell] / roots * size)
            cost += size**2
        costs.append(cost)
    shares = np.sqrt(costs) / np.sqrt(costs).sum()
    for family, share in zip(grouped, shares.tolist(), strict=True):
        for cell in family:
            sigma[cell] /= math.sqrt(share)
    return sigma
