"""A release of a table: what it promises, what it keeps, and how it is worked out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tacit._ground.checks import integer, positive
from tacit._ground.reprs import short_repr
from tacit.codec import HOLDER
from tacit.covariance import Covariance
from tacit.guarantees import GaussianDP, SuccessBound
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.kinds import Kind
from tacit.releases.promises import Table
from tacit.releases.recompute import only
from tacit.releases.release import Release
from tacit.releases.strength import success_of
from tacit.statistics.details import (
    FROM_SYSTEM,
    ON_THE_GRID,
    TOGETHER,
    NumbersDetails,
    check_guarantees,
    check_numbers,
    check_spent,
    declared_columns,
)
from tacit.statistics.queries.counts import GroupBy
from tacit.statistics.queries.moments import MomentStatistic
from tacit.statistics.queries.quantiles import Median, Quantiles
from tacit.statistics.queries.statistic import Statistic

KIND = "statistic-table"
TRUTH = "statistic of the rows of the table, within the declared bounds"
SECRET = "any one row of the table"
TASKS = {
    Adjacency.ADD_REMOVE: "whether any one row is in the table",
    Adjacency.REPLACE: "which of two rows is in the table",
}
LAWS = {
    Adjacency.ADD_REMOVE: "every other row, and that a fair coin decided whether this one is in,",
    Adjacency.REPLACE: "every other row, and that a fair coin chose between two for this one,",
}
SOURCE = (
    "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism); least noise for a box by "
    "Cauchy-Schwarz, for counts by dsi, Theorem 3.3"
)
# What a squared distance that is measured again may be above what was designed.
MEASURED_SLACK = 1e-6


@dataclass(frozen=True, kw_only=True)
class NoisePart:
    """The law of the noise on some of the sums, independent of the others.

    Attributes:
        places: which sums, in the order of the terms of the query.
        law: its covariance.
    """

    places: tuple[int, ...]
    law: Covariance

    def __post_init__(self) -> None:
        rising = sorted({integer("places", place, minimum=0) for place in self.places})
        if not rising or rising != list(self.places) or len(rising) != self.law.dim:
            raise ValueError("places: expected one for every number of the law, rising")


@short_repr
@dataclass(frozen=True, kw_only=True)
class TableDetails(NumbersDetails):
    """What a release of a table keeps: all that its certificate follows from is public.

    Attributes:
        promise: as it was asked for, with bounds and levels by the names of the columns.
        query: what was computed.
        columns: names of the columns of the table.
        mu: μ that the noise was designed for.
        noise: its law, part by part; None where it is too large for a file.
        table_rows: N; the holder's, as what follows.
        clamped_rows: rows with a number outside the bounds.
    """

    promise: Table
    query: tuple[Statistic, ...]
    columns: tuple[str, ...]
    mu: float
    noise: tuple[NoisePart, ...] | None = None
    table_rows: Annotated[int | None, HOLDER] = None
    clamped_rows: Annotated[int | None, HOLDER] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("mu", self.mu)
        for name, declared in (("bounds", self.promise.bounds), ("levels", self.promise.levels)):
            given = {} if declared is None else declared
            if not isinstance(given, Mapping) or not set(given) <= set(self.columns):
                raise ValueError(f"promise.{name}: expected them by the names of the columns")

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold, and what is not hidden."""
        counted = (
            "the number of rows is taken as public, as a replaced row does not change it"
            if self.promise.adjacency is Adjacency.REPLACE
            else "whether the row is in or not is equally likely beforehand"
        )
        gaps = (
            "a row in which a column read holds nothing is taken as the middle of the bounds, in "
            "no group"
            if self.promise.adjacency is Adjacency.REPLACE
            else "rows in which a column read holds nothing are left out"
        )
        alone = "one release; further releases of the same table add up as μ²"
        return (
            "the bounds, categories, bins and thresholds were declared without looking at the "
            "table",
            "the attacker may know every other row, the query, the bounds and the law of the noise",
            "several rows of one person count as several: g of them are hidden with g times the μ "
            "of one",
            counted,
            "what is common to all rows of such a kind is not hidden",
            "whether the table could be read is not hidden: a row of another length refuses it",
            gaps,
            alone if self.session is None else TOGETHER,
            ON_THE_GRID,
            FROM_SYSTEM,
        )


def certify(mu: float, details: TableDetails) -> tuple[SuccessBound, GaussianDP]:
    """Return what noise that keeps every row within μ certifies, the success rounded up."""
    adjacency = details.promise.adjacency
    rest: dict[str, Any] = {
        "evidence": "theorem",
        "assumptions": details.assumptions,
        "source": SOURCE,
    }
    # of an answer: of all answers of its session together
    whole = mu if details.session is None else details.session.budget
    membership = SuccessBound(
        success=success_of(whole), prior=0.5, task=TASKS[adjacency], law=LAWS[adjacency], **rest
    )
    # as guarantees of other workflows name them, so that a ledger adds them up
    return membership, GaussianDP(mu=mu, adjacency=adjacency.sentence(), **rest)


def recompute(release: Release[TableDetails]) -> str:
    """Work out again what a release of a table claims, from what is public of it.

    The farthest that one row within the declared bounds moves the sums, under the law of the noise
    in the file, is held against μ.

    Raises:
        ValueError: a row is farther than μ, a success that is not what μ gives, errors that are not
            those of the noise, or an assumption that is missing.
    """
    details, private = release.details, only(release, GaussianDP)
    check_numbers(release, SECRET, TRUTH)
    if private is None:
        raise ValueError("a promise about the table states a μ, and there is none")
    if release.sampling is not None:
        raise ValueError("a promise about the table keeps its sampling error to itself")
    check_spent(release, private.mu, details.promise.largest_mu(), details.mu, "μ")
    check_guarantees(release, certify(private.mu, details))
    if details.noise is None:
        return "the law of its noise is too large for the file"
    _check_noise(details, private.mu)
    return ""


def _check_noise(details: TableDetails, mu: float) -> None:
    """Refuse noise under which a row within the bounds is farther than μ."""
    from tacit.statistics.bounded.contributions import contributions, farthest_distance
    from tacit.statistics.queries.language import bind_query

    query: Any = bind_query(details.query, declared_columns(details.promise, details.columns))
    bounds = declared_columns(details.promise, details.columns).bounds or {}
    added = contributions(query, details.columns, bounds)
    stored = details.noise or ()
    if any(part.places[-1] >= len(query.terms) for part in stored):
        raise ValueError("its noise is of other sums than its query has")
    parts = [(np.array(part.places, dtype=np.intp), part.law) for part in stored]
    farthest = farthest_distance(added, parts, details.promise.adjacency)
    if farthest > mu**2 * (1.0 + MEASURED_SLACK):
        raise ValueError(
            f"under its noise a row lies at μ = {farthest**0.5:.6g}, the guarantee says {mu:.6g}"
        )


# read here, so that a stored query is one of them
STORED = (GroupBy, Median, MomentStatistic, Quantiles)
TABLE = Kind(
    name=KIND,
    details=TableDetails,
    recompute=recompute,
    sections="tacit.statistics.page:sections",
    proof="tacit.statistics.bounded.proof:proof",
    record="one row of the table: a person with several rows is as many records",
)
