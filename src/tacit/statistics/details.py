"""What every release of numbers keeps beside its fields, and what of it is worked out again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np

from tacit._ground.checks import in_interval, integer, non_negative, positive
from tacit._ground.reprs import shown
from tacit.codec import HOLDER
from tacit.guarantees.base import Guarantee
from tacit.releases.promises import Table
from tacit.releases.recompute import ROUNDING, check_measured
from tacit.releases.release import Release
from tacit.statistics.queries.statistic import Columns

# Between a success, or a sum of squares, that was computed on two machines.
AGREEMENT = 1e-6
# What the noise of an answer may lose of what was charged for it, rounded up.
SPENT_SLACK = 1e-6
# Squares of errors that are as much larger after the draw stay within double precision.
LARGEST_ERROR = 1e120
FROM_SYSTEM = "the randomness is the operating system's"
TOGETHER = (
    "one secret is asked through many queries, each of which may be chosen by all answers before. "
    "The bound on guessing is for all of them together, up to the budget of the session. Other "
    "sessions and releases add to it"
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
        delta: chance that what one person alone has is published of keys that are found, over all
            answers together; 0 where none are.
        earlier: columns whose keys or bounds earlier answers found.
    """

    turn: int
    spend: float
    budget: float
    delta: float = 0.0
    earlier: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        integer("turn", self.turn, minimum=1)
        in_interval("delta", self.delta, 0.0, 1.0, open_high=True)
        if non_negative("spend", self.spend) > positive("budget", self.budget) * (1 + ROUNDING):
            raise ValueError(f"spend: expected at most the budget {self.budget}, got {self.spend}")

    @property
    def delta_of_keys(self) -> float:
        """The part of ``delta`` that finding keys may cost in this answer: as much as of μ².

        Σ μ_i² <= μ², so that Σ δ μ_i²/μ² <= δ. A hair less, which three roundings may add.
        """
        return self.delta * (self.spend / self.budget) ** 2 * (1.0 - 2.0**-50)


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
    # what no double holds is infinite
    with np.errstate(over="ignore"):
        return float(np.square(errors).sum())


def check_power(errors: Any) -> None:
    """Refuse errors (d,) whose squares overflow, before anything is drawn.

    Raises:
        ValueError: they do.
    """
    if not np.max(np.abs(errors), initial=0.0) <= LARGEST_ERROR:
        raise ValueError(
            f"query: expected numbers whose errors are at most {LARGEST_ERROR:g}, got one beyond: "
            "choose other units"
        )


def check_numbers(release: Release[Any], secret: str, truth: str) -> None:
    """Refuse numbers of another secret or with other errors, and attacks of narrower intervals.

    Raises:
        ValueError: they are.
    """
    if release.secret != secret:
        raise ValueError(f"it is about {secret!r}, not {shown(release.secret)}")
    if release.numbers is None or release.numbers.truth != truth:
        raise ValueError(f"its numbers are of the {truth}")
    check_measured(release.attacks)
    power = release.details.noise_power
    if not math.isclose(power_of(release.errors), power, rel_tol=AGREEMENT):
        raise ValueError("the errors of the numbers differ from those of the noise")


def check_guarantees(release: Release[Any], expected: Sequence[Guarantee]) -> None:
    """Refuse guarantees that are not those which the details of a release give.

    Success may differ as it does between two machines, and assumptions may be added.

    Raises:
        ValueError: a guarantee, a field of one or an assumption is another or missing.
    """
    if [type(held) for held in release.guarantees] != [type(held) for held in expected]:
        raise ValueError("it states other guarantees than its details give")
    for stated, held in zip(release.guarantees, expected, strict=True):
        missing = sum(line not in stated.assumptions for line in held.assumptions)
        if missing:
            raise ValueError(f"{missing} of the assumptions were removed or changed")
        for name in (each.name for each in fields(held) if each.name != "assumptions"):
            there, here = getattr(stated, name), getattr(held, name)
            # of a success that is larger too: then it is μ, or the nats, that were made smaller
            slack = AGREEMENT if name == "success" else 0.0
            if there != here and not (slack and math.isclose(there, here, rel_tol=slack)):
                raise ValueError(f"its details give a {name} of {shown(here)}, not {shown(there)}")


def check_spent(
    release: Release[Any], found: float, asked: float, designed: float, unit: str
) -> None:
    """Refuse what is told, in μ or nats, beyond what was asked for or below the noise's design.

    Args:
        release: what was released; of an answer its session is held against what was asked for.
        found: what its guarantee says.
        asked: the most that the promise allows.
        designed: what the noise was designed for.
        unit: "μ" or "nats".

    Raises:
        ValueError: it is.
    """
    turn: Turn | None = release.details.session
    budget, spend = (found, asked) if turn is None else (turn.budget, turn.spend)
    for told, most in ((budget, asked), (found, spend)):
        if told > most * (1.0 + SPENT_SLACK):
            raise ValueError(f"it tells {unit} = {told:.6g}, and {most:.6g} was asked or charged")
    if found < designed * (1.0 - ROUNDING):
        raise ValueError(
            f"the noise was designed for {unit} = {designed!r}, the guarantee says {found!r}"
        )


def declared_columns(promise: Table, names: tuple[str, ...]) -> Columns:
    """Return the columns with what was declared of them, by which a query is bound."""
    places = {name: place for place, name in enumerate(names)}
    levels: dict[int, tuple[float, ...]] = {}
    for name, held in (promise.levels or {}).items():
        coded = any(isinstance(one, str) for one in held)
        levels[places[name]] = tuple(map(float, range(len(held)) if coded else held))
    given: Any = promise.bounds or {}
    bounds = {places[name]: pair for name, pair in given.items()}
    return Columns(names, bounds=bounds, levels=levels)
