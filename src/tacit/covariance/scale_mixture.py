"""Noise whose size is itself drawn: a mixture of multiples of one Gaussian."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from tacit._ground.checks import Array, RandomSource, generator, integer, positive, vector
from tacit._ground.frozen import array_value, frozen
from tacit._ground.random import standard_normal
from tacit.codec import leaf
from tacit.covariance.base import Covariance
from tacit.covariance.publication import Normals, publish

# How far probabilities may be from a sum of 1 before they are divided by it.
SUM_TOLERANCE = 1e-9


@array_value()
class ScaleMixture:
    """N(0, s_k Σ) with probability π_k: noise that is small in some draws and large in others.

    Args:
        base: Σ.
        scales: (K,) s_k > 0.
        probabilities: (K,) π_k >= 0, with sum 1.

    Raises:
        ValueError: shapes that do not fit, a scale that is not positive, or no probabilities.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> ScaleMixture(Isotropic(1.0, 2), [1.0, 3.0], [0.5, 0.5]).trace()
        4.0

    Source: residual-pac, Alg. 6 (elliptical noise).
    """

    base: Covariance
    scales: Array
    probabilities: Array

    def __post_init__(self) -> None:
        if not isinstance(self.base, Covariance):
            raise ValueError(f"base: expected a Covariance, got {type(self.base).__name__}")
        scales = vector("scales", self.scales)
        probabilities = vector("probabilities", self.probabilities, size=scales.size)
        if scales.min(initial=1.0) <= 0.0 or scales.size == 0:
            raise ValueError(f"scales: expected numbers > 0, got {scales.tolist()}")
        total = float(probabilities.sum())
        if probabilities.min() < 0.0 or abs(total - 1.0) > SUM_TOLERANCE:
            raise ValueError(
                f"probabilities: expected numbers >= 0 with sum 1, got {probabilities.tolist()}"
            )
        object.__setattr__(self, "scales", frozen(scales))
        # a sum that is off by 1e-9 must not be drawn from
        object.__setattr__(self, "probabilities", frozen(probabilities / total))

    @property
    def dim(self) -> int:
        """Dimension d of the noise."""
        return self.base.dim

    @property
    def covariance(self) -> Covariance:
        """Return Σ_k π_k s_k Σ, the covariance over all draws."""
        # E s = Σ_k π_k s_k, as size and direction are drawn independently
        return self.base.scaled(float(self.probabilities @ self.scales))

    def trace(self) -> float:
        """Return the expected squared norm, to rounding."""
        # E‖noise‖² = Σ_k π_k s_k tr Σ
        return float(self.probabilities @ self.scales) * self.base.trace()

    def components(self, uniforms: Array) -> Array:
        """Return the scale that each number in (0, 1) selects, exactly."""
        # the k with Σ_{j<k} π_j <= u < Σ_{j<=k} π_j; the last where rounding leaves u above all
        edges = np.cumsum(self.probabilities)
        chosen: Array = self.scales[
            np.minimum(np.searchsorted(edges, uniforms, side="right"), self.scales.size - 1)
        ]
        return chosen

    def sample(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n noise vectors, (n, d), to rounding, for simulation; ``release`` publishes."""
        count = integer("n", n, minimum=1)
        source = None if rng is None else generator(rng)
        return self._draw(count, partial(standard_normal, rng=source))

    def release(self, value: ArrayLike, *, rng: RandomSource = None) -> Array:
        """Return the exact ``value + noise`` to publish, as ``Covariance.release`` does."""
        return publish(self, value, rng)

    def _draw(self, n: int, normals: Normals) -> Array:
        # Φ of a normal is uniform: the size is drawn from the same source as the noise
        sizes = np.sqrt(self.components(ndtr(normals((n,)))))
        draws: Array = sizes[:, None] * self.base._draw(n, normals)
        return draws

    def _sizes(self) -> tuple[Array, Array]:
        deviations, terms = self.base._sizes()
        # the deviation is that of the mixture, the terms those of its largest component
        mean = float(self.probabilities @ self.scales)
        largest = float(self.scales[self.probabilities > 0.0].max())
        return np.sqrt(mean) * deviations, np.sqrt(largest) * terms

    def scaled(self, c: float) -> ScaleMixture:
        """Return the mixture with every scale c times as large."""
        return ScaleMixture(self.base, positive("c", c) * self.scales, self.probabilities)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description that ``from_dict`` reads back exactly."""
        return {
            "base": self.base.to_dict(),
            "scales": self.scales.tolist(),
            "probabilities": self.probabilities.tolist(),
        }

    @staticmethod
    def from_dict(description: Any) -> ScaleMixture:
        """Return the mixture that ``to_dict`` described.

        Raises:
            ValueError: a field is missing or malformed.
        """
        if not isinstance(description, Mapping) or set(description) != {
            "base",
            "scales",
            "probabilities",
        }:
            raise ValueError("description: expected base, scales and probabilities")
        base = Covariance.from_dict(description["base"])
        return ScaleMixture(base, description["scales"], description["probabilities"])


leaf(ScaleMixture, ScaleMixture.from_dict)
