"""Prepare a statistic under every promise at one success, and attack them alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource, array, generator
from tacit.attacks import shadow_attack
from tacit.releases.promises import AUTO, Draw, Effort, Promise, Rows, Table, check_effort
from tacit.releases.release import Attack
from tacit.statistics.bounded.plan import TablePlan
from tacit.statistics.opening import open_pool, read_frame
from tacit.statistics.people.plan import PeoplePlan
from tacit.statistics.pools import Pool
from tacit.statistics.prepared import PreparedNumbers, attack_of
from tacit.statistics.queries.language import bind_query
from tacit.statistics.queries.statistic import Columns, SumQuery
from tacit.statistics.rows.plan import SumPlan
from tacit.statistics.workflow import AnyQuery, prepare
from tacit_lab.comparison.result import Comparison, PromiseResult
from tacit_lab.comparison.simulated import can_simulate, simulate_releases

EFFORT, QUIET = Effort(), Effort(trials=0)
AddedPlan = TablePlan | PeoplePlan
# Rows that are attacked, a half of them those farthest from the middle.
ATTACKED_ROWS, FARTHEST_SHARE = 60, 2
# Simulated releases by which a shadow attack learns anything.
SMALLEST_TRIALS = 16
# Of these, with a row and without it, those by which a shadow attack learns of it.
SMALLEST_SHARE = 2
HIDES = {
    "rows": "whether a {} was drawn, from whoever knows the pool and what was drawn of all other "
    "pairs",
    "draw": "the whole draw up to its nats, from whoever knows the pool and the list of draws, but "
    "none of the draw",
    "table": "that a {} is in the table at all, from whoever knows every other {}",
}
NO_TABLE = (
    "no promise about the table: it needs bounds of every column that is added, declared without "
    "looking at the table"
)
FOUND = (
    "no promise about the table: its errors depend on bounds that are found, which a release alone "
    "does"
)
NO_SUMS = "no promise about the table: only queries that add up over rows have one"


def compare(
    query: AnyQuery,
    pool: Any,
    promise: Table,
    effort: Effort = EFFORT,
    *,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    cost: Any = None,
    rng: RandomSource = None,
) -> Comparison:
    """Set the promises side by side at one success of guessing membership; nothing is released.

    Rows by matched and by random pairs, the whole draw, and, where bounds are declared, the table.
    Each is attacked by who is told all that its promise allows, and by the same LiRA, which has
    simulated releases alone. Errors are in units of the sampling error of the whole table, and
    their totals hold the noise, the sampling error of the rows that are used, and what declared
    bounds clip. Counts and sums of half of the rows are taken for half of the whole table's.

    Args:
        query: as for ``prepare``.
        pool: as for ``prepare``.
        promise: about the table, by its ``success`` s; without ``bounds`` it is left out, and the
            others are set side by side at s. With ``person`` all of them hide persons.
        effort: as for ``prepare``; 16 trials at least, or 0 for no attack.
        columns: as for ``prepare``.
        target: as for ``prepare``.
        cost: as for ``prepare``.
        rng: seed or generator of the simulations; the operating system's when None.

    Returns:
        The ``Comparison``, for the holder of the table: it is computed from the table.

    Raises:
        ValueError: as ``prepare``.

    Example:
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> quiet = Effort(trials=0)
        >>> found = compare("mean", heights, Table(success=0.6, bounds=[(100, 250)]), quiet)
        >>> [result.name for result in found.results]
        ['rows matched', 'rows random', 'draw', 'table']
        >>> bool(found.results[0].noise < found.results[2].noise)
        True

    Source: residual-pac, App. C.2 (equal success); Carlini et al. (2022) for LiRA.
    """
    if not isinstance(promise, Table):
        raise ValueError(f"promise: expected a Table, got {type(promise).__name__}")
    if promise.success is None:
        raise ValueError("success: expected the one at which promises are compared, got none")
    limit = promise.success
    check_effort(effort)
    if 0 < effort.trials < SMALLEST_TRIALS:
        raise ValueError(f"trials: expected 0, or {SMALLEST_TRIALS} and more, got {effort.trials}")
    whose: dict[str, Any] = {"person": promise.person, "unit": promise.unit}
    declared = Rows(success=limit, levels=promise.levels, **whose)
    pool, levels = read_frame(pool, columns, declared, query=query, target=target)
    table, held = replace(promise, levels=levels), replace(declared, levels=levels)
    known = open_pool(pool, columns, held)
    count, unit_word = len(known.units), held.secret_unit
    why = _no_table(query, known, table, target)
    asked: dict[str, Promise] = {
        "rows matched": held,
        "rows random": replace(held, pairs="random"),
        "draw": Draw(success=limit, **whose),
        **({} if why else {"table": table}),
    }
    source, notes, results = generator(rng), [why] if why else [], list[PromiseResult]()
    unit = share = np.zeros(0)
    for name, one in asked.items():
        try:
            prepared = prepare(
                query, pool, one, effort, columns=columns, target=target, cost=cost, rng=source
            )
        except ValueError as error:
            if name != "table":
                raise
            notes.append(f"the promise about the table is left out: {error}")
            continue
        if not results:
            share = _share(prepared, count)
            unit = _unit(prepared, count, share)
        if isinstance(prepared.plan, PeoplePlan):
            # a clip that is found is found here as a release would find it
            prepared = replace(prepared, plan=prepared.plan.found(source))
        result = _result(name, one.word, prepared, count, unit, share)
        hides = HIDES[one.word].format(unit_word, unit_word)
        if isinstance(prepared.plan, AddedPlan):
            plan: AddedPlan = prepared.plan
            every = table
            if table.max_rows or table.max_groups:
                # the same without caps, of which no more than the numbers as they are is read
                every = replace(table, max_rows=None, max_groups=None, clip=1.0)
                uncapped = prepare(
                    query, pool, every, QUIET, columns=columns, target=target, cost=cost
                ).plan
                assert isinstance(uncapped, AddedPlan)
                plan = uncapped
            whole = open_pool(pool, columns, every)
            clipping = _clipping(query, prepared.plan, plan, whole, target)
            result = replace(result, clipping=clipping)
            if clipping.any():
                notes.append(_clipped_note(prepared, len(known.rows), unit_word))
        attacks = list(prepared.planned.attacks)
        if effort.trials and result.errors.any() and can_simulate(prepared.plan):
            rows = _choose_attacked(known.unit_rows)
            attacks += _lira(prepared, rows, effort.trials, source)
        results.append(replace(result, hides=hides, attacks=tuple(attacks)))
        description, names = prepared.description, prepared.planned.names
    return Comparison(
        query=description,
        names=names,
        success=limit,
        results=tuple(results),
        notes=tuple(notes),
        unit=unit_word,
    )


def _no_table(query: AnyQuery, pool: Pool, promise: Table, target: str | None) -> str:
    """Return why there is no promise about the table; empty where there is one."""
    if promise.bounds is None and promise.levels is None and promise.person is None:
        return NO_TABLE
    if isinstance(promise.bounds, Mapping) and AUTO in map(str, promise.bounds.values()):
        return FOUND
    computed = bind_query(query, pool.as_columns(looked_at=True), target)
    return "" if isinstance(computed, SumQuery) else NO_SUMS


def _choose_attacked(pool: Any) -> npt.NDArray[np.intp]:
    """Return rows to attack: half of them farthest from the middle, half spread over the pool."""
    values = array("pool", pool, ndim=(1, 2))
    rows = values.reshape(len(values), -1)
    scales = rows.std(axis=0)
    # columns in units of their deviations: rows far out are told best
    units = (rows - rows.mean(axis=0)) / np.where(scales > 0.0, scales, 1.0)
    far = np.argsort(-np.square(units).sum(axis=1), kind="stable")[
        : ATTACKED_ROWS // FARTHEST_SHARE
    ]
    spread = np.linspace(0, len(rows) - 1, min(len(rows), ATTACKED_ROWS - len(far))).astype(int)
    return np.unique(np.concatenate([far, spread]))


def _result(
    name: str, promise: str, prepared: PreparedNumbers, count: int, unit: Array, share: Array
) -> PromiseResult:
    bound, plan = prepared.membership, prepared.plan
    whole = isinstance(plan, AddedPlan)
    return PromiseResult(
        name=name,
        promise=promise,
        hides=HIDES[promise],
        success=bound.success,
        evidence=bound.evidence,
        # those expected of a table are of its bounds alone; this comparison is the holder's
        errors=plan.errors_here() if isinstance(plan, AddedPlan) else plan.errors / share,
        sampling=unit if whole else _sampling(plan) / share,
        clipping=np.zeros(len(plan.errors)),
        unit=unit,
        rows=count if whole else count // 2,
    )


def _sampling(plan: Any) -> Array:
    """Return the sampling errors of the numbers of the rows that are drawn, (d,)."""
    return np.asarray(plan.spread.deviations if isinstance(plan, SumPlan) else plan.sampling)


def _share(prepared: PreparedNumbers, count: int) -> Array:
    """Return the share of the whole table's number that half of the rows have, (d,)."""
    plan = prepared.plan
    share = np.ones(len(prepared.expected))
    if isinstance(plan, SumPlan):
        # sums and counts of half of the rows stand for the whole table's times ⌊N/2⌋/N
        share[plan.query.additive_numbers] = (count // 2) / count
    return share


def _unit(prepared: PreparedNumbers, count: int, share: Array) -> Array:
    """Return the sampling errors of the whole table, (d,), from those of a half of it."""
    plan = prepared.plan
    half = plan.frame.spread if isinstance(plan, SumPlan) else _sampling(plan)
    # of N independent rows instead of ⌊N/2⌋
    return np.asarray(half / share * np.sqrt((count // 2) / count))


def _clipping(
    query: AnyQuery, plan: AddedPlan, every: AddedPlan, whole: Pool, target: str | None
) -> Array:
    """Return how far clipping moves each number, (d,).

    ``|T(clip(x)) − T(x)|`` of the query T on the rows x as they are, for the numbers of the table
    promise that are nearer to T(clip(x)): counts in bins are of the rows as they are. Of persons,
    with what caps and clipping each of them move beside it, sign by sign; ``every`` is the plan,
    and ``whole`` the pool, that no cap cuts.
    """
    # the rows as they are taken under the bounds, and as they are
    clipped = whole.rows.copy()
    for place, (low, high) in whole.bounds.items():
        np.clip(whole.rows[:, place], low, high, out=clipped[:, place])
    computed = bind_query(query, Columns(whole.columns, whole.rows), target)
    truth, inside = (np.atleast_1d(computed(some)) for some in (whole.rows, clipped))
    numbers, moved = every.numbers_here(), np.zeros(len(plan.errors))
    if isinstance(numbers, tuple):
        numbers = numbers[0]
        moved = plan.numbers_here()[1] - numbers
    if truth.shape != numbers.shape:
        return np.abs(moved)
    # bins of a histogram are of the rows themselves, whatever the bounds: nothing is clipped there
    nearer = np.abs(numbers - inside) < np.abs(numbers - truth)
    return np.abs(np.where(nearer, inside - truth, 0.0) + moved)


def _clipped_note(prepared: PreparedNumbers, rows: int, unit: str) -> str:
    details = prepared.planned.details
    if isinstance(prepared.plan, TablePlan):
        return clipped_words(details.clamped_rows, rows)
    return (
        f"what {unit}s have beyond the declared bounds and the clip is left out: the errors of "
        "the table promise hold what that changes"
    )


def clipped_words(clamped: int, count: int) -> str:
    """Say how many rows lie outside the declared bounds."""
    return (
        f"{clamped:,} of {count:,} rows are outside the declared bounds and taken as these: the "
        "errors of the table promise hold what that changes"
    )


def _lira(
    prepared: PreparedNumbers, rows: npt.NDArray[np.intp], trials: int, source: np.random.Generator
) -> list[Attack]:
    releases, inside = simulate_releases(prepared.plan, rows, trials, source)
    # rows in no pair are never drawn, and of few trials some are hardly ever in, or out
    half = trials // 2
    learnt = inside[:half].sum(axis=0)
    live = (learnt >= SMALLEST_SHARE) & (learnt <= half - SMALLEST_SHARE)
    if not live.any():
        return []
    attack = shadow_attack(releases, inside[:, live], shadows=half)
    return [attack_of(attack, prepared.membership.task)]
