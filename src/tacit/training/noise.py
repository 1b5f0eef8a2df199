"""The noise of one round: coefficients of the differences, verified before they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.random import released_normal
from tacit.design import worst_case
from tacit.design.base import Design

# By how much the squared length of a row of L may exceed 1 for the rounding of its sum.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class RoundNoise:
    """Gaussian coefficients c of the noise Σ c_r z_r, certified and not yet drawn.

    Attributes:
        design: of the solver, over the differences that are not zero; None where no Gram matrix
            was known, and then c_r ~ N(0, 1/g_r).
        budgets: (k,) largest squared distances g.
        moving: (k,) whether the difference is not zero.
        energy: E‖noise‖² by the Gram matrix it was designed for; None without one.
    """

    design: Design | None
    budgets: Array
    moving: npt.NDArray[np.bool_]
    energy: float | None

    def draw(self, rng: np.random.Generator | None) -> Array:
        """Return the coefficients, (k,); from the operating system where ``rng`` is None."""
        coefficients = np.zeros(self.moving.size)
        live = self.budgets[self.moving]
        if live.size == 0:
            return coefficients
        if self.design is None:
            coefficients[self.moving] = released_normal((live.size,), rng) / np.sqrt(live)
        else:
            coefficients[self.moving] = self.design.covariance.sample(1, rng)[0]
        return coefficients


def round_noise(gram: Array | None, budgets: Array, warm_start: Design | None = None) -> RoundNoise:
    """Choose the coefficients of least energy that keep every difference in its budget.

    ``c = D⁻¹ L⁻ᵀ η``, ``D = diag √g``: difference r lies at squared distance ``g_r ‖L_r‖²``
    whatever the Gram matrix is, so a Gram matrix that is only near costs energy and no guarantee.

    Args:
        gram: (k, k) of the differences z_r; None where it is not known.
        budgets: (k,) g > 0.
        warm_start: the design of an earlier round with the same differences.

    Raises:
        ValueError: the factor that would be drawn from does not keep a budget.

    Source: dsi, Theorem 3.3 and Algorithm 1.
    """
    if gram is None:
        return RoundNoise(None, budgets, np.ones(budgets.size, dtype=bool), None)
    moving = np.diagonal(gram) > 0.0
    if not moving.any():
        return RoundNoise(None, budgets, moving, 0.0)
    warm = warm_start if warm_start is not None and _fits(warm_start, moving) else None
    design = worst_case(
        None, budgets[moving], gram=gram[np.ix_(moving, moving)], rtol=1e-4, warm_start=warm
    )
    factor = design.constraint_factor
    assert factor is not None
    longest = float(np.square(factor).sum(axis=1).max())
    if longest > 1.0 + ROUNDING:
        raise ValueError(f"noise: expected rows of L within 1, got {longest!r}")
    return RoundNoise(design, budgets, moving, design.cost)


def _fits(design: Design, moving: npt.NDArray[np.bool_]) -> bool:
    ratios = design.multiplier_ratios
    return ratios is not None and ratios.size == int(moving.sum())
