"""Two ways to climb the dual of a worst-case design (dsi, Thm 3.3), both in the logarithms of λ.

Independent rows: Newton's method, without constraints since every multiplier is positive. More rows
than coordinates: an interior point on ``a + s = 1, λ s = μ``, since most multipliers are zero.
Whatever they return bounds the optimum: the dual value from below, a repair from above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit.design.listed.dual import (
    RootSolver,
    Solution,
    Spectrum,
    cheapest_floor,
    cheapest_repair,
    log_hessian,
    regularised_solver,
    repaired_cost,
)

# Newton's steps at most, multiplicative ones among them.
NEWTON_LIMIT = 15
# How far ln λ may move in one step.
STEP_DOWN, STEP_UP = 8.0, 2.0
# A lower bound that falls by more than this tells of a Newton step too long.
FALL = 1e-6
# A gap that is not halved in so many iterations tells of rounding in the Gram matrix.
IDLE = 2
# Only what takes this many iterations is spread so widely that a floor helps.
FLOORS_FROM = 3
# A gap this many times the tolerance is closed by one multiplicative step.
MULTIPLICATIVE = 10.0
# Scaling diag C is no use above this gap of the rows, nor above this predicted gain.
NEAR_ROWS, NEAR_GAIN = 1e-2, 1e-3
# Beyond it the second-order start is no small change.
LEAST_LEVERAGE = 0.5

# Up to this many rows the interior point works on all of them.
SMALL = 512
# Iterations on the rows at work, and on all.
ACTIVE_LIMIT, PATH_LIMIT = 20, 60
# Slack of a row that is at work newly, or whose constraint is met.
LEAST_SLACK = 0.002
# Rows are taken in whose distance is such a share of the largest, and are let go when so many of
# those at work carry less than this of the mean multiplier.
NEARLY_ACTIVE, STILL_USEFUL, NO_WEIGHT = 0.85, 0.9, 1e-3
# Violated rows are taken in when one is the worst of all, or every so many iterations.
TAKE_IN_EVERY = 4
# Of the way to where a multiplier or a slack would be zero.
STEP_SHARE = 0.99
# Cheap steps before the path, and how much a distance may change one.
FIRST_STEPS, LEAST_CHANGE, MOST_CHANGE = 8, 0.5, 10.0


def second_order_leverage(gram: Array) -> Array:
    """Return a for λ = ‖y‖² to second order in the correlations, good for a choice only.

    ``S = S₀ + T₁ + T₂`` with S₀ = diag ‖y‖² and ``S₀T₂ + T₂S₀ = −T₁²`` gives
    ``a_i = 1 − ½ Σ_j c_ij² (‖y_j‖² / (‖y_i‖² + ‖y_j‖²))²``. Ones where that is no small change.
    """
    squared = np.diagonal(gram)
    # c_ij ‖y_i‖ ‖y_j‖/(‖y_i‖² + ‖y_j‖²)
    weights = gram / (squared[:, None] + squared)
    np.fill_diagonal(weights, 0.0)
    leverage = 1 - 0.5 * (weights**2 @ squared) / squared
    return leverage if leverage.min() > LEAST_LEVERAGE else np.ones_like(leverage)


def newton(solver: RootSolver, start: Array, rtol: float) -> Solution:
    """Return the best multipliers for independent rows, and the gap they have, at most.

    Newton in log λ: ``N θ = λ∘a∘log a``, ``λ ← λ exp θ``.

    The multiplicative step ``λ ← λ a²``, exact for orthogonal rows, is taken close to the optimum
    and whenever a Newton step does not raise the lower bound. Rough spectra, of which the smallest
    values are rounding, serve while they bring the gap down.
    """
    path = _Path(solver, np.einsum("ij,ij->i", solver.rows, solver.rows))
    multipliers, previous, use_newton = start, -np.inf, True
    for iteration in range(1, NEWTON_LIMIT + 1):
        spectrum = solver.spectrum(multipliers)
        best = path.seen(multipliers, spectrum, iteration)
        if best.gap <= rtol:
            break
        # a step that lowered the dual value is taken back, and the multiplicative one made from the
        # best
        use_newton = use_newton and spectrum.lower_bound >= previous * (1 - FALL)
        if not use_newton:
            multipliers, spectrum = best.multipliers, best.spectrum
        # so near at the start that a Hessian would cost more than it brings
        if iteration == 1 and best.gap <= MULTIPLICATIVE * rtol:
            use_newton = False
        previous = spectrum.lower_bound
        # λ a²: where rows are orthogonal a_i = ‖y_i‖/√λ_i, and the step ends at a = 1
        step = 2 * np.log(spectrum.leverage)
        if use_newton:
            step = path.newton_step(multipliers, spectrum)
        multipliers = multipliers * np.exp(np.clip(step, -STEP_DOWN, STEP_UP))
        use_newton = True
    assert path.best is not None
    return path.best


@dataclass
class _Path:
    """What the iteration has seen: the best multipliers, and how fast the gap comes down."""

    solver: RootSolver
    squared: Array
    best: Solution | None = None
    gain: float = 0.0
    idle: int = 0

    def seen(self, multipliers: Array, spectrum: Spectrum, iteration: int) -> Solution:
        """Take in one iterate and return the best so far."""
        # upper bounds on the optimum: what the noise costs when it is mended row by row, or by its
        # diagonal
        floor = 0.0
        if iteration < FLOORS_FROM:
            trace = float(spectrum.singular.sum())
            cost = cheapest_repair(trace, spectrum.leverage, self.squared)[1]
        else:
            floor, cost = cheapest_floor(multipliers, spectrum, self.squared)
        # the gap as the iteration sees it, its cost to rounding: that of a design is of its noise
        gap, by_diagonal = 1 - spectrum.lower_bound / cost, False
        # worth its product of matrices only where the rows' own gap is of first order in what is
        # left
        if self.solver.rtol < gap <= NEAR_ROWS and self.gain <= NEAR_GAIN:
            other = repaired_cost(self.solver.rows, multipliers, spectrum)
            if other <= cost:
                gap, by_diagonal = 1 - spectrum.lower_bound / other, True
        # has the gap come down by half since the best?
        if self.best is None or gap < 0.5 * self.best.gap:
            self.idle = 0
        else:
            self.idle += 1
        if self.best is None or gap < self.best.gap:
            self.best = Solution(multipliers, spectrum, gap, iteration, by_diagonal, floor)
        if spectrum.rough and self.idle >= IDLE:
            # the rounding of the Gram matrix is in the way: spectra are of the rows from here on
            self.solver.gram = None
        return self.best

    def newton_step(self, multipliers: Array, spectrum: Spectrum) -> Array:
        """Return θ, good for a choice only, and keep what it gains beyond the best scaling of λ."""
        hessian, unit = log_hessian(spectrum)
        solve = regularised_solver(hessian, np.zeros_like(multipliers))
        # the gradient in ln λ is λ(a − 1); λ a ln a has its zero, and is linear in ln λ for
        # orthogonal rows
        slope, logs = multipliers * spectrum.leverage, np.log(spectrum.leverage)
        step = solve(slope * logs / unit)
        # less its mean along λ itself, which the scaling takes up
        centred = slope * (logs - float(slope @ logs) / float(slope.sum()))
        self.gain = abs(float(centred @ step)) / float(slope.sum())
        return step


def interior_point(
    rows: Array, start: Array, rtol: float, spanning: npt.NDArray[np.intp] | None = None
) -> Solution:
    """Return the best multipliers for more rows than coordinates, with their gap, at most.

    Predictor–corrector on ``a + s = 1, λ s = μ``.

    ``spanning`` are rows that span all coordinates well, where they are known.

    With many rows it first works on those whose constraint is nearly active, taking in the ones it
    finds violated; ``gap`` speaks of all rows either way.
    """
    solver = RootSolver(rows, None, rtol)
    multipliers = _multiplicative_start(solver, start)
    spectrum = solver.narrow_spectrum(multipliers)
    # to where the dual is largest along λ: tr S = Σ λ, as S, a root, grows by √c where λ does by c;
    # distances shrink by that root
    scale = (spectrum.singular.sum() / multipliers.sum()) ** 2
    leverage = spectrum.leverage / np.sqrt(scale)
    state = _State(rows, multipliers * scale, np.maximum(1 - leverage, LEAST_SLACK))
    # A basis stays at work throughout, so that S is never singular.
    anchor = np.zeros(rows.shape[0], dtype=bool)
    anchor[_spanning_rows(rows) if spanning is None else spanning] = True
    best: Solution | None = None
    if rows.shape[0] > SMALL:
        active = np.flatnonzero(anchor | (leverage > NEARLY_ACTIVE * leverage.max()))
        best = _follow_path(rows, state, active, anchor, rtol, ACTIVE_LIMIT)
    # the gap of the few is too large for all: all of them
    if best is None or best.gap > rtol:
        anchor[:] = True
        whole = _follow_path(rows, state, np.arange(rows.shape[0]), anchor, rtol, PATH_LIMIT)
        best = whole if best is None or whole.gap < best.gap else best
    return best


def _follow_path(
    rows: Array,
    initial: _State,
    active: npt.NDArray[Any],
    anchor: npt.NDArray[np.bool_],
    rtol: float,
    limit: int,
) -> Solution:
    """Step until the gap over all rows is ``rtol``, adding and dropping rows that are no anchor."""
    state, best = initial.choose(active), None
    squared = np.einsum("ij,ij->i", rows, rows)
    for iteration in range(1, limit + 1):
        spectrum = RootSolver(state.rows, None, rtol).narrow_spectrum(state.multipliers)
        assert spectrum.right is not None
        # distances of all rows, at work or not: y_iᵀ S⁻¹ y_i
        every = ((rows @ spectrum.right) ** 2) @ (1 / spectrum.singular)
        trace = float(spectrum.singular.sum())
        # for all rows: the dual of the few bounds it from below, the repair of all from above
        gap = 1 - spectrum.lower_bound / cheapest_repair(trace, every, squared)[1]
        if best is None or gap < best.gap:
            spread = np.zeros(rows.shape[0])
            spread[active] = state.multipliers
            best = Solution(spread, spectrum, gap, iteration, by_diagonal=False)
        if gap <= rtol:
            break
        state = state.step(spectrum)
        # let go of rows without weight, once they are many
        useful = state.useful() | anchor[active]
        if useful.sum() < STILL_USEFUL * useful.size:
            active, state = active[useful], state.choose(useful)
        # take in rows that are violated beyond what the path still allows
        missing = np.setdiff1d(np.flatnonzero(every > 1 + state.mean_product()), active)
        if missing.size and (
            every[missing].max() >= every[active].max() or iteration % TAKE_IN_EVERY == 0
        ):
            active = np.concatenate([active, missing])
            state = state.extend(rows[missing])
    assert best is not None
    return best


@dataclass(frozen=True)
class _State:
    """Rows at work with their multipliers λ and slacks s of ``a + s = 1``."""

    rows: Array
    multipliers: Array
    slacks: Array

    def mean_product(self) -> float:
        """Return μ over the mean multiplier, to rounding: the violation the path still allows."""
        return float((self.multipliers * self.slacks).sum() / self.multipliers.sum())

    def extend(self, rows: Array) -> _State:
        """Return the state with more rows, at the current centrality."""
        # new rows at the mean of λ s
        product = float((self.multipliers * self.slacks).mean())
        slack = np.full(rows.shape[0], LEAST_SLACK)
        return _State(
            np.vstack([self.rows, rows]),
            np.concatenate([self.multipliers, product / slack]),
            np.concatenate([self.slacks, slack]),
        )

    def useful(self) -> npt.NDArray[np.bool_]:
        """Return which rows still carry weight or are close to their budget."""
        heavy: npt.NDArray[np.bool_] = self.multipliers > NO_WEIGHT * self.multipliers.mean()
        return heavy | (self.slacks < LEAST_SLACK)

    def choose(self, chosen: npt.NDArray[Any]) -> _State:
        """Return the state with the chosen rows only."""
        return _State(self.rows[chosen], self.multipliers[chosen], self.slacks[chosen])

    def step(self, spectrum: Spectrum) -> _State:
        """Take one Mehrotra step: ``(N + Λ s) θ = μ − λ∘(1 − a)``, dλ = λ∘θ."""
        multipliers, slacks = self.multipliers, self.slacks
        # the step in θ = dλ/λ of a + s = 1, λ s = μ, linearised; ds follows from the first
        hessian, unit = log_hessian(spectrum)
        # in the unit of N, which drops out of θ and of ds
        multipliers = multipliers / unit
        solve = regularised_solver(hessian, multipliers * slacks, single=True)
        # the predictor: μ = 0
        base = -multipliers * (1 - spectrum.leverage)
        residual = 1 - spectrum.leverage - slacks

        def direction(right_side: Array) -> tuple[Array, Array]:
            theta = solve(right_side)
            return theta, residual + hessian @ theta.astype(np.float32) / multipliers

        theta, slack_change = direction(base)
        # how far it gets before a multiplier or a slack is zero, and what λ s is left there
        mean = float((multipliers * slacks).mean())
        longest = _step_length(theta), _step_length(slack_change / slacks)
        reached = float(
            (multipliers * (1 + longest[0] * theta) * (slacks + longest[1] * slack_change)).mean()
        )
        # the cube of that share of μ is aimed at, less the second-order term of the predictor
        centring = min(max(reached / mean, 0.0), 1.0) ** 3
        correction = centring * mean - multipliers * theta * slack_change
        theta, slack_change = direction(base + correction)
        return _State(
            self.rows,
            self.multipliers * (1 + min(1.0, STEP_SHARE * _step_length(theta)) * theta),
            slacks + min(1.0, STEP_SHARE * _step_length(slack_change / slacks)) * slack_change,
        )


def _multiplicative_start(solver: RootSolver, start: Array) -> Array:
    """Run cheap steps λ ← λ a², which only ever raise the dual: good for a choice only."""
    multipliers = start
    for _ in range(FIRST_STEPS):
        leverage = solver.narrow_spectrum(multipliers).leverage
        multipliers = multipliers * np.clip(leverage, LEAST_CHANGE, MOST_CHANGE) ** 2
    return multipliers


def _spanning_rows(rows: Array) -> npt.NDArray[np.intp]:
    """Return k rows that span the k coordinates well, whatever their lengths: a choice only."""
    # a pivoted QR of unit rows: each pivot is the row farthest from the span of those before
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    pivots = scipy_linalg.qr(unit.T, mode="r", pivoting=True, check_finite=False)[1]
    spanning: npt.NDArray[np.intp] = pivots[: rows.shape[1]]
    return spanning


def _step_length(relative_change: Array) -> float:
    """Return the largest step <= 1, to rounding, that keeps ``1 + step · change`` non-negative."""
    lowest = float(relative_change.min())
    return 1.0 if lowest >= -1 else -1 / lowest
