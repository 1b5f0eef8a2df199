"""TODO."""

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

NEWTON_LIMIT = 15
STEP_DOWN, STEP_UP = 8.0, 2.0
# Only what takes this many iterations is spread so widely that a floor helps.
FLOORS_FROM = 3
# A gap this many times the tolerance is closed by one multiplicative step.
MULTIPLICATIVE = 10.0
# Scaling diag C is no use above this gap of the rows, nor above this predicted gain.
NEAR_ROWS, NEAR_GAIN = 1e-2, 1e-3


def second_order_leverage(gram: Array) -> Array:
    """Return a for λ = ‖y‖² to second order in the correlations c_ij, without a spectrum.

    ``S = S₀ + T₁ + T₂`` with S₀ = diag ‖y‖² and ``S₀T₂ + T₂S₀ = −T₁²`` gives
    ``a_i = 1 − ½ Σ_j c_ij² (‖y_j‖² / (‖y_i‖² + ‖y_j‖²))²``. Ones where that is no small change.
    """
    squared = np.diagonal(gram)
    weights = gram / (squared[:, None] + squared)
    np.fill_diagonal(weights, 0.0)
    leverage = 1 - 0.5 * (weights**2 @ squared) / squared
    return leverage if leverage.min() > 0.5 else np.ones_like(leverage)


def newton(solver: RootSolver, start: Array, rtol: float) -> Solution:
    """Newton in log λ for independent rows: ``N θ = λ∘a∘log a``, ``λ ← λ exp θ``.

    The multiplicative step ``λ ← λ a²``, exact for orthogonal rows, is taken close to the optimum
    and whenever a Newton step does not raise the lower bound. Rough spectra serve while they
    bring the gap down.
    """
    path = _Path(solver, np.einsum("ij,ij->i", solver.rows, solver.rows))
    multipliers, previous, use_newton = start, -np.inf, True
    for iteration in range(1, NEWTON_LIMIT + 1):
        spectrum = solver.spectrum(multipliers)
        best = path.seen(multipliers, spectrum, iteration)
        if best.gap <= rtol:
            break
        use_newton = use_newton and spectrum.lower_bound >= previous * (1 - 1e-6)
        if not use_newton:
            multipliers, spectrum = best.multipliers, best.spectrum
        if iteration == 1 and best.gap <= MULTIPLICATIVE * rtol:
            use_newton = False
        previous = spectrum.lower_bound
        step = path.newton_step(multipliers, spectrum) if use_newton else _multiplicative(spectrum)
        multipliers = multipliers * np.exp(np.clip(step, -STEP_DOWN, STEP_UP))
        use_newton = True
    assert path.best is not None
    return path.best


def _multiplicative(spectrum: Spectrum) -> Array:
    step: Array = 2 * np.log(spectrum.leverage)
    return step


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
        floor = 0.0
        if iteration < FLOORS_FROM:
            trace = float(spectrum.singular.sum())
            cost = cheapest_repair(trace, spectrum.leverage, self.squared)[1]
        else:
            floor, cost = cheapest_floor(multipliers, spectrum, self.squared)
        gap, by_diagonal = 1 - spectrum.lower_bound / cost, False
        if self.solver.rtol < gap <= NEAR_ROWS and self.gain <= NEAR_GAIN:
            other = repaired_cost(self.solver.rows, multipliers, spectrum)
            if other <= cost:
                gap, by_diagonal = 1 - spectrum.lower_bound / other, True
        if self.best is None or gap < 0.5 * self.best.gap:
            self.idle = 0
        else:
            self.idle += 1
        if self.best is None or gap < self.best.gap:
            self.best = Solution(multipliers, spectrum, gap, iteration, by_diagonal, floor)
        if spectrum.rough and self.idle >= 2:
            # The rounding of the Gram matrix is in the way.
            self.solver.gram = None
        return self.best

    def newton_step(self, multipliers: Array, spectrum: Spectrum) -> Array:
        """Return θ, and keep the relative gain that it predicts beyond the best scaling of λ."""
        solve = regularised_solver(log_hessian(spectrum), np.zeros_like(multipliers))
        slope, logs = multipliers * spectrum.leverage, np.log(spectrum.leverage)
        step = solve(slope * logs)
        centred = slope * (logs - float(slope @ logs) / float(slope.sum()))
        self.gain = abs(float(centred @ step)) / float(slope.sum())
        return step


# Up to this many rows the interior point works on all of them.
SMALL = 512
ACTIVE_LIMIT, PATH_LIMIT = 20, 60


