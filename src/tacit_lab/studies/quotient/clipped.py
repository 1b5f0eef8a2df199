"""The state itself, clipped to a ball: noise with the same certificate as a quotient's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tacit.hidden_states import (
    Ball,
    Mechanism,
    PredictiveQuotient,
    Recipe,
    Setting,
    SweepRequest,
    register_mechanism,
)
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.points import Point
from tacit.hidden_states.quotient.training import QuotientNetwork
from tacit.hidden_states.quotient.trial import QuotientTrial

# share of public states that the clip leaves as they are
KEPT = 0.95


@register_mechanism
@dataclass(frozen=True)
class ClippedState(Mechanism):
    """The centred state, clipped to a ball that holds most public ones, with noise N(0, σ²I).

    Attributes:
        nats: of information that are certified.
    """

    nats: float

    family = word = "clipped-state"

    def readings(self, request: SweepRequest) -> Mapping[str, str]:
        """Return Bayes' readers; nothing is trained."""
        return {"posterior-mean": "A", "posterior-behaviour": "B"}

    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> QuotientTrial:
        public = laboratory.calibration
        width = public.shape[1]
        ball = Ball.at(width, nats=self.nats)
        network = QuotientNetwork(width, width, laboratory.model.vocabulary, 0, 1)
        network.mean = public.mean(dim=0)
        length = torch.quantile((public - network.mean).norm(dim=1), KEPT)
        network.scale = torch.full((width,), float(length) / width**0.5)
        with torch.no_grad():
            first = network.encoder[0]
            assert isinstance(first, torch.nn.Linear)
            first.weight.copy_(torch.eye(width))
            first.bias.zero_()
        fitted = PredictiveQuotient(
            network.eval(), ball, Recipe(depth=0, hidden=1), len(public), 0.0
        )
        return QuotientTrial(laboratory, fitted, seed)

    def words(self, point: Point) -> str:
        return "the state, clipped, with noise"
