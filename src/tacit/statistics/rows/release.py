"""A release by pairs: what it promises in words, what it keeps, and how it is worked out again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from tacit._ground.checks import integer
from tacit._ground.reprs import short_repr
from tacit.codec import HOLDER, MISSING
from tacit.guarantees import GaussianDP, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.releases.kinds import Kind
from tacit.releases.promises import Rows
from tacit.releases.recompute import only
from tacit.releases.release import Release
from tacit.releases.strength import naming_success, success_of
from tacit.statistics.details import (
    FROM_SYSTEM,
    ON_THE_GRID,
    TOGETHER,
    NumbersDetails,
    check_guarantees,
    check_numbers,
    check_spent,
)

KIND = "statistic-rows"
TRUTH = "statistic of the rows that were drawn"
TASK = "whether any one {} of the pool was drawn"
LAW = "that a fair coin drew one {} of each pair, and how every other coin fell,"
GROUP_LAW = "that a fair die drew one {} of each group, and what it drew of every other group,"
FAMILY_LAW = "that one of the declared draws was drawn, all equally likely,"
SOURCE = (
    "sums move by one swap when one coin is flipped; Dong, Roth and Su (2022), Theorem 2.7 "
    "(Gaussian mechanism); noise by dsi, Theorem 3.3"
)
SWAPS_SOURCE = (
    "joint convexity of total variation over the other coins, the mean bounded on fresh coins by "
    "betting (Waudby-Smith and Ramdas, 2024)"
)
FAMILY_SOURCE = (
    "exact posterior over the declared draws, the mean success bounded on fresh releases by "
    "betting (Waudby-Smith and Ramdas, 2024)"
)
ALONE = "one release; further releases of the same draw add up as μ²"
NOT_COVERED = "one release; further releases of the same draw are not covered"


@short_repr
@dataclass(frozen=True, kw_only=True)
class RowsDetails(NumbersDetails):
    """What a release by pairs keeps.

    Attributes:
        promise: as it was asked for, with the pairs in a word.
        pairing: how the groups were chosen.
        groups: P, of each of which one row, or one person with all rows, is drawn.
        group_size: k, rows or persons in a group.
        left_out: those in no group, never drawn.
        mu: μ that the noise was designed for; None where it rests on simulated releases.
        sums: how many sums the numbers follow from; None where they do not.
        gap: certified relative gap of the noise to the least; NaN where there is none; the
            holder's, as the simulations.
        simulations: draws on which the noise was certified; None where no draw was simulated.
    """

    promise: Rows
    pairing: str
    groups: int
    group_size: int
    left_out: int
    mu: float | None = None
    sums: int | None = None
    gap: Annotated[float, HOLDER, MISSING] = float("nan")
    simulations: Annotated[int | None, HOLDER] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("groups", self.groups, minimum=1)
        integer("group_size", self.group_size, minimum=2)
        integer("left_out", self.left_out, minimum=0)

    @property
    def pool_rows(self) -> int:
        """N, rows of the pool."""
        return self.groups * self.group_size + self.left_out

    @property
    def secret(self) -> str:
        """What is hidden, in words."""
        whose = "pair" if self.group_size == 2 else f"group of {self.group_size}"
        return f"which {self.unit} of each {whose} of the pool was drawn"

    @property
    def unit(self) -> str:
        """The word for what is drawn."""
        return self.promise.secret_unit

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold, and what is not hidden."""
        pair, unit = self.group_size == 2, self.unit
        coin, groups, them = (
            ("a fair coin", "pairs", "pairs")
            if pair
            else ("a fair die", f"groups of {self.group_size}", "groups")
        )
        lines = [
            f"{coin} draws one {unit} of each of {self.groups:,} {groups} of the pool's {unit}s; "
            f"the {them} and the law of the noise are functions of the pool alone",
            "the attacker may know the pool, the groups, the query, the law of the noise and what "
            "was drawn of every other group",
            f"not hidden: that a {unit} is in the pool, and what the {unit}s of one group have in "
            "common, such as near-duplicates",
        ]
        if self.left_out:
            rows = f"1 {unit} is" if self.left_out == 1 else f"{self.left_out:,} {unit}s are"
            lines.append(
                f"not hidden: {rows} in no group and never drawn, which everybody may know"
            )
        several = (
            "several rows of one person or household count as several coins: g of them are hidden "
            "with g times the μ of one"
        )
        if self.promise.person is not None:
            several = (
                f"all rows of a {unit} are drawn together, as the column of the {unit}s tells: "
                "rows under two names count as two"
            )
        return (
            *lines,
            several,
            ALONE if self.session is None else TOGETHER,
            ON_THE_GRID,
            FROM_SYSTEM,
        )


