"""A release about people: what it promises, what it keeps, and how it is worked out again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from tacit._ground.checks import integer, positive
from tacit._ground.reprs import short_repr
from tacit.design.grid import ROUNDING_VARIANCE
from tacit.guarantees import ApproximateDP, GaussianDP, SuccessBound
from tacit.guarantees.adjacency import Adjacency
from tacit.guarantees.base import Guarantee
from tacit.releases.kinds import Kind
from tacit.releases.promises import Table
from tacit.releases.release import Release
from tacit.releases.strength import gaussian_mu, success_of
from tacit.statistics.bounded.contributions import reach
from tacit.statistics.details import (
    FROM_SYSTEM,
    SPENT_SLACK,
    TOGETHER,
    NumbersDetails,
    check_guarantees,
    check_numbers,
)
from tacit.statistics.people.consistent import consistency_of_details
from tacit.statistics.people.keys import KeySearch
from tacit.statistics.people.noise import DISCRETE_SLACK
from tacit.statistics.people.quantiles import ChoiceRanges
from tacit.statistics.people.radius import left_of
from tacit.statistics.people.ranges import RangeSearch
from tacit.statistics.queries.counts import GroupBy, Present
from tacit.statistics.queries.moments import MomentStatistic
from tacit.statistics.queries.quantiles import Median, Quantiles
from tacit.statistics.queries.ratios import Ratio
from tacit.statistics.queries.statistic import Statistic
from tacit.text import chance_up

KIND = "statistic-people"
TRUTH = "statistic of the table, its rows within the declared bounds and every person clipped"
SOURCE = (
    "Canonne, Kamath and Steinke (2020), Proposition 5 and Algorithms 2 and 3; Dong, Roth and Su "
    "(2022), Theorem 2.7; docs/explanation/people.md"
)


@short_repr
@dataclass(frozen=True, kw_only=True)
class PeopleDetails(NumbersDetails):
    """What a release about people keeps: all that its certificate follows from is public.

    Attributes:
        promise: as it was asked for, with bounds and levels by the names of the columns.
        query: what was computed.
        columns: names of the columns of the table, that of the persons left out.
        level: ε of discrete Laplace noise where no δ was asked for, else μ.
        radius: the longest that a person's vector is, in units of the grid; 0 before it is found.
        grid_bits: a unit of the grid is ``2^−grid_bits`` of the largest row.
        norm: 2 where the Euclidean length is clipped, 1 where the sum of sizes is.
        variance: s² of the discrete Gaussian in units of the grid; 0 for the discrete Laplace.
        scale: (numerator, denominator) of b of the discrete Laplace, in units of the grid.
        found: whether the radius was declared or found from the table.
        share: of the budget that finding it cost.
        engine: what summed the persons' rows.
        quantiles: how many numbers are quantiles, each chosen with the ends of its interval.
        quantile_share: of the budget that these cost.
        quantile_ranges: bounded ranges of the loss of a choice of a value, and of an end.
        sql: the statement that was asked, where one was.
        key_column: the column whose keys were found from the table; None where all were declared.
        keys: how they were found.
        ranges: how bounds were found that nobody declared; None where all were.
    """

    promise: Table
    query: tuple[Statistic, ...]
    columns: tuple[str, ...]
    level: float
    radius: int
    grid_bits: int
    norm: Literal[1, 2]
    variance: int
    scale: tuple[int, int]
    found: Literal["declared", "private"]
    share: float
    engine: str
    quantiles: int = 0
    quantile_share: float = 0.0
    quantile_ranges: tuple[float, float] = (0.0, 0.0)
    sql: str = ""
    key_column: str | None = None
    keys: KeySearch | None = None
    ranges: RangeSearch | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("level", self.level)
        for name in ("radius", "variance"):
            integer(name, getattr(self, name), minimum=0, maximum=None)
        for name in ("grid_bits", "quantiles"):
            integer(name, getattr(self, name), minimum=0)
        for part in self.scale:
            integer("scale", part, minimum=1, maximum=None)
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"share: expected a number in [0, 1), got {self.share!r}")
        if (self.keys is None) != (self.key_column is None):
            raise ValueError("keys: expected them and their column, or neither")
        if not 0.0 <= self.quantile_share <= 1.0:
            raise ValueError(f"quantile_share: expected one in [0, 1], got {self.quantile_share!r}")
        for name, declared in (("bounds", self.promise.bounds), ("levels", self.promise.levels)):
            given = {} if declared is None else declared
            if not isinstance(given, Mapping) or not set(given) <= set(self.columns):
                raise ValueError(f"promise.{name}: expected them by the names of the columns")

    @property
    def unit(self) -> str:
        """The word for a person."""
        return self.promise.secret_unit

    @property
    def secret(self) -> str:
        """What is hidden."""
        return f"any one {self.unit} of the table, with all rows"

    @property
    def numbers_level(self) -> float:
        """ε, or μ, that finding keys and bounds leaves for the numbers."""
        left = self.ranges_level
        return left if self.ranges is None else self.ranges.left(left, pure=self.promise.pure)

    @property
    def ranges_level(self) -> float:
        """ε, or μ, that finding keys leaves."""
        if self.keys is None:
            return self.level
        return left_of(self.level, self.keys.share, pure=False)

    @property
    def nothing_summed(self) -> bool:
        """Whether every number is chosen."""
        return self.quantiles > 0 and self.quantile_share == 1.0

    @property
    def reach(self) -> int:
        """How far one person moves the totals, in units of the grid."""
        return self.radius * int(reach(self.promise.adjacency))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold, and what is not hidden."""
        unit = self.unit
        alone = f"one release; further releases about the same {unit}s add up"
        declared = "the bounds, categories, bins, thresholds and the unit of privacy were declared "
        found: tuple[str, ...] = ()
        if self.session is not None and self.session.delta:
            found = (
                "keys that nobody declared were found from the table, by this answer or one "
                f"before. The probability that one of them belongs to one {unit} alone is at most "
                f"{chance_up(self.session.delta)}, over all answers",
            )
        elif self.keys is not None:
            found = (
                f"the keys of {self.key_column} were found from the table: those whose weight, "
                "with noise, passes a threshold. The probability that one of them belongs to one "
                f"{unit} alone is at most {chance_up(self.keys.delta)}",
            )
        but = ""
        if self.session is not None and self.session.earlier:
            names = ", ".join(self.session.earlier)
            but = f", but for those of {names}, which an earlier answer found from it"
        if self.ranges is not None:
            names = ", ".join(self.ranges.columns)
            but += f", but for the bounds of {names}, which were found from it"
        return (
            f"{declared}without looking at the table{but}",
            *found,
            f"the column of the {unit}s tells whose every row is: rows under two names count as "
            "two",
            f"the attacker may know every other {unit}'s rows, the query, the bounds and the law "
            "of the noise",
            f"what is common to all {unit}s of a kind is not hidden",
            "rows in which a column read holds nothing, or no value of that column, are left out",
            alone if self.session is None else TOGETHER,
            "whether the table could be read at all is not hidden",
            "the noise is whole, sampled exactly and independent of all else; the sums are exact",
            FROM_SYSTEM,
        )


