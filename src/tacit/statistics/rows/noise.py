"""The least noise on sums that keeps every listed swap within μ, checked swap by swap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource
from tacit.covariance import Covariance
from tacit.design import worst_case
from tacit.design.base import Design
from tacit.releases.strength import SLACK

# Rows, and swaps, that are worked on at a time.
ROWS_TOGETHER = 2**16
# The solver keeps budgets to 1e-9; a distance measured by another way may be off by this.
MEASURED_SLACK = 1e-6

Swaps: TypeAlias = Array | Callable[[], Iterator[Array]]


@dataclass(frozen=True, eq=False)
class SumNoise:
    """Noise on sums (k,): none on those that no swap moves.

    Attributes:
        live: (k,) which sums some swap moves.
        design: the noise on these; None where there is none.
        mu: what it certifies for every swap; 0 without noise.
    """

    live: npt.NDArray[np.bool_]
    design: Design | None
    mu: float

    @property
    def covariance(self) -> Array:
        """Σ of all sums, (k, k)."""
        # zero rows and columns where no noise is added
        full = np.zeros((self.live.size, self.live.size))
        if self.design is not None:
            full[np.ix_(self.live, self.live)] = self.design.covariance.to_dense()
        return full

    @property
    def law(self) -> Covariance | None:
        """The law of the noise on the live sums."""
        return None if self.design is None else self.design.covariance

    def release(self, sums: Array, rng: RandomSource) -> Array:
        """Return the sums to publish: noise on the grid where some swap moves them."""
        published = sums.copy()
        if self.design is not None:
            published[self.live] = self.design.release(sums[self.live], rng=rng)
        return published

    def sample(self, count: int, source: np.random.Generator) -> Array:
        """Return noise vectors for a simulation, (count, k)."""
        noise = np.zeros((count, self.live.size))
        if self.design is not None:
            noise[:, self.live] = self.design.sample(count, source)
        return noise


def least_noise(swaps: Swaps, mu: float, cost: Any) -> SumNoise:
    """Return the noise of least cost under which every swap z has ``zᵀ Σ⁻¹ z <= μ²``.

    Args:
        swaps: (m, k), or a callable that returns blocks of them: nothing is then kept for each of
            them; zero rows and repeated ones do no harm.
        mu: μ > 0.
        cost: F, (k, k).

    Raises:
        ArithmeticError: a swap is farther than was designed, by another way of measuring.
    """
    # a sum that no swap moves is the same whatever was drawn: it needs no noise
    live = np.logical_or.reduce([(block != 0.0).any(axis=0) for block in _blocks(swaps)])
    if not live.any():
        return SumNoise(live, None, 0.0)
    moved: Any = swaps
    if not live.all():
        moved = (
            (lambda: (block[:, live] for block in swaps()))
            if callable(swaps)
            else np.ascontiguousarray(swaps[:, live])
        )
    # SLACK makes up for what the solver and the reading of its noise leave open
    design = worst_case(moved, (mu * (1.0 - SLACK)) ** 2, cost=cost[np.ix_(live, live)])
    # every swap again, by the covariance that will be drawn
    for block in _blocks(moved):
        # zᵀ Σ⁻¹ z by another factorisation than the solver's
        farthest = float(np.max(design.covariance.mahalanobis(block)))
        if farthest > mu**2 * (1.0 + MEASURED_SLACK):
            raise ArithmeticError(
                f"a swap lies at squared distance {farthest!r} where {mu**2!r} was designed; "
                "nothing is released"
            )
    return SumNoise(live, design, mu)


def _blocks(swaps: Swaps) -> Iterator[Array]:
    if callable(swaps):
        yield from swaps()
        return
    for start in range(0, len(swaps), ROWS_TOGETHER):
        yield swaps[start : start + ROWS_TOGETHER]


def distinct(swaps: Array) -> Array:
    """Return each swap once, whatever its sign, without zeros; for counts, of which many repeat."""
    # z and −z are one constraint: the first entry that is not zero becomes positive
    first = (swaps != 0.0).argmax(axis=1)
    signs = np.sign(swaps[np.arange(len(swaps)), first])
    turned = np.ascontiguousarray(swaps * signs[:, None]) + 0.0
    # a row of numbers as one item, so that equal rows are found by sorting
    kinds = turned.view([("", turned.dtype)] * turned.shape[1]).ravel()
    unique = np.unique(kinds).view(turned.dtype).reshape(-1, turned.shape[1])
    moving = unique[(unique != 0.0).any(axis=1)]
    return moving if len(moving) else unique[:1]
