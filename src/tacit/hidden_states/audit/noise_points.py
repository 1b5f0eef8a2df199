"""A Gaussian release drawn once, attacked once, and read in several ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.covariance import Covariance
from tacit.hidden_states.audit.laboratory import Laboratory, Reader
from tacit.hidden_states.audit.points import GAUSSIAN, PROTOCOLS, AttackPoint, Measured

if TYPE_CHECKING:
    from tacit.hidden_states.noise.denoiser import Denoiser

NOISE_READINGS = ("raw", "posterior-mean", "wiener", "trained", "posterior-behaviour")
DEFAULT_READINGS = ("raw", "posterior-mean", "posterior-behaviour")


class NoiseRelease:
    """States of the first prompts of the bank with noise N(0, Σ), drawn from a seed.

    Args:
        laboratory: the layer.
        covariance: Σ.
        seed: of the draw, for this is an experiment and releases nothing.

    Attributes:
        noisy: the states drawn, (n, d).
    """

    def __init__(self, laboratory: Laboratory, covariance: Covariance, seed: int) -> None:
        self.laboratory, self.covariance, self.seed = laboratory, covariance, seed
        sizes = laboratory.sizes
        self._rows = max(sizes.prompts, sizes.queries + sizes.held_out)
        clean = laboratory.bank[: self._rows].double().cpu().numpy()
        self.noisy: Array = clean + covariance.sample(
            self._rows, np.random.default_rng([seed, sizes.queries])
        )
        self._attacks: dict[str, AttackPoint] = {}

    def point(self, reading: str, attackers: list[str]) -> dict[str, Any]:
        """Return what this release adds to a point."""
        laboratory, covariance = self.laboratory, self.covariance
        reader, generated = self._consumer(reading)
        kl, agreement = laboratory.utility(reader)
        cost = 0.5 * covariance.weighted_trace(laboratory.geometry.fisher)
        return {
            "family": GAUSSIAN,
            "kl_budget": cost,
            "codewords": None,
            "rank": covariance.rank,
            "predicted_kl": cost,
            "kl": kl,
            "agreement": agreement,
            "generated": generated,
            "attacks": tuple(self._attack(name) for name in attackers),
            "bound": None,
            "information": None,
            "epsilon_nearest": laboratory.epsilon(laboratory.nearest, covariance),
            "epsilon_random": laboratory.epsilon(laboratory.random, covariance),
        }

    def _attack(self, name: str) -> AttackPoint:
        if name not in self._attacks:
            laboratory = self.laboratory
            self._attacks[name] = laboratory.attack(
                name,
                self.noisy[laboratory.attacked],
                self.noisy[laboratory.tuned],
                self.covariance,
                self.seed,
            )
        return self._attacks[name]

    def _consumer(self, reading: str) -> tuple[Reader, Measured | None]:
        """Return who reads the noisy states, and what it generates, which takes earlier ones."""
        laboratory = self.laboratory
        noisy = torch.from_numpy(self.noisy[: laboratory.sizes.prompts])
        if PROTOCOLS[reading] == "B":
            return self._reads_alone(noisy), None
        states = noisy if reading == "raw" else self._denoiser(reading).denoise(noisy)
        states = states.to(laboratory.bank)
        return laboratory.reads_states(states), laboratory.generated(states)

    def _reads_alone(self, noisy: Tensor) -> Reader:
        from tacit.hidden_states.noise.reading_alone import PosteriorBehaviour

        laboratory = self.laboratory
        alone = PosteriorBehaviour(
            laboratory.calibration, self.covariance, laboratory.calibration_behaviours
        )
        return lambda _, rows: alone.distributions(noisy[rows]).to(laboratory.bank)

    def _denoiser(self, reading: str) -> Denoiser:
        from tacit.hidden_states.noise.denoiser import Denoiser

        laboratory, covariance = self.laboratory, self.covariance
        if reading == "posterior-mean":
            return Denoiser.posterior_mean(laboratory.calibration, covariance)
        if reading == "wiener":
            return Denoiser.wiener(laboratory.calibration, covariance)
        return Denoiser.trained(laboratory.calibration, covariance, rng=self.seed)