def tasks(unit: str, adjacency: Adjacency) -> tuple[str, str]:
    """Return what is guessed, and under which law."""
    if adjacency is Adjacency.REPLACE:
        return (
            f"which of two {unit}s is in the table",
            f"every other {unit}'s rows, and that a fair coin chose between two for this one,",
        )
    return (
        f"whether any one {unit} is in the table",
        f"every other {unit}'s rows, and that a fair coin decided whether this one is in,",
    )


def certify(details: PeopleDetails) -> tuple[Guarantee, ...]:
    """Return what noise within ``level`` certifies, the success rounded up."""
    adjacency = details.promise.adjacency
    rest: dict[str, Any] = {
        "evidence": "theorem",
        "assumptions": details.assumptions,
        "source": SOURCE,
    }
    sentence = adjacency.sentence(details.unit)
    task, law = tasks(details.unit, adjacency)
    turn = details.session
    passing = (0.0 if details.keys is None else details.keys.delta) if turn is None else turn.delta
    whole = details.level if turn is None else turn.budget
    if passing:
        promise = details.promise
        assert promise.epsilon is not None, "keys are found under an ε"
        assert promise.delta is not None, "and a δ"
        stated: Guarantee = ApproximateDP(
            epsilon=promise.epsilon, delta=promise.delta, adjacency=sentence, **rest
        )
        # the noise is told with Φ(μ/2) at most, and a passing key adds half of its chance
        success = success_of(whole) + passing
        success = min(math.nextafter(success, 2.0), 1.0)
    elif details.promise.pure:
        stated = ApproximateDP(epsilon=details.level, delta=0.0, adjacency=sentence, **rest)
        bound = ApproximateDP(epsilon=whole, delta=0.0, adjacency=sentence, **rest).success()
        success = bound.success
    else:
        stated = GaussianDP(mu=details.level, adjacency=sentence, **rest)
        success = success_of(whole)
    return SuccessBound(success=success, prior=0.5, task=task, law=law, **rest), stated


