"""From a query and a pool to a release: every step that can fail comes before the draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._randomness import uniform_index
from tacit._validation import (
    Array,
    RandomSource,
    array,
    choice,
    generator,
    in_interval,
    integer,
    is_reproducible,
    positive,
)
from tacit.attacks import MembershipAttack, membership_attack
from tacit.conversions import information_from_success, success_from_information
from tacit.covariance import Isotropic
from tacit.design.base import Design
from tacit.design.information import gaussian_information
from tacit.guarantees import InformationBound, SuccessBound
from tacit.statistics.candidates import CandidateFamily, draw_family, subset_rate
from tacit.statistics.queries import Query, RowFunction, resolve_query
from tacit.statistics.release import StatisticDiagnostics, StatisticRelease
from tacit.statistics.simulation import output_covariance, simulate

SMALLEST_POOL = 4
ATTACKED_ROWS = 2000
GRID_BITS = 20
METHODS = {"auto": "exact", "exact": "exact", "linear": "linear", "diagonal": "diagonal"}
SOURCE = "residual-pac, Thm 1, Eq. 17"
SECRET = "which rows of the pool were drawn"
TASK = "the membership of any one row of the pool"
ASSUMPTIONS = (
    "the secret is which rows were drawn, uniform over the declared candidates; the attacker may "
    "know the pool, the query, the list of candidates and the law of the noise",
    "that a row is in the pool at all is not hidden",
    "only the released vector is published: the drawn rows, the candidates' outputs and the "
    "diagnostics stay with the holder of the pool",
    "one release; further releases of the same draw add up",
    "the noise is independent of all else, computed in double precision",
)
FROM_SYSTEM = "the randomness is the operating system's"
REPRODUCIBLE = (
    "VOID: a seed or generator was given, so whoever knows it can repeat the draw; the bound "
    "describes the same release with the operating system's randomness"
)


@dataclass(frozen=True, eq=False)
class _Plan:
    """Everything decided before the draw."""

    outputs: Array
    family: CandidateFamily
    names: tuple[str, ...]
    design: Design
    guarantee: InformationBound
    membership: SuccessBound
    diagnostics: StatisticDiagnostics


def privatize(
    query: str | RowFunction | Query,
    pool: Any,
    *,
    mi_budget: float | None = None,
    success: float | None = None,
    sampling_rate: float = 0.5,
    method: str = "auto",
    simulations: int = 2000,
    rng: RandomSource = None,
    cost: Any = None,
    columns: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    target: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    attack: bool = True,
    attack_trials: int = 2000,
    before_draw: Callable[[InformationBound], object] | None = None,
) -> StatisticRelease:
    """Release a statistic of a random subset of the pool, with a bound on what it tells.

    K subsets are declared, in which every row of the pool is equally often; the query is run on
    each; one is drawn uniformly and its output x published as ``y = x + N(0, Σ)``. The secret X is
    then uniform on a finite set whose output covariance S (dividing by K) is known exactly, and

        I(X; Y) <= ½ logdet(I + S Σ⁻¹) <= β

    holds for any query, without sampling error. A row is in with probability exactly q, even for
    an attacker who knows the K subsets, so a guess of membership is right with probability s at
    most, ``KL(s ‖ max(q, 1 − q)) = β``. The release is rounded to 2⁻²⁰ of the noise's standard
    deviation, which is post-processing and leaves no low-order bits of the noise behind.

    Args:
        query: a built-in name, ``module:function``, or a callable on (n, p) rows that returns d
            numbers and the same ones for the same rows (see ``resolve_query``).
        pool: (N, p) finite numbers, N >= 4.
        mi_budget: β > 0 in nats; or
        success: s in (max(q, 1 − q), 1), converted to the largest budget that allows it.
        sampling_rate: q; realised to 0.1% as a short fraction, the exact prior of every row.
        method: ``"auto"`` (= ``"exact"``), ``"linear"`` or ``"diagonal"``, as in
            ``gaussian_information``.
        simulations: K at least, rounded up to whole cycles of candidates.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantee and is recorded.
        cost: what noise costs: None or ``"squared"`` (sum of squared errors), ``"relative"``
            (each output in units of its own standard deviation), or F as in
            ``gaussian_information``.
        columns: names of the p columns; ``x0`` … when None.
        names: d labels of the outputs, where the query has none of its own or to replace them.
        target: name of the column that a regression explains; the last when None.
        workers: processes for the simulations; results do not depend on it.
        progress: whether to show a bar on a terminal; None and True do.
        attack: whether to run the membership attackers, on simulated releases and at most 2,000
            rows chosen at random.
        attack_trials: simulated releases for the attack, >= 4.
        before_draw: called with the guarantee once it is certified, before anything is drawn;
            an exception it raises stops the release.

    Returns:
        The ``StatisticRelease``. It holds neither the candidate drawn nor its output.

    Raises:
        ValueError: a bad argument, or a query that fails on a candidate (its number of rows is
            named), is not repeatable, or returns other than finite numbers.

    Example:
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> release = privatize("mean", heights, success=0.6, simulations=200, attack=False)
        >>> release.names, release.membership.success <= 0.6
        (('mean[x0]',), True)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise).
    """
    rows = _checked_pool(pool)
    labels = _column_names(columns, rows.shape[1])
    resolved = resolve_query(query, labels, target)
    choice("method", method, tuple(METHODS))
    candidates = integer("simulations", simulations, minimum=2)
    integer("attack_trials", attack_trials, minimum=4)
    rate = subset_rate(
        len(rows),
        in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True, open_high=True),
        candidates,
    )
    prior = max(float(rate), 1.0 - float(rate))
    budget = _budget(mi_budget, success, prior)
    source = generator(rng)
    family = draw_family(len(rows), rate, candidates, source)
    outputs = simulate(resolved, rows, family, workers=workers, progress=progress)
    named = _output_names(names, resolved, outputs.shape[1])
    plan = _certified(outputs, family, named, budget, METHODS[method], cost, is_reproducible(rng))
    measured = _attacked(plan, attack_trials, source) if attack else None
    if before_draw is not None:
        before_draw(plan.guarantee)
    return StatisticRelease(
        release=_draw(plan, None if rng is None else source),
        names=named,
        guarantee=plan.guarantee,
        membership=plan.membership,
        design=plan.design,
        diagnostics=plan.diagnostics,
        attack=measured,
        query=resolved.description,
        method=plan.design.method,
        reproducible=is_reproducible(rng),
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _certified(
    outputs: Array,
    family: CandidateFamily,
    names: tuple[str, ...],
    budget: float,
    method: str,
    cost: Any,
    reproducible: bool,
) -> _Plan:
    """Design the noise for the outputs and certify what it guarantees."""
    mean, covariance, slack = output_covariance(outputs)
    variances = np.diagonal(covariance)
    notes = _notes(family, names, variances)
    design = _noise(covariance + slack * np.diag(variances), budget, method, cost)
    information = 0.0 if design.information is None else design.information
    assumptions = (*ASSUMPTIONS, REPRODUCIBLE if reproducible else FROM_SYSTEM)
    prior = max(float(family.rate), 1.0 - float(family.rate))
    guarantee = InformationBound(
        nats=information,
        secret=SECRET,
        evidence="numerical",
        assumptions=assumptions,
        source=SOURCE,
        confidence=None,
    )
    membership = SuccessBound(
        success=prior if information == 0.0 else success_from_information(information, prior),
        prior=prior,
        task=TASK,
        evidence="numerical",
        assumptions=assumptions,
        source=SOURCE,
        confidence=None,
    )
    diagnostics = _diagnostics(mean, covariance, design, family, budget, notes)
    return _Plan(outputs, family, names, design, guarantee, membership, diagnostics)


def _noise(upper: Array, budget: float, method: str, cost: Any) -> Design:
    """Return the design for an upper bound of the output covariance; none for constant outputs."""
    weights = _weights(cost, np.diagonal(upper))
    if upper.any():
        return gaussian_information(upper, budget, cost=weights, method=method)
    return Design(
        covariance=Isotropic(0.0, len(upper)),
        cost=0.0,
        gap=0.0,
        method="constant",
        multipliers=np.empty(0),
        iterations=0,
        information=0.0,
        notes=("the output is the same for every candidate, so it is released without noise",),
    )


def _weights(cost: Any, variances: Array) -> Any:
    if not isinstance(cost, str):
        return cost
    choice("cost", cost, ("squared", "relative"))
    if cost == "squared" or not variances.any():
        return None
    # A constant output has no scale of its own: any finite price keeps its noise negligible.
    scale = np.where(variances > 0.0, variances, variances.max())
    return 1.0 / scale


def _attacked(plan: _Plan, trials: int, source: np.random.Generator) -> MembershipAttack | None:
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
        plan.design.covariance,
        trials=trials,
        rng=source,
    )
    return measured.with_record(int(rows[measured.worst_record]))


def _draw(plan: _Plan, rng: np.random.Generator | None) -> Array:
    """Draw the secret and the noise; neither outlives this function."""
    clean = plan.outputs[uniform_index(len(plan.family), rng)]
    if plan.design.method == "constant":
        constant: Array = clean.copy()
        return constant
    noisy = clean + plan.design.sample(1, rng)[0]
    deviations = np.sqrt(plan.design.covariance.diagonal())
    # A power of two: rounding to its multiples is exact.
    grid = np.exp2(np.floor(np.log2(deviations)) - GRID_BITS)
    released: Array = np.round(noisy / grid) * grid
    return released


def _diagnostics(
    mean: Array,
    covariance: Array,
    design: Design,
    family: CandidateFamily,
    budget: float,
    notes: tuple[str, ...],
) -> StatisticDiagnostics:
    eigenvalues, vectors = scipy_linalg.eigh(covariance)
    noise = design.covariance.to_dense()
    along = np.einsum("ij,ik,kj->j", vectors, noise, vectors)
    return StatisticDiagnostics(
        pool_rows=family.pool_rows,
        subset_rows=family.subset_sizes[0],
        candidates=len(family),
        mi_budget=budget,
        output_mean=mean,
        output_variance=np.diagonal(covariance).copy(),
        noise_variance=np.diagonal(noise).copy(),
        principal_output_variance=np.maximum(eigenvalues[::-1], 0.0),
        principal_noise_variance=along[::-1].copy(),
        notes=(*notes, *design.notes),
    )


def _notes(family: CandidateFamily, names: tuple[str, ...], variances: Array) -> tuple[str, ...]:
    smallest, largest = family.subset_sizes
    notes = [
        f"every row of the pool is in exactly {family.rate.numerator} of {family.rate.denominator} "
        f"candidates, which have {smallest} {f'or {largest} ' if largest != smallest else ''}rows"
    ]
    still = [name for name, variance in zip(names, variances, strict=True) if variance == 0.0]
    if still and len(still) < len(names):
        notes.append(
            f"the same for every candidate, noise at rounding level only: {', '.join(still)}"
        )
    return tuple(notes)


def _budget(mi_budget: float | None, success: float | None, prior: float) -> float:
    """Return the budget in nats; a success asked for is never exceeded by its conversion back."""
    if (mi_budget is None) == (success is None):
        raise ValueError(
            "mi_budget, success: expected exactly one of the two, got "
            f"mi_budget={mi_budget!r} and success={success!r}"
        )
    if mi_budget is not None:
        return positive("mi_budget", mi_budget)
    asked = in_interval("success", success, prior, 1.0, open_low=True, open_high=True)
    budget = information_from_success(asked, prior)
    while budget > 0.0 and success_from_information(budget, prior) > asked:
        budget *= 1.0 - 1e-12
    return positive("success", budget)


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


def _listed(names: Any) -> list[Any]:
    return list(names) if isinstance(names, (list, tuple, np.ndarray)) else [names]


def _output_names(names: Sequence[str] | None, query: Query, size: int) -> tuple[str, ...]:
    chosen = query.names if names is None else tuple(names)
    if chosen is None:
        return tuple(f"y{index}" for index in range(size))
    if len(chosen) != size:
        raise ValueError(f"names: expected {size} labels, one per output, got {len(chosen)}")
    return tuple(chosen)
