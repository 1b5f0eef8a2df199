"""Prepare a release under differential privacy of the table's rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit.guarantees import GaussianDP
from tacit.guarantees.adjacency import Adjacency
from tacit.guarantees.base import Guarantee
from tacit.releases.release import Release
from tacit.statistics.bounded.contributions import Contributions, contributions
from tacit.statistics.bounded.noise import TableNoise
from tacit.statistics.bounded.plan import TablePlan, table_plan
from tacit.statistics.bounded.release import (
    KIND,
    SECRET,
    TRUTH,
    NoisePart,
    TableDetails,
    certify,
)
from tacit.statistics.details import PROJECTED, Turn
from tacit.statistics.pools import Pool
from tacit.statistics.prepared import PreparedNumbers, ReleaseWords, StatisticRequest, template
from tacit.statistics.promises import Keeping
from tacit.statistics.queries.chosen import chosen_of
from tacit.statistics.queries.language import summable_queries
from tacit.statistics.queries.statistic import SumQuery

METHOD = "least noise for the declared bounds"
# Sums under correlated noise, of which the law is written into a file: some megabytes.
MOST_STORED = 256


def prepare(request: StatisticRequest) -> PreparedNumbers:
    """Certify a query that adds up over a table whose rows are clamped to declared bounds."""
    source = request.source()
    mu = request.promise.largest_mu()
    plan, planned = certify_table(request, mu, source=source)
    return PreparedNumbers.of(planned, plan, planned.guarantees[1], source)


def counts(request: StatisticRequest) -> type[Guarantee]:
    """Return the kind of guarantee that a ledger will count."""
    del request
    return GaussianDP


def certify_table(
    request: StatisticRequest,
    mu: float,
    *,
    source: np.random.Generator,
    session: Turn | None = None,
) -> tuple[TablePlan, Release[Any]]:
    """Return the plan of a query, and the release but for what is drawn.

    Args:
        request: what is asked.
        mu: μ that every row has to keep.
        source: of the attack.
        session: which answer of a session it is.

    Raises:
        ValueError: a query that does not add up, or one that reads what was found in the table.
    """
    query, pool, adjacency = summable(request), request.pool, request.promise.adjacency
    trials = request.effort.trials
    added = contributions(query, pool.columns, pool.bounds)
    plan = table_plan(added, pool.rows, mu, adjacency, request.cost)
    declared = pool.declaration()
    details = TableDetails(
        promise=replace(
            request.promise, bounds=declared["bounds"] or None, levels=declared["levels"] or None
        ),
        query=query.asked,
        columns=pool.columns,
        mu=mu,
        noise=_stored_noise(plan.noise),
        table_rows=len(pool.rows),
        clamped_rows=added.count_clamped(pool.rows),
        session=session,
    )
    planned = request.release(
        KIND,
        certify(mu, details),
        details,
        template(query.names, plan, TRUTH, added.limits()),
        words=ReleaseWords(
            secret=SECRET,
            method=METHOD,
            notes=(*_notes(added, pool, adjacency), *pool.notes(hidden=True)),
        ),
        attack=plan.attack(trials, source) if trials else None,
    )
    return plan, planned


def summable(request: StatisticRequest) -> SumQuery:
    """Return the query, which has to add up and to read nothing that was found in the table.

    Raises:
        ValueError: it does not.
    """
    query, pool = request.query, request.pool
    if not isinstance(query, SumQuery):
        raise ValueError(
            f"query: expected one of {', '.join(summable_queries())} under the promise about a "
            f"table, whose sums are bounded by what one row adds, got {query.description!r}"
        )
    read = {place for one in query.terms for place in (*one.factors, *one.columns)}
    for chosen in chosen_of(query.function):
        read |= {chosen.column, *(one.column for one in chosen.conditions)}
    undeclared = sorted(
        pool.columns[one] for one in read if pool.columns[one] in pool.observed_columns
    )
    if undeclared:
        raise ValueError(
            f"levels: expected the categories of {', '.join(undeclared)} to be declared when the "
            "table is read, as one row more may change the codes of all, got those found in it"
        )
    return query


def _stored_noise(noise: TableNoise) -> tuple[NoisePart, ...] | None:
    """Return the law of the noise for a file; None where it would be too large."""
    correlated = [len(chosen) for chosen, law in noise.parts if law.kind != "diagonal"]
    if max(correlated, default=0) > MOST_STORED:
        return None
    return tuple(NoisePart(places=tuple(chosen.tolist()), law=law) for chosen, law in noise.parts)


def _notes(added: Contributions, pool: Pool, adjacency: Adjacency) -> list[str]:
    """Return what a reader should know of the numbers."""
    clamped = [pool.columns[one] for one in np.flatnonzero(np.isfinite(added.lows)).tolist()]
    notes = [
        f"a number outside the declared bounds counts as the nearer bound: {', '.join(clamped)}"
        if clamped
        else "only conditions on the rows are counted: no number is added up, and none is clamped"
    ]
    if adjacency is Adjacency.REPLACE:
        notes.append(f"the number of rows, {len(pool.rows):,}, is public")
    return [*notes, PROJECTED, "errors are computed from the released sums"]


KEEPING = Keeping(
    prepare=prepare,
    counts=counts,
    session="tacit.statistics.bounded.session:TableQuestions",
    looks=False,
    fewest=0,
)