def recompute(release: Release[PeopleDetails]) -> str:
    """Work out again what a release about people claims, from what is public of it.

    How far a clipped person moves the totals, under the law of the noise in the file, is held
    exactly against what the level leaves for the noise.

    Raises:
        ValueError: a person moves the totals too far, a guarantee that is not what the level gives,
            errors that are not those of the noise, or an assumption that is missing.
    """
    details = release.details
    check_numbers(release, details.secret, TRUTH)
    if release.sampling is not None:
        raise ValueError("a promise about people keeps its sampling error to itself")
    check_level(details)
    check_guarantees(release, certify(details))
    if details.radius == 0:
        raise ValueError("its radius was not found")
    pure, left = details.promise.pure, details.numbers_level
    if details.ranges is not None:
        _check_ranges(details)
    if details.quantiles:
        _check_choices(details)
        # where all of it is spent, nothing is summed: no noise covers it
        left = left_of(left, details.quantile_share, pure=pure)
    left = left_of(left, details.share, pure=pure) if details.share else left
    if details.promise.consistent and release.numbers is not None:
        consistency_of_details(details).check(release.numbers.values)
    if not details.nothing_summed and not covers(details, left):
        raise ValueError("under its noise a person lies farther than the guarantee says")
    return ""


def _check_ranges(details: PeopleDetails) -> None:
    """Refuse weights of parts that tell more than their share, and those of unknown columns.

    Raises:
        ValueError: they do.
    """
    ranges, promise = details.ranges, details.promise
    assert ranges is not None, "bounds were found"
    held: Any = promise.bounds or {}
    if not ranges.columns or not set(ranges.columns) <= set(held):
        raise ValueError("bounds are found of columns of the table")
    if not ranges.tells(details.ranges_level, promise.adjacency, pure=promise.pure):
        raise ValueError("finding its bounds tells more than its share")


def _check_choices(details: PeopleDetails) -> None:
    """Refuse choices of quantiles that tell more than their share.

    Raises:
        ValueError: they do.
    """
    share, count, pure = details.quantile_share, details.quantiles, details.promise.pure
    allowed = ChoiceRanges.of(details.numbers_level, share, count, pure=pure)
    value, end = details.quantile_ranges
    if value > allowed.value * (1.0 + SPENT_SLACK) or end > allowed.end * (1.0 + SPENT_SLACK):
        raise ValueError("the choices of its quantiles spend more than their share of the budget")


def check_level(details: PeopleDetails) -> None:
    """Refuse a level beyond what was asked for, or charged in a session.

    Raises:
        ValueError: it is.
    """
    promise, turn = details.promise, details.session
    asked = promise.epsilon if promise.pure else promise.largest_mu()
    if details.keys is not None or (turn is not None and turn.delta):
        asked = _check_keys(details)
    told = details.level if turn is None else turn.budget
    assert asked is not None, "a pure promise has an ε"
    if told > asked * (1.0 + SPENT_SLACK):
        raise ValueError(f"it tells {told:.6g}, and {asked:.6g} was asked for")
    if turn is not None and details.level > turn.spend * (1.0 + SPENT_SLACK):
        raise ValueError(f"it tells {details.level:.6g}, and {turn.spend:.6g} was charged")


def _check_keys(details: PeopleDetails) -> float:
    """Return the largest μ that a δ leaves which is spent on keys as well, rounded down.

    Raises:
        ValueError: the search tells more than its share, or δ is not what was asked for.
    """
    promise, keys, turn = details.promise, details.keys, details.session
    if promise.epsilon is None or promise.delta is None:
        raise ValueError("keys are found under an ε with a δ")
    if turn is not None:
        # over all answers; of this one its part
        spent = turn.delta
        within = keys is None or keys.delta <= turn.delta_of_keys
    else:
        assert keys is not None, "keys were found"
        spent, within = keys.delta, True
    within = within and (keys is None or keys.tells(details.level, promise.adjacency))
    if spent >= promise.delta or not within:
        raise ValueError("finding its keys tells more than its share")
    # a difference of doubles within a factor of two is exact; else it is rounded down
    return gaussian_mu(epsilon=promise.epsilon, delta=math.nextafter(promise.delta - spent, 0.0))


def covers(details: PeopleDetails, level: float) -> bool:
    """Return whether the noise hides a person within a level, exactly, in fractions."""
    if details.promise.pure:
        # reach/b <= ε
        above, below = details.scale
        return details.norm == 1 and details.reach * below <= Fraction(level) * above
    # reach² (1 + slack) <= μ² (s² − 16)
    spare = details.variance - int(ROUNDING_VARIANCE)
    return Fraction(details.reach) ** 2 * DISCRETE_SLACK <= Fraction(level) ** 2 * spare


# Queries that a file may hold: their modules are read before one is.
STORED = (GroupBy, Median, MomentStatistic, Present, Quantiles, Ratio)
PEOPLE = Kind(
    name=KIND,
    details=PeopleDetails,
    recompute=recompute,
    sections="tacit.statistics.page:sections",
    proof="tacit.statistics.people.proof:proof",
)
