"""The least noise that keeps every listed difference within its budget (dsi, Thm 3.3, Alg. 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, in_interval, vector
from tacit._ground.numbers import LARGEST
from tacit._ground.threads import one_thread
from tacit.design.base import Design
from tacit.design.listed.many import over_many
from tacit.design.listed.mixture import more_distinct_than, over_references
from tacit.design.listed.problem import Cost, ListedProblem, RowBlocks, blocks_of, read_problem

# From this many independent differences on, threads gain more than they lose.
THREADS_PAY = 1500
# Up to this many rows repeated ones are counted before the way to solve is chosen.
FEW = 512
# Gaps that may be asked for: below it double precision has nothing left to certify.
LEAST_GAP = 1e-14
# Of an earlier design's multipliers: the largest is not divided by less, and none counts as less
# than this beside it.
TINY, LEAST_RATIO = 1e-300, 1e-6


def worst_case(
    differences: ArrayLike | Iterable[ArrayLike] | Callable[[], Iterator[ArrayLike]] | None,
    budgets: ArrayLike,
    *,
    cost: ArrayLike | None = None,
    gram: ArrayLike | None = None,
    rtol: float = 1e-6,
    warm_start: Design | Any = None,
) -> Design:
    """Least-cost Gaussian noise with every difference in its budget.

    ``minimise tr(FΣ) subject to z_iᵀ Σ⁻¹ z_i ≤ g_i, i = 1 … m``. With ``ỹ_i = F^½ z_i / √g_i`` and
    ``G = ỸỸᵀ`` this is ``min tr(G C⁻¹) : diag C ≤ 1``, solved in the m multipliers and returned as
    the factor L of ``C = L Lᵀ``: the noise ``Σ_i (z_i/√g_i) (L⁻ᵀ η)_i`` is a linear image of
    ``Lᵀe_i + η``, so it is feasible exactly when the rows of L have norm at most 1, whatever the
    rounding in G or its rank. No difference is ever dropped, however short or collinear.

    Args:
        differences: (m, d), z_i = f(U) − f(R_i); None when only ``gram`` is known.
        budgets: g > 0, scalar or (m,): largest squared distance, e.g.
            ``shift_distance("kl", nats) ** 2``.
        cost: F, None (identity), a scalar, a diagonal (d,) or a PSD matrix (d, d).
        gram: (m, m) matrix z_iᵀ F z_j when it is already known; ``cost`` must be the same F.
        rtol: relative duality gap to reach; what was reached is in ``gap``.
        warm_start: an earlier Design with the same number of differences, or (m,) multipliers.

    Returns:
        A Design whose covariance is feasible and whose ``gap`` is certified by the dual. With
        ``differences=None`` the covariance is that of the coefficients c of the noise Σ c_i z_i.

    Raises:
        ValueError: an entry is not finite, a shape does not fit, a budget is not positive, the
            cost is not PSD.

    Example:
        >>> design = worst_case([[3.0, 0.0], [0.0, 4.0]], budgets=1.0)
        >>> round(design.cost, 6), design.covariance.mahalanobis([3.0, 0.0]) <= 1 + 1e-12
        (25.0, True)
    """
    in_interval("rtol", rtol, LEAST_GAP, 1.0, open_high=True)
    # a BLAS of several threads loses more than it gains on the small factorisations of few rows
    with one_thread() if _independent_at_most(differences, gram) < THREADS_PAY else nullcontext():
        streamed = blocks_of(differences, budgets)
        if streamed is not None:
            return _solve_stream(streamed, cost, gram, rtol, warm_start)
        problem = read_problem(differences, budgets, cost, gram)
        ratios = _ratios(problem, warm_start)
        # at most as many rows as columns: their mixture, exact whatever their rank
        if problem.rows is None or not _more_than_columns(problem.rows):
            return over_references(problem, rtol, ratios)
        assert problem.cost is not None
        # more rows: a working set, and equal budgets need no division row by row
        limits = problem.limits
        same = bool((limits == limits[0]).all())
        blocks = RowBlocks(problem.rows, float(limits[0]) if same else limits, checked=True)
        return over_many(blocks, problem.cost, rtol, ratios)


def _solve_stream(blocks: RowBlocks, cost: Any, gram: Any, rtol: float, warm_start: Any) -> Design:
    """Return the design for rows that are read in blocks, which know no Gram and no start."""
    if gram is not None:
        raise ValueError("gram: expected None where differences are read in blocks")
    if warm_start is not None:
        raise ValueError("warm_start: expected None where differences are read in blocks")
    # of a block: the index of its first row, and its rows; reading starts anew every time
    width = next(iter(blocks))[1].shape[1]
    return over_many(blocks, Cost(cost, width), rtol, None)


def _more_than_columns(rows: Array) -> bool:
    """Whether more rows than columns are left when repeated ones are one."""
    count, dim = int(rows.shape[0]), int(rows.shape[1])
    if count <= dim or count > FEW:
        return count > dim
    return more_distinct_than(rows, dim)


def _independent_at_most(differences: Any, gram: Any) -> int:
    """Return how many differences can be independent, at most, 0 where no shape is known."""
    try:
        shape = np.shape(gram if differences is None else differences)
    except ValueError:
        return 0
    return min(shape) if len(shape) == 2 else 0


def _ratios(problem: ListedProblem, warm_start: Design | Any) -> Array | None:
    """Return multipliers relative to those of orthogonal rows, the largest 1: a choice only."""
    if warm_start is None:
        return None
    count = problem.count
    if isinstance(warm_start, Design):
        ratios = warm_start.multiplier_ratios
        if ratios is None or ratios.size != count:
            raise ValueError(f"warm_start: expected a worst-case design of {count} differences")
    else:
        # multipliers λ ≥ 0 as they are; a design carries them relative to its rows' lengths
        multipliers = vector("warm_start", warm_start, size=count)
        if (multipliers < 0).any():
            raise ValueError("warm_start: expected multipliers >= 0, got a negative one")
        # λ_i g_i/‖y_i‖² is 1 for orthogonal rows, and carries over to rows of other lengths
        squared = problem.cost_lengths() ** 2
        scaled = multipliers / max(float(multipliers.max()), TINY) * problem.limits
        scaled = scaled / float(problem.limits.max())
        ratios = np.divide(scaled, squared, out=np.zeros(count), where=squared > 0.0)
        ratios = np.minimum(ratios, LARGEST)
    # none is zero: a multiplier at zero would never grow again
    largest = float(ratios.max())
    return np.maximum(ratios / largest, LEAST_RATIO) if largest > 0.0 else None
