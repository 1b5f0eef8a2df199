"""Prepare a statistic under every promise at one success, and attack them alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource, array, generator, in_interval, integer
from tacit.attacks import MembershipAttack, shadow_attack
from tacit.statistics.bounded.plan import TablePlan
from tacit.statistics.comparison.simulated import simulated
from tacit.statistics.comparison.standing import Comparison, Standing
from tacit.statistics.draws import PreparedStatistic
from tacit.statistics.pools import checked_pool, opened_pool
from tacit.statistics.promises import Declared, query_of
from tacit.statistics.rows.plan import SumPlan
from tacit.statistics.sums.statistic import Columns
from tacit.statistics.workflow import AnyQuery, prepare

ATTACKED_ROWS = 60
FARTHEST_SHARE = 2
PAIRED = (
    "whether a row was drawn, from whoever knows the pool and what was drawn of all other pairs"
)
HIDES = {
    "rows": PAIRED,
    "draw": "the whole draw up to its nats, from whoever knows the pool and the list of draws, but "
    "none of the draw",
    "table": "that a row is in the table at all, from whoever knows every other row",
}
NO_TABLE = (
    "no promise about the table: it needs bounds of every column that is added, declared without "
    "looking at the table"
)
NO_SUMS = "no promise about the table: only queries that add up over rows have one"


def compare(
    query: AnyQuery,
    pool: Any,
    *,
    success: float,
    bounds: Any = None,
    levels: Any = None,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    cost: Any = None,
    simulations: int = 2000,
    attack: bool = True,
    attack_trials: int = 2000,
    rng: RandomSource = None,
    workers: int | None = None,
    progress: bool | None = None,
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
        success: s in (½, 1).
        bounds: as for ``prepare``; None leaves the promise about the table out.
        levels: as for ``prepare``.
        columns: as for ``prepare``.
        target: as for ``prepare``.
        cost: as for ``prepare``.
        simulations: as for ``prepare``.
        attack: whether attacks are run.
        attack_trials: simulated releases for each, >= 16.
        rng: seed or generator of the simulations; the operating system's when None.
        workers: processes for the simulations.
        progress: whether to show a bar on a terminal.

    Returns:
        The ``Comparison``, for the holder of the table: it is computed from the table.

    Raises:
        ValueError: as ``prepare``.

    Example:
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> found = compare("mean", heights, success=0.6, bounds=[(100, 250)], attack=False)
        >>> [standing.name for standing in found.standings]
        ['rows matched', 'rows random', 'draw', 'table']
        >>> bool(found.standings[0].noise < found.standings[2].noise)
        True

    Source: residual-pac, App. C.2 (equal success); Carlini et al. (2022) for LiRA.
    """
    limit = in_interval("success", success, 0.5, 1.0, open_low=True, open_high=True)
    trials = integer("attack_trials", attack_trials, minimum=16)
    pool, levels = opened_pool(pool, columns, levels=levels, query=query, target=target)
    source = generator(rng)
    options: dict[str, Any] = {
        "success": limit,
        "columns": columns,
        "target": target,
        "cost": cost,
        "attack": attack,
        "attack_trials": trials,
        "progress": progress,
    }
    simulating = {"simulations": simulations, "workers": workers}
    notes: list[str] = []
    standings: list[Standing] = []
    unit = share = np.zeros(0)
    described, names = "", ()
    rows = _attacked(pool)
    asked = {
        "rows matched": {"protect": "rows", "levels": levels, **simulating},
        "rows random": {"protect": "rows", "pairs": "random", "levels": levels} | simulating,
        "draw": {"protect": "draw", **simulating},
    }
    table = {"protect": "table", "bounds": bounds, "levels": levels}
    for name, more in _with_table(asked, table, query, bounds, notes):
        prepared: Any
        try:
            prepared = prepare(query, pool, rng=source, **options, **more)
        except ValueError as error:
            if name != "table":
                raise
            notes.append(f"the promise about the table is left out: {error}")
            continue
        names = tuple(entry.name for entry in prepared.expected)
        described = prepared.description
        if not standings:
            share = _share(prepared, len(pool))
            unit = _unit(prepared, len(pool), share)
        standing = _standing(name, str(more["protect"]), prepared, len(pool), unit, share)
        if isinstance(prepared.plan, TablePlan):
            clipping = _clipping(query, pool, prepared.plan, options, table)
            standing = replace(standing, clipping=clipping)
            if clipping.any():
                notes.append(clipped_words(prepared.diagnostics["clamped_rows"], len(pool)))
        found = [] if prepared.attack is None else [prepared.attack]
        if attack and standing.errors.any():
            found.append(_lira(prepared, rows, trials, source))
        standings.append(replace(standing, attacks=tuple(found)))
    return Comparison(
        query=described,
        names=names,
        success=limit,
        standings=tuple(standings),
        notes=tuple(notes),
    )


