"""Exact samples of the discrete Gaussian: integers in, integers out, no floating point between."""

from __future__ import annotations

import math
import random
from typing import Protocol

from tacit._ground.checks import RandomSource, generator


class Bits(Protocol):
    """Where random integers come from."""

    def randrange(self, stop: int, /) -> int:
        """Return an integer uniform on 0 … ``stop`` − 1."""

    def getrandbits(self, count: int, /) -> int:
        """Return ``count`` fair bits."""


def random_bits(rng: RandomSource) -> Bits:
    """Return the operating system's generator, or one that the seed or generator given fixes."""
    if rng is None:
        return random.SystemRandom()
    return random.Random(int.from_bytes(generator(rng).bytes(32), "little"))


def discrete_gaussian(variance: int, bits: Bits) -> int:
    """Draw an integer k with probability proportional to ``exp(−k²/2s²)``, s² = ``variance``.

    Args:
        variance: s² >= 1, an integer; the variance of k is at most s².
        bits: source of random integers.

    Source: Canonne, Kamath and Steinke (2020), Algorithm 3.
    """
    scale = math.isqrt(variance) + 1
    while True:
        drawn = _discrete_laplace(scale, bits)
        excess = abs(drawn) * scale - variance
        if _happens(excess * excess, 2 * variance * scale * scale, bits):
            return drawn


def _discrete_laplace(scale: int, bits: Bits) -> int:
    """Draw k with probability proportional to ``exp(−|k|/scale)`` (Algorithm 2)."""
    while True:
        low = bits.randrange(scale)
        if not _happens(low, scale, bits):
            continue
        high = 0
        while _happens(1, 1, bits):
            high += 1
        magnitude = low + scale * high
        negative = bits.getrandbits(1)
        if negative and magnitude == 0:
            continue
        return -magnitude if negative else magnitude


def _happens(numerator: int, denominator: int, bits: Bits) -> bool:
    """Return True with probability ``exp(−numerator/denominator)`` (Algorithm 1)."""
    while numerator > denominator:
        if not _happens(1, 1, bits):
            return False
        numerator -= denominator
    count = 1
    while bits.randrange(denominator * count) < numerator:
        count += 1
    return count % 2 == 1
