"""What the guarantees of a release say of T releases about one secret."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

from tacit._ground.numbers import rounded_up
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.releases import Release
from tacit.text import share_down

Private: TypeAlias = ApproximateDP | GaussianDP | RenyiDP


@dataclass(frozen=True, eq=False)
class Judged:
    """A release and how many like it there will be about one secret.

    Attributes:
        release: what was read.
        releases: T.
        stated: the proof that stands in its file; None where none does.
        removed: whether none does, though one follows from what the file says.
    """

    release: Release[Any]
    releases: int
    stated: Mapping[str, Any] | None = None
    removed: bool = False

    @property
    def times(self) -> int:
        """How often the stored guarantees are needed: they cover some releases already."""
        held = self.release.leakage
        covered = 1 if held is None else held.releases
        return -(-self.releases // covered)

    @property
    def silent(self) -> bool:
        """Whether nothing that is stored multiplies, though it would have to."""
        return self.times > 1 and self.release.leakage is None

    @cached_property
    def leakage(self) -> MaximalLeakage | None:
        """The factor for all releases together, None where none is proved."""
        held = self.release.leakage
        return None if held is None else held.repeated(self.times)

    @property
    def successes(self) -> tuple[SuccessBound, ...]:
        """The bounds on success stored."""
        return tuple(held for held in self.release.guarantees if isinstance(held, SuccessBound))

    def success(self, bound: SuccessBound) -> float:
        """Return the success of T releases: the stored one, or the factor times the prior."""
        if self.times == 1 or self.leakage is None:
            return self.release.success(bound)
        return self.leakage.success(bound.prior, bound.task).success

    def epsilon(self, delta: float) -> tuple[float, Private] | None:
        """Return the least ε at δ that a stored guarantee gives of T releases, and which one.

        None where no guarantee of differential privacy says anything at that δ.
        """
        found = [
            (epsilon, held)
            for held in self.release.guarantees
            if isinstance(held, ApproximateDP | GaussianDP | RenyiDP)
            and (epsilon := epsilon_of(held, delta, self.releases)) is not None
        ]
        return min(found, key=lambda pair: pair[0], default=None)

    @property
    def information(self) -> tuple[float, Guarantee] | None:
        """Nats that T releases tell, and the guarantee that says so.

        I(X; Y₁ … Y_T) is at most T times the maximal leakage; T times the stored information it
        need not be, for that is the entropy of one code under one law.
        """
        if self.times > 1:
            return None if self.leakage is None else (self.leakage.nats, self.leakage)
        bounds = [held for held in self.release.guarantees if isinstance(held, InformationBound)]
        worst = max(bounds, key=lambda held: held.nats, default=None)
        return None if worst is None else (worst.nats, worst)


def epsilon_of(held: Private, delta: float, releases: int) -> float | None:
    """Return ε at δ of T releases of one guarantee, each chosen after those before it.

    Rounded up; None where the guarantee says nothing at that δ.

    Source: μ adds in squares (Dong, Roth and Su (2022), Corollary 3.3); Rényi divergences add
    (Mironov (2017), Proposition 1); ε and δ add (Dwork and Roth (2014), Theorem 3.16).
    """
    if isinstance(held, ApproximateDP):
        # T δ <= what is asked, exactly
        enough = Fraction(held.delta) * releases <= Fraction(delta)
        return _times_up(held.epsilon, releases) if enough else None
    if delta == 0.0:
        return None
    if isinstance(held, RenyiDP):
        from tacit.conversions import epsilon_from_renyi

        curve = [_times_up(one, releases) for one in held.epsilons]
        return epsilon_from_renyi(held.orders, curve, delta)
    from tacit.accounting import gaussian_shift

    # √T μ, a step above the nearest
    mu = math.nextafter(held.mu * math.nextafter(math.sqrt(releases), math.inf), math.inf)
    return gaussian_shift(mu).epsilon(delta) if math.isfinite(mu) else math.inf


def _times_up(value: float, times: int) -> float:
    """Return T times a bound, rounded up."""
    return math.inf if math.isinf(value) else rounded_up(Fraction(value) * times)


def how_known(guarantee: Guarantee) -> str:
    """Return the evidence of a guarantee in a word, its confidence where it has one."""
    if guarantee.confidence is not None:
        return f"confidence {share_down(guarantee.confidence)}"
    return "a theorem" if guarantee.evidence == "theorem" else "computed, rounded up"
