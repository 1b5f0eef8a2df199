"""How much a statistic varies with the rows drawn, as it may be published."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.queries import Query
from tacit.statistics.simulation import simulate

HALVES = 200


def two_digits_up(values: Array) -> Array:
    """Return non-negative numbers rounded up to two significant digits."""
    with np.errstate(divide="ignore"):
        exponents = np.where(values > 0.0, np.floor(np.log10(values)) - 1.0, 0.0)
    units = 10.0**exponents
    return np.asarray(np.ceil(values / units * (1.0 - 1e-12)) * units)


def spread_over_halves(
    query: Query, rows: Array, source: np.random.Generator, *, workers: int | None
) -> Array:
    """Return standard deviations of a query over independent draws of half the rows, rounded up.

    Over halves of a pool, drawn without replacement, the variance is half of that for what is near
    linear in the rows. Pairs of like rows would vary less than draws from what the rows came from.

    Args:
        query: what is computed.
        rows: (N, p) the pool.
        source: of the halves.
        workers: processes.
    """
    halves = _Halves(len(rows), source.integers(2**63, size=HALVES))
    outputs = simulate(query, rows, halves, workers=workers, progress=False)
    return two_digits_up(math.sqrt(2.0) * outputs.std(axis=0))


@dataclass(frozen=True, eq=False)
class _Halves:
    """Random halves of a pool, each of a seed of its own."""

    rows: int
    seeds: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seeds)

    def members(self, candidate: int) -> npt.NDArray[np.intp]:
        order = np.random.default_rng(int(self.seeds[candidate])).permutation(self.rows)
        return np.sort(order[: self.rows // 2])
