"""From a query and a pool to a release: every step that can fail comes before the draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    array,
    choice,
    generator,
    in_interval,
    integer,
    is_reproducible,
)
from tacit._ground.random import uniform_index
from tacit._ground.reprs import shown
from tacit.attacks import MembershipAttack, membership_attack
from tacit.guarantees import InformationBound, SuccessBound
from tacit.releases.prepared import Book, Expected, Prepared
from tacit.releases.publication import allowed_nats
from tacit.statistics.candidates import draw_family, subset_rate
from tacit.statistics.plan import METHODS, Plan, Request, certified_plan
from tacit.statistics.queries import Query, RowFunction, resolve_query
from tacit.statistics.release import StatisticRelease
from tacit.statistics.simulation import simulate

SMALLEST_POOL = 4
ATTACKED_ROWS = 2000


class Options(TypedDict, total=False):
    """The options of ``prepare``."""

    mi_budget: float | None
    success: float | None
    sampling_rate: float
    method: str
    simulations: int
    rng: RandomSource
    cost: Any
    confidence: float
    columns: Sequence[str] | None
    names: Sequence[str] | None
    target: str | None
    workers: int | None
    progress: bool | None
    attack: bool
    attack_trials: int


def prepare(
    query: str | RowFunction | Query,
    pool: ArrayLike,
    *,
    mi_budget: float | None = None,
    success: float | None = None,
    sampling_rate: float = 0.5,
    method: str = "auto",
    simulations: int = 2000,
    rng: RandomSource = None,
    cost: ArrayLike | None = None,
    confidence: float = 0.999,
    columns: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    target: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    attack: bool = True,
    attack_trials: int = 2000,
) -> PreparedStatistic:
    """Certify a statistic of a random subset of the pool, before anything is drawn.

    K subsets are declared, in which every row of the pool is equally often; the query is run on
    each; one is drawn uniformly and its output x published as ``y = x + N(0, Σ)``. The secret X is
    then uniform on a finite set whose output covariance S (dividing by K) is known exactly, and

        I(X; Y) <= ½ logdet(I + S Σ⁻¹)

    holds for any query, without sampling error. Where the outputs are not Gaussian the information
    is less; then it is bounded by the exact likelihood of the K outputs instead, with a confidence,
    and the least noise under that bound is used. A row is in with probability exactly q, even for
    an attacker who knows the K subsets, so a guess of membership is right with probability s at
    most, ``KL(s ‖ max(q, 1 − q)) = β``. The release is rounded to 2⁻²⁰ of the noise's standard
    deviation, which is post-processing and leaves no low-order bits of the noise behind.

    Args:
        query: a built-in name, ``module:function``, or a callable on (n, p) rows that returns d
            numbers and the same ones for the same rows (see ``resolve_query``).
        pool: (N, p) finite numbers, N >= 4: an array, a data frame, or a ``Table``.
        mi_budget: β > 0 in nats; or
        success: s in (max(q, 1 − q), 1), converted to the largest budget that allows it.
        sampling_rate: q; realised to 0.1% as a short fraction, the exact prior of every row.
        method: ``"auto"`` or ``"true-information"``, the least noise under the exact information
            (``design.true_information``); or ``"exact"``, ``"linear"`` or ``"diagonal"``, under
            the Gaussian information, as in ``gaussian_information``.
        simulations: K at least, rounded up to whole cycles of candidates.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantee and is recorded.
        cost: what noise costs: None or ``"squared"`` (sum of squared errors), ``"relative"``
            (each output in units of its own standard deviation), or F as in
            ``gaussian_information``.
        confidence: of the guarantee where it rests on simulated releases, in (0, 1); it says so.
        columns: names of the p columns; those of a data frame, else ``x0`` …, when None.
        names: d labels of the outputs, where the query has none of its own or to replace them.
        target: name of the column that a regression explains; the last when None.
        workers: processes for the simulations; results do not depend on it.
        progress: whether to show a bar on a terminal; None and True do.
        attack: whether to run the membership attackers, on simulated releases and at most 2,000
            rows chosen at random.
        attack_trials: simulated releases for the attack, >= 4.

    Returns:
        The ``PreparedStatistic``: the guarantees, the error that every number will have, and
        ``draw``.

    Raises:
        ValueError: a bad argument, or a query that fails on a candidate (its number of rows is
            named), is not repeatable, or returns other than finite numbers.

    Example:
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> prepared = prepare("mean", heights, success=0.6, simulations=200, attack=False)
        >>> [entry.name for entry in prepared.expected], prepared.membership.success <= 0.6
        (['mean[x0]'], True)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise).
    """
    pool = as_pool(pool)
    rows = _checked_pool(pool)
    labels = _column_names(frame_columns(pool) if columns is None else columns, rows.shape[1])
    resolved = resolve_query(query, labels, target)
    choice("method", method, METHODS)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    candidates = integer("simulations", simulations, minimum=2)
    integer("attack_trials", attack_trials, minimum=4)
    rate = subset_rate(
        len(rows),
        in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True, open_high=True),
        candidates,
    )
    prior = max(float(rate), 1.0 - float(rate))
    budget = allowed_nats(mi_budget, success, prior)
    source = generator(rng)
    family = draw_family(len(rows), rate, candidates, source)
    outputs = simulate(resolved, rows, family, workers=workers, progress=progress)
    named = _output_names(names, resolved, outputs.shape[1])
    request = Request(budget, method, cost, level, is_reproducible(rng), progress)
    plan = certified_plan(outputs, family, named, request, source)
    return PreparedStatistic(
        guarantees=(plan.membership, plan.guarantee),
        spends=(plan.guarantee,),
        expected=tuple(
            Expected(name=name, error=float(error))
            for name, error in zip(named, np.sqrt(plan.diagnostics.noise_variance), strict=True)
        ),
        description=resolved.description,
        query=resolved.description,
        reproducible=is_reproducible(rng),
        plan=plan,
        attack=_attacked(plan, attack_trials, source) if attack else None,
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        source=None if rng is None else source,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedStatistic(Prepared[StatisticRelease]):
    """A statistic that is certified and not yet drawn; for the holder of the pool.

    Attributes:
        query: what is computed.
        plan: candidates, their outputs, the noise and what is certified.
        attack: the strongest membership attack on simulated releases; None when none was run.
        seed: the integer seed, when one was given.
        source: the generator that the draw uses; None for the operating system's.
    """

    query: str
    plan: Plan = field(repr=False)
    attack: MembershipAttack | None = field(repr=False)
    seed: int | None
    source: np.random.Generator | None = field(repr=False)

    @property
    def guarantee(self) -> InformationBound:
        """The bound on what the release tells about the draw, in nats."""
        return self.plan.guarantee

    @property
    def membership(self) -> SuccessBound:
        """The bound on guessing whether a row was drawn."""
        return self.plan.membership

    def _drawn(self) -> StatisticRelease:
        return StatisticRelease(
            release=_draw(self.plan, self.source),
            names=self.plan.names,
            guarantee=self.plan.guarantee,
            membership=self.plan.membership,
            design=self.plan.design,
            diagnostics=self.plan.diagnostics,
            attack=self.attack,
            query=self.query,
            method=self.plan.design.method,
            reproducible=self.reproducible,
            seed=self.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def privatize(
    query: str | RowFunction | Query,
    pool: ArrayLike,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Unpack[Options],
) -> StatisticRelease:
    """Release a statistic of a random subset of the pool: ``prepare(...).draw(...)`` in one call.

    Args:
        query: as for ``prepare``.
        pool: as for ``prepare``.
        ledger: what the release spends from, a ``tacit.Ledger``; None for none.
        secret: name of the secret in the ledger.
        no_budget: release though the secret has no budget and others have one.
        options: the other arguments of ``prepare``.

    Returns:
        The ``StatisticRelease``. It holds neither the candidate drawn nor its output.

    Raises:
        ValueError: as ``prepare``, or a refusal of the ledger; nothing is drawn then.

    Example:
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> release = privatize("mean", heights, success=0.6, simulations=200, attack=False)
        >>> release.names, release.membership.success <= 0.6
        (('mean[x0]',), True)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise).
    """
    prepared = prepare(query, pool, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


def _attacked(plan: Plan, trials: int, source: np.random.Generator) -> MembershipAttack | None:
    """Run the attackers on simulated releases, on at most ``ATTACKED_ROWS`` random rows."""
    if plan.design.method == "constant":
        return None
    pool_rows = plan.family.pool_rows
    rows = np.arange(pool_rows)
    if pool_rows > ATTACKED_ROWS:
        rows = np.sort(source.choice(pool_rows, ATTACKED_ROWS, replace=False))
    measured = membership_attack(
        plan.outputs,
        plan.family.columns(rows),
        plan.design.covariance if plan.design.rank > 0 else None,
        trials=trials,
        rng=source,
    )
    return measured.with_record(int(rows[measured.worst_record]))


def _draw(plan: Plan, rng: np.random.Generator | None) -> Array:
    """Draw the secret and the noise; neither outlives this function."""
    chosen = uniform_index(len(plan.family), rng)
    return plan.design.release(plan.outputs[chosen], rng=rng)


def _checked_pool(pool: Any) -> Array:
    checked = array("pool", pool, ndim=(1, 2))
    rows = np.ascontiguousarray(checked[:, None] if checked.ndim == 1 else checked)
    if len(rows) < SMALLEST_POOL:
        raise ValueError(f"pool: expected at least {SMALLEST_POOL} rows, got {len(rows)}")
    return rows


def _column_names(columns: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"x{index}" for index in range(width))
    if isinstance(columns, str) or not all(isinstance(name, str) for name in _listed(columns)):
        raise ValueError(f"columns: expected {width} names, got {columns!r}")
    if len(columns) != width or len(set(columns)) != width:
        raise ValueError(f"columns: expected {width} different names, got {list(columns)}")
    return tuple(columns)


def as_pool(pool: Any) -> Any:
    """Return a data frame that exports itself to Arrow as a ``Table``, anything else as it is."""
    if not hasattr(pool, "__arrow_c_stream__"):
        return pool
    from tacit.statistics.tables.reading import read_table

    return read_table(pool)


def frame_columns(pool: Any) -> list[str] | None:
    """Return the column names of a data frame, such as one of pandas or polars."""
    names = getattr(pool, "columns", None)
    return None if names is None else [str(name) for name in names]


def _listed(names: Any) -> list[Any]:
    return list(names) if isinstance(names, (list, tuple, np.ndarray)) else [names]


def _output_names(names: Sequence[str] | None, query: Query, size: int) -> tuple[str, ...]:
    if names is None and query.names is None:
        return tuple(f"y{index}" for index in range(size))
    chosen = list(query.names or ()) if names is None else _listed(names)
    if not all(isinstance(name, str) and name.strip() for name in chosen):
        raise ValueError(f"names: expected {size} labels, one per output, got {shown(names)}")
    if len(chosen) != size:
        raise ValueError(f"names: expected {size} labels, one per output, got {len(chosen)}")
    if names is not None and len(set(chosen)) != size:
        raise ValueError("names: expected different labels, got one of them twice")
    return tuple(map(str, chosen))
