"""Worst-case noise for more references than dimensions, from a working set that is checked.

At most d(d + 1)/2 constraints are active, so a few rows are solved for and all are measured: the
dual of the few is a lower bound for all, and noise scaled by the worst distance is feasible. Noise
gets ``δ diag Σ`` on top: it costs δ and keeps every correlation away from 1, so that no direction
is bare, whatever the rank and the scales of the rows, and double precision can measure them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.covariance import Factored, Isotropic
from tacit.covariance.span import row_norms
from tacit.design.base import Design
from tacit.design.listed.blocks import Blocks
from tacit.design.listed.interior_point import interior_point
from tacit.design.listed.problem import finite_cost
from tacit.design.listed.references import Cost, Indices
from tacit.design.listed.repairs import cheapest_repair
from tacit.design.listed.roots import RootSolver, Solution
from tacit.design.listed.survey import FIRST_ROWS, Leaders, Survey, survey

MORE_ROWS = 20
ROUNDS = 20
# Until no row is further over its budget than this, solving to this gap is enough.
EARLY_GAP, EARLY_EXCESS, EARLY_ROUNDS = 1e-3, 0.01, 1
# Working rows that use less of their budget than this are let go.
NEARLY_ACTIVE = 0.9
# δ relative to the tolerance, and its largest value; what columns too small to solve for may use.
FLOOR_SHARE, LARGEST_FLOOR, SMALL_SHARE = 0.01, 1e-8, 1e-8
# Rows this much shorter than the longest are covered as they are.
SHORT = 1e-7
# Rounding in a measured distance that can still be added to it.
WORST_ROUNDING = 0.1
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class Working:
    """Multipliers of the working rows at dual value ``bound``, also relative to ‖y‖²."""

    values: Array
    ratios: Array
    bound: float
    iterations: int


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise ``ηᵀ triangle diag(scales)`` on the live columns, in the unit."""

    triangle: Array
    scales: Array
    rounding: float

    def whitened(self, rows: Array, unit: float) -> Array:
        """Return u with ``z/√g = uᵀ triangle diag(scales)`` for each row z/√g, live columns."""
        solved: Array = scipy_linalg.solve_triangular(
            self.triangle, (rows / (unit * self.scales)).T, trans="T", check_finite=False
        ).T
        return solved


def over_many(blocks: Blocks, cost: Cost, rtol: float, ratios: Array | None) -> Design:
    """Solve for any number of rows in few dimensions.

    Args:
        blocks: the differences with their budgets.
        cost: F.
        rtol: relative gap to reach.
        ratios: (m,) multipliers relative to those of orthogonal rows, from an earlier design.
    """
    seen = survey(blocks, cost)
    if seen.live.size == 0:
        return _no_noise(blocks, seen)
    working, start = seen.candidates, None
    aim = rtol if working.size == seen.count else max(rtol, EARLY_GAP)
    if ratios is not None:
        heavy = np.argsort(-ratios, kind="stable")[: FIRST_ROWS * seen.live.size]
        working = np.union1d(working, heavy)
        start = ratios[working]
    best: tuple[float, Noise, float, Working, Indices] | None = None
    for number in range(ROUNDS):
        solution, covering = _solved(seen.weighed(blocks.rows(working)), seen, aim, start)
        noise = _noise(covering, seen, rtol)
        worst, distances, violated = _measured(blocks, seen, noise, working, rtol)
        gap = 1 - solution.bound / (_cost_of(seen, noise) * worst)
        if best is None or gap < best[0]:
            best = (gap, noise, worst, solution, working)
        if gap <= rtol or (violated.size == 0 and aim <= rtol):
            break
        # Solving to the end pays once no other row is far over its budget.
        aim = rtol if worst < 1 + EARLY_EXCESS or number >= EARLY_ROUNDS else aim
        kept = (distances > NEARLY_ACTIVE * float(distances.max())) | (solution.values > 0.0)
        following = np.union1d(working[kept], violated)
        start = np.zeros(following.size)
        start[np.searchsorted(following, working[kept])] = solution.ratios[kept]
        working = following
    assert best is not None
    return _design(blocks, seen, *best)


