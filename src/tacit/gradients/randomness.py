"""The coins and the noise of private steps."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from tacit.gradients.device_noise import device_normal
from tacit.gradients.normals import released_normal_tensor
from tacit.gradients.steps import Normal


class StepRandomness:
    """The coins and the noise of every step: of the operating system, or of a seed.

    With a seed, a step's are a function of its number alone, so that a run that is taken up again
    draws what it would have drawn.

    Args:
        seed: None for the operating system's.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        # what an epoch is drawn by, kept where a run is taken up again
        self.key = secrets.randbits(128) if seed is None else seed

    def sample(self, step: int, count: int, sampling_rate: float) -> Tensor:
        """Return the indices of the records of a step: each is in by a coin of its own.

        Args:
            step: its number.
            count: n.
            sampling_rate: q.
        """
        # all records: no coin, and a closed account
        if sampling_rate == 1.0:
            return torch.arange(count)
        # fresh entropy of the operating system in every step
        coins = np.random.default_rng() if self._seed is None else self._source(step, 0)
        return torch.from_numpy(np.flatnonzero(coins.random(count) < sampling_rate))

    def some(self, step: int, places: Tensor, largest: int) -> Tensor:
        """Return so many of the records of a step at most, each as likely to stay as another."""
        if len(places) <= largest:
            return places
        # coins have 0, what stays 0 of another place: no two streams meet
        draws = np.random.default_rng() if self._seed is None else self._of_run(step, 2)
        kept = draws.permutation(len(places))[:largest]
        return places[torch.from_numpy(np.sort(kept))]

    def epoch(self, number: int) -> np.random.Generator:
        """Return what draws a whole epoch: the same for one number, whenever it is asked for."""
        return self._of_run(number, 1)

    def classes(self, count: int, classes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the class of every record, each by a coin of its own: the same whenever asked."""
        return self._of_run(0, 4).integers(classes, size=count)

    def normal(self, step: int, layer: int, device: torch.device | None = None) -> Normal:
        """Return what draws the released N(0, 1) values of one layer in one step.

        Args:
            step: its number.
            layer: its number.
            device: where the sums are; beside the operating system's key, nothing comes from the
                host. With a seed all of them do, which are the same wherever the sums are.
        """
        # coins have 0, noise 1, 3, 5 …, A_t 2, 4, 6 …: no two streams meet
        source = None if self._seed is None else self._source(step, 1 + 2 * layer)
        if source is None and device is not None and device.type != "cpu":
            return lambda shape: device_normal(shape, device)
        return lambda shape: released_normal_tensor(math.prod(shape), source).reshape(shape)

    def normal_of_several(
        self, step: int, counts: Mapping[int, int], device: torch.device | None = None
    ) -> Normal:
        """Return what draws the values of several layers in one step, side by side.

        Args:
            step: its number.
            counts: how many each layer has.
            device: as of ``normal``.
        """
        if self._seed is None:
            # fresh words, whosever they are
            return self.normal(step, 0, device)
        return lambda _: torch.cat(
            [self.normal(step, layer)((count,)) for layer, count in counts.items()]
        )

    def projection_seed(self, step: int, layer: int) -> np.random.Generator | None:
        """Return the source of A_t, which is public."""
        return None if self._seed is None else self._source(step, 2 + 2 * layer)

    def _of_run(self, number: int, use: int) -> np.random.Generator:
        # a fourth word that is not 0: such lists meet none of three words
        return np.random.default_rng([self.key, number, 0, use])

    def _source(self, step: int, use: int) -> np.random.Generator:
        assert self._seed is not None
        return np.random.default_rng([self._seed, step, use])
