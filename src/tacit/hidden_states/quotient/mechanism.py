"""A predictive quotient as a mechanism: its numbers are its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit._ground.checks import integer, non_negative, positive
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.mechanisms import Asked, Mechanism, Setting
from tacit.hidden_states.audit.points import Point

if TYPE_CHECKING:
    from tacit.hidden_states.audit.laboratory import Laboratory
    from tacit.hidden_states.quotient.ball import Ball
    from tacit.hidden_states.quotient.trial import QuotientTrial

READINGS = {"posterior-mean": "A", "decoder": "B", "posterior-behaviour": "B"}


@dataclass(frozen=True)
class Quotient(Mechanism):
    """k numbers learnt to carry the prediction, clipped to a ball and released with noise.

    Attributes:
        dimension: k.
        nats: what is certified of one release, by ``measure``.
        depth: hidden layers of encoder and decoder each.
        penalty: β, weight of the estimated information in training.
        adversary: γ, weight of Bayes' attacker in training.
        epochs: passes over the calibration prompts.

    Example:
        >>> Quotient(16, 6.93).name, Quotient.read("quotient(4,6.93,3)")
        ('quotient(16,6.93)', Quotient(dimension=4, nats=6.93, depth=3, penalty=0.0, ...))
    """

    dimension: int
    nats: float
    depth: int = 2
    penalty: float = 0.0
    adversary: float = 0.0
    epochs: int = 30

    family = "quotient"
    word = "quotient"
    proof = "the ball it is clipped to"
    # by what the nats are certified, and whether training sees the noise
    measure: ClassVar[str] = "information"
    noisy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        integer("dimension", self.dimension, minimum=1)
        positive("nats", self.nats)
        integer("depth", self.depth, minimum=0)
        non_negative("penalty", self.penalty)
        non_negative("adversary", self.adversary)
        integer("epochs", self.epochs, minimum=1)

    @property
    def ball(self) -> Ball:
        """The largest ball of which so many nats are certified."""
        from tacit.hidden_states.quotient.ball import Ball

        return Ball.at(self.dimension, nats=self.nats, measure=self.measure)

    def readings(self, asked: Asked) -> Mapping[str, str]:
        """Return the decoder, Bayes' reader of the release alone, and Bayes' mean state."""
        del asked
        return READINGS

    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> QuotientTrial:
        """Return quotients of the bank, the encoder trained on calibration prompts."""
        from tacit.hidden_states.quotient.quotient import PredictiveQuotient
        from tacit.hidden_states.quotient.trial import QuotientTrial

        del setting
        fitted = PredictiveQuotient.fit(
            laboratory.calibration,
            laboratory.calibration_behaviours,
            self.ball,
            depth=self.depth,
            penalty=self.penalty,
            adversary=self.adversary,
            noisy=self.noisy,
            epochs=self.epochs,
            rng=seed,
            progress=False,
        )
        return QuotientTrial(laboratory, fitted, seed)

    def words(self, point: Point) -> str:
        """Say how many numbers are released."""
        del point
        size = self.dimension
        learnt = "" if self.noisy else ", learnt without it"
        return f"{size} number{'s' if size > 1 else ''} learnt to predict, with noise{learnt}"

    def contradiction(
        self, point: Point, guarantees: Sequence[Guarantee], releases: int
    ) -> str | None:
        """Work the theorems out again: k and the nats are in the name."""
        expected = self.ball.guarantees(candidates=point.bank, releases=releases)
        if any(held not in expected for held in guarantees):
            return f"a ball of {self.dimension} numbers and {self.nats:g} nats gives others"
        return None

    def formula(self, point: Point) -> str:
        """Return the theorems: for every prior, and for a uniform prompt of the bank."""
        del point
        return (
            "P(right with *z*) ≤ *C*<sub>eff</sub> · P(right without),\u2002 "
            "I(*X*; *z*) ≤ (*k*/2) ln(1 + *R*²/(*kσ*²))"
        ).replace("<sub>eff</sub>", "ₑ")

    def caveat(self, point: Point) -> str:
        """Return what the two bounds do not share."""
        return (
            "The nats bound what is told on average; the factor, which is larger for many numbers, "
            f"bounds every prior. The percentage is for one to whom {point.bank:,} prompts are "
            "equally likely. Releases about one prompt add nats and multiply factors."
        )


@dataclass(frozen=True)
class LeakageQuotient(Quotient):
    """The same at so many nats of maximal leakage, which bound every prior: ln C_eff.

    Example:
        >>> LeakageQuotient(2, 6.93).name
        'quotient-leakage(2,6.93)'
    """

    word = "quotient-leakage"
    measure: ClassVar[str] = "leakage"


@dataclass(frozen=True)
class QuietQuotient(Quotient):
    """The control that is trained without its noise, which comes at the release alone.

    Example:
        >>> QuietQuotient(16, 6.93).name
        'quotient-quiet(16,6.93)'
    """

    word = "quotient-quiet"
    control = "is trained without the noise it is released with"
    noisy: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adversary:
            raise ValueError(
                f"adversary: expected 0 where training sees no noise, got {self.adversary:g}"
            )
