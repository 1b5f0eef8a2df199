"""Randomness that is released: drawn from the operating system unless the caller gives a source."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit._ground.bits import random_words
from tacit._ground.checks import Array, RandomSource, generator, integer

WORDS_TOGETHER = 2**17
LOWER_BITS, SIGN_BIT = np.uint64(2**63 - 1), np.uint64(2**63)
# From here on a tail's second word is at most a quarter of the last place of its first, as a double
# has it: it changes nothing.
ENOUGH = np.uint64(2**54)

Words: TypeAlias = npt.NDArray[np.uint64]


def standard_normal(shape: tuple[int, ...], rng: RandomSource = None) -> Array:
    """Draw independent N(0, 1) values of the given shape for a simulation.

    Without ``rng`` they are ``released_normal``; with it, NumPy's own, which are faster and whose
    low bits are nobody's secret.
    """
    return released_normal(shape) if rng is None else generator(rng).standard_normal(shape)


def released_normal(shape: tuple[int, ...], rng: RandomSource = None) -> Array:
    """Draw independent N(0, 1) values of the given shape for a release.

    Every value is made of two fresh 64-bit words of `random_bytes`, or of the generator where one
    is given: no state is kept, so no draw says anything about another. Of the second word only
    those are drawn that can matter, of one value in 512.
    """
    values = np.empty(int(np.prod(shape, dtype=np.int64)))
    source = None if rng is None else generator(rng)
    for start in range(0, values.size, WORDS_TOGETHER):
        part = values[start : start + WORDS_TOGETHER]
        if source is None:
            part[:] = _normals(random_words(part.size), lambda places: random_words(places.size))
            continue
        words = np.frombuffer(source.bytes(16 * part.size), dtype="<u8")
        part[:] = normals_from_words(words[: part.size], words[part.size :])
    return values.reshape(shape)


def normals_from_words(high: Words, low: Words) -> Array:
    """Return the N(0, 1) value of each pair of words: a sign, and 127 bits of one tail.

    The magnitude is ``−Φ⁻¹((k + ½) 2⁻¹²⁸)``, at most 13.1: small tails keep all their digits on
    both sides, none is infinite, and k and its complement in the sign bit give ±z exactly.
    """
    return _normals(high, lambda places: low[places])


def _normals(high: Words, low: Callable[[npt.NDArray[np.intp]], Words]) -> Array:
    # the upper 63 of the 127 bits of k
    upper = high & LOWER_BITS
    short = np.flatnonzero(upper < ENOUGH)
    # (k + ½) 2⁻¹²⁸, rounded to the nearest double
    tail = upper.astype(np.float64)
    tail *= 2.0**-64
    tail[short] += (low(short).astype(np.float64) + 0.5) * 2.0**-128
    # Φ⁻¹ of a tail of at most ½ is −|z|
    values: Array = ndtri(tail, out=tail)
    # the sign bit of the word is that of the value: a change of sign is exact
    upper = np.bitwise_and(high, SIGN_BIT, out=upper)
    upper ^= SIGN_BIT
    values.view(np.uint64)[...] ^= upper
    return values


def uniform_index(count: int, rng: RandomSource = None) -> int:
    """Draw an index uniformly from 0 … ``count`` − 1."""
    integer("count", count, minimum=1)
    if rng is None:
        return secrets.randbelow(count)
    return int(generator(rng).integers(count))


def fair_choices(count: int, sides: int, rng: RandomSource = None) -> npt.NDArray[np.intp]:
    """Draw ``count`` independent indices, each uniform on 0 … ``sides`` − 1 without any bias.

    Words of 64 bits above the largest multiple of ``sides`` are drawn again.
    """
    integer("count", count, minimum=1)
    integer("sides", sides, minimum=1, maximum=2**32)
    if rng is not None:
        return generator(rng).integers(sides, size=count).astype(np.intp)
    words = random_words(count).copy()
    excess = 2**64 % sides
    refused = np.flatnonzero(words >= np.uint64(2**64 - excess)) if excess else words[:0]
    while refused.size:
        words[refused] = random_words(refused.size)
        refused = refused[words[refused] >= np.uint64(2**64 - excess)]
    chosen: npt.NDArray[np.intp] = (words % np.uint64(sides)).astype(np.intp)
    return chosen
