"""What is known of a batch's per-example gradients, and what a training step asks of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tacit._ground.checks import Array, vector


class PerExample(ABC):
    """The gradients g_i of a batch's losses, as far as they are known, and their weighted sums.

    Attributes:
        losses: (B,) losses, one per example.
        gram: (B, B) inner products ⟨g_i, g_j⟩; approximate for ``"forward"``, None for ``"none"``.
        unused: names of trainable parameters that no loss depends on.
    """

    losses: Array
    gram: Array | None
    unused: tuple[str, ...]
    _parameters: Mapping[str, nn.Parameter]

    @property
    def squared_norms(self) -> Array | None:
        """(B,) squared norms ‖g_i‖² as the Gram matrix has them, None without one."""
        return None if self.gram is None else np.diagonal(self.gram).copy()

    @property
    def mean_losses(self) -> float:
        """Mean of the losses."""
        return float(self.losses.mean())

    def check(self) -> None:
        """Refuse a batch that no step can be made of, before anything is spent on it.

        Raises:
            ValueError: a trainable parameter that no loss depends on, a gradient that is not
                finite, or only zero gradients.
        """
        if self.unused:
            raise ValueError(
                f"model: expected every trainable parameter to be used, got {self.unused[0]} "
                f"without a gradient ({len(self.unused)} of {len(self._parameters)}; freeze what "
                "is not trained, and let nothing run under torch.no_grad or reentrant checkpoints)"
            )
        if self.gram is None:
            return
        if not np.isfinite(self.gram).all():
            raise ValueError(f"model: expected finite gradients, got {self._first_bad()}")
        if not np.diagonal(self.gram).any():
            raise ValueError("loss: expected a gradient that is not zero, got zeros only")

    def weighted(self, coefficients: ArrayLike) -> None:
        """Write ``Σ_i c_i g_i`` into the gradient of every trainable parameter, and only there.

        Args:
            coefficients: (B,) c, rounded to the parameters' precision.

        Raises:
            ValueError: a coefficient is not finite or their number is not B, or a gradient is not
                finite, in which case no parameter's gradient was touched.
        """
        given = vector("coefficients", coefficients, size=self.losses.size)
        sums = self.sums(torch.as_tensor(given))
        for name, value in sums.items():
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"model: expected finite gradients, got a bad one of {name}")
        for name, parameter in self._parameters.items():
            parameter.grad = sums[name].to(parameter.dtype)

    @abstractmethod
    def sums(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ_i c_i g_i by parameter."""

    def _first_bad(self) -> str:
        """Name what is not finite."""
        return "one that is not"
