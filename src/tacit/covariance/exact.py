"""Doubles as integers of one common exponent: products and sums without any rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array

SIGNIFICANT_BITS = 53
LARGEST_DOUBLE = float(np.finfo(np.float64).max)

Integers = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Scaled:
    """The numbers ``integers · 2^exponent``.

    Attributes:
        integers: Python integers of any size.
        exponent: common to all.
    """

    integers: Integers
    exponent: int

    def rounded(self, bits: int) -> Integers:
        """Return the integers nearest to ``2^bits`` times the numbers, halves up."""
        shift = self.exponent + bits
        if shift >= 0:
            return _shifted(self.integers, shift)
        half = 1 << (-shift - 1)
        return np.array([(each + half) >> -shift for each in self.integers], dtype=object)

    def plus(self, other: Scaled) -> Scaled:
        """Return the exact sums."""
        low = min(self.exponent, other.exponent)
        mine = _shifted(self.integers, self.exponent - low)
        return Scaled(mine + _shifted(other.integers, other.exponent - low), low)


def scaled_integers(values: Array) -> Scaled:
    """Return the doubles as integers of one common exponent."""
    fractions, exponents = np.frexp(values)
    whole = np.ldexp(fractions, SIGNIFICANT_BITS).astype(np.int64)
    used = exponents[whole != 0] - SIGNIFICANT_BITS
    low = int(used.min()) if used.size else 0
    shifts = np.maximum(exponents.astype(np.int64) - SIGNIFICANT_BITS - low, 0)
    shifted: Any = whole.astype(object) << shifts.astype(object)
    return Scaled(np.asarray(shifted, dtype=object), low)


def linear_image(weights: Scaled, values: Scaled) -> Scaled:
    """Return the exact ``weights @ values``; entry by entry where the weights are a diagonal."""
    both = weights.integers
    image = both * values.integers if both.ndim == 1 else both @ values.integers
    return Scaled(np.asarray(image, dtype=object), weights.exponent + values.exponent)


def to_doubles(numbers: Scaled) -> Array:
    """Return the nearest doubles; what is larger than all of them becomes the largest."""
    return np.array([_double(int(each), numbers.exponent) for each in numbers.integers])


def _double(integer: int, exponent: int) -> float:
    try:
        # The quotient of two integers is rounded once.
        return float(integer << exponent) if exponent >= 0 else integer / (1 << -exponent)
    except OverflowError:
        return LARGEST_DOUBLE if integer > 0 else -LARGEST_DOUBLE


def _shifted(integers: Integers, bits: int) -> Integers:
    return np.array([each << bits for each in integers], dtype=object)
