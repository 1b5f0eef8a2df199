"""Guarantees about what a release tells: information, success of inference, what remains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from tacit._ground.checks import as_float, in_interval, non_negative
from tacit._ground.numbers import rounded_down
from tacit._ground.reprs import short_repr, shown
from tacit.conversions import success_from_information
from tacit.guarantees.base import Guarantee, text
from tacit.text import in_nats, number_down, number_up, share_nearest, share_up

# In the place of a law that only the assumptions say.
UNSTATED_LAW = "its distribution, as assumed"


@short_repr
@dataclass(frozen=True, kw_only=True)
class SuccessBound(Guarantee):
    """No attacker for whom the secret has the law stated succeeds in a task more often than this.

    Args:
        success: Largest probability of success after the release, in [prior, 1].
        prior: Success of the best guess without the release, in (0, 1).
        task: What is guessed, as in "an attacker is right about <task>".
        law: How likely each secret is, given all else the attacker knows, as in "all it knows of
            the secret is <law>"; empty where the assumptions alone say it.
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be; the message names it.

    Example:
        >>> bound = SuccessBound(
        ...     success=0.55, prior=0.5, task="membership",
        ...     evidence="theorem", assumptions=(), source="example",
        ... )
        >>> print(bound.describe().partition(",")[0])
        An attacker is right about membership at most 55% of the time (guessing blind: 50%)

    Source: residual-pac, Definition 1.
    """

    success: float
    prior: float
    task: str
    law: str = ""

    number_fields: ClassVar[tuple[str, ...]] = ("success", "prior")
    optional_fields: ClassVar[tuple[str, ...]] = ("law",)

    def __post_init__(self) -> None:
        super().__post_init__()
        prior = in_interval("prior", self.prior, 0, 1, open_low=True, open_high=True)
        self._set("prior", prior)
        # an attacker may always guess blind: no bound lies below the prior
        self._set("success", in_interval("success", self.success, prior, 1))
        # the sentence needs its object
        text("task", self.task)
        if not isinstance(self.law, str):
            raise ValueError(f"law: expected text, got {shown(self.law)}")

    def _statement(self) -> str:
        blind = share_nearest(self.prior)
        return (
            f"An attacker is right about {self.task} at most {share_up(self.success)} of the time "
            f"(guessing blind: {blind}), if {known_alone('it', self.law)}"
        )


def known_alone(who: str, law: str) -> str:
    """Say that somebody knows a law (distribution) of the secret and nothing besides of it."""
    return f"all {who} knows of the secret is {law or UNSTATED_LAW}".rstrip(",")


def law_of_pair(likelier: float) -> str:
    """Return the law of one of two inputs in words, by the probability of the likelier."""
    if likelier == 0.5:
        return "that it is one of two equally likely inputs"
    return f"that it is one of two inputs, the likelier with probability {share_up(likelier)},"


@short_repr
@dataclass(frozen=True, kw_only=True)
class InformationBound(Guarantee):
    """The mutual information I(X; Y) between a secret X and its release Y is at most ``nats``.

    Args:
        nats: The bound, >= 0; inf says nothing.
        secret: What X is and how it is drawn, as in "tells about <secret>".
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`; the law of the secret belongs here.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be; the message names it.

    Example:
        >>> bound = InformationBound(
        ...     nats=0.01, secret="which rows were used",
        ...     evidence="theorem", assumptions=(), source="example",
        ... )
        >>> round(bound.success(0.5, "membership").success, 4)
        0.5706

    Source: residual-pac, Definition 4 and Eq. 1.
    """

    nats: float
    secret: str

    number_fields: ClassVar[tuple[str, ...]] = ("nats",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("nats", non_negative("nats", self.nats, allow_inf=True))
        text("secret", self.secret)

    def success(self, prior: float, task: str, *, law: str = "") -> SuccessBound:
        """Bound the success of any task that is a function of the secret.

        Args:
            prior: Success of the best guess without the release, in (0, 1); for N equally likely
                answers this is 1/N.
            task: What is guessed.
            law: As in `SuccessBound`.

        Returns:
            The bound, rounded up.

        Raises:
            ValueError: ``prior`` is outside (0, 1).

        Source: residual-pac, Eq. 17.
        """
        return SuccessBound(
            success=success_from_information(self.nats, prior),
            prior=prior,
            task=task,
            law=law,
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=f"{self.source}; residual-pac, Eq. 17",
            confidence=self.confidence,
        )

    def _statement(self) -> str:
        return (
            f"The release tells at most {in_nats(number_up(self.nats))} about {self.secret}, "
            "whatever is computed from it"
        )


@short_repr
@dataclass(frozen=True, kw_only=True)
class ResidualPrivacy(Guarantee):
    """What is left of the intrinsic privacy −D(X ‖ R) of a secret after ``leaked`` nats are lost.

    Args:
        intrinsic: −D(X ‖ R) <= 0 in nats, relative to the reference law R.
        leaked: Upper bound >= 0 on the nats lost to the release.
        reference: What R is, such as ``"the uniform law on subsets"``.
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be; the message names it.

    Example:
        >>> bound = ResidualPrivacy(
        ...     intrinsic=0.0, leaked=0.25, reference="the uniform law on subsets",
        ...     evidence="theorem", assumptions=(), source="residual-pac, Definition 9",
        ... )
        >>> bound.residual
        -0.25

    Source: residual-pac, Definition 9 and Eq. 9.
    """

    intrinsic: float
    leaked: float
    reference: str

    number_fields: ClassVar[tuple[str, ...]] = ("intrinsic", "leaked")

    def __post_init__(self) -> None:
        super().__post_init__()
        intrinsic = as_float("intrinsic", self.intrinsic)
        if intrinsic > 0:
            raise ValueError(f"intrinsic: expected -D(X || R) <= 0, got {intrinsic!r}")
        self._set("intrinsic", intrinsic)
        self._set("leaked", non_negative("leaked", self.leaked, allow_inf=True))
        text("reference", self.reference)

    @property
    def residual(self) -> float:
        """Lower bound intrinsic − leaked on the privacy that remains, in nats, rounded down."""
        # inf − inf does not occur: what is leaked is never −inf
        difference = self.intrinsic - self.leaked
        if math.isinf(difference):
            return difference
        # the difference of two doubles is a fraction; as a double it is rounded down
        return rounded_down(Fraction(self.intrinsic) - Fraction(self.leaked))

    def _statement(self) -> str:
        return (
            f"Of an intrinsic privacy of {in_nats(number_down(self.intrinsic))} relative to "
            f"{self.reference}, the release takes at most {in_nats(number_up(self.leaked))} and "
            f"leaves at least {in_nats(number_down(self.residual))}"
        )


def membership_bound(information: InformationBound, prior: float = 0.5) -> SuccessBound:
    """Bound the success of membership inference on any record from an information bound.

    kl(s ‖ p̄) <= I(X; Y) with p̄ = max(r, 1 − r), r the probability that a record is used: the
    inclusion of a record is a function of the secret X, so I of the inclusion is at most I(X; Y).

    Args:
        information: Bound on I(X; Y) where X says which records were used.
        prior: p̄, the success of the best guess without the release, in [1/2, 1).

    Returns:
        The bound, with the evidence, assumptions and confidence of ``information``.

    Raises:
        ValueError: ``prior`` is outside [1/2, 1).

    Example:
        >>> bound = InformationBound(
        ...     nats=0.005, secret="which rows were used",
        ...     evidence="theorem", assumptions=(), source="example",
        ... )
        >>> round(membership_bound(bound).success, 4)
        0.55

    Source: residual-pac, Eq. 17 and Appendix B.
    """
    # the inclusion of one record is a function of X: data processing
    chance = in_interval("prior", prior, 0.5, 1.0, open_high=True)
    return information.success(chance, "the membership of any one record")
