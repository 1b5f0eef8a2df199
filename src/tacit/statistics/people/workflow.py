"""Prepare a release under differential privacy of the table's people."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit._ground.checks import RandomSource
from tacit._ground.frozen import read_only
from tacit.releases.promises import AUTO
from tacit.releases.release import Release
from tacit.statistics.bounded.contributions import MOST_ROWS, Contributions, contributions
from tacit.statistics.bounded.workflow import summable
from tacit.statistics.caps import caps_of
from tacit.statistics.details import PROJECTED, NumbersDetails, Turn
from tacit.statistics.people.consistent import consistency_of
from tacit.statistics.people.contributors import Contributors, InPieces
from tacit.statistics.people.keys import KeySearch
from tacit.statistics.people.plan import PeopleBudget, PeoplePlan, people_plan
from tacit.statistics.people.quantiles import (
    ChoiceRanges,
    QuantileChooser,
    Weighed,
    WeighedRows,
)
from tacit.statistics.people.radius import TooFewSumsError, left_of, radius_search
from tacit.statistics.people.ranges import RangeSearch
from tacit.statistics.people.release import KIND, TRUTH, PeopleDetails, certify
from tacit.statistics.people.vectors import GRID_BITS, MOST_SUMS
from tacit.statistics.pools import Pool
from tacit.statistics.prepared import (
    PreparedNumbers,
    ReleaseWords,
    StatisticRequest,
    template,
)
from tacit.statistics.queries.chosen import chosen_of
from tacit.statistics.queries.counts import KeyCount
from tacit.statistics.queries.statistic import SumQuery

# Noise of ε alone is told of where it is this part of the other or less.
CHEAPER = 0.75
# How far a person moves the numbers, in rows, where it shall be found and cannot.
FALLBACK_CLIP = 10.0
METHODS = {
    2: "least discrete Gaussian noise for all that one {} adds, clipped",
    1: "least discrete Laplace noise for all that one {} adds, clipped",
}
CHOICE = "each quantile of {}s chosen among points, by the exponential mechanism"
CONSISTENT = (
    "counts of rows were made whole and non-negative, and counts and sums made to add up, by "
    "least squares of the noisy numbers. Their ± holds the number without noise in at least 95% "
    "of releases, and is larger where a number was moved far"
)


@dataclass(frozen=True)
class FoundKeys:
    """How the keys of a column were found.

    Attributes:
        column: its name.
        search: how.
    """

    column: str
    search: KeySearch


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedPeople(PreparedNumbers):
    """Numbers about people that are certified and not yet drawn; for the holder of the table."""

    plan: PeoplePlan = field(repr=False)

    def read(self) -> None:
        """Ask for what the draw needs where the rows are, so that it cannot fail for want of it.

        Raises:
            ValueError: the engine that has their rows refuses.
        """
        self.plan.read()

    def _drawn(self) -> Release[NumbersDetails]:
        plan, planned = with_radius(self.plan, self.planned, self.source)
        known = replace(self, plan=plan, planned=planned)
        drawn = super(PreparedPeople, known)._drawn()
        words = plan.clip_words()
        return replace(drawn, remarks=(*drawn.remarks, *([] if words is None else [words])))


def prepare(request: StatisticRequest) -> PreparedPeople:
    """Certify a query that adds up over persons whose vectors are clipped."""
    source, promise = request.source(), request.promise
    level = promise.epsilon if promise.pure else promise.largest_mu()
    plan, planned = certify_people(request, level, source=source)
    return PreparedPeople.of(planned, plan, planned.guarantees[1], source)


def certify_people(
    request: StatisticRequest,
    level: float,
    *,
    source: np.random.Generator,
    session: Turn | None = None,
    found: FoundKeys | None = None,
    ranges: RangeSearch | None = None,
) -> tuple[PeoplePlan, Release[Any]]:
    """Return the plan of a query, and the release but for what is drawn.

    Args:
        request: what is asked.
        level: ε of a promise without δ, else μ, that every person has to keep.
        source: of the attack.
        session: which answer of a session it is.
        found: how the keys of a column were found, and which column it is.
        ranges: how bounds were found, and of which columns.

    Raises:
        ValueError: a query that does not add up, one that reads what was found in the table, or
            a clip that nobody declared.
    """
    query, pool, promise = summable(request), request.pool, request.promise
    added = contributions(query, pool.columns, pool.bounds)
    clip = _declared_clip(added, promise)
    left = level if found is None else left_of(level, found.search.share, pure=False)
    left = left if ranges is None else ranges.left(left, pure=promise.pure)
    persons = _contributors(added, pool)
    chooser, chosen_share = _chooser(query, pool, promise, left, persons)
    # what quantiles leave for the sums; where all numbers are quantiles, no sum needs any
    left = left_of(left, chosen_share, pure=promise.pure) if query.terms else left
    search = None if clip is not None else radius_search(len(query.terms), left, pure=promise.pure)
    share = 0.0 if search is None else search.share
    budget = PeopleBudget(
        pure=promise.pure,
        level=left_of(left, share, pure=promise.pure) if search else left,
        adjacency=promise.adjacency,
    )
    plan = people_plan(added, persons, budget, clip, search, request.cost, chooser)
    declared = pool.declaration()
    if promise.consistent:
        key = None if found is None else found.column
        held = consistency_of(
            query.asked, pool.as_columns(looked_at=False), declared["levels"], key
        )
        plan = replace(plan, consistency=held)
    details = PeopleDetails(
        promise=replace(
            promise, bounds=declared["bounds"] or None, levels=declared["levels"] or None
        ),
        query=query.asked,
        columns=pool.columns,
        level=level,
        radius=0,
        grid_bits=0 if plan.metric.whole else GRID_BITS,
        norm=1 if promise.pure else 2,
        variance=0,
        scale=(1, 1),
        found="declared" if search is None else "private",
        share=share,
        engine=persons.engine,
        quantiles=0 if chooser is None else len(chooser.asked),
        quantile_share=chosen_share,
        quantile_ranges=(0.0, 0.0)
        if chooser is None
        else (chooser.ranges.value, chooser.ranges.end),
        key_column=None if found is None else found.column,
        keys=None if found is None else found.search,
        ranges=ranges,
        session=session,
    )
    trials = request.effort.trials
    planned = request.release(
        KIND,
        certify(details),
        details,
        replace(
            template(query.names, plan, TRUTH, added.limits()),
            tails="laplace" if promise.pure else "normal",
        ),
        words=ReleaseWords(
            secret=details.secret,
            method=(METHODS[details.norm] if query.terms else CHOICE).format(details.unit),
            notes=(*_notes(added, pool, details), *_of_codes(pool, found)),
            remarks=_cheaper(promise, budget, level) if query.terms else (),
        ),
        attack=plan.attack(trials, source) if trials else None,
    )
    # whose place an attack found is nobody's to keep
    planned = replace(planned, details=replace(planned.details, most_exposed=None))
    return plan, _told_radius(planned, plan)


def certify_clipped(
    request: StatisticRequest,
    level: float,
    *,
    source: np.random.Generator,
    session: Turn | None = None,
    found: FoundKeys | None = None,
    ranges: RangeSearch | None = None,
) -> tuple[PeoplePlan, Release[Any]]:
    """Return the same; where too few keys were found to find a clip, at ``FALLBACK_CLIP`` rows.

    How many sums there are follows from the keys that were found: what depends on it is
    post-processing.

    Args:
        request: as for ``certify_people``.
        level: as there.
        source: as there.
        session: as there.
        found: as there.
        ranges: as there.

    Raises:
        ValueError: as there.
    """
    rest: dict[str, Any] = {
        "source": source, "session": session, "found": found, "ranges": ranges,
    }  # fmt: skip
    try:
        return certify_people(request, level, **rest)
    except TooFewSumsError:
        if found is None:
            raise
        declared = replace(request, promise=replace(request.promise, clip=FALLBACK_CLIP))
        return certify_people(declared, level, **rest)


def _contributors(added: Contributions, pool: Pool) -> Contributors:
    """Return what persons add, which is summed where their rows are."""
    if len(added.query.terms) > MOST_SUMS:
        raise ValueError(f"query: expected at most {MOST_SUMS} sums, got more")
    if pool.elsewhere is not None:
        gathered: Contributors = pool.elsewhere(added)
        return gathered
    assert pool.persons is not None, "a promise about people reads their column"
    if len(pool.rows) > MOST_ROWS:
        raise ValueError(f"pool: expected at most {MOST_ROWS} rows, got more")
    return InPieces.of(added, pool.rows, pool.persons)


def with_radius(
    plan: PeoplePlan, planned: Release[Any], rng: RandomSource
) -> tuple[PeoplePlan, Release[Any]]:
    """Return the plan and the release with the radius, which is found where none was declared."""
    if plan.radius is not None:
        return plan, planned
    found = plan.found(rng)
    return found, _told_radius(planned, found)


def _told_radius(planned: Release[Any], plan: PeoplePlan) -> Release[Any]:
    """Return the release with the radius and the law of its noise, once they are known."""
    if plan.radius is None:
        return planned
    noise = plan.budget.noise(plan.metric, plan.radius)
    details = replace(
        planned.details, radius=plan.radius, variance=noise.variance, scale=noise.scale
    )
    if not plan.added.query.terms:
        return replace(planned, details=details)
    rows = plan.radius * plan.metric.step
    told = (
        f"what one {details.unit} adds to all numbers together, as one vector, is no longer than "
        f"{rows:.6g} of the largest rows"
    )
    # in its place among the notes that do not depend on it
    notes = (planned.notes[0], told, *planned.notes[1:])
    return replace(planned, details=details, notes=notes)


def _chooser(
    query: SumQuery, pool: Pool, promise: Any, level: float, persons: Any
) -> tuple[QuantileChooser | None, float]:
    """Return what chooses the quantiles of a query, and their share of μ² (or of ε).

    Every number of the query, chosen or computed, has an equal share.
    """
    asked = tuple(chosen_of(query.function))
    if not asked:
        return None, 0.0
    weighed: Weighed = persons
    if pool.elsewhere is None:
        assert pool.persons is not None, "a promise about people reads their column"
        weighed = WeighedRows(pool.rows, pool.persons)
    share = len(asked) / _noised(query)
    ranges = ChoiceRanges.of(level, share, len(asked), pure=promise.pure)
    return QuantileChooser(asked, ranges, promise.adjacency, weighed), share


def _of_codes(pool: Pool, found: FoundKeys | None) -> list[str]:
    """Return what codes stand for, but for those of keys that were found, which names repeat."""
    if pool.elsewhere is not None:
        # groups are named by what they are
        return []
    lines = pool.notes(hidden=True)
    own = "" if found is None else f"codes of {found.column}:"
    return [one for one in lines if not own or not one.startswith(own)]


def _cheaper(promise: Any, budget: PeopleBudget, level: float) -> tuple[str, ...]:
    """Return what the holder should know where ε alone would cost less noise.

    For a clip of C rows it is √2 C/ε of Laplace's law, else C/μ, where all is spent on sums.
    """
    if promise.pure or promise.epsilon is None or budget.level < level:
        return ()
    share = math.sqrt(2.0) * budget.level / promise.epsilon
    if share > CHEAPER:
        return ()
    return (
        f"--epsilon without --delta would need {share:.2g} of this noise for the same clip. The "
        f"clip then limits the sum of what one {promise.secret_unit} adds instead of its "
        "length, which is cheaper for few numbers, and a ledger counts ε",
    )


def _noised(query: SumQuery) -> int:
    """Return how many numbers of a query need a budget: all but those that are known."""
    return len(query.names) - sum(isinstance(one, KeyCount) for one in query.asked)


def _declared_clip(added: Contributions, promise: Any) -> float | None:
    """Return the radius in rows; None where it shall be found.

    Raises:
        ValueError: none was declared, where a person may add more than any number of rows.
    """
    terms = added.query.terms
    # who counts once in the one cell there is adds 1 at most: a longer clip cuts nobody, for more
    # noise; and where nothing is summed none is cut
    if not terms or (len(terms) == 1 and terms[0].once):
        return 1.0 if promise.clip in (None, AUTO) else min(1.0, float(promise.clip))
    if promise.clip == AUTO:
        return None
    if promise.declared_clip is not None:
        return float(promise.declared_clip)
    raise ValueError(
        "clip: expected as how many of the largest rows one person may count at most, such as 10 "
        f"(more is cut, less is less noise), or {AUTO}, got none"
    )


def _notes(added: Contributions, pool: Pool, details: PeopleDetails) -> list[str]:
    """Return what a reader should know of the numbers."""
    clamped = [pool.columns[one] for one in np.flatnonzero(np.isfinite(added.lows)).tolist()]
    notes = []
    if added.query.terms:
        notes.append(f"what one {details.unit} adds, in all rows and numbers together, is clipped")
    caps = caps_of(details.promise, grouped=True)
    if caps is not None:
        notes.append(caps.words(details.unit))
    if any(term.once for term in added.query.terms):
        notes.append(f"count says how many {details.unit}s there are; rows counts their rows")
    if details.quantiles:
        notes.append(
            f"in a quantile every {details.unit} weighs one, spread over the rows; it is chosen "
            "among declared points, and its interval holds it in 95% of releases, whatever the "
            "table"
        )
    if details.keys is not None:
        notes.append(
            f"keys of {details.key_column} that nobody declared were found from the table for "
            f"{details.keys.share:.3g} of the budget and a δ of {details.keys.delta:.3g}; keys "
            f"that few {details.unit}s have are not among them"
        )
    if details.ranges is not None:
        held: Any = details.promise.bounds or {}
        told = (f"{one} {held[one][0]:g} to {held[one][1]:g}" for one in details.ranges.columns)
        notes.append(
            f"bounds that nobody declared were found from the table for {details.ranges.share:.3g} "
            f"of the budget: {', '.join(told)}; numbers that few {details.unit}s have lie outside, "
            "and are taken as the bounds"
        )
    if details.promise.consistent:
        notes.append(CONSISTENT)
    if clamped:
        notes.append(
            f"a number outside the declared bounds counts as the nearer bound: {', '.join(clamped)}"
        )
    if details.found == "private":
        notes.append(
            f"the length of the clip was found from the table for {details.share:.3g} of the "
            "budget; errors told before the draw assume 8 rows"
        )
    return [*notes, PROJECTED, "errors are computed from the released sums"]