def _solved(
    weighed: Array, seen: Survey, rtol: float, earlier: Array | None
) -> tuple[Working, Array]:
    """Return multipliers of the working rows, and rows W with ``Wᵀ W`` feasible for them."""
    small = _small_columns(seen, rtol)
    main = np.where(small, 0.0, weighed)
    norms = row_norms(main)
    unit = float(norms.max())
    long = norms > SHORT * unit
    rows, lengths = main[long] / unit, norms[long] / unit
    orthonormal, triangle, pivots = scipy_linalg.qr(
        (rows / lengths[:, None]).T, mode="economic", pivoting=True, check_finite=False
    )
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > max(rows.shape) * EPS * diagonal[0]).sum())
    coordinates = np.empty((rows.shape[0], rank))
    coordinates[pivots] = triangle[:rank].T
    coordinates *= lengths[:, None]
    start = lengths**2
    if earlier is not None and earlier[long].any():
        start = start * np.maximum(earlier[long] / float(earlier[long].max()), 1e-6)
    try:
        found = interior_point(coordinates, start, rtol / 2, pivots[:rank])
    except scipy_linalg.LinAlgError:
        spectrum = RootSolver(coordinates, None, rtol).narrow_spectrum(start)
        found = Solution(start, spectrum, math.inf, 0, by_diagonal=False)
    singular, right = found.spectrum.singular, found.spectrum.right
    assert right is not None
    leverage = ((coordinates @ right) ** 2) @ (1 / singular)
    trace = float(singular.sum())
    scale = cheapest_repair(trace, leverage, lengths**2)[0]
    excess = np.maximum(1 - scale / leverage, 0.0)
    mended = excess > 0
    # Rounding of the basis would tie columns of another scale to these.
    orthonormal[small] = 0.0
    covering = [
        np.sqrt(scale * singular)[:, None] * (orthonormal[:, :rank] @ right).T,
        np.sqrt(excess[mended])[:, None] * rows[mended],
        main[~long] / unit,
    ]
    # At the best scaling of λ both tr S and Σ λ equal the dual value.
    values = np.zeros(len(weighed))
    values[long] = found.multipliers * (trace / float(found.multipliers.sum())) ** 2 * unit**2
    bound = found.spectrum.lower_bound * unit**2
    ratios = np.zeros(len(weighed))
    ratios[long] = values[long] / norms[long] ** 2
    return Working(values, ratios, bound, found.iterations), unit * np.vstack(covering)


def _small_columns(seen: Survey, rtol: float) -> npt.NDArray[np.bool_]:
    """Return the columns so small that noise on each of them alone costs next to nothing."""
    size = seen.largest.size
    share = math.sqrt(_floor(rtol) * SMALL_SHARE) / size
    small: npt.NDArray[np.bool_] = seen.largest <= share * float(seen.largest.max())
    return small


def _floor(rtol: float) -> float:
    """Return δ, the share of each variance that is added on its own."""
    return min(LARGEST_FLOOR, FLOOR_SHARE * rtol)


def _noise(covering: Array, seen: Survey, rtol: float) -> Noise:
    """Return the triangle of ``Wᵀ W`` with a floor on every coordinate, in the live columns."""
    deviations = np.maximum(row_norms(covering.T), seen.largest)
    floors = math.sqrt(_floor(rtol)) * deviations
    small = _small_columns(seen, rtol)
    # Each of k small columns takes its own share of a budget: variance k largest² / share.
    floors[small] = math.sqrt(seen.largest.size / SMALL_SHARE) * seen.largest[small]
    stacked = np.vstack([covering, np.diag(floors)])
    stacked = np.vstack([seen.cost.unweigh(stacked), seen.free])
    scales = row_norms(stacked.T)
    triangle = scipy_linalg.qr(stacked / scales, mode="r", check_finite=False)[0][: scales.size]
    return Noise(triangle, scales, _rounding(triangle))


