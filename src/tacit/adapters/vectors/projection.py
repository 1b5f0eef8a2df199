"""One unit vector through a secret Wishart projection, and what that certifies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, in_interval, integer, vector
from tacit._ground.random import released_normal
from tacit.accounting import PrivacyProfile, profile_from_curves, vector_projection
from tacit.adapters.vectors.alignment import checked_alignment, raised_alignment
from tacit.covariance.publication import publish_sum


@dataclass(frozen=True, kw_only=True)
class VectorProjection:
    """``y = Z Zᵀ v/‖v‖``, Z of shape (d, r) with N(0, 1/r) entries, drawn afresh and kept secret.

    Args:
        rank: r >= 1.
        alignment: ρ, a bound from below on the cosine of neighbours' vectors.
        noise: γ >= 0: first ``v ↦ (v + γu)/‖v + γu‖``, u uniform on the sphere, which raises ρ.
        confidence: with ``noise``, that u does not lie badly; what is missing to 1 is added to δ.

    Raises:
        ValueError: an argument is outside its range, or an alignment that was measured.

    Example:
        >>> mechanism = VectorProjection(rank=16, alignment=0.999)
        >>> round(mechanism.profile(400).epsilon(0.01), 3)
        0.454
        >>> mechanism.draw(np.ones(400), rng=0).shape
        (400,)

    Source: lora-privacy, Definition 1, Lemmas 8 to 10.
    """

    rank: int
    alignment: float
    noise: float = 0.0
    confidence: float | None = None

    def __post_init__(self) -> None:
        integer("rank", self.rank, minimum=1)
        checked_alignment(self.alignment)
        in_interval("noise", self.noise, 0.0, float("inf"), open_high=True)
        if (self.confidence is None) == bool(self.noise):
            raise ValueError("confidence: expected one with noise and none without")
        if self.confidence is not None:
            in_interval("confidence", self.confidence, 0.0, 1.0, open_low=True, open_high=True)

    def profile(self, dim: int) -> PrivacyProfile:
        """Return the profile of one release of a vector of d entries.

        Raises:
            ValueError: d < 2, or a rank above d.
        """
        width = integer("dim", dim, minimum=2)
        if self.rank > width:
            raise ValueError(f"rank: expected at most the {width} dimensions, got {self.rank}")
        if self.confidence is None:
            return vector_projection(dim=width, rank=self.rank, alignment=self.alignment)
        raised = raised_alignment(
            self.alignment, noise=self.noise, dim=width, confidence=self.confidence
        )
        plain = vector_projection(dim=width, rank=self.rank, alignment=raised)
        lost = 1.0 - self.confidence if raised > self.alignment else 0.0
        return profile_from_curves(
            lambda epsilons: np.minimum(plain.forward(epsilons) + lost, 1.0),
            name=f"{plain.name}, after noise {self.noise:g}",
            infinite_mass=min(plain.infinite_mass + lost, 1.0),
            source=f"{plain.source}; lora-privacy, Lemma 10",
            assumptions=(
                f"neighbours' vectors have a cosine of at least {self.alignment:g} before noise",
                *plain.assumptions[1:],
            ),
        )

    def draw(self, vector_given: ArrayLike, rng: RandomSource = None) -> Array:
        """Return y for one vector.

        Args:
            vector_given: (d,), not zero.
            rng: seed or generator, which voids the guarantee; the operating system's when None.

        Raises:
            ValueError: a vector that is zero or not finite.
        """
        unit = unit_vector("vector", vector_given)
        source = None if rng is None else generator(rng)
        if self.noise:
            direction = released_normal(unit.shape, source)
            unit = unit_vector("vector", unit + self.noise * direction / np.linalg.norm(direction))
        factor = released_normal((unit.size, self.rank), source) / np.sqrt(self.rank)
        projected: Array = factor @ (factor.T @ unit)
        # y of a unit vector is of order 1/√d whatever the vector: the grid is public
        return publish_sum(np.zeros(unit.size), projected, unit.size**-0.5)


def unit_vector(name: str, values: Any) -> Array:
    """Return a vector divided by its norm."""
    found = vector(name, values)
    length = float(np.linalg.norm(found))
    if not length > 0.0:
        raise ValueError(f"{name}: expected one that is not zero, got zero")
    scaled: Array = found / length
    return scaled
