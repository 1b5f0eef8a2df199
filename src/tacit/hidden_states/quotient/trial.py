"""A quotient fitted to one layer: its release of the bank drawn once, read and attacked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.exact.channels import GaussianChannel
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.attackers import Attacker
from tacit.hidden_states.audit.guessers import Observed
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.mechanisms import RowPredictions, Trial
from tacit.hidden_states.audit.points import AttackPoint
from tacit.hidden_states.quotient.quotient import PredictiveQuotient

if TYPE_CHECKING:
    from tacit.hidden_states.noise.posterior import PosteriorBehaviour
    from tacit.models.behaviours import Behaviours


class QuotientChannel(GaussianChannel):
    """The clipped quotient of a candidate's state and N(0, σ²I), for whoever knows the encoder.

    Args:
        quotient: the encoder and its ball.
    """

    def __init__(self, quotient: PredictiveQuotient) -> None:
        super().__init__(quotient.ball.covariance)
        self.quotient, self.predicts = quotient, quotient.reads == "behaviours"

    def held(self, states: Tensor, behaviours: Behaviours | None) -> Array:
        """Return the quotients of candidates, (m, k)."""
        return self.quotient.encode(states, behaviours=behaviours)


class QuotientTrial(Trial):
    """Quotients of the bank and of the held-out prompts, with noise from a seed.

    Where several positions are released, the attacker sees the quotients of all of them.

    Args:
        laboratory: the layer.
        quotient: fitted on calibration prompts.
        seed: of the draw, for this is an experiment and releases nothing.
    """

    def __init__(self, laboratory: Laboratory, quotient: PredictiveQuotient, seed: int) -> None:
        self.laboratory, self.quotient, self.seed = laboratory, quotient, seed
        self.rank = quotient.ball.dimension
        self.clean = quotient.encode(laboratory.bank, behaviours=laboratory.bank_behaviours)
        earlier = [
            quotient.encode(read.states[laboratory.layer], behaviours=read.behaviours)
            for read in laboratory.earlier
        ]
        # T positions side by side: their squared distances add up
        self.together: Array = np.concatenate([self.clean, *earlier], axis=1)
        # the whole bank is drawn, for some guessers attack more prompts than others
        self.noisy = self._drawn(self.together, 1)
        held_out = quotient.encode(laboratory.measured, behaviours=laboratory.measured_behaviours)
        self.measured = self._drawn(held_out, 2)

    def _drawn(self, clean: Array, stream: int) -> Array:
        # streams of one seed: bank, held-out and public prompts have noise of their own
        source = np.random.default_rng([self.seed, stream])
        noisy: Array = clean + self.quotient.ball.noise_std * source.standard_normal(clean.shape)
        return noisy

    def certify(self) -> tuple[Guarantee, ...]:
        """Return the theorems of the ball, for all positions that are released."""
        laboratory = self.laboratory
        return self.quotient.certify(candidates=len(laboratory.bank), releases=laboratory.releases)

    def attack(self, attackers: Sequence[Attacker]) -> tuple[AttackPoint, ...]:
        """Return what Bayes' attacker reaches, who knows encoder and bank, whoever was named."""
        return (self._bayes,)

    @cached_property
    def _bayes(self) -> AttackPoint:
        # equally likely prompts and noise σ²I: the nearest quotient is the likeliest
        return self.laboratory.retrieval("bayes", self.together, self.noisy, seed=self.seed)

    def observed(self) -> Observed:
        """Return the noisy quotients of the last position."""
        public = self._drawn(self._public, 3)
        channel = QuotientChannel(self.quotient)
        return Observed(channel, self.clean, self.noisy[:, : self.rank], public)

    @cached_property
    def _public(self) -> Array:
        """Clean quotients of the calibration prompts, (M, k)."""
        laboratory = self.laboratory
        return self.quotient.encode(
            laboratory.calibration, behaviours=laboratory.calibration_behaviours
        )

    @cached_property
    def _posterior(self) -> PosteriorBehaviour:
        laboratory = self.laboratory
        return self.quotient.posterior(laboratory.calibration, laboratory.calibration_behaviours)

    def read(self, reading: str) -> Tensor | RowPredictions:
        """Return the mean public state given the release, or what is predicted from it alone."""
        if reading == "posterior-mean":
            return self._mean_states()
        bank, measured = self.laboratory.bank, self.measured
        read = (
            self.quotient.distributions if reading == "decoder" else self._posterior.distributions
        )
        return lambda rows: read(measured[rows]).to(bank)

    def _mean_states(self) -> Tensor:
        """Return ``E[h | z]`` over the public states, each as likely as its quotient makes it."""
        laboratory, ball = self.laboratory, self.quotient.ball
        public = torch.from_numpy(self._public)
        states = laboratory.calibration.double().cpu()
        asked = torch.from_numpy(self.measured)
        # w_m ∝ exp(−‖z − q_m‖²/2σ²), in float64 as the quotients are
        parts = [
            (-(torch.cdist(part, public) ** 2) / (2.0 * ball.noise_std**2)).softmax(dim=1) @ states
            for part in torch.split(asked, 512)
        ]
        return torch.cat(parts).to(laboratory.bank)
