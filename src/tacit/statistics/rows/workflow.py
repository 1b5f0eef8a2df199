"""Prepare a release by pairs: of a query that adds up by theorem, of any other with confidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit._ground.checks import in_interval
from tacit.guarantees import GaussianDP, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.releases.promises import Rows
from tacit.releases.release import Release
from tacit.statistics.cost import cost_note
from tacit.statistics.details import PROJECTED, Turn
from tacit.statistics.pairs.pairing import Pairing, choose_pairing
from tacit.statistics.persons import RowsOfPersons
from tacit.statistics.pools import Pool
from tacit.statistics.prepared import PreparedNumbers, ReleaseWords, StatisticRequest, template
from tacit.statistics.promises import Keeping
from tacit.statistics.queries.statistic import SumQuery
from tacit.statistics.rows.plan import SumPlan, sum_plan
from tacit.statistics.rows.release import KIND, TRUTH, RowsDetails, certify_simulated, theorem

METHOD = "least noise that covers every swap"
CALLABLE_METHODS = {
    "swaps": "least noise for the swaps expected under fair coins",
    "family": "least noise for the exact posterior over declared draws",
}
FAMILY_NOTE = (
    "membership is hidden from someone who knows the declared draws, not from someone who is told "
    "what was drawn of other pairs; method='swaps' hides it from both"
)
# How far a rate may be from 1/k.
RATE_TOLERANCE = 1e-3
PAIR = 2
# Draws on which a certificate by simulation can be worth anything.
SMALLEST_SIMULATION = 50
# Names in a note, at most.
SHOWN_NAMES = 20
AS_IT_IS = (
    "noise on sums is divided by what numbers divide by, such as small variances: the query as it "
    'is, method="swaps", may need several times less, with confidence in place of the theorem'
)
FEW_ROWS = (
    "no sampling error is given where a few rows make most of it, as under heavy tails or in "
    "small pools: "
)


def prepare(request: StatisticRequest) -> PreparedNumbers:
    """Certify a query over one row of every pair, before anything is drawn."""
    return _prepare_sums(request) if _adds_up(request) else _prepare_callable(request)


def counts(request: StatisticRequest) -> type[Guarantee]:
    """Return the kind of guarantee that a ledger will count."""
    return GaussianDP if _adds_up(request) else SuccessBound


def _adds_up(request: StatisticRequest) -> bool:
    return isinstance(request.query, SumQuery) and request.promise.method in ("auto", "sums")


def _prepare_sums(request: StatisticRequest) -> PreparedNumbers:
    source, promise = request.source(), request.promise
    size = group_size(promise.rate)
    pool = request.pool
    pairing = choose_pairing(promise.pairs, pool.unit_rows, pool.columns, size, source)
    size = size if pairing is None else pairing.group_size
    mu = replace(promise, rate=1.0 / size).largest_mu()
    plan, planned = certify_sums(request, mu, pairing, size, source=source)
    return PreparedNumbers.of(planned, plan, planned.guarantees[1], source)


def certify_sums(
    request: StatisticRequest,
    mu: float,
    pairing: Pairing | None,
    size: int,
    *,
    source: np.random.Generator,
    session: Turn | None = None,
) -> tuple[SumPlan, Release[Any]]:
    """Return the plan of a query that adds up, and the release but for what is drawn.

    Args:
        request: what is asked.
        mu: μ that every swap has to keep.
        pairing: the groups; None for the nearest in what noise costs.
        size: k, rows in a group.
        source: of the attack.
        session: which answer of a session it is.
    """
    query, pool, effort = request.query, request.pool, request.effort
    assert isinstance(query, SumQuery)
    units = pool.units
    plan = sum_plan(
        query,
        pool.rows,
        mu,
        pairing=pairing,
        group_size=size,
        cost=request.cost,
        progress=effort.progress,
        persons=units if isinstance(units, RowsOfPersons) else None,
    )
    design = plan.noise.design
    details = replace(
        describe_pairing(request.promise, request.pool, plan.pairing),
        mu=plan.noise.mu,
        sums=len(query.terms),
        gap=float("nan") if design is None else design.gap,
        session=session,
    )
    planned = request.release(
        KIND,
        theorem(plan.noise.mu, details),
        details,
        template(query.names, plan, TRUTH, query.limits()),
        words=ReleaseWords(
            secret=details.secret,
            method=METHOD,
            notes=(
                *_pairing_notes(plan, request.cost, request.promise.secret_unit),
                *request.pool.notes(hidden=False),
            ),
        ),
        attack=plan.attack(effort.trials, source) if effort.trials else None,
    )
    return plan, _of_units(planned, pool)


def _of_units(planned: Release[Any], pool: Pool) -> Release[Any]:
    """Return a release that does not name a row where persons are drawn."""
    if pool.persons is None:
        return planned
    return replace(planned, details=replace(planned.details, most_exposed=None))


def describe_pairing(asked: Rows, pool: Pool, pairing: Pairing) -> RowsDetails:
    """Return what a release by pairs keeps of its promise and its groups."""
    size = pairing.group_size
    word = asked.pairs if isinstance(asked.pairs, str) else "given"
    levels = pool.declaration()["levels"]
    return RowsDetails(
        promise=replace(
            asked,
            rate=1.0 / size,
            pairs="nearest" if asked.pairs is None else word,
            levels=levels or None,
        ),
        pairing=pairing.method,
        groups=len(pairing),
        group_size=size,
        left_out=int(pairing.left_out.size),
    )


def group_size(rate: float) -> int:
    """Return k where the rate is 1/k.

    Raises:
        ValueError: it is no such rate.
    """
    size = round(1.0 / rate)
    if abs(size * rate - 1.0) > RATE_TOLERANCE:
        raise ValueError(
            "rate: expected 1/k for a whole number k >= 2, as one row of every group of k is "
            f"drawn, got {rate!r}"
        )
    return size


def _pairing_notes(plan: SumPlan, cost: Any, unit: str) -> list[str]:
    """Return what a reader should know of the groups and the numbers."""
    query, pairing = plan.query, plan.pairing
    size, outside = pairing.group_size, int(pairing.left_out.size)
    groups = "pairs" if size == PAIR else f"groups of {size}"
    notes = [f"one {unit} of each of {len(pairing):,} {groups} is drawn ({pairing.method})"]
    if not plan.counted:
        notes.append(f"all rows of a {unit} come and go together, and how many are drawn is noisy")
    if outside:
        rows = f"{unit} is" if outside == 1 else f"{unit}s are"
        notes.append(f"{outside} {rows} in no group and never drawn")
    # what is not linear may have no error at the draws tried, and one at others
    sure = query.linear or plan.noise.design is None
    still = [name for name, error in zip(query.names, plan.errors, strict=True) if error == 0.0]
    if sure and still:
        listed = ", ".join(still[:SHOWN_NAMES])
        notes.append(f"the same whatever is drawn, released without noise: {listed}")
    if not (query.linear and not query.counting):
        notes.append(PROJECTED)
    spread = plan.spread
    wide = not query.linear and bool((plan.errors > spread.deviations).any())
    if wide and size == PAIR:
        notes.append(AS_IT_IS)
    few = [name for name, known in zip(query.names, spread.known, strict=True) if not known]
    if few:
        notes.append(FEW_ROWS + ", ".join(few[:SHOWN_NAMES]))
    return [*notes, cost_note(cost)] if cost is None or isinstance(cost, str) else notes


def _prepare_callable(request: StatisticRequest) -> PreparedNumbers:
    """Certify any query, with confidence."""
    # a query that adds up walks past this
    from tacit.statistics.pairs.matching import nearest
    from tacit.statistics.rows.callables import callable_plan

    query, promise, effort = request.query, request.promise, request.effort
    success = _require_success(promise, query.description)
    rows, source, unit = request.pool.unit_rows, request.source(), promise.secret_unit
    pairing = choose_pairing(promise.pairs, rows, request.pool.columns, PAIR, source)
    if pairing is None:
        squared = isinstance(request.cost, str) and request.cost == "squared"
        pairing = nearest(rows, scaled=not squared, progress=effort.progress)
    if pairing.group_size != PAIR:
        raise ValueError(f"pairs: expected pairs, got groups of {pairing.group_size}")
    if effort.simulations < SMALLEST_SIMULATION:
        raise ValueError(
            f"simulations: expected an integer >= {SMALLEST_SIMULATION} for a query that does not "
            f"add up, got {effort.simulations}"
        )
    plan = callable_plan(request, pairing, success, source)
    details = replace(
        describe_pairing(promise, request.pool, pairing), simulations=effort.simulations
    )
    membership = certify_simulated(success, details, plan.way)
    names = query.labels(plan.errors.size)
    planned = request.release(
        KIND,
        (membership,),
        details,
        template(names, plan, TRUTH),
        words=ReleaseWords(
            secret=details.secret,
            method=CALLABLE_METHODS[plan.way],
            notes=(
                f"one {unit} of each of {len(pairing):,} pairs is drawn ({pairing.method})",
                *([FAMILY_NOTE] if plan.way == "family" else []),
                cost_note(request.cost),
                *request.pool.notes(hidden=False),
            ),
        ),
        attack=plan.attack(effort.trials, source) if effort.trials else None,
    )
    return PreparedNumbers.of(_of_units(planned, request.pool), plan, membership, source)


def _require_success(promise: Rows, description: str) -> float:
    """Return the success that is asked for, the one strength that simulations can certify."""
    if promise.method == "sums":
        raise ValueError(
            "method: expected 'auto', 'swaps', 'family' or 'cheaper' for a query that does not add "
            f"up, such as {description!r}, got 'sums'"
        )
    for name in ("mu", "epsilon", "rho"):
        if getattr(promise, name) is not None:
            raise ValueError(
                f"{name}: expected success for a query that does not add up, such as "
                f"{description!r}, got {name}"
            )
    if group_size(promise.rate) != PAIR:
        raise ValueError(
            f"rate: expected 0.5 for a query that does not add up, got {promise.rate!r}"
        )
    return in_interval("success", promise.success, 0.5, 1.0, open_low=True, open_high=True)


KEEPING = Keeping(
    prepare=prepare, counts=counts, session="tacit.statistics.rows.session:PairQuestions"
)
