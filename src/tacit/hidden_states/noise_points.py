"""A Gaussian release drawn once, attacked once, and read in several ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tacit._validation import Array
from tacit.covariance import Covariance
from tacit.hidden_states.laboratory import Laboratory
from tacit.hidden_states.points import GAUSSIAN, AttackPoint

if TYPE_CHECKING:
    from tacit.hidden_states.denoiser import Denoiser

NOISE_READINGS = ("raw", "posterior-mean", "wiener", "trained")


class NoiseRelease:
    """States of the first prompts of the bank with noise N(0, Σ), drawn from a seed.

    Args:
        laboratory: the layer.
        covariance: Σ.
        seed: of the draw, for this is an experiment and releases nothing.
    """

    def __init__(self, laboratory: Laboratory, covariance: Covariance, seed: int) -> None:
        self.laboratory, self.covariance, self.seed = laboratory, covariance, seed
        sizes = laboratory.sizes
        self._rows = max(sizes.prompts, sizes.queries + sizes.held_out)
        clean = laboratory.bank[: self._rows].double().cpu().numpy()
        self._noisy: Array = clean + covariance.sample(
            self._rows, np.random.default_rng([seed, sizes.queries])
        )
        self._attacks: dict[str, AttackPoint] = {}

    def point(self, reading: str, attackers: list[str]) -> dict[str, Any]:
        """Return what this release adds to a point."""
        laboratory, covariance = self.laboratory, self.covariance
        states = self._read(reading)
        kl, agreement = laboratory.utility(laboratory.reads_states(states))
        cost = 0.5 * covariance.weighted_trace(laboratory.geometry.fisher)
        return {
            "family": GAUSSIAN,
            "kl_budget": cost,
            "codewords": None,
            "rank": covariance.rank,
            "predicted_kl": cost,
            "kl": kl,
            "agreement": agreement,
            "generated": laboratory.generated(states),
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
                self._noisy[laboratory.attacked],
                self._noisy[laboratory.tuned],
                self.covariance,
                self.seed,
            )
        return self._attacks[name]

    def _read(self, reading: str) -> Tensor:
        noisy = torch.from_numpy(self._noisy[: self.laboratory.sizes.prompts])
        states = noisy if reading == "raw" else self._denoiser(reading).denoise(noisy)
        return torch.as_tensor(states).to(self.laboratory.bank)

    def _denoiser(self, reading: str) -> Denoiser:
        from tacit.hidden_states.denoiser import Denoiser

        laboratory, covariance = self.laboratory, self.covariance
        if reading == "posterior-mean":
            return Denoiser.posterior_mean(laboratory.calibration, covariance)
        if reading == "wiener":
            return Denoiser.wiener(laboratory.calibration, covariance)
        return Denoiser.trained(laboratory.calibration, covariance, rng=self.seed)
