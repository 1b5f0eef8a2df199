"""The Gaussian matrix that compact releases share, and that nobody is shown."""

from __future__ import annotations

import hashlib
import math
import secrets

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit._ground.checks import RandomSource, array, generator, integer
from tacit._ground.random import released_normal


class SecretFactor:
    """The columns of A that multiply H: ``A ~ N(0, 1/r)``, kept by whoever computes B.

    Compact factors can be compared only if they share it. It is not printed and cannot be pickled,
    and it lives as long as the process that holds it; code in that process can read it.

    Args:
        rank: r, at least 1.
        columns: m, columns of H.
        rng: None draws from the operating system; a seed voids every certificate.

    Attributes:
        rank: r.
        columns: m.
        identifier: drawn beside the entries, so that it tells nothing of them; under a seed their
            digest.
        reproducible: whether a seed fixed it.

    Raises:
        ValueError: a rank or a number of columns below 1.

    Example:
        >>> secret = SecretFactor(4, 6)
        >>> secret.times(np.eye(3, 6), 4).shape, len(secret.identifier)
        ((3, 4), 32)

    Source: pave, Eq. 5.
    """

    def __init__(self, rank: int, columns: int, *, rng: RandomSource = None) -> None:
        self.rank = integer("rank", rank, minimum=1)
        self.columns = integer("columns", columns, minimum=1)
        self.reproducible = rng is not None
        source = None if rng is None else generator(rng)
        self._entries = released_normal((self.rank, self.columns), source) / math.sqrt(self.rank)
        # a digest would tell a guess of A from the truth, and what is certified holds with A hidden
        self.identifier = (
            hashlib.blake2b(self._entries.tobytes(), digest_size=16).hexdigest()
            if self.reproducible
            else secrets.token_hex(16)
        )

    def times(self, mean: ArrayLike, rank: int) -> NDArray[np.float64]:
        """Return H Aᵀ, (k, r), of coordinates H (k, m).

        Raises:
            ValueError: another rank, another number of columns, or H that is no finite matrix.
        """
        held = array("mean", mean, ndim=2)
        if rank != self.rank:
            raise ValueError(f"secret: expected a matrix of rank {rank}, got rank {self.rank}")
        if held.shape[1] != self.columns:
            raise ValueError(
                f"secret: expected a matrix of {held.shape[1]} columns, got {self.columns}"
            )
        product: NDArray[np.float64] = held @ self._entries.T
        return product

    def __repr__(self) -> str:
        return f"SecretFactor({self.rank}, {self.columns}, identifier={self.identifier!r})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a SecretFactor is not stored: whoever reads it can read every record")
