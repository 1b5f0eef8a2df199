"""Newton in the logarithms of the multipliers, for independent rows (dsi, Thm 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit._ground.checks import Array
from tacit.design.listed.curvature import log_hessian, regularised_solver
from tacit.design.listed.repairs import cheapest_floor, cheapest_repair, repaired_cost
from tacit.design.listed.roots import RootSolver, Solution, Spectrum

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
