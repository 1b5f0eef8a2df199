"""Randomness that is released: drawn from the operating system unless the caller gives a source."""

from __future__ import annotations

import os
import secrets

import numpy as np
from scipy.special import ndtri

from tacit._validation import Array, RandomSource, generator, integer


def standard_normal(shape: tuple[int, ...], rng: RandomSource = None) -> Array:
    """Draw independent N(0, 1) values of the given shape.

    Without ``rng`` every value is ``ndtri((k + 1/2) / 2^53)`` of 53 fresh bits of ``os.urandom``:
    no state is kept, so no draw says anything about another.
    """
    if rng is not None:
        return generator(rng).standard_normal(shape)
    count = int(np.prod(shape, dtype=np.int64))
    bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(11)
    values: Array = ndtri((bits.astype(np.float64) + 0.5) * 2.0**-53)
    return values.reshape(shape)


def uniform_index(count: int, rng: RandomSource = None) -> int:
    """Draw an index uniformly from 0 … ``count`` − 1."""
    integer("count", count, minimum=1)
    if rng is None:
        return secrets.randbelow(count)
    return int(generator(rng).integers(count))
