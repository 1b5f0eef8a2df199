"""What the guarantees of a release say of T releases about one secret."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tacit.guarantees import Guarantee, InformationBound, MaximalLeakage, SuccessBound
from tacit.releases import Release
from tacit.text import share_down


@dataclass(frozen=True, eq=False)
class Judged:
    """A release and how many like it there will be about one secret.

    Attributes:
        release: what was read.
        releases: T.
    """

    release: Release[Any]
    releases: int

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


def how_known(guarantee: Guarantee) -> str:
    """Return the evidence of a guarantee in a word, its confidence where it has one."""
    if guarantee.confidence is not None:
        return f"confidence {share_down(guarantee.confidence)}"
    return "a theorem" if guarantee.evidence == "theorem" else "computed, rounded up"