def _with_table(
    asked: dict[str, dict[str, Any]],
    table: dict[str, Any],
    query: Any,
    bounds: Any,
    notes: list[str],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the promises; the one about the table where it can be made, else a note why not."""
    yield from asked.items()
    if bounds is None and table["levels"] is None:
        notes.append(NO_TABLE)
        return
    if callable(query) or (isinstance(query, str) and not _adds_up(query)):
        notes.append(NO_SUMS)
        return
    yield "table", table


def _adds_up(query: str) -> bool:
    from tacit.statistics.sums.query import known_names

    heads = [piece.partition(" by ")[0].partition(":")[0].strip() for piece in query.split("+")]
    synonyms = {"standard-deviation", "ols", "pca"}
    return all(head.lower().replace("_", "-") in {*known_names(), *synonyms} for head in heads)


def _attacked(pool: Any) -> npt.NDArray[np.intp]:
    """Return rows to attack: half of them farthest from the middle, half spread over the pool."""
    values = array("pool", pool, ndim=(1, 2))
    rows = values.reshape(len(values), -1)
    scales = rows.std(axis=0)
    units = (rows - rows.mean(axis=0)) / np.where(scales > 0.0, scales, 1.0)
    far = np.argsort(-np.square(units).sum(axis=1), kind="stable")[
        : ATTACKED_ROWS // FARTHEST_SHARE
    ]
    spread = np.linspace(0, len(rows) - 1, min(len(rows), ATTACKED_ROWS - len(far))).astype(int)
    return np.unique(np.concatenate([far, spread]))


def _standing(
    name: str, protect: str, prepared: Any, count: int, unit: Array, share: Array
) -> Standing:
    bound, plan = prepared.membership, prepared.plan
    expected = np.array([entry.error for entry in prepared.expected])
    whole = isinstance(plan, TablePlan)
    return Standing(
        name=name,
        protect=protect,
        hides=HIDES[protect],
        success=bound.success,
        evidence=bound.evidence,
        # those expected of a table are of its bounds alone; this comparison is the holder's
        errors=plan.errors_here() if isinstance(plan, TablePlan) else expected / share,
        sampling=unit if whole else _sampling(prepared) / share,
        clipping=np.zeros(len(expected)),
        unit=unit,
        rows=count if whole else count // 2,
    )


def _sampling(prepared: Any) -> Array:
    """Return the sampling errors of the numbers of the rows that are drawn, (d,)."""
    if isinstance(prepared, PreparedStatistic):
        return prepared.plan.diagnostics.sampling
    plan = prepared.plan
    return np.asarray(plan.spread.deviations if isinstance(plan, SumPlan) else plan.sampling)


def _share(prepared: Any, count: int) -> Array:
    """Return the share of the whole table's number that half of the rows have, (d,)."""
    plan = prepared.plan
    share = np.ones(len(prepared.expected))
    if isinstance(plan, SumPlan):
        share[plan.query.additive_numbers] = (count // 2) / count
    return share


def _unit(prepared: Any, count: int, share: Array) -> Array:
    """Return the sampling errors of the whole table, (d,), from those of a half of it."""
    plan = prepared.plan
    half = plan.frame.spread if isinstance(plan, SumPlan) else _sampling(prepared)
    # of N independent rows instead of ⌊N/2⌋
    return np.asarray(half / share * np.sqrt((count // 2) / count))


def _clipping(
    query: AnyQuery, pool: Any, plan: TablePlan, options: dict[str, Any], table: dict[str, Any]
) -> Array:
    """Return how far clipping moves each number, (d,).

    |T(clip(x)) − T(x)| of the query T on the rows x as they are, for the numbers of the table
    promise that are nearer to T(clip(x)): counts in bins are of the rows as they are.
    """
    whole = checked_pool(pool, options["columns"], "table")
    rows, labels = whole.rows, whole.columns
    known = Declared.of(labels, table["bounds"], table["levels"], "add-remove", whole.categories)
    clipped = rows.copy()
    for place, (low, high) in known.bounds.items():
        np.clip(rows[:, place], low, high, out=clipped[:, place])
    computed = query_of(query, Columns(labels, rows), options["target"]).function
    truth, inside = (np.atleast_1d(computed(some)) for some in (rows, clipped))
    told = plan.numbers_here()
    if truth.shape != told.shape:
        return np.zeros(len(told))
    return np.where(np.abs(told - inside) < np.abs(told - truth), np.abs(inside - truth), 0.0)


def clipped_words(clamped: int, count: int) -> str:
    """Say how many rows lie outside the declared bounds."""
    return (
        f"{clamped:,} of {count:,} rows are outside the declared bounds and taken as these: the "
        "errors of the table promise hold what that changes"
    )


def _lira(
    prepared: Any, rows: npt.NDArray[np.intp], trials: int, source: np.random.Generator
) -> MembershipAttack:
    releases, inside = simulated(prepared, rows, trials, source)
    # rows in no pair are never drawn, and nothing is to be guessed of them
    live = inside.any(axis=0) & ~inside.all(axis=0)
    attack = shadow_attack(releases, inside[:, live], shadows=trials // 2)
    return attack.with_record(int(rows[live][attack.worst_record]))
