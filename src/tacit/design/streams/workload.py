"""What an optimizer makes of the gradients of its steps: weighted sums of all so far."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from scipy import linalg

from tacit._ground.checks import Array, integer
from tacit._ground.values import Within, value


@value
class PrefixSums:
    """Every iterate of SGD as a weighted sum of gradients: ``x_t = x_0 − Σ_s A_ts ĝ_s``.

    ``x_t = x_{t−1} − η_t m_t`` with ``m_t = β m_{t−1} + ĝ_t``: A = S diag(η) M, S the prefix sums
    and M the powers of β. What noise does to training is what A makes of it.

    Args:
        momentum: β of the optimizer, 0 without.
        decay: how the learning rate falls to 0 over all steps: none, linear or cosine.

    Example:
        >>> PrefixSums(momentum=0.5).matrix(3).tolist()
        [[1.0, 0.0, 0.0], [1.5, 1.0, 0.0], [1.75, 1.5, 1.0]]

    Source: Denisov et al. (2022), Section 4.
    """

    momentum: Annotated[float, Within(0, 1, "[)")] = 0.0
    decay: Literal["none", "linear", "cosine"] = "none"

    def rates(self, steps: int) -> Array:
        """Return η_t over its first value, (T,), to rounding."""
        done = np.arange(integer("steps", steps, minimum=1)) / steps
        if self.decay == "linear":
            return 1.0 - done
        return 0.5 + 0.5 * np.cos(math.pi * done) if self.decay == "cosine" else np.ones(steps)

    def impulse(self, steps: int) -> Array:
        """Return what one gradient is in m_t of its own and all later steps, (T,), to rounding."""
        powers: Array = np.power(self.momentum, np.arange(integer("steps", steps, minimum=1)))
        return powers

    def matrix(self, steps: int) -> Array:
        """Return A, (T, T), to rounding: for some thousand steps at most."""
        impulse = self.impulse(steps)
        moved = np.tril(linalg.toeplitz(impulse)) * self.rates(steps)[:, None]
        sums: Array = np.cumsum(moved, axis=0)
        return sums

    def energy(self, response: Array) -> tuple[float, Array]:
        """Return ``‖S diag(η) R‖²_F``, R lower-triangular Toeplitz, and its gradient in R's column.

        Args:
            response: (T,) first column r of R; M itself, or M C⁻¹.

        Returns:
            The energy and (T,) its gradient, to rounding, good for a choice only.
        """
        steps = response.size
        if self.decay == "none":
            # column s of S R is the prefix sums of r, cut off after T − s of them
            sums, left = np.cumsum(response), np.arange(steps, 0, -1)
            pulled = 2.0 * left * sums
            return float(left @ sums**2), np.cumsum(pulled[::-1])[::-1]
        rates, energy, gradient = self.rates(steps), 0.0, np.zeros(steps)
        for start in range(steps):
            # column s: Σ_{u = s … t} η_u r_{u−s}
            own = rates[start:]
            sums = np.cumsum(own * response[: own.size])
            energy += float(sums @ sums)
            gradient[: own.size] += 2.0 * own * np.cumsum(sums[::-1])[::-1]
        return energy, gradient