def _rounding(triangle: Array) -> float:
    """Return how far the norm of a solution with the triangle may be off, relative to itself.

    Back substitution solves ``(R + E)ᵀ u = z`` with ``|E| ≤ (k + 4) ε |R|`` entry by entry, so
    that u is off by at most ``(k + 4) ε ‖|R⁻¹| |R|‖ ‖u‖``.
    """
    size = triangle.shape[0]
    inverse = scipy_linalg.solve_triangular(triangle, np.eye(size), check_finite=False)
    product = np.abs(inverse) @ np.abs(triangle)
    norm = math.sqrt(float(product.sum(axis=0).max()) * float(product.sum(axis=1).max()))
    return float((size + 4) * EPS * norm)


def _cost_of(seen: Survey, noise: Noise) -> float:
    """Return tr(FΣ) in the unit."""
    weighed = seen.cost.weigh(noise.triangle * noise.scales)
    return float(np.vdot(weighed, weighed))


def _measured(
    blocks: Blocks, seen: Survey, noise: Noise, working: Indices, rtol: float
) -> tuple[float, Array, Indices]:
    """Return the worst squared distance, those of the working rows and the worst other rows."""
    if not noise.rounding < WORST_ROUNDING:
        raise ValueError(
            "cost: expected one that double precision can invert on these differences, got "
            f"distances that rounding may change by {noise.rounding:.2g} of themselves"
        )
    leaders = Leaders(MORE_ROWS * seen.live.size, seen.live.size)
    largest, own, count = 0.0, np.zeros(working.size), 0
    for first, rows in blocks:
        count = first + len(rows)
        white = noise.whitened(seen.alive(rows), seen.unit)
        distances = np.einsum("ij,ij->i", white, white)
        largest = max(largest, float(distances.max()))
        low, high = np.searchsorted(working, [first, first + len(rows)])
        inside = working[low:high] - first
        own[low:high] = distances[inside]
        distances[inside] = 0.0
        leaders.take(first, white, distances, above=1 + 0.1 * rtol)
    if count != seen.count:
        raise ValueError(
            f"differences: expected the same {seen.count} rows whenever they are read, got {count}"
        )
    return largest * (1 + noise.rounding) ** 2, own, leaders.indices()


def _design(
    blocks: Blocks,
    seen: Survey,
    gap: float,
    noise: Noise,
    worst: float,
    found: Working,
    working: Indices,
) -> Design:
    """Scale the noise by the worst distance and return it in the caller's units."""
    root = math.sqrt(worst)
    rows = np.zeros((seen.live.size, seen.dim))
    rows[:, seen.live] = noise.triangle * (noise.scales * (root * seen.unit))
    with np.errstate(over="ignore"):
        dual = np.minimum(found.values * seen.unit**2 / blocks.limits(working), LARGEST)
    multipliers, ratios, constraint = dual, found.ratios, None
    if blocks.in_memory:
        multipliers, ratios = np.zeros(seen.count), np.zeros(seen.count)
        multipliers[working], ratios[working] = dual, found.ratios
        constraint = np.empty((seen.count, seen.live.size))
        for first, block in blocks:
            white = noise.whitened(seen.alive(block), seen.unit)
            np.divide(white, root, out=constraint[first : first + len(block)])
    return Design(
        covariance=Factored(rows),
        cost=finite_cost(_cost_of(seen, noise) * worst * seen.unit**2) if seen.priced else 0.0,
        gap=max(gap, 0.0) if seen.priced else 0.0,
        method="worst-case",
        multipliers=multipliers,
        iterations=found.iterations,
        constraint_factor=constraint,
        multiplier_ratios=ratios,
        working_set=None if blocks.in_memory else working,
    )


def _no_noise(blocks: Blocks, seen: Survey) -> Design:
    """Return the design for differences that are all zero."""
    count = seen.count if blocks.in_memory else 0
    return Design(
        Isotropic(0.0, seen.dim),
        0.0,
        0.0,
        "worst-case",
        np.zeros(count),
        0,
        constraint_factor=np.zeros((count, seen.dim)) if blocks.in_memory else None,
        working_set=None if blocks.in_memory else np.zeros(0, dtype=np.intp),
    )
