"""Poisson samples: every record is in a step's batch by a coin of its own."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tacit._ground.random import released_normal


class StepRandomness:
    """The coins and the noise of every step: of the operating system, or of a seed.

    With a seed, a step's are a function of its number alone, so that a run that is taken up again
    draws what it would have drawn.

    Args:
        seed: None for the operating system's.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed

    def sample(self, step: int, count: int, sampling_rate: float) -> Tensor:
        """Return the indices of the records that are in a step's batch.

        Args:
            step: its number.
            count: n.
            sampling_rate: q.
        """
        if sampling_rate == 1.0:
            return torch.arange(count)
        inside = self._source(step, 0).random(count) < sampling_rate
        return torch.from_numpy(np.flatnonzero(inside))

    def normal(self, step: int, layer: int) -> _Normal:
        """Return what draws the N(0, 1) values of one layer in one step."""
        return _Normal(None if self._seed is None else self._source(step, 1 + 2 * layer))

    def projection_seed(self, step: int, layer: int) -> np.random.Generator | None:
        """Return the source of A_t, which is public."""
        return None if self._seed is None else self._source(step, 2 + 2 * layer)

    def _source(self, step: int, use: int) -> np.random.Generator:
        if self._seed is None:
            return np.random.default_rng()
        return np.random.default_rng([self._seed, step, use])


class _Normal:
    """Draws released N(0, 1) values as tensors."""

    def __init__(self, source: np.random.Generator | None) -> None:
        self._source = source

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(released_normal(shape, self._source))