def theorem(mu: float, details: RowsDetails) -> tuple[Guarantee, ...]:
    """Return what noise that keeps every swap within μ certifies, every success rounded up.

    For groups of k > 2, with the row drawn uniformly: whether a row was drawn has prior 1/k, and
    out is a mixture over the others, so the profile of two rows bounds it by convexity; which row
    was drawn is bounded by that of a regular simplex of side μ.
    """
    size, session, unit = details.group_size, details.session, details.unit
    rest: dict[str, Any] = {
        "evidence": "theorem",
        "assumptions": details.assumptions,
        "source": SOURCE,
    }
    blind = max(0.5, 1.0 - 1.0 / size)
    # of an answer: of all answers of its session together
    whole = mu if session is None else session.budget
    membership = SuccessBound(
        success=success_of(whole, 1.0 / size) if whole > 0.0 else blind,
        prior=blind,
        task=TASK.format(unit),
        law=(LAW if size == 2 else GROUP_LAW).format(unit),
        **rest,
    )
    adjacency = (
        f"which {unit} of one pair was drawn"
        if size == 2
        else f"which of two {unit}s of one group of {size} was drawn"
    )
    private = GaussianDP(mu=mu, adjacency=adjacency, **rest)
    if size == 2 or session is not None:
        return membership, private
    named = SuccessBound(
        success=naming_success(mu, size),
        prior=1.0 / size,
        task=f"which of the {size} {unit}s of any one group was drawn",
        law=GROUP_LAW.format(unit),
        **rest,
    )
    return membership, private, named


def certify_simulated(success: float, details: RowsDetails, way: str) -> SuccessBound:
    """Return what a release of any callable certifies, by expected swaps or a declared family."""
    lines = list(details.assumptions)
    if way == "swaps":
        lines[1] = (
            "the attacker may know the pool, the pairs, the query, the law of the noise and every "
            "other coin; its success is on average over the other coins, which are fair"
        )
    else:
        lines[0] = (
            "one of the declared draws, each with its complement, is drawn uniformly; the pairs, "
            "the draws and the law of the noise are functions of the pool alone"
        )
        lines[1] = (
            "the attacker may know the pool, the pairs, the query, the law of the noise and the "
            "list of declared draws; it is not told other coins, of which a few give the draw away"
        )
    return SuccessBound(
        success=success,
        prior=0.5,
        task=TASK.format(details.unit),
        law=LAW.format(details.unit) if way == "swaps" else FAMILY_LAW,
        evidence="statistical",
        confidence=details.promise.confidence,
        assumptions=tuple(NOT_COVERED if line == ALONE else line for line in lines),
        source=SWAPS_SOURCE if way == "swaps" else FAMILY_SOURCE,
    )


def recompute(release: Release[RowsDetails]) -> str:
    """Work out again what the details determine of a release by pairs.

    Raises:
        ValueError: a guarantee that is not what μ gives, a μ beyond what was asked for or below
            what the noise was designed for, or errors that are not those of the noise.
    """
    details, private = release.details, only(release, GaussianDP)
    check_numbers(release, details.secret, TRUTH)
    if private is not None:
        if details.mu is None:
            raise ValueError("a release by pairs with a μ keeps the μ that its noise has")
        check_spent(release, private.mu, details.promise.largest_mu(), details.mu, "μ")
        check_guarantees(release, theorem(private.mu, details))
        return ""
    # simulated releases certify the success that was asked for, no other
    asked = details.promise.success
    if asked is None:
        raise ValueError("a release by pairs without a μ keeps the success it was asked for")
    way = "swaps" if release.membership.law == LAW.format(details.unit) else "family"
    check_guarantees(release, (certify_simulated(asked, details, way),))
    return "the simulated releases that its success was certified on are not in the file"


ROWS = Kind(
    name=KIND,
    details=RowsDetails,
    recompute=recompute,
    sections="tacit.statistics.page:sections",
    proof="tacit.statistics.rows.proof:proof",
    record="one row of the pool: a person with several rows is as many records",
)
