"""What every release of numbers keeps beside its fields, and what of it is worked out again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tacit._ground.checks import integer, non_negative
from tacit.codec import HOLDER
from tacit.guarantees import SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.releases.recompute import ROUNDING, check_assumed
from tacit.releases.release import Release

# Between a success, or a sum of squares, that was computed on two machines.
AGREEMENT = 1e-6
# What the noise of an answer may lose of what was charged for it, rounded up.
SPENT_SLACK = 1e-6
FROM_SYSTEM = "the randomness is the operating system's"
TOGETHER = (
    "one secret through many queries, each of which may be chosen by all answers before: the bound "
    "on guessing is of all of them together, up to the budget of the session; other sessions and "
    "releases add to it"
)
ON_THE_GRID = (
    "the noise is independent of all else, computed in double precision; the sums are exact and "
    "what is published is on a grid that the noise alone sets"
)

PROJECTED = (
    "values are projected on what is possible (means within declared bounds, no negative count or "
    "variance, correlations within ±1, counts that rise), and intervals end there, which is "
    "post-processing"
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Which answer of a session a release is.

    Attributes:
        turn: 1 for the first.
        spend: μ, or nats, that it was charged.
        budget: μ, or nats, of all answers together.
    """

    turn: int
    spend: float
    budget: float

    def __post_init__(self) -> None:
        integer("turn", self.turn, minimum=1)
        if non_negative("spend", self.spend) > non_negative("budget", self.budget) * (1 + ROUNDING):
            raise ValueError(f"spend: expected at most the budget {self.budget}, got {self.spend}")


@dataclass(frozen=True, kw_only=True)
class NumbersDetails:
    """What a release of numbers keeps under any promise.

    Attributes:
        noise_power: sum of the squares of the errors, by which an edit of one of them shows.
        session: which answer of a session it is; None where it is a release by itself.
        most_exposed: the row of the table that attackers succeeded on most; the holder's.
    """

    noise_power: float = 0.0
    session: Turn | None = None
    most_exposed: Annotated[int | None, HOLDER] = None

    def __post_init__(self) -> None:
        non_negative("noise_power", self.noise_power)


def power_of(errors: Any) -> float:
    """Return the sum of the squares of errors (d,)."""
    return float(np.square(errors).sum())


def check_errors(release: Release[Any]) -> None:
    """Refuse errors that are not those of the noise.

    Raises:
        ValueError: they are not.
    """
    power = release.details.noise_power
    if not math.isclose(power_of(release.errors), power, rel_tol=AGREEMENT):
        raise ValueError("the errors of the numbers are not those of the noise")


def check_success(stated: SuccessBound, worked_out: Guarantee) -> None:
    """Refuse a success that is not the one that its μ or nats give, or another blind success.

    Raises:
        ValueError: it is.
    """
    assert isinstance(worked_out, SuccessBound)
    # above it too: then it is μ that was made smaller
    if not math.isclose(stated.success, worked_out.success, rel_tol=AGREEMENT):
        raise ValueError(
            f"what it states gives a success of {worked_out.success:.6g}, not {stated.success:.6g}"
        )
    if abs(stated.prior - worked_out.prior) > ROUNDING:
        raise ValueError(f"blind success is {worked_out.prior:.6g}, not {stated.prior:.6g}")


def check_turn(release: Release[Any], spent: float | None, whole: Guarantee) -> None:
    """Hold an answer of a session against the budget that bounds all its answers.

    Args:
        release: the answer.
        spent: μ, or nats, that it says it told; None where it states none.
        whole: success that the budget gives.

    Raises:
        ValueError: they disagree, or the assumption about all answers is missing.
    """
    turn: Turn = release.details.session
    if spent is None or spent > turn.spend * (1.0 + SPENT_SLACK):
        raise ValueError("what it says that it told is not what the session was charged")
    check_success(release.membership, whole)
    check_assumed(release, (TOGETHER,))
