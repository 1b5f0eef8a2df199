"""What the predictions that a quotient carries are worth, beside telling nothing at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import Array, RandomSource, generator
from tacit.attacks.intervals import proportion_interval, student_errors
from tacit.hidden_states.quotient.quotient import PredictiveQuotient
from tacit.measured import Interval
from tacit.models.behaviours import Behaviours

CONFIDENCE = 0.95
ROWS_TOGETHER = 512


@dataclass(frozen=True)
class QuotientUse:
    """Predictions by the decoder, of prompts that it was not fitted on, with fresh noise.

    Attributes:
        kl: mean ``KL(p ‖ D(z))``, nats.
        agreement: share of prompts whose likeliest token is the same.
        constant_kl: the same of whoever is told nothing and always says the mean prediction of the
            prompts that were fitted on.
        constant_agreement: of whoever always says the token that is likeliest in it.
        prompts: how many.
    """

    kl: Interval
    agreement: Interval
    constant_kl: Interval
    constant_agreement: Interval
    prompts: int

    def describe(self) -> str:
        """Say all four in one sentence."""
        half = (self.kl.high - self.kl.low) / 2.0
        return (
            f"KL {self.kl.value:.2f} ± {half:.2f} nats and the same next token for "
            f"{self.agreement.value:.1%} of {self.prompts:,} public prompts that were not fitted "
            f"on, by the decoder. A decoder that is told nothing has {self.constant_kl.value:.2f} "
            "nats and "
            f"{self.constant_agreement.value:.1%}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return {
            name: value.to_dict() if isinstance(value, Interval) else value
            for name, value in vars(self).items()
        }


@torch.no_grad()
def measure_use(
    quotient: PredictiveQuotient,
    states: ArrayLike | None,
    behaviours: Any,
    fitted: Any,
    *,
    rng: RandomSource = None,
) -> QuotientUse:
    """Measure a quotient on prompts that it was not fitted on, each released once.

    Args:
        quotient: that is measured.
        states: (n, d) of public prompts; None where behaviours are read.
        behaviours: (n, V) after them.
        fitted: (m, V) behaviours of prompts that were fitted on, for the constant prediction.
        rng: source of the noise.

    Raises:
        ValueError: fewer than two prompts, or behaviours of another width.
    """
    known, before = Behaviours.of(behaviours), Behaviours.of(fitted)
    if len(known) < 2:
        raise ValueError(f"behaviours: expected at least 2 prompts, got {len(known)}")
    # released once each, as they would be, and read beside the mean prediction of those fitted on
    clean = quotient.encode(states, behaviours=known)
    noise = generator(rng).normal(scale=quotient.ball.noise_std, size=clean.shape)
    constant = _mean(before).log()
    divergences, right = [], []
    for start in range(0, len(known), ROWS_TOGETHER):
        rows = slice(start, start + ROWS_TOGETHER)
        law = known.probabilities(rows)
        predicted = quotient.distributions((clean + noise)[rows])
        guesses = (predicted, constant.expand_as(predicted))
        divergences.append(torch.stack([_divergence(law, guess) for guess in guesses]))
        tokens = law.argmax(dim=1)
        right.append(torch.stack([guess.argmax(dim=1) == tokens for guess in guesses]))
    nats, same = (np.asarray(torch.cat(parts, dim=1)) for parts in (divergences, right))
    return QuotientUse(
        kl=_mean_of(nats[0]), agreement=_share_of(same[0]), constant_kl=_mean_of(nats[1]),
        constant_agreement=_share_of(same[1]), prompts=len(known),
    )  # fmt: skip


def _mean(behaviours: Behaviours) -> Tensor:
    # sums in float64: float32 loses rare tokens among many prompts
    total = torch.zeros(behaviours.vocabulary, dtype=torch.float64)
    for start in range(0, len(behaviours), ROWS_TOGETHER):
        total += behaviours.probabilities(slice(start, start + ROWS_TOGETHER)).double().sum(dim=0)
    return total / len(behaviours)


def _divergence(law: Tensor, logs: Tensor) -> Tensor:
    # Σ p ln p − p ln q with 0 ln 0 = 0; at least 0, which rounding may miss
    each: Tensor = (torch.special.xlogy(law, law) - law * logs).sum(dim=1)
    return each.clamp_min(0.0).double()


def _mean_of(values: Array) -> Interval:
    # by Student's law: a divergence has no upper end
    errors = student_errors(values.size, CONFIDENCE)
    mean, half = float(values.mean()), errors * float(values.std(ddof=1)) / values.size**0.5
    return Interval(mean, max(0.0, mean - half), mean + half, confidence=CONFIDENCE)


def _share_of(right: Array) -> Interval:
    low, high = proportion_interval(int(right.sum()), right.size, CONFIDENCE)
    return Interval(float(right.mean()), low, high, confidence=CONFIDENCE)
