"""The matrices A that everyone shares: drawn from a public seed, the same numbers everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from tacit._ground.random import normals_from_words

# Entered into every seed, so that another use of the same words draws other numbers.
PURPOSE = "tacit.specifications"


def factor_name(seed: int) -> str:
    """Return the identifier of A, which goes into every space."""
    return f"gaussian:{seed}"


def shared_factor(name: str, layer: str, rank: int, width: int) -> Tensor:
    """Return A of a layer, (r, n) float32 with entries N(0, 1/r).

    Args:
        name: the identifier of A.
        layer: name of the layer.
        rank: r.
        width: n.

    Source: pave, Eq. 4 and 5.
    """
    # N(0, 1/r): AᵀA has the mean I, so ⟨GAᵀ, G'Aᵀ⟩ has that of ⟨G, G'⟩
    drawn = shared_normals(f"{name}:{layer}:{rank}:{width}", rank * width)
    return torch.from_numpy(drawn.reshape(rank, width) / rank**0.5).float()


def shared_normals(words: str, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return N(0, 1) numbers that words decide, the same on every machine and version."""
    # 16 bytes of a hash for each: no generator of a library, whose next version may draw others
    stream = hashlib.shake_256(f"{PURPOSE}:{words}".encode()).digest(16 * count)
    drawn = np.frombuffer(stream, dtype="<u8")
    return normals_from_words(drawn[:count], drawn[count:])
