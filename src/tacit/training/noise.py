"""The noise of one round: certified, not yet drawn, verified as it will be drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import Array
from tacit._ground.random import released_normal
from tacit.covariance.publication import (
    GRID_BITS,
    LARGEST,
    SMALLEST,
    TERM_BITS,
    grid_of,
    publish_sum,
)
from tacit.design.base import Design
from tacit.training.gradients.noise import draw, step_design
from tacit.training.parameters import trainable
from tacit.training.publication import publish_tensor

# By how much a squared norm of float32 gradients may be off, as a share of its terms, and more.
SLACK = 1e-4


@dataclass(frozen=True, eq=False)
class RoundNoise:
    """Gaussian coefficients c of the noise Σ c_r z_r, and isotropic noise beside or instead.

    Attributes:
        design: of the coefficients; None where there are none.
        budgets: (k,) largest squared distances g.
        spread: standard deviation of isotropic noise.
        energy: E‖noise‖² by the Gram matrix it was designed for; None without one.
    """

    design: Design | None
    budgets: Array
    spread: float
    energy: float | None

    def draw(self, rng: np.random.Generator | None) -> Array:
        """Return the coefficients, (k,); from the operating system where ``rng`` is None."""
        if self.design is None:
            return np.zeros(self.budgets.size)
        drawn = draw(self.design, self.budgets, rng)
        # An outcome without z_r moves c_r by 1, a multiple of the grid: rounded, c is the same
        # function of the one as of the other, and so is whatever is computed from it exactly.
        deviations = np.minimum(_deviations(self.design), 2.0**GRID_BITS)
        grid = grid_of(deviations, deviations)
        spacing = np.where(grid > 0.0, grid, 1.0)
        return np.where(grid > 0.0, np.round(drawn / spacing) * spacing, drawn)

    def publish(self, value: Array, differences: Array, rng: np.random.Generator | None) -> Array:
        """Return ``value + Σ c_r z_r``, and isotropic noise where there is some, on one grid.

        Args:
            value: (p,).
            differences: (k, p) z.
            rng: as of ``draw``.
        """
        noise = self.draw(rng) @ differences
        if self.design is None:
            noise = noise + self.spread * released_normal(value.shape, rng)
            return publish_sum(value, noise, self.spread)
        # Var (Σ c_r z_r)_j = Σ_rs z_rj C_rs z_sj, and the sum of its terms' squares, which is above
        # it where they cancel
        covariance = self.design.covariance.to_dense()
        variances = np.einsum("rj,rs,sj->j", differences, covariance, differences)
        terms = np.sqrt(np.diagonal(covariance) @ differences**2)
        # a coarser grid is safe: what is computed to be 0 by rounding is rounded by its terms
        spread = np.sqrt(np.maximum(variances, (2.0**-TERM_BITS * terms) ** 2))
        within = np.where(terms > 0.0, np.clip(spread, SMALLEST, LARGEST), 0.0)
        return publish_sum(value, noise, within, terms)


def _deviations(design: Design) -> Array:
    """Return the standard deviations of the coefficients, (k,)."""
    found: Array = np.sqrt(np.diagonal(design.covariance.to_dense()))
    return found


def round_noise(gram: Array | None, budgets: Array, warm_start: Design | None = None) -> RoundNoise:
    """Choose the coefficients of least energy that keep every difference in its budget.

    Args:
        gram: (k, k) of the differences z_r; None where it is not known.
        budgets: (k,) g > 0.
        warm_start: the design of an earlier round with the same differences.

    Source: dsi, Theorem 3.3 and Algorithm 1.
    """
    if budgets.size == 0:
        return RoundNoise(None, budgets, 0.0, 0.0)
    design = step_design(gram, budgets, np.ones(budgets.size, dtype=bool), warm_start=warm_start)
    return RoundNoise(design, budgets, 0.0, design.cost if math.isfinite(design.cost) else None)


def isotropic_noise(lengths: Array, sums: Array, budgets: Array, size: int) -> RoundNoise:
    """Return N(0, σ²) in each of ``size`` parameters, σ² = max ‖z_r‖²/g_r: the same certificate.

    Args:
        lengths: (k,) squared lengths of the differences z_r, with rounding.
        sums: (k,) Σ_j |M_rj| ‖g_j‖ of what each is a sum of: where the terms cancel, rounding is a
            share of these and not of the length.
        budgets: (k,) g > 0.
        size: p.
    """
    if budgets.size == 0:
        return RoundNoise(None, budgets, 0.0, 0.0)
    longest = np.maximum(lengths, 0.0) + SLACK * sums**2
    variance = float((longest / budgets).max())
    return RoundNoise(None, budgets, math.sqrt(variance), variance * size)


def add_isotropic(model: torch.nn.Module, spread: float, rng: np.random.Generator | None) -> None:
    """Add N(0, spread²) to every entry of the gradients that are there."""
    for parameter in trainable(model).values():
        assert parameter.grad is not None
        noise = released_normal((parameter.numel(),), rng).reshape(tuple(parameter.shape)) * spread
        noisy = publish_tensor(parameter.grad, torch.from_numpy(noise), spread)
        parameter.grad = noisy.to(parameter.grad.dtype)


class Shaped:
    """Chooses the noise of every round, one after the other.

    Args:
        kind: ``"optimal"`` or ``"isotropic"``.
        model: whose parameters it is added to.
    """

    def __init__(self, kind: str, model: torch.nn.Module) -> None:
        self._kind, self._model = kind, model
        self._warm: tuple[bytes, Design] | None = None

    def noise(
        self, gram: Array | None, changes: Array, allowed: Array, indices: npt.NDArray[np.intp]
    ) -> RoundNoise:
        """Return the noise for differences ``z = M g`` from the Gram matrix of g.

        Args:
            gram: (B, B) of g; None where it is not known.
            changes: M, (k, B).
            allowed: (k,) squared distances.
            indices: (k,) the references; where they are those of the round before, its design is
                the start.
        """
        moved = None if gram is None else changes @ gram @ changes.T
        if self._kind == "isotropic" and gram is not None and moved is not None:
            size = sum(p.numel() for p in trainable(self._model).values())
            sums = np.abs(changes) @ np.sqrt(np.maximum(np.diagonal(gram), 0.0))
            return isotropic_noise(np.diagonal(moved), sums, allowed, size)
        same = self._warm is not None and self._warm[0] == indices.tobytes()
        earlier = self._warm[1] if same and self._warm is not None else None
        found = round_noise(moved, allowed, earlier)
        self._warm = None if found.design is None else (indices.tobytes(), found.design)
        return found
