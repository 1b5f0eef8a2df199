"""How a quotient is learnt and what a release of it may tell, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from tacit._ground.values import Count, NonNegative, Positive, Within, value

if TYPE_CHECKING:
    from tacit.hidden_states.quotient.ball import Ball


@value
class Recipe:
    """What the encoder is given, how large it is, and what training minimises.

    ``E KL(p(·|h) ‖ D(z)) + β Î + γ Â``: Î is Thm 19's log-det over a batch, Â the nats that Bayes'
    attacker gains at naming a prompt of the batch.

    Args:
        reads: What the encoder is given: the state, or what the model goes on to predict, which
            the sender knows.
        depth: Hidden layers of encoder and decoder each; 0 for linear maps.
        hidden: Units of each.
        penalty: Price of one nat of estimated information, in nats of prediction (β).
        adversary: Price of one nat that a Bayes attacker gains, in nats of prediction (γ).
        noisy: Whether training sees the release noise; a control does not.
        epochs: Passes over the public prompts; the pass that is best on a held-out tenth is kept.

    Source: hidden-state, App. R and X.
    """

    reads: Literal["states", "behaviours"] = "states"
    depth: Annotated[int, Within(0, 64, "[]")] = 2
    hidden: Count = 256
    penalty: NonNegative = 0.0
    adversary: NonNegative = 0.0
    noisy: bool = True
    epochs: Count = 30

    def _together(self) -> None:
        if self.adversary and not self.noisy:
            raise ValueError(
                "adversary: expected 0 where no noise is added that it could attack, got more"
            )


@value
class QuotientPromise:
    """What one release tells about its prompt is bounded by a ball that it is clipped to.

    Args:
        dimension: k, numbers in a quotient.
        nats: What is certified of one release.
        measure: What is bounded: the factor on any attacker's chance, for every prior (leakage), or
            the average information.

    Example:
        >>> round(QuotientPromise(dimension=2).ball.leakage().nats, 2)
        6.93
    """

    dimension: Count = 4
    nats: Positive = 6.93
    measure: Literal["leakage", "information"] = "leakage"

    @property
    def ball(self) -> Ball:
        """The largest ball of which so many nats are certified."""
        from tacit.hidden_states.quotient.ball import Ball

        return Ball.at(self.dimension, nats=self.nats, measure=self.measure)
