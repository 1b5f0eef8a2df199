"""A predictive quotient as a mechanism: its numbers are its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Self

from tacit._ground.checks import integer, non_negative, positive
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.mechanisms import Mechanism
from tacit.hidden_states.audit.points import Point, Setting
from tacit.hidden_states.audit.request import SweepRequest

if TYPE_CHECKING:
    from tacit.hidden_states.audit.laboratory import Laboratory
    from tacit.hidden_states.quotient.ball import Ball
    from tacit.hidden_states.quotient.trial import QuotientTrial

FLAGS = ("behaviour", "leakage", "quiet")
READINGS = {"posterior-mean": "A", "decoder": "B", "posterior-behaviour": "B"}


@dataclass(frozen=True)
class Quotient(Mechanism):
    """k numbers learnt to carry the prediction, clipped to a ball and released with noise.

    What is true or false of it stands in its word: ``quotient-behaviour-leakage-quiet``.

    Attributes:
        dimension: k.
        nats: what is certified of one release.
        depth: hidden layers of encoder and decoder each.
        penalty: β, weight of the estimated information in training.
        adversary: γ, weight of Bayes' attacker in training.
        epochs: passes over the calibration prompts.
        behaviour: whether the encoder is given what the model goes on to predict, not the state.
        leakage: whether the nats are of maximal leakage, ln C_eff, which bounds every prior; else
            of information.
        quiet: whether training sees no noise, which comes at the release alone: a control.

    Example:
        >>> Quotient(16, 6.93).name, Quotient(2, 6.93, leakage=True).name
        ('quotient(16,6.93)', 'quotient-leakage(2,6.93)')
        >>> Quotient.read("quotient-behaviour-quiet(4,6.93,3)").depth
        3
    """

    dimension: int
    nats: float
    depth: int = 2
    penalty: float = 0.0
    adversary: float = 0.0
    epochs: int = 30
    behaviour: bool = False
    leakage: bool = False
    quiet: bool = False

    family = "quotient"
    word = "quotient"
    proof = "the ball it is clipped to"

    def __post_init__(self) -> None:
        integer("dimension", self.dimension, minimum=1)
        positive("nats", self.nats)
        integer("depth", self.depth, minimum=0)
        non_negative("penalty", self.penalty)
        non_negative("adversary", self.adversary)
        integer("epochs", self.epochs, minimum=1)
        if self.adversary and self.quiet:
            raise ValueError("adversary: expected 0 where training sees no noise, got more")

    @property
    def name(self) -> str:
        """The word of its kind, then its numbers."""
        numbers = super().name.removeprefix(self.word)
        return "-".join([self.word, *(flag for flag in FLAGS if getattr(self, flag))]) + numbers

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the quotient that a word names."""
        word, bracket, numbers = text.partition("(")
        kind, *given = word.split("-")
        # one spelling each, so that a name is read back as it is
        if kind != cls.word or given != [flag for flag in FLAGS if flag in given]:
            return None
        found = super().read(kind + bracket + numbers)
        return None if found is None else replace(found, **dict.fromkeys(given, True))

    @classmethod
    def spelling(cls) -> tuple[str, ...]:
        """Return a word for every kind."""
        numbers = super().spelling()[0].removeprefix(cls.word)
        chosen = (kept for size in range(len(FLAGS) + 1) for kept in combinations(FLAGS, size))
        return tuple("-".join([cls.word, *kept]) + numbers for kept in chosen)

    @property
    def ball(self) -> Ball:
        """The largest ball of which so many nats are certified."""
        from tacit.hidden_states.quotient.ball import Ball

        measure = "leakage" if self.leakage else "information"
        return Ball.at(self.dimension, nats=self.nats, measure=measure)

    def readings(self, request: SweepRequest) -> Mapping[str, str]:
        """Return the decoder, Bayes' reader of the release alone, and Bayes' mean state."""
        return READINGS

    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> QuotientTrial:
        from tacit.hidden_states.quotient.methods import Recipe
        from tacit.hidden_states.quotient.quotient import PredictiveQuotient
        from tacit.hidden_states.quotient.trial import QuotientTrial

        del setting
        recipe = Recipe(
            reads="behaviours" if self.behaviour else "states",
            depth=self.depth,
            penalty=self.penalty,
            adversary=self.adversary,
            noisy=not self.quiet,
            epochs=self.epochs,
        )
        fitted = PredictiveQuotient.fit(
            laboratory.calibration,
            laboratory.calibration_behaviours,
            self.ball,
            recipe,
            rng=seed,
            progress=False,
        )
        return QuotientTrial(laboratory, fitted, seed)

    def words(self, point: Point) -> str:
        """Say how many numbers are released."""
        size = self.dimension
        of = "the prediction" if self.behaviour else "the state"
        learnt = ", learnt without it" if self.quiet else ""
        return f"{size} number{'s' if size > 1 else ''} learnt of {of}, with noise{learnt}"

    def contradiction(
        self, point: Point, guarantees: Sequence[Guarantee], releases: int
    ) -> str | None:
        """Work the theorems out again: k and the nats are in the name."""
        expected = self.ball.guarantees(candidates=point.bank, releases=releases)
        if any(held not in expected for held in guarantees):
            return f"a ball of {self.dimension} numbers and {self.nats:g} nats gives others"
        return None

    def formula(self, point: Point) -> str:
        """Return the theorems: for every prior, and for information."""
        return (
            "P(right with *z*) ≤ *C* · P(right without), *C* = ∫ sup *p*(*z*|*q*) d*z*,\u2002 "
            "I(*X*; *z*) ≤ (*k*/2) ln(1 + *R*²/(*kσ*²))"
        )

    def caveat(self, point: Point) -> str:
        """Return what the two bounds do not share."""
        return (
            "The nats bound what is told on average; the factor, which is larger for many numbers, "
            f"bounds every prior. The percentage is for one to whom {point.bank:,} prompts are "
            "equally likely. Releases about one prompt add nats and multiply factors."
        )
