"""What the rules of all functions share: inputs as they were, and what is kept of a use."""

from __future__ import annotations

import math

from torch import Tensor

from tacit.training.gradients.contributions import Contribution, Dense
from tacit.training.gradients.recorder import Recorder


class Kept:
    """An input that the backward pass needs as it was."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._version = tensor.detach(), tensor._version

    def get(self, what: str) -> Tensor:
        """Return the input, refusing one that was overwritten since."""
        if self._tensor._version != self._version:
            raise ValueError(f"model: {what} has an input that is modified in place after its use")
        return self._tensor


def named(recorder: Recorder, *keys: str | int | None) -> str:
    """Return the trainable parameters among some keys, for messages."""
    return ", ".join(sorted(recorder.roots([key for key in keys if key is not None])))


def add_factors(recorder: Recorder, key: str | int, use: Contribution, *factors: Tensor) -> None:
    """Keep J where it is no larger than its factors, per example; else those."""
    if math.prod(use.shape) <= sum(factor[0].numel() for factor in factors):
        use = Dense(use.rows(0, use.shape[0]), use.shape)
    recorder.add(key, use)
