"""A Gaussian release drawn once, attacked once, and read in several ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.exact.channels import GaussianChannel
from tacit.covariance import Covariance
from tacit.guarantees import RenyiDP
from tacit.hidden_states.audit.attackers import Attacker, Knowledge
from tacit.hidden_states.audit.guessers import Observed
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.mechanisms import RowPredictions, Trial
from tacit.hidden_states.audit.points import PROTOCOLS, AttackPoint

if TYPE_CHECKING:
    from tacit.hidden_states.noise.denoiser import Denoiser


class NoiseTrial(Trial):
    """States of the first prompts of the bank, and of those held out, with noise N(0, Σ).

    Args:
        laboratory: the layer.
        covariance: Σ.
        seed: of the draw, for this is an experiment and releases nothing.

    Attributes:
        noisy: states of the bank, which are attacked, (m, d).
        measured: states of the held-out prompts, which are read, (n, d).
    """

    def __init__(self, laboratory: Laboratory, covariance: Covariance, seed: int) -> None:
        self.laboratory, self.covariance, self.seed = laboratory, covariance, seed
        sizes = laboratory.sizes
        # those attacked, then those on which attackers are tuned
        rows = sizes.queries + sizes.held_out
        self.noisy: Array = self._drawn(laboratory.bank[:rows], sizes.queries)
        self.measured: Array = self._drawn(laboratory.measured, sizes.queries, 1)
        self.rank = covariance.rank
        # K = ½ tr(FΣ): second order of KL in the noise
        self.predicted_kl = 0.5 * covariance.weighted_trace(laboratory.geometry.fisher)
        self.epsilon_random = laboratory.epsilon(laboratory.random, covariance)
        self._attacks: dict[Attacker, AttackPoint] = {}

    def _drawn(self, states: Tensor, *stream: int) -> Array:
        # a stream for each use, so that the held-out draw is independent of the bank's
        clean: Array = states.double().cpu().numpy()
        return clean + self.covariance.sample(
            len(clean), np.random.default_rng([self.seed, *stream])
        )

    @cached_property
    def _guarantee(self) -> RenyiDP:
        return self.laboratory.renyi(self.covariance)

    def certify(self) -> tuple[RenyiDP]:
        """Return the Rényi guarantee over nearest neighbours of the bank."""
        return (self._guarantee,)

    def attack(self, attackers: Sequence[Attacker]) -> tuple[AttackPoint, ...]:
        """Return what each attacker reaches, run once for all readings."""
        return tuple(self._attack(attacker) for attacker in attackers)

    def observed(self) -> Observed:
        """Return the noisy states: whoever denoises them does it after the attack."""
        laboratory = self.laboratory
        channel = GaussianChannel(self.covariance)
        public = laboratory.calibration.double().cpu().numpy()
        drawn = channel.draw(public, np.random.default_rng([self.seed, len(public)]))
        return Observed(channel, laboratory.bank.double().cpu().numpy(), self.noisy, drawn)

    def _attack(self, attacker: Attacker) -> AttackPoint:
        if attacker not in self._attacks:
            laboratory = self.laboratory
            knowledge = Knowledge(laboratory, self.covariance, self.noisy[laboratory.tuned])
            self._attacks[attacker] = laboratory.retrieval(
                attacker.name,
                laboratory.bank,
                self.noisy,
                metric=attacker.metric(knowledge),
                seed=self.seed,
            )
        return self._attacks[attacker]

    def read(self, reading: str) -> Tensor | RowPredictions:
        """Return the states as they come or denoised, or what the release alone predicts."""
        noisy = torch.from_numpy(self.measured)
        if PROTOCOLS[reading] == "B":
            return self._read_alone(noisy)
        states = noisy if reading == "raw" else self._denoiser(reading).denoise(noisy)
        return states.to(self.laboratory.bank)

    def _read_alone(self, noisy: Tensor) -> RowPredictions:
        from tacit.hidden_states.noise.posterior import PosteriorBehaviour

        laboratory = self.laboratory
        # Σ_i P(public state i | release) P(token | i)
        alone = PosteriorBehaviour(
            laboratory.calibration, self.covariance, laboratory.calibration_behaviours
        )
        return lambda rows: alone.distributions(noisy[rows]).to(laboratory.bank)

    def _denoiser(self, reading: str) -> Denoiser:
        from tacit.hidden_states.noise.denoiser import Denoiser

        laboratory, covariance = self.laboratory, self.covariance
        if reading == "posterior-mean":
            return Denoiser.posterior_mean(laboratory.calibration, covariance)
        if reading == "wiener":
            return Denoiser.wiener(laboratory.calibration, covariance)
        return Denoiser.trained(laboratory.calibration, covariance, rng=self.seed)
