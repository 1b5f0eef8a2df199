"""Prepare a release by pairs: of a query that adds up by theorem, of any other with confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    is_reproducible,
)
from tacit.releases.prepared import Expected
from tacit.statistics.pairs import Pairing, at_random, by_column, given, nearest
from tacit.statistics.prepared_numbers import PreparedNumbers
from tacit.statistics.queries import Query
from tacit.statistics.rows.callables import callable_plan
from tacit.statistics.rows.plan import SumPlan, sum_plan
from tacit.statistics.rows.words import SECRET, theorem, with_confidence
from tacit.statistics.strength import Strength
from tacit.statistics.sums.query import SumQuery

METHOD = "least noise that covers every swap"
CALLABLE_METHODS = {
    "swaps": "least noise for the swaps expected under fair coins",
    "family": "least noise for the exact posterior over declared draws",
}
FAMILY_NOTE = (
    "membership is hidden from someone who knows the declared draws, not from someone who is told "
    "what was drawn of other pairs; method='swaps' hides it from both"
)
RATE_TOLERANCE = 1e-3
PAIR = 2
SMALLEST_SIMULATION = 50
AS_IT_IS = (
    "noise on sums is divided by what numbers divide by, such as small variances: the query as it "
    'is, method="swaps", may need several times less, with confidence in place of the theorem'
)
FEW_ROWS = (
    "no sampling error is told where a few rows of the pool make most of it, as under heavy tails "
    "or in small pools: "
)
PROJECTED = (
    "values are projected on what is possible (means within declared bounds, no negative count or "
    "variance, correlations within ±1, counts that rise), and intervals end there, which is "
    "post-processing"
)


def prepare_sums(
    query: SumQuery,
    rows: Array,
    *,
    names: Sequence[str] | None,
    columns: Sequence[str],
    strength: Strength,
    sampling_rate: float,
    pairs: Any,
    cost: Any,
    rng: RandomSource,
    attack: bool,
    attack_trials: int,
    progress: bool | None,
) -> PreparedNumbers:
    """Certify a query that adds up over one row of every pair, before anything is drawn."""
    size = group_size(sampling_rate)
    source = generator(rng)
    pairing = chosen_pairing(pairs, rows, columns, size, source)
    size = size if pairing is None else pairing.group_size
    mu = strength.mu_for(1.0 / size)
    plan = sum_plan(query, rows, mu, pairing=pairing, group_size=size, cost=cost, progress=progress)
    guarantees = theorem(plan.noise.mu, plan.pairing, reproducible=is_reproducible(rng))
    labels = output_names(names, query.names)
    return PreparedNumbers(
        guarantees=guarantees,
        spends=(guarantees[1],),
        expected=tuple(
            Expected(name=name, error=float(error))
            for name, error in zip(labels, plan.errors, strict=True)
        ),
        description=query.description,
        reproducible=is_reproducible(rng),
        plan=plan,
        protect="rows",
        secret=SECRET if size == 2 else SECRET.replace("pair", f"group of {size}"),
        method=METHOD,
        notes=pairing_notes(plan, cost),
        diagnostics=diagnostics(plan),
        limits=query.limits(),
        attack=plan.attacked(integer("attack_trials", attack_trials, minimum=4), source)
        if attack
        else None,
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        source=None if rng is None else source,
    )


def group_size(sampling_rate: float) -> int:
    """Return k where the rate is 1/k.

    Raises:
        ValueError: it is no such rate.
    """
    rate = float(sampling_rate)
    size = round(1.0 / rate) if 0.0 < rate <= 0.5 else 0
    if size < 2 or abs(size * rate - 1.0) > RATE_TOLERANCE:
        raise ValueError(
            "sampling_rate: expected 1/k for a whole number k >= 2, as one row of every group of "
            f"k is drawn, got {sampling_rate!r}"
        )
    return size


def chosen_pairing(
    pairs: Any, rows: Array, columns: Sequence[str], size: int, source: np.random.Generator
) -> Pairing | None:
    """Return the groups that the caller asked for; None where they are to be found.

    Args:
        pairs: ``"nearest"`` (or None), ``"random"``, ``"column:NAME"``, a ``Pairing``, or rows as
            (P, k).
        rows: the pool.
        columns: names of its columns.
        size: k.
        source: of the random ones.
    """
    if pairs is None or (isinstance(pairs, str) and pairs == "nearest"):
        return None
    if isinstance(pairs, Pairing):
        if pairs.pool_rows != len(rows):
            raise ValueError(f"pairs: expected those of {len(rows)} rows, got {pairs.pool_rows}")
        return pairs
    if not isinstance(pairs, str):
        return given(pairs, rows=len(rows))
    if pairs == "random":
        return at_random(len(rows), group_size=size, rng=source)
    kind, _, name = pairs.partition(":")
    if kind == "column" and name in columns:
        return by_column(rows[:, list(columns).index(name)], group_size=size, name=name)
    raise ValueError(
        "pairs: expected 'nearest', 'random', 'column:NAME' of a column of the table, a Pairing "
        f"or (pairs, {size}) rows, got {pairs!r}"
    )


def output_names(names: Sequence[str] | None, own: Sequence[str]) -> tuple[str, ...]:
    """Return the labels given, or the query's own."""
    if names is None:
        return tuple(own)
    if isinstance(names, str) or len(names) != len(own):
        raise ValueError(f"names: expected {len(own)} labels, one per output, got {names!r}")
    return tuple(names)


