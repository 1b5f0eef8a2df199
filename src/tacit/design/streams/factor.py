"""A factor C of what is released of all steps, ``C G + Z``: its sensitivity and its noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from tacit._ground.checks import Array, in_interval, integer
from tacit._ground.reprs import short_repr
from tacit.design.streams.workload import PrefixSums

# What a sensitivity is brought above the computed one by: powers, sums of at most 10⁶ terms and a
# root round by less.
UP = 1.0 + 1e-9
MOST_STEPS, MOST_BUFFERS = 1_000_000, 64
# Of the coefficients behind the first, which the noise of a step is divided by.
LARGEST_SHARE = 1e6


class Vector(Protocol):
    """What can be added and scaled: a NumPy array or a tensor."""

    def __add__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: float, /) -> Any: ...


Noise = TypeVar("Noise", bound=Vector)


@short_repr
@dataclass(frozen=True, kw_only=True)
class StepFactor:
    """A lower-triangular Toeplitz C of which one column is kept: bands, geometric buffers, or both.

    ``c_0 … c_{b−1}`` as they stand, and ``Σ_j w_j a_j^{i−1}`` added to c_i, i >= 1. What is
    released of the clipped sums G of all steps is ``C G + Z`` with Z independent, which is told as
    ``G + C⁻¹Z``: the noise of step t is a sum of what was drawn up to t.

    Attributes:
        bands: c_0 > 0 and those behind it that are no buffer's.
        shares: w_j >= 0 of every buffer.
        decays: a_j in [0, 1) of every buffer.

    Example:
        >>> two = StepFactor(bands=(0.8, 0.6))
        >>> round(two.sensitivity(10), 6), round(two.sensitivity(10, apart=2, times=4), 6)
        (1.0, 2.0)

    Source: Choquette-Choo et al. (2023), "(Amplified) Banded Matrix Factorization"; Dvijotham et
        al. (2024), "Efficient and Near-Optimal Noise Generation for Streaming Differential
        Privacy".
    """

    bands: tuple[float, ...]
    shares: tuple[float, ...] = ()
    decays: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.bands:
            raise ValueError("bands: expected one coefficient at least, got none")
        first = in_interval(
            "bands", self.bands[0], 0.0, float("inf"), open_low=True, open_high=True
        )
        for one in (*self.bands[1:], *self.shares):
            # 0 <= c_i: all participations of a record then add up at worst, and none cancels
            in_interval("bands", one, 0.0, LARGEST_SHARE * first)
        for one in self.decays:
            in_interval("decays", one, 0.0, 1.0, open_high=True)
        if len(self.shares) != len(self.decays):
            raise ValueError("decays: expected one for each of the shares")
        if len(self.shares) > MOST_BUFFERS:
            raise ValueError(f"shares: expected at most {MOST_BUFFERS}, got {len(self.shares)}")

    @property
    def reach(self) -> int | None:
        """Steps that a gradient is seen in: b; None of a factor with buffers, without end."""
        return None if any(self.shares) else len(self.bands)

    def column(self, steps: int) -> Array:
        """Return c, (T,), to rounding."""
        count = integer("steps", steps, minimum=1, maximum=MOST_STEPS)
        found = np.zeros(count)
        own = self.bands[:count]
        found[: len(own)] = own
        for share, decay in zip(self.shares, self.decays, strict=True):
            found[1:] += share * decay ** np.arange(count - 1)
        return found

    def sensitivity(self, steps: int, *, apart: int | None = None, times: int = 1) -> float:
        """Return how far C G moves at most where a record's gradients of norm 1 do, rounded up.

        The record is in at most ``times`` steps, each ``apart`` steps behind the one before:
        ``‖C G − C G'‖² <= Σ_{s, t} |(CᵀC)_st|`` over its steps. As c >= 0 no entry is negative, and
        a later first step cuts terms off: ``0, apart, 2 apart …`` is the worst. Of a factor whose
        columns do not meet at that distance it is the worst of steps farther apart, too.

        Args:
            steps: T.
            apart: steps between two participations; T where there is one.
            times: participations at most.

        Source: Choquette-Choo et al. (2023), Theorem 2; Kalinin and Lampert (2024), Theorem 2.
        """
        integer("times", times, minimum=1)
        between = steps if apart is None else integer("apart", apart, minimum=1)
        # Σ of the columns that the record is in: their inner products are all >= 0
        return float(np.linalg.norm(repeated(self.column(steps), between, times))) * UP

    def variance(self, workload: PrefixSums, steps: int) -> float:
        """Return the mean variance that noise Z of N(0, 1) leaves in an iterate, to rounding."""
        return workload.energy(self.divided(workload.impulse(steps)))[0] / steps

    def divided(self, series: Array) -> Array:
        """Return ``C⁻¹ x``, (T,), to rounding."""
        noise = CorrelatedNoise[Any](self)
        return np.array([noise.next(one) for one in series])


def repeated(column: Array, apart: int, times: int) -> Array:
    """Return ``Σ_e c_{t − e·apart}`` over e < times, (T,), for c >= 0 to rounding of T terms."""
    steps = column.size
    if times * apart < steps:
        total = np.zeros(steps)
        for start in range(0, times * apart, apart):
            total[start:] += column[: steps - start]
        return total
    # to the end: every row of ``apart`` entries is added to those behind it
    rows = np.zeros((-(-steps // apart), apart))
    rows.ravel()[:steps] = column
    sums: Array = np.cumsum(rows, axis=0).ravel()[:steps]
    return sums


@dataclass
class CorrelatedNoise(Generic[Noise]):
    """The noise ``C⁻¹Z`` step by step, out of what b − 1 steps and every buffer keep.

    Attributes:
        factor: C.
        before: what was told of the steps before, the last one first; b − 1 of them at most.
        buffers: ``Σ_{i >= 1} a_j^{i−1} ẑ_{t−i}`` of every buffer; empty before the first step.
    """

    factor: StepFactor

    def __post_init__(self) -> None:
        self.before: list[Noise] = []
        self.buffers: list[Noise] = []

    def next(self, drawn: Noise) -> Noise:
        """Return ẑ_t, solved from row t of ``C ẑ = z``.

        Args:
            drawn: z_t, independent of all before.
        """
        factor = self.factor
        # c_0 ẑ_t = z_t − Σ_{i >= 1} c_i ẑ_{t−i}: what is behind the last band is a buffer's
        left: Any = drawn
        for share, old in zip(factor.bands[1:], self.before, strict=False):
            left = left + old * -share
        for share, held in zip(factor.shares, self.buffers, strict=False):
            left = left + held * -share
        told = left * (1.0 / factor.bands[0])
        self.before = [told, *self.before][: len(factor.bands) - 1]
        # s_j ← a_j s_j + ẑ_t
        self.buffers = (
            [held * decay + told for held, decay in zip(self.buffers, factor.decays, strict=True)]
            if self.buffers
            else [told] * len(factor.decays)
        )
        return told  # type: ignore[no-any-return]