def interior_point(
    rows: Array, start: Array, rtol: float, spanning: npt.NDArray[np.intp] | None = None
) -> Solution:
    """Predictor–corrector on ``a + s = 1, λ s = μ`` for more rows than coordinates.

    ``spanning`` are rows that span all coordinates well, where they are known.

    With many rows it first works on those whose constraint is nearly active, taking in the ones it
    finds violated; ``gap`` speaks of all rows either way.
    """
    solver = RootSolver(rows, None, rtol)
    multipliers = _multiplicative_start(solver, start)
    spectrum = solver.narrow_spectrum(multipliers)
    scale = (spectrum.singular.sum() / multipliers.sum()) ** 2
    leverage = spectrum.leverage / np.sqrt(scale)
    state = _State(rows, multipliers * scale, np.maximum(1 - leverage, 0.02))
    # A basis stays at work throughout, so that S is never singular.
    anchor = np.zeros(rows.shape[0], dtype=bool)
    anchor[_spanning_rows(rows) if spanning is None else spanning] = True
    best: Solution | None = None
    if rows.shape[0] > SMALL:
        active = np.flatnonzero(anchor | (leverage > 0.85 * leverage.max()))
        best = _follow_path(rows, state, active, anchor, rtol, ACTIVE_LIMIT)
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
    state, best = initial.kept(active), None
    squared = np.einsum("ij,ij->i", rows, rows)
    for iteration in range(1, limit + 1):
        spectrum = RootSolver(state.rows, None, rtol).narrow_spectrum(state.multipliers)
        assert spectrum.right is not None
        every = ((rows @ spectrum.right) ** 2) @ (1 / spectrum.singular)
        trace = float(spectrum.singular.sum())
        gap = 1 - spectrum.lower_bound / cheapest_repair(trace, every, squared)[1]
        if best is None or gap < best.gap:
            spread = np.zeros(rows.shape[0])
            spread[active] = state.multipliers
            best = Solution(spread, spectrum, gap, iteration, by_diagonal=False)
        if gap <= rtol:
            break
        state = state.step(spectrum)
        useful = state.useful() | anchor[active]
        if useful.sum() < 0.9 * useful.size:
            active, state = active[useful], state.kept(useful)
        missing = np.setdiff1d(np.flatnonzero(every > 1 + state.mean_product()), active)
        if missing.size and (every[missing].max() >= every[active].max() or iteration % 4 == 0):
            active = np.concatenate([active, missing])
            state = state.extended(rows[missing])
    assert best is not None
    return best


@dataclass(frozen=True)
class _State:
    """Rows at work with their multipliers λ and slacks s of ``a + s = 1``."""

    rows: Array
    multipliers: Array
    slacks: Array

    def mean_product(self) -> float:
        """Return μ relative to the mean multiplier, the violation that the path still allows."""
        return float((self.multipliers * self.slacks).sum() / self.multipliers.sum())

    def extended(self, rows: Array) -> _State:
        """Return the state with more rows, at the current centrality."""
        product = float((self.multipliers * self.slacks).mean())
        slack = np.full(rows.shape[0], 0.02)
        return _State(
            np.vstack([self.rows, rows]),
            np.concatenate([self.multipliers, product / slack]),
            np.concatenate([self.slacks, slack]),
        )

    def useful(self) -> npt.NDArray[np.bool_]:
        """Return which rows still carry weight or are close to their budget."""
        heavy: npt.NDArray[np.bool_] = self.multipliers > 1e-3 * self.multipliers.mean()
        return heavy | (self.slacks < 0.02)

    def kept(self, chosen: npt.NDArray[Any]) -> _State:
        """Return the state with the chosen rows only."""
        return _State(self.rows[chosen], self.multipliers[chosen], self.slacks[chosen])

    def step(self, spectrum: Spectrum) -> _State:
        """Take one Mehrotra step: ``(N + Λ s) θ = μ − λ∘(1 − a)``, dλ = λ∘θ."""
        multipliers, slacks = self.multipliers, self.slacks
        hessian = log_hessian(spectrum)
        solve = regularised_solver(hessian, multipliers * slacks)
        base = -multipliers * (1 - spectrum.leverage)
        residual = 1 - spectrum.leverage - slacks

        def direction(right_side: Array) -> tuple[Array, Array]:
            theta = solve(right_side)
            return theta, residual + hessian @ theta / multipliers

        theta, slack_change = direction(base)
        mean = float((multipliers * slacks).mean())
        longest = _step_length(theta), _step_length(slack_change / slacks)
        reached = float(
            (multipliers * (1 + longest[0] * theta) * (slacks + longest[1] * slack_change)).mean()
        )
        centring = min(max(reached / mean, 0.0), 1.0) ** 3
        correction = centring * mean - multipliers * theta * slack_change
        theta, slack_change = direction(base + correction)
        return _State(
            self.rows,
            multipliers * (1 + min(1.0, 0.99 * _step_length(theta)) * theta),
            slacks + min(1.0, 0.99 * _step_length(slack_change / slacks)) * slack_change,
        )


def _multiplicative_start(solver: RootSolver, start: Array, steps: int = 8) -> Array:
    """Run cheap steps λ ← λ a², which only ever raise the dual."""
    multipliers = start
    for _ in range(steps):
        leverage = solver.narrow_spectrum(multipliers).leverage
        multipliers = multipliers * np.clip(leverage, 0.5, 10.0) ** 2
    return multipliers


def _spanning_rows(rows: Array) -> npt.NDArray[np.intp]:
    """Return k rows that span the k coordinates well, whatever their lengths."""
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    pivots = scipy_linalg.qr(unit.T, mode="r", pivoting=True, check_finite=False)[1]
    spanning: npt.NDArray[np.intp] = pivots[: rows.shape[1]]
    return spanning


def _step_length(relative_change: Array) -> float:
    """Return the largest step ≤ 1 / keeps ``1 + step · change`` non-negative."""
    lowest = float(relative_change.min())
    return 1.0 if lowest >= -1 else -1 / lowest