def pairing_notes(plan: SumPlan, cost: Any) -> tuple[str, ...]:
    """Return what a reader should know of the groups and the numbers."""
    pairing = plan.pairing
    size, outside = pairing.group_size, int(pairing.left_out.size)
    notes = [
        f"one row of each of {len(pairing):,} {'pairs' if size == 2 else f'groups of {size}'} is "
        f"drawn ({pairing.method})"
    ]
    if outside:
        notes.append(
            f"{outside} {'row is' if outside == 1 else 'rows are'} in no group and never drawn"
        )
    # what is not linear may have no error at the draws tried, and one at others
    sure = plan.query.linear or plan.noise.design is None
    still = [
        name
        for name, error in zip(plan.query.names, plan.errors, strict=True)
        if sure and error == 0.0
    ]
    if still:
        notes.append(f"the same whatever is drawn, released without noise: {', '.join(still[:20])}")
    if not (plan.query.linear and not plan.query.counting):
        notes.append(PROJECTED)
    spread = plan.spread
    wide = not plan.query.linear and bool((plan.errors > spread.deviations).any())
    if wide and size == PAIR:
        notes.append(AS_IT_IS)
    few = [name for name, known in zip(plan.query.names, spread.known, strict=True) if not known]
    if few:
        notes.append(FEW_ROWS + ", ".join(few[:20]))
    if cost is None or isinstance(cost, str):
        notes.append(f"cost of noise: {cost or 'relative'}")
    return tuple(notes)


def diagnostics(plan: SumPlan) -> dict[str, Any]:
    """Return what the design saw, JSON-able."""
    design = plan.noise.design
    return {
        "pool_rows": plan.pairing.pool_rows,
        "pairing": plan.pairing.to_dict(),
        "sums": len(plan.query.terms),
        "mu": plan.noise.mu,
        "gap": None if design is None else design.gap,
        "noise_power": float(np.square(plan.errors).sum()),
    }


def _squared(cost: Any) -> bool:
    return isinstance(cost, str) and cost == "squared"


def prepare_callable(
    query: Query,
    rows: Array,
    *,
    names: Sequence[str] | None,
    columns: Sequence[str],
    success: float,
    sampling_rate: float,
    pairs: Any,
    cost: Any,
    method: str,
    simulations: int,
    confidence: float,
    rng: RandomSource,
    attack: bool,
    attack_trials: int,
    workers: int | None,
    progress: bool | None,
) -> PreparedNumbers:
    """Certify any query over one row of every pair, with confidence, before anything is drawn."""
    if group_size(sampling_rate) != PAIR:
        raise ValueError(
            f"sampling_rate: expected 0.5 for a query that does not add up, got {sampling_rate!r}"
        )
    limit = in_interval("success", success, 0.5, 1.0, open_low=True, open_high=True)
    source = generator(rng)
    pairing = chosen_pairing(pairs, rows, columns, PAIR, source)
    if pairing is None:
        pairing = nearest(rows, scaled=not _squared(cost), progress=progress)
    if pairing.group_size != PAIR:
        raise ValueError(f"pairs: expected pairs, got groups of {pairing.group_size}")
    plan = callable_plan(
        query,
        rows,
        pairing,
        limit,
        way=method,
        cost=cost,
        simulations=integer("simulations", simulations, minimum=SMALLEST_SIMULATION),
        confidence=confidence,
        source=source,
        workers=workers,
        progress=progress,
    )
    void = is_reproducible(rng)
    membership = with_confidence(limit, pairing, plan.way, confidence, reproducible=void)
    own = query.names or tuple(f"y{place}" for place in range(plan.errors.size))
    labels = output_names(names, own)
    return PreparedNumbers(
        guarantees=(membership,),
        spends=(membership,),
        expected=tuple(
            Expected(name=name, error=float(error))
            for name, error in zip(labels, plan.errors, strict=True)
        ),
        description=query.description,
        reproducible=void,
        plan=plan,
        protect="rows",
        secret=SECRET,
        method=CALLABLE_METHODS[plan.way],
        notes=(
            f"one row of each of {len(pairing):,} pairs is drawn ({pairing.method})",
            *([FAMILY_NOTE] if plan.way == "family" else []),
            f"cost of noise: {cost or 'relative'}"
            if cost is None or isinstance(cost, str)
            else "cost of noise: as given",
        ),
        diagnostics={
            "pool_rows": pairing.pool_rows,
            "pairing": pairing.to_dict(),
            "simulations": simulations,
            "noise_power": float(np.square(plan.errors).sum()),
        },
        attack=plan.attacked(integer("attack_trials", attack_trials, minimum=4), source)
        if attack
        else None,
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        source=None if rng is None else source,
    )
