"""How the game of SR-PAC is played and checked, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from tacit._ground.values import Count, NonNegative, Positive, Within, value


@value
class StackelbergRules:
    """How leader and follower play.

    Args:
        decoder: ``"gaussian"``, ``"mixture-density"``, ``"flow"`` (densities of the secrets) or
            ``"categorical"`` (over their distinct values); None for Gaussian with secrets and
            categorical without.
        entropy: H(X) in nats: differential, in the units of the secrets, for a density. None takes
            the exact one of a categorical secret, and otherwise the cross-entropy of the decoder
            family without Y, which makes the estimate a difference of two upper bounds.
        noise: ``"gaussian"`` (full covariance), ``"mixture"`` (of three Gaussians) or
            ``"elliptical"`` (generalised Gaussian, tails and covariance).
        penalty: ``"budget-tracking"``, ``s (W − β̂)²`` with β̂ = H(X) − β, or ``"pac-adjusted"``,
            ``s (β̂ + ε − W)₊²``. (As printed, the latter has W and β̂ + ε exchanged, and no noise at
            all is then optimal.)
        margin: ε in nats of the PAC-adjusted penalty, such as ``decoder_margin`` returns; below β.
        penalty_weight: s > 0, relative: the excess over the budget is measured in budgets, and
            the logarithm of the cost is minimised.
        steps: The leader's; the follower takes as many and some more.
        period: Steps of each between turns, T_φ of the paper.
        batch: Draws per step; None fits memory and time.
    """

    decoder: Literal["gaussian", "mixture-density", "flow", "categorical"] | None = None
    entropy: float | None = None
    noise: Literal["gaussian", "mixture", "elliptical"] = "gaussian"
    penalty: Literal["budget-tracking", "pac-adjusted"] = "budget-tracking"
    margin: NonNegative | None = None
    penalty_weight: Positive = 50.0
    steps: Annotated[int, Within(10, ends="[)")] = 600
    period: Count = 10
    batch: Annotated[int, Within(2, ends="[)")] | None = None

    def _together(self) -> None:
        if self.penalty == "budget-tracking" and self.margin is not None:
            raise ValueError(f"margin: expected None with {self.penalty!r}, got {self.margin!r}")
        if self.penalty == "pac-adjusted" and self.margin is None:
            raise ValueError("margin: expected ε in nats with 'pac-adjusted', got None")


@value
class StackelbergChecks:
    """How well what was found is checked.

    Args:
        labels: From names to (N,) integers: what Fano's inequality is applied to.
        samples: Draws for each check.
        confidence: With which the bounds of all checks hold together.
    """

    labels: Mapping[str, Any] | None = None
    samples: Annotated[int, Within(1000, ends="[)")] = 20_000
    confidence: Annotated[float, Within(0.5, 1)] = 0.99
