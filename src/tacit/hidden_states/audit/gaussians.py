"""Gaussian noise as a mechanism: a shape at every KL budget, or scaled to every ε."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from tacit.hidden_states.audit.mechanisms import Mechanism
from tacit.hidden_states.audit.points import PROTOCOLS, Point, Setting
from tacit.hidden_states.audit.request import SweepRequest
from tacit.hidden_states.noise.shapes import SHAPES, NoiseShape, scaled_design

if TYPE_CHECKING:
    from tacit.design import Design
    from tacit.hidden_states.audit.laboratory import Laboratory
    from tacit.hidden_states.audit.noise_points import NoiseTrial


@dataclass(frozen=True)
class StateNoise(Mechanism):
    """The state and noise N(0, Σ), Σ of a shape.

    Example:
        >>> from tacit.hidden_states.noise.shapes import Power
        >>> StateNoise(Power(0.5)).name
        'power(0.5)'
    """

    design: NoiseShape

    family = "gaussian"
    takes_attackers = True

    @property
    def name(self) -> str:
        """The name of the shape."""
        return self.design.name

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the noise of the shape that a word names."""
        for shape in SHAPES:
            if (found := shape.read(text)) is not None:
                return cls(found)
        return None

    @classmethod
    def spelling(cls) -> tuple[str, ...]:
        """Return the words of all shapes."""
        return tuple(word for shape in SHAPES for word in shape.spelling())

    def settings(
        self, request: SweepRequest, *, calibration: int, vocabulary: int
    ) -> tuple[Setting, ...]:
        """Return every K, then every ε."""
        return (
            *(Setting(kl_budget=budget) for budget in request.kl_budgets),
            *(Setting(target_epsilon=epsilon) for epsilon in request.epsilons),
        )

    def readings(self, request: SweepRequest) -> Mapping[str, str]:
        """Return the readings asked for."""
        return {reading: PROTOCOLS[reading] for reading in request.readings}

    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> NoiseTrial:
        from tacit.hidden_states.audit.noise_points import NoiseTrial

        return NoiseTrial(laboratory, self.at(laboratory, setting).covariance, seed)

    def at(self, laboratory: Laboratory, setting: Setting) -> Design:
        """Return the design that costs K, or scaled to ε over the bank's nearest neighbours.

        Raises:
            ValueError: a design that leaves a difference bare, which no scale brings to a finite ε.
        """
        epsilon = setting.target_epsilon
        if epsilon is None:
            return laboratory.designs.at(self.design, setting.kl_budget or 0.0)
        # at K = 1, a unit: the scale follows
        design = laboratory.designs.at(self.design, 1.0)
        reached = laboratory.epsilon(laboratory.nearest, design.covariance)
        if not np.isfinite(reached):
            raise ValueError(
                f"epsilons: {self.name} leaves directions without noise, so no scale reaches "
                f"ε = {epsilon:g}"
            )
        # ε(Σ) = max over pairs of Δᵀ Σ⁻¹ Δ, linear in Σ⁻¹: Σ times ε(Σ)/ε has the ε asked for
        return scaled_design(design, reached / epsilon)

    def words(self, point: Point) -> str:
        """Say what is added."""
        return self.design.words

    def stored(self, point: Point) -> str:
        """Say what is stored: the state itself, with noise."""
        return f"the state with {self.words(point)}"
