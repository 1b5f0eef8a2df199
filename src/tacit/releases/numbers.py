"""Released numbers, how far they may be off, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from scipy.special import ndtri

from tacit._ground.checks import Array, in_interval, non_negative, vector
from tacit._ground.frozen import array_value
from tacit.codec import MISSING
from tacit.guarantees.base import texts

INTERVAL_CONFIDENCE = 0.95
# Deviations of the normal law that hold so much of it.
NORMAL_95 = float(ndtri(0.5 + 0.5 * INTERVAL_CONFIDENCE))
ARRAYS = ("values", "errors", "sampling", "limits")
# Standard deviations, NaN where one may not be known.
Spread: TypeAlias = Annotated[Array, MISSING]
# Of an interval that is as long there is no end: that of a ratio whose divisor may be nothing.
OPEN = 1e99
# How errors fall off: as e^(−x²/2), or as e^(−x).
Tails: TypeAlias = Literal["normal", "laplace"]


@dataclass(frozen=True, kw_only=True)
class Number:
    """One released number and how far it may be off.

    Attributes:
        name: its label.
        value: what was released.
        error: standard deviation of the noise in it.
        sampling: its standard deviation over random draws of as many rows from what the rows came
            from; None where that may not be known.
        limits: the (lowest, highest) that it can be, at which intervals end.
        tails: of the law of the noise: "normal", or "laplace", which reaches farther.

    Example:
        >>> [round(end, 2) for end in Number(name="mean", value=4.0, error=0.1).interval()]
        [3.8, 4.2]
    """

    name: str
    value: float
    error: float
    sampling: float | None = None
    limits: tuple[float, float] = (-math.inf, math.inf)
    tails: Tails = "normal"

    def half_width(self, coverage: float = INTERVAL_CONFIDENCE, *, sampling: bool = False) -> float:
        """Return half of the interval, of the noise alone or with the sampling error.

        Raises:
            ValueError: the sampling error is asked for and is not known.
        """
        level = in_interval("coverage", coverage, 0.0, 1.0, open_low=True, open_high=True)
        if sampling and self.sampling is None:
            raise ValueError("sampling: expected a number whose sampling error is known")
        spread = math.hypot(self.error, self.sampling or 0.0) if sampling else self.error
        return float(_half_widths(level, spread, self.tails))

    def interval(
        self, coverage: float = INTERVAL_CONFIDENCE, *, sampling: bool = False
    ) -> tuple[float, float]:
        """Return the interval ``value ± z sd`` of the law of the noise, within the limits.

        Args:
            coverage: how often it holds the truth, in (0, 1).
            sampling: whether it speaks of what the rows came from; else of those that were drawn.
        """
        half, (lowest, highest) = self.half_width(coverage, sampling=sampling), self.limits
        low, high = self.value - half, self.value + half
        return min(max(low, lowest), highest), max(min(high, highest), lowest)


def _half_widths(level: float, spread: float | Array, tails: Tails) -> Array:
    """Return half-widths (d,) of intervals that hold a share of the law, from errors (d,)."""
    factor = float(ndtri(0.5 + 0.5 * level))
    if tails == "laplace":
        # P(|x| > h) = e^(−h/b) = 1 − c: h grows with ln 1/(1 − c), from what holds 95%; below it
        # several of them have the normal law's
        factor = max(factor, NORMAL_95 * math.log1p(-level) / math.log1p(-INTERVAL_CONFIDENCE))
    errors = np.asarray(spread, dtype=np.float64)
    half, usual = factor * errors, NORMAL_95 * errors
    # a product of two doubles misses a whole number by a unit of its last place or two
    slack = 4.0 * np.finfo(np.float64).eps
    whole = np.abs(usual - np.rint(usual)) <= slack * usual
    # where 95% are within a whole number the noise is whole, and a part of a unit holds none of it
    half = np.where(whole, np.ceil(half * (1.0 - slack)), half)
    return np.where(usual >= OPEN, np.inf, half)


@array_value(kw_only=True)
class Numbers:
    """Released numbers, column by column.

    Attributes:
        names: d labels.
        values: (d,) what was released.
        errors: (d,) standard deviations of the noise in them; where they are not linear in what is
            noisy, or the noise is whole or Laplace's, 95% of errors are within ±1.96 of these.
        sampling: (d,) their standard deviations over random draws, NaN where a few rows make most
            of one; None where they may not be known.
        limits: (d, 2), the (lowest, highest) that each can be; None where nothing is known.
        truth: what the interval of the noise holds, as in "statistic of the rows drawn".
        tails: of the law of the noise, which set intervals at coverages beyond 95%.
    """

    names: tuple[str, ...]
    values: Array
    errors: Array
    sampling: Spread | None = None
    limits: Array | None = None
    truth: str = "statistic without noise"
    tails: Tails = "normal"

    def __post_init__(self) -> None:
        size = len(texts("names", self.names))
        for name in ("values", "errors"):
            # an empty release is none, and the checks of vectors refuse it
            held = getattr(self, name)
            object.__setattr__(self, name, vector(name, held, size=size) if size else held)
        non_negative("errors", self.errors.min(initial=0.0))
        if self.sampling is not None:
            if self.sampling.shape != (size,) or (self.sampling < 0.0).any():
                raise ValueError(
                    f"sampling: expected {size} numbers >= 0 or missing, got other values"
                )
            if np.isinf(self.sampling).any():
                raise ValueError("sampling: expected finite numbers, got an infinite one")
        if self.limits is not None:
            ends = self.limits.reshape(-1, 2)
            if ends.shape != (size, 2) or not (ends[:, 0] <= ends[:, 1]).all():
                raise ValueError("limits: expected (lowest, highest) of every number")
            object.__setattr__(self, "limits", ends)

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        # arrays alike to the last bit, missing where the other is
        if not isinstance(other, Numbers) or self._words != other._words:
            return False
        arrays = [(getattr(self, one), getattr(other, one)) for one in ARRAYS]
        return all(
            held is there
            if held is None or there is None
            else np.array_equal(held, there, equal_nan=True)
            for held, there in arrays
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def _words(self) -> tuple[object, ...]:
        return self.names, self.truth, self.tails

    def __iter__(self) -> Iterator[Number]:
        spread = [None] * len(self) if self.sampling is None else self.sampling.tolist()
        ends = [(-math.inf, math.inf)] * len(self) if self.limits is None else self.limits.tolist()
        rows = zip(
            self.names, self.values.tolist(), self.errors.tolist(), spread, ends, strict=True
        )
        for name, value, error, sampled, (low, high) in rows:
            known = None if sampled is None or math.isnan(sampled) else sampled
            yield Number(
                name=name,
                value=value,
                error=error,
                sampling=known,
                limits=(low, high),
                tails=self.tails,
            )

    def intervals(self, coverage: float = INTERVAL_CONFIDENCE, *, sampling: bool = False) -> Array:
        """Return an interval for each number, (d, 2), by the law of the noise.

        Args:
            coverage: how often the intervals hold the truth, in (0, 1); of numbers that are not
                linear in what is noisy, errors are set so that it is right at 95%, and at other
                coverages intervals are as near as the law of the noise is.
            sampling: whether it speaks of what the rows were drawn from, and so has the sampling
                error too; otherwise of the statistic of the rows that were drawn. NaN where the
                sampling error is.

        Raises:
            ValueError: the sampling error is asked for and is not known.
        """
        level = in_interval("coverage", coverage, 0.0, 1.0, open_low=True, open_high=True)
        half = _half_widths(level, self.standard_errors if sampling else self.errors, self.tails)
        ends = np.stack([self.values - half, self.values + half], axis=1)
        if self.limits is None:
            return ends
        return np.asarray(np.clip(ends, self.limits[:, :1], self.limits[:, 1:]))

    @property
    def standard_errors(self) -> Array:
        """Standard errors (d,) of what the rows were drawn from: sampling and noise; or NaN.

        Raises:
            ValueError: the sampling error is not known.
        """
        if self.sampling is None:
            raise ValueError("sampling: expected a release whose sampling error is known")
        return np.hypot(self.errors, self.sampling)
