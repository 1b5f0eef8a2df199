"""From a query and a pool to a release: every step that can fail comes before the draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

from numpy.typing import ArrayLike

from tacit._ground.checks import RandomSource, boolean, choice, in_interval
from tacit.releases.prepared import Book
from tacit.statistics.draws import DrawSettings, PreparedStatistic, prepare_draw
from tacit.statistics.numbers import NumbersRelease
from tacit.statistics.pools import check_dropped, checked_pool
from tacit.statistics.prepared_numbers import PreparedNumbers
from tacit.statistics.promises import (
    PROMISES,
    Declared,
    Settings,
    prepare_promise,
    query_of,
    refuse,
)
from tacit.statistics.queries import Query, RowFunction
from tacit.statistics.release import StatisticRelease
from tacit.statistics.strength import Strength
from tacit.statistics.sums.query import SumQuery
from tacit.statistics.sums.statistic import Columns, Statistic

AnyQuery: TypeAlias = str | RowFunction | Query | Statistic | SumQuery | Sequence[Statistic]


class Options(TypedDict, total=False):
    """The options of ``prepare``, but for ``protect``."""

    mi_budget: float | None
    success: float | None
    mu: float | None
    epsilon: float | None
    delta: float | None
    rho: float | None
    pairs: Any
    bounds: Any
    levels: Any
    adjacency: str
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


@overload
def prepare(
    query: AnyQuery,
    pool: Any,
    *,
    protect: Literal["rows", "table"] = ...,
    **options: Unpack[Options],
) -> PreparedNumbers: ...
@overload
def prepare(
    query: AnyQuery, pool: Any, *, protect: Literal["draw"], **options: Unpack[Options]
) -> PreparedStatistic: ...
@overload
def prepare(
    query: AnyQuery, pool: Any, *, protect: str, **options: Unpack[Options]
) -> PreparedStatistic | PreparedNumbers: ...
def prepare(
    query: AnyQuery,
    pool: Any,
    *,
    protect: str = "rows",
    mi_budget: float | None = None,
    success: float | None = None,
    mu: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    pairs: Any = None,
    bounds: Any = None,
    levels: Any = None,
    adjacency: str = "add-remove",
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
) -> PreparedStatistic | PreparedNumbers:
    """Certify a statistic of a table under one of three promises, before anything is drawn.

    ``protect`` names what is hidden:

    * ``"rows"``: whether any one row of the pool was drawn, even from someone who knows every
      other row. The pool's rows are put in pairs and a fair coin draws one of each. Flipping one
      coin moves a sum over rows by one swap z, whatever the others are, so noise with
      ``zᵀ Σ⁻¹ z <= μ²`` for every swap is μ-Gaussian differential privacy of each coin: it is
      guessed right with probability Φ(μ/2) at most. The pairs are chosen, from the pool alone,
      for the least noise;
    * ``"table"``: that a row is in the table at all (differential privacy): every row is clamped
      to declared bounds, and the noise covers whatever a row within them could add;
    * ``"draw"``: everything about which rows were drawn, up to β nats, as follows.

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
        query: a built-in name (see ``sums.sum_query`` and ``resolve_query``), a statistic of
            ``tacit.statistics.sums`` or several, ``module:function``, or a callable on (n, p) rows
            that returns d numbers and the same ones for the same rows.
        pool: (N, p) finite numbers, N >= 4; N >= 1 for ``"table"``.
        protect: ``"rows"``, ``"table"`` or ``"draw"``.
        mi_budget: β > 0 in nats (``"draw"``); or
        success: s in (max(q, 1 − q), 1): largest chance of guessing right whether a row was
            drawn, or is in the table.
        mu: μ > 0 of Gaussian differential privacy instead (``"rows"``, ``"table"``); or
        epsilon: ε > 0, with
        delta: δ in (0, 1); or
        rho: ρ > 0 of zero-concentrated differential privacy.
        pairs: for ``"rows"``: ``"nearest"`` when None, ``"random"``, ``"column:NAME"``, a
            ``pairs.Pairing``, or (P, k) rows of the pool.
        bounds: for ``"table"``: (lowest, highest) of every column that the query reads, by name or
            as (p, 2); declared, not looked up.
        levels: for ``"rows"`` and ``"table"``: the categories of columns, by name, declared
            likewise: numbers, or the words of a column of texts in a data frame.
        adjacency: for ``"table"``: ``"add-remove"`` or ``"replace"`` one row.
        sampling_rate: q; for ``"draw"`` realised to 0.1% as a short fraction, the exact prior of
            every row; for ``"rows"`` 1/k, one row of every group of k.
        method: for ``"draw"``: ``"auto"`` or ``"true-information"``, the least noise under the
            exact information (``design.true_information``); or ``"exact"``, ``"linear"`` or
            ``"diagonal"``, under the Gaussian information, as in ``gaussian_information``. For
            ``"rows"``: ``"sums"`` (by theorem), ``"swaps"`` (expected swaps under fresh coins) or
            ``"family"`` (exact posterior over declared draws, for an attacker who is not told what
            was drawn of other pairs), which hold with ``confidence``; ``"cheaper"`` takes that one
            of these two whose pilot expects less noise; ``"auto"`` takes sums where the query adds
            up, else swaps, or the family where swaps need more than 2,000,000 calls of the query.
        simulations: K at least, rounded up to whole cycles of candidates; for ``"rows"`` draws on
            which a query that does not add up is certified.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantee and is recorded.
        cost: what noise costs: ``"squared"`` (sum of squared errors), ``"relative"`` (each output
            in units of its own standard deviation), or F as in ``gaussian_information``; None for
            ``"relative"``.
        confidence: of the guarantee where it rests on simulated releases, in (0, 1); it says so.
        columns: the columns to use, by name and in this order, of a table that has names; the
            names of the p columns of one that has none, ``x0`` … when None.
        names: d labels of the outputs, where the query has none of its own or to replace them.
        target: name of the column that a regression explains; the last when None.
        workers: processes for the simulations; results do not depend on it.
        progress: whether to show a bar on a terminal; None and True do.
        attack: whether to run the membership attackers, on simulated releases and at most 2,000
            rows chosen at random.
        attack_trials: simulated releases for the attack, >= 4.

    Returns:
        The ``PreparedStatistic``, or ``PreparedNumbers`` for ``"rows"`` and ``"table"``: the
        guarantees, the error that every number will have, and ``draw``.

    Raises:
        ValueError: a bad argument, or a query that fails on a candidate (its number of rows is
            named), is not repeatable, or returns other than finite numbers.

    Example:
        >>> import numpy as np
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> prepared = prepare("mean", heights, success=0.6, attack=False)
        >>> [entry.name for entry in prepared.expected], prepared.membership.success <= 0.6
        (['mean[x0]'], True)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise); for rows, Dong, Roth and Su
    (2022), Theorem 2.7, with the noise of dsi, Theorem 3.3.
    """
    choice("protect", protect, PROMISES)
    boolean("attack", attack)
    if progress is not None:
        boolean("progress", progress)
    known = checked_pool(pool, columns, protect, levels=levels, query=query, target=target)
    rows, labels = known.rows, known.columns
    strength = Strength(success, mu, epsilon, delta, rho)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    if protect != "draw":
        check_dropped(pool, protect, adjacency)
        refuse("mi_budget", mi_budget, protect)
        return prepare_promise(
            protect,
            query,
            rows,
            labels,
            target,
            strength=strength,
            settings=Settings(
                names=names,
                sampling_rate=sampling_rate,
                pairs=pairs,
                cost=cost,
                rng=rng,
                attack=attack,
                attack_trials=attack_trials,
                progress=progress,
                workers=workers,
                confidence=level,
                method=method,
                simulations=simulations,
            ),
            declared=Declared.of(labels, bounds, known.levels, adjacency, known.categories),
        )
    others = {"mu": mu, "epsilon": epsilon, "delta": delta, "rho": rho}
    others |= {"pairs": pairs, "bounds": bounds, "levels": levels}
    for name, value in others.items():
        refuse(name, value, protect)
    settings = DrawSettings(
        mi_budget=mi_budget,
        success=success,
        sampling_rate=sampling_rate,
        method=method,
        simulations=simulations,
        rng=rng,
        cost="relative" if cost is None else cost,
        confidence=level,
        names=names,
        workers=workers,
        progress=progress,
        attack=attack,
        attack_trials=attack_trials,
    )
    words = Declared.of(labels, None, None, adjacency, known.categories).words
    return prepare_draw(query_of(query, Columns(labels, rows, words=words), target), rows, settings)


@overload
def privatize(
    query: AnyQuery,
    pool: Any,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    protect: Literal["rows", "table"] = ...,
    **options: Unpack[Options],
) -> NumbersRelease: ...
@overload
def privatize(
    query: AnyQuery,
    pool: Any,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    protect: Literal["draw"],
    **options: Unpack[Options],
) -> StatisticRelease: ...
def privatize(
    query: AnyQuery,
    pool: Any,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    protect: str = "rows",
    **options: Unpack[Options],
) -> StatisticRelease | NumbersRelease:
    """Release a statistic under one of three promises: ``prepare(...).draw(...)`` in one call.

    Args:
        query: as for ``prepare``.
        pool: as for ``prepare``.
        ledger: what the release spends from, a ``tacit.Ledger``; None for none.
        secret: name of the secret in the ledger.
        no_budget: release though the secret has no budget and others have one.
        protect: as for ``prepare``.
        options: the other arguments of ``prepare``.

    Returns:
        The ``StatisticRelease``, or ``NumbersRelease`` for ``"rows"`` and ``"table"``. It holds
        nothing of what was drawn.

    Raises:
        ValueError: as ``prepare``, or a refusal of the ledger; nothing is drawn then.

    Example:
        >>> import numpy as np
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> release = privatize("mean", heights, success=0.6, attack=False)
        >>> release.names, release.membership.success <= 0.6
        (('mean[x0]',), True)
        >>> bool(release.errors[0] < release.sampling[0])
        True

    Source: as ``prepare``.
    """
    prepared = prepare(query, pool, protect=protect, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)
