"""From a query and a pool to a release: every step that can fail comes before the draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tacit._ground.checks import RandomSource
from tacit.releases.prepared import Book
from tacit.releases.promises import Effort, Promise, check_effort
from tacit.releases.release import Release
from tacit.statistics.opening import open_pool
from tacit.statistics.prepared import PreparedNumbers, StatisticRequest
from tacit.statistics.promises import keeping_of
from tacit.statistics.queries.language import bind_query
from tacit.statistics.queries.statistic import Query, RowFunction, Statistic

AnyQuery: TypeAlias = str | RowFunction | Query | Statistic | Sequence[Statistic]
EFFORT = Effort()


def request_statistic(
    query: AnyQuery,
    pool: Any,
    promise: Promise,
    effort: Effort = EFFORT,
    *,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    cost: Any = None,
    rng: RandomSource = None,
) -> StatisticRequest:
    """Return what ``prepare`` prepares, checked and bound to the columns of the pool.

    Raises:
        ValueError: a bad argument; nothing was simulated.
    """
    keeping = keeping_of(promise)
    check_effort(effort)
    known = open_pool(pool, columns, promise, fewest=keeping.fewest, query=query, target=target)
    computed = bind_query(query, known.as_columns(looked_at=keeping.looks), target)
    return StatisticRequest(computed, known, promise, effort, cost, rng)


def prepare(
    query: AnyQuery,
    pool: Any,
    promise: Promise,
    effort: Effort = EFFORT,
    *,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    cost: Any = None,
    rng: RandomSource = None,
) -> PreparedNumbers:
    """Certify a statistic of a table under a promise, before anything is drawn.

    The promise names what is hidden:

    * ``Rows``: whether any one row of the pool was drawn, even from someone who knows every other
      row. The pool's rows are put in pairs and a fair coin draws one of each. Flipping one coin
      moves a sum over rows by one swap z, whatever the others are, so noise with
      ``zᵀ Σ⁻¹ z <= μ²`` for every swap is μ-Gaussian differential privacy of each coin: it is
      guessed right with probability Φ(μ/2) at most. The pairs are chosen, from the pool alone,
      for the least noise;
    * ``Table``: that a row is in the table at all (differential privacy): every row is clamped
      to declared bounds, and the noise covers whatever a row within them could add;
    * ``Draw``: everything about which rows were drawn, up to β nats, as follows.

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
        query: a built-in name (see ``queries.bind_query``), a statistic of
            ``tacit.statistics.queries`` or several, ``module:function``, a callable on (n, p) rows
            that returns d numbers and the same ones for the same rows, or a ``Query``, which gives
            any of these names for its numbers.
        pool: (N, p) finite numbers, N >= 4, any N for ``Table``; a data frame or a ``DataTable``.
        promise: what is hidden, and how well.
        effort: how much work goes in; results do not depend on its workers.
        columns: the columns to use, by name and in this order, of a table that has names; the
            names of the p columns of one that has none, ``x0`` … when None.
        target: name of the column that a regression explains; the last when None.
        cost: what noise costs: ``"squared"`` (sum of squared errors), ``"relative"`` (each output
            in units of its own standard deviation), or F as in ``gaussian_information``; None for
            ``"relative"``.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantee and is recorded.

    Returns:
        The ``PreparedNumbers``: the guarantees, the error that every number will have, and
        ``draw``.

    Raises:
        ValueError: a bad argument, or a query that fails on a candidate (its number of rows is
            named), is not repeatable, or returns other than finite numbers.

    Example:
        >>> import numpy as np
        >>> from tacit import Effort, Rows
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> prepared = prepare("mean", heights, Rows(success=0.6), Effort(trials=0))
        >>> [entry.name for entry in prepared.expected], prepared.membership.success <= 0.6
        (['mean[x0]'], True)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise); for rows, Dong, Roth and Su
    (2022), Theorem 2.7, with the noise of dsi, Theorem 3.3.
    """
    request = request_statistic(
        query, pool, promise, effort, columns=columns, target=target, cost=cost, rng=rng
    )
    return prepare_request(request)


def prepare_request(request: StatisticRequest) -> PreparedNumbers:
    """Certify what was asked for, before anything is drawn."""
    prepared: PreparedNumbers = keeping_of(request.promise).prepare(request)
    return prepared


def privatize(
    query: AnyQuery,
    pool: Any,
    promise: Promise,
    effort: Effort = EFFORT,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Any,
) -> Release[Any]:
    """Release a statistic under a promise: ``prepare(...).draw(...)`` in one call.

    Args:
        query: a name, such as ``"mean"``, ``"count by city"`` or ``"mean+std"``, a statistic of
            ``tacit.statistics.queries``, or a callable on (n, p) rows that returns d numbers.
        pool: (N, p) finite numbers, a data frame or a ``DataTable``.
        promise: what is hidden, and how well: ``Rows(success=0.6)``,
            ``Table(epsilon=1, delta=1e-6, bounds=…, person=…)`` or ``Draw(nats=0.1)``, each with
            all of its fields in ``help(Rows)``, ``help(Table)`` and ``help(Draw)``.
        effort: how much work goes in: ``Effort(simulations, trials, workers, progress)``.
        ledger: what the release spends from, a ``tacit.Ledger``; None for none.
        secret: name of the secret in the ledger.
        no_budget: release though the secret has no budget and others have one.
        options: ``columns`` (those to use, by name), ``target`` (the column that a regression
            explains), ``cost`` (what noise costs: ``"relative"`` or ``"squared"``) and ``rng``
            (None for the operating system's; a seed voids the guarantee), as for ``prepare``.

    Returns:
        The release, of kind ``statistic-rows``, ``statistic-table`` or ``statistic-draw``. It holds
        nothing of what was drawn.

    Raises:
        ValueError: as ``prepare``, or a refusal of the ledger; nothing is drawn then.

    Example:
        >>> import numpy as np
        >>> from tacit import Effort, Rows
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> release = privatize("mean", heights, Rows(success=0.6), Effort(trials=0))
        >>> release.names, release.membership.success <= 0.6
        (('mean[x0]',), True)
        >>> bool(release.errors[0] < release.sampling[0])
        True

    Source: as ``prepare``.
    """
    prepared = prepare(query, pool, promise, effort, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)
