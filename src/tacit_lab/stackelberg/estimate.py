"""What a Stackelberg game returns: an estimate, and what independent checks say about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from tacit._ground.checks import Array
from tacit._ground.frozen import array_value
from tacit.text import in_nats, number_down, number_up, share_down
from tacit_lab.stackelberg.checks import Check
from tacit_lab.stackelberg.noise import StackelbergNoise


@array_value(kw_only=True)
class StackelbergHistory:
    """The way of the leader, one entry per step.

    Attributes:
        cost: (steps,) tr(F Cov B).
        estimated_information: (steps,) H(X) − H_c on the batch of the step, nats.
    """

    cost: Array
    estimated_information: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class StackelbergEstimate:
    """Noise found by SR-PAC as published. **Not a guarantee**, and not accepted as one.

    A decoder's cross-entropy is at least H(X | Y), so H(X) minus it says how much of the secret
    *this decoder* finds. Another may find more: ``checks`` measure what is really there.

    Attributes:
        noise: the law of the noise; ``noise.release(value)`` publishes, ``noise.second_moment``
            is (d, d).
        cost: tr(F Cov B), units of the output squared for F = I.
        mi_budget: β, the nats asked for.
        estimated_information: ``H(X) − W(Q, π)`` in nats, on fresh draws: a **lower** bound on
            I(X; Y) where ``entropy`` is H(X), up to ``standard_error``. It may be negative.
        standard_error: of ``estimated_information``, from the draws of the noise.
        cross_entropy: ``W(Q, π)`` in nats, never below H(X | Y); see ``standard_error``.
        entropy: H(X) in nats as used, in the units of the secret.
        entropy_source: where ``entropy`` comes from.
        decoder: family of the follower.
        penalty: ``"budget-tracking"`` or ``"pac-adjusted"``.
        history: the way there.
        checks: bounds on I(X; Y) that owe nothing to the decoder.
        confidence: with which all their bounds hold together.
    """

    noise: StackelbergNoise
    cost: float
    mi_budget: float
    estimated_information: float
    standard_error: float
    cross_entropy: float
    entropy: float
    entropy_source: str
    decoder: str
    penalty: str
    history: StackelbergHistory
    checks: tuple[Check, ...]
    confidence: float

    @property
    def contradicted(self) -> bool:
        """Whether a check shows that more leaks than the budget allows."""
        return any(check.lower > self.mi_budget for check in self.checks)

    @property
    def verdict(self) -> str:
        """One sentence: whether the budget is refuted, met as far as checked, or unchecked."""
        budget = f"the budget of {self.mi_budget:.6g} nats"
        sure = f"{share_down(self.confidence)} confidence"
        if not self.checks:
            return (
                f"{budget} is unchecked: pass labels, or a finite secret, to learn what leaks "
                "besides what this decoder finds"
            )
        strongest = max(self.checks, key=lambda check: check.lower)
        if self.contradicted:
            leak = _above(strongest.lower, self.mi_budget)
            return f"{budget} is refuted: at least {leak} nats leak ({strongest.name}, {sure})"
        ceiling = min(self.checks, key=lambda check: check.upper)
        if ceiling.upper <= self.mi_budget:
            return (
                f"{budget} is not refuted, and at most {in_nats(number_up(ceiling.upper))} leak "
                f"({ceiling.name}, {sure})"
            )
        limit = f" and at most {number_up(ceiling.upper)}" if math.isfinite(ceiling.upper) else ""
        return (
            f"{budget} is neither refuted nor proved: at least {number_down(strongest.lower)}"
            f"{limit} nats leak ({sure})"
        )

    def summary(self) -> dict[str, Any]:
        """Return every number but the history as values that strict JSON can hold."""
        kept = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, (int, float, str))
        }
        return {
            **kept,
            "noise": self.noise.to_dict(),
            "checks": [check.to_dict() for check in self.checks],
            "contradicted": self.contradicted,
            "verdict": self.verdict,
        }


def _above(lower: float, budget: float) -> str:
    """Return ``lower`` rounded down, to as many digits as show that it is above ``budget``."""
    shown = Decimal(lower)
    for digits in range(2, 18):
        shown = Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(lower)
        if shown > Decimal(budget):
            break
    return f"{shown.normalize():f}"
