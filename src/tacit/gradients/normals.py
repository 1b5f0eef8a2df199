"""N(0, 1) values of a step as tensors: those of the released normals, by PyTorch's own kernels."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tacit._ground.bits import random_words
from tacit._ground.random import normals_from_words

# Values that are computed together: what stands between stays in a core's cache.
TOGETHER = 2**16
# Beyond it 1 − |u| has lost seven digits of 53: one value in 128 is made of all of its 128 bits.
CENTRAL = 1.0 - 2.0**-7


def released_normal_tensor(count: int, source: np.random.Generator | None) -> Tensor:
    """Return independent N(0, 1) values of two words each, as ``released_normal`` does, (count,).

    Every value is within 2⁻⁴⁷ of what ``normals_from_words`` makes of the same words, and the same
    beyond 2.7.

    Args:
        count: how many.
        source: None for the operating system; a generator voids the guarantee.
    """
    values = torch.empty(count, dtype=torch.float64)
    written = values.numpy()
    size = min(TOGETHER, count)
    # what every part is computed in
    bits, shares, outside = np.empty(size, np.uint64), np.empty(size), np.empty(size, np.bool_)
    for start in range(0, count, TOGETHER):
        made = values[start : start + TOGETHER]
        many = len(made)
        if source is None:
            words, low = random_words(many), None
        else:
            words, low = np.split(np.frombuffer(source.bytes(16 * many), dtype="<u8"), 2)
        kept, share, far = bits[:many], shares[:many], outside[:many]
        # the sign of a word is that of its value; 63 bits of a tail t make u = ±(1 − 2t), as the
        # two's complement of the word where it is negative and of its complement elsewhere
        np.right_shift(words, np.uint64(63), out=kept)
        np.subtract(kept, np.uint64(1), out=kept)
        np.right_shift(kept, np.uint64(1), out=kept)
        np.bitwise_xor(kept, words, out=kept)
        # to 2⁻⁵⁴, as a double of this size has it
        np.multiply(kept.view(np.int64), 2.0**-63, out=share)
        # Φ⁻¹((1 + u)/2) = √2 erf⁻¹(u)
        torch.erfinv(torch.from_numpy(share), out=made)
        made.mul_(math.sqrt(2.0))
        # small tails keep all their digits; of the second word those are drawn that can matter
        np.greater(np.abs(share, out=share), CENTRAL, out=far)
        places = np.flatnonzero(far)
        second = random_words(places.size) if low is None else low[places]
        written[start + places] = normals_from_words(words[places], second)
    return values
