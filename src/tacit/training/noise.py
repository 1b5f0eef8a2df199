"""The noise of one round: certified, drawn as it was verified, and published on a grid."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, symmetric
from tacit._ground.numbers import EPS
from tacit._ground.random import released_normal
from tacit.covariance import Factored
from tacit.covariance.publication import (
    GRID_BITS,
    LARGEST,
    SMALLEST,
    TERM_BITS,
    grid_of,
    publish_sum,
)
from tacit.design import Design, worst_case
from tacit.design.listed.problem import checked_budgets
from tacit.gradients.publication import publish_tensor
from tacit.training.parameters import trainable

# A reference's squared length is taken as at least this share of the longest one's.
FLOOR = 1e-12
# Units in the last place by which a row of norm 1 may miss it.
ROUNDING = 64.0
# By how much a squared norm of float32 gradients may be off, as a share of its terms, and more.
SLACK = 1e-4


def noisy_coefficients(
    gram: ArrayLike | None,
    membership: ArrayLike,
    budgets: ArrayLike,
    *,
    rng: RandomSource = None,
    warm_start: Design | ArrayLike | None = None,
) -> tuple[Array, Design]:
    """Return the coefficients c of a noisy mean gradient ``Σ_i c_i g_i``, drawn for a release.

    The mean gradient without the examples outside of reference R_r differs from the whole one by
    ``z_r = −(1/B) Σ_{j ∉ R_r} g_j = (M g)_r``, the divisor B being the same. With
    ``Gram_z = M G Mᵀ`` the noise ``Σ_r x_r z_r`` of least energy keeps every z_r within its budget,
    and ``c = 1/B + Mᵀ x``. Whether it does depends on the rows of L alone, ``x = D^-½ L⁻ᵀ η``, D
    the budgets: an approximate G costs energy and no guarantee, and ``design.cost`` is then not
    the energy. Without G every x_r is N(0, 1/budget_r) by itself, L = I.

    Args:
        gram: (B, B) inner products of the gradients, or None.
        membership: (references, B) of bool, whether an example is in a reference.
        budgets: (references,) or scalar, largest squared distance of each reference.
        rng: None draws from the operating system; a seed or generator voids the guarantee.
        warm_start: the design of an earlier step with the same references, or multipliers.

    Returns:
        The (B,) coefficients and the design of x, whose factor L they were drawn from.

    Raises:
        ValueError: a shape does not fit, a budget is not positive, an entry is not finite.

    Example:
        >>> coefficients, design = noisy_coefficients(np.eye(3), ~np.eye(3, dtype=bool), 2.0)
        >>> coefficients.shape, round(design.cost, 6)
        ((3,), 0.166667)

    Source: dsi, Thm 3.3 and Alg. 2, with one optimiser step as F.
    """
    inside = _membership(membership)
    count = inside.shape[1]
    # z = M g, M_rj = −[j ∉ R_r]/B
    mixing = np.where(inside, 0.0, -1.0 / count)
    # a reference that leaves out nothing of the batch needs no noise
    moving = np.asarray(mixing.any(axis=1))
    products = None if gram is None else symmetric("gram", gram, size=count)
    # Gram_z = M G Mᵀ
    moved = None if products is None else mixing @ products @ mixing.T
    design = step_design(moved, budgets, moving, warm_start=warm_start)
    # c = 1/B + Mᵀ x
    return 1.0 / count + draw(design, budgets, rng) @ mixing, design


def step_design(
    gram: Array | None,
    budgets: ArrayLike,
    moving: npt.NDArray[np.bool_],
    *,
    warm_start: Design | ArrayLike | None = None,
) -> Design:
    """Return the design of the coefficients of differences, from their Gram matrix.

    Args:
        gram: (k, k) inner products of the z_r with rounding, or None.
        budgets: (k,) or scalar, largest squared distances.
        moving: (k,) whether reference r differs at all; where it does, it gets noise, however
            short the Gram matrix has it.
        warm_start: as in `noisy_coefficients`.
    """
    if gram is None:
        return independent(budgets, moving.size)
    # rounding may leave a Gram matrix that is none
    mended = _positive(gram, moving)
    if not mended.any():
        return independent(budgets, moving.size)
    # the least energy under z_rᵀ Σ⁻¹ z_r <= g_r, by its dual
    return worst_case(None, budgets, gram=mended, warm_start=warm_start)


def independent(budgets: ArrayLike, count: int) -> Design:
    """Return the design with L = I: feasible whatever the differences, its energy unknown.

    Args:
        budgets: scalar or (count,), largest squared distances.
        count: number of references.

    Raises:
        ValueError: a budget is not positive.
    """
    # x_r ~ N(0, 1/g_r): z_r is covered by its own coefficient alone
    limits, identity = checked_budgets(budgets, count), np.eye(count)
    return Design(
        covariance=Factored(identity, np.diag(np.sqrt(limits))),
        cost=math.inf,
        gap=math.nan,
        method="independent",
        multipliers=np.ones(count),
        iterations=0,
        constraint_factor=identity,
        notes=("the energy of this noise is not known without the Gram matrix",),
    )


def draw(design: Design, budgets: ArrayLike, rng: RandomSource = None) -> Array:
    """Return one draw of x by back substitution, ``(D^½ L)ᵀ x = η``, its triangle checked before.

    Moving the outcome by z_r moves η by row r of ``D^½ L``, whose squared norm is the squared
    distance at most.

    Raises:
        RuntimeError: a row is longer than its budget allows; nothing was drawn.
    """
    covariance = design.covariance
    if not isinstance(covariance, Factored) or covariance.lower is None:
        # nothing moves
        return np.zeros(covariance.dim)
    limits = checked_budgets(budgets, covariance.dim)
    # D^½ L, whose row r is what moving by z_r moves η by
    rows = covariance.lower
    # the budget of each row, in the order in which the triangle was formed
    of_rows = limits[np.argmax(covariance.rows, axis=1)]
    # max_r ‖row_r‖²/g_r − 1: the certificate is this number and not the design's word
    excess = float((np.einsum("ij,ij->i", rows, rows) / of_rows).max()) - 1.0
    if excess > ROUNDING * EPS:
        raise RuntimeError(f"the triangle of the noise exceeds a budget by {excess:.3g} of it")
    drawn: Array = design.sample(1, rng)[0]
    return drawn


def carry_over(
    design: Design, before: Sequence[Hashable], after: Sequence[Hashable]
) -> Design | None:
    """Return an earlier step's design as the warm start of a step with other references.

    References of both steps keep their multipliers, relative to those of orthogonal differences;
    new ones get the median.

    Args:
        design: of the earlier step.
        before: the earlier references, in the design's order.
        after: the references of the step to come.

    Returns:
        What ``warm_start`` reads, None where the design carries no multipliers.
    """
    # multipliers relative to those of orthogonal differences, so that sizes do not matter
    ratios = design.multiplier_ratios
    if ratios is None or not ratios.any():
        return None
    known = dict(zip(before, ratios.tolist(), strict=True))
    # of those that bind
    usual = float(np.median(ratios[ratios > 0.0]))
    return replace(design, multiplier_ratios=np.array([known.get(one, usual) for one in after]))


def _membership(membership: ArrayLike) -> npt.NDArray[np.bool_]:
    values: Any = np.asarray(membership)
    if values.ndim != 2 or values.dtype != np.bool_ or 0 in values.shape:
        raise ValueError(
            "membership: expected (references, examples) of bool, got shape "
            f"{values.shape} of {values.dtype}"
        )
    found: npt.NDArray[np.bool_] = values
    return found


def _positive(gram: Array, moving: npt.NDArray[np.bool_]) -> Array:
    """Return a PSD matrix near a Gram matrix with rounding, no reference that moves left at zero.

    Whatever is changed here costs energy and no guarantee.
    """
    # the nearest matrix without negative eigenvalues
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    if values[0] < 0.0:
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        gram = root @ root.T
    # rows of references that do not move are exactly 0
    gram = np.where(moving[:, None] & moving, (gram + gram.T) / 2, 0.0)
    diagonal = np.diagonal(gram)
    # rounded to nothing beside the longest: still covered, by a length that is too large
    short = moving & (diagonal < FLOOR * diagonal.max())
    lifted: Array = gram + np.diag(np.where(short, FLOOR * diagonal.max(), 0.0))
    return lifted


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
        # no references, no coefficients
        if self.design is None:
            return np.zeros(self.budgets.size)
        drawn = draw(self.design, self.budgets, rng)
        # An outcome without z_r moves c_r by 1, a multiple of the grid: rounded, c is the same
        # function of the one as of the other, and so is whatever is computed from it exactly.
        deviations = np.minimum(_deviations(self.design), 2.0**GRID_BITS)
        # a power of two, of the deviations alone: nothing of the data sets it
        grid = grid_of(deviations, deviations)
        spacing = np.where(grid > 0.0, grid, 1.0)
        # to the nearest multiple
        return np.where(grid > 0.0, np.round(drawn / spacing) * spacing, drawn)

    def publish(self, value: Array, differences: Array, rng: np.random.Generator | None) -> Array:
        """Return ``value + Σ c_r z_r``, and isotropic noise where there is some, on one grid.

        Args:
            value: (p,).
            differences: (k, p) z.
            rng: as of ``draw``.
        """
        # Σ c_r z_r
        noise = self.draw(rng) @ differences
        if self.design is None:
            # N(0, σ²) in every parameter
            noise = noise + self.spread * released_normal(value.shape, rng)
            return publish_sum(value, noise, self.spread)
        # Var (Σ c_r z_r)_j = Σ_rs z_rj C_rs z_sj, and the sum of its terms' squares, which is above
        # it where they cancel
        covariance = self.design.covariance.to_dense()
        variances = np.einsum("rj,rs,sj->j", differences, covariance, differences)
        terms = np.sqrt(np.diagonal(covariance) @ differences**2)
        # a coarser grid is safe: what is computed to be 0 by rounding is rounded by its terms
        spread = np.sqrt(np.maximum(variances, (2.0**-TERM_BITS * terms) ** 2))
        # an entry that no difference moves has no noise, and stays as it is
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
    # a round that no reference differs in has no noise
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
    # ‖z_r‖² rounded up: a sum that cancels has the rounding of its terms
    longest = np.maximum(lengths, 0.0) + SLACK * sums**2
    # σ² = max_r ‖z_r‖²/g_r, so that every ‖z_r‖²/σ² <= g_r
    variance = float((longest / budgets).max())
    return RoundNoise(None, budgets, math.sqrt(variance), variance * size)


def add_isotropic(model: torch.nn.Module, spread: float, rng: np.random.Generator | None) -> None:
    """Add N(0, spread²) to every entry of the gradients that are there."""
    for parameter in trainable(model).values():
        assert parameter.grad is not None
        # from the operating system unless a seed voids the guarantee
        noise = torch.from_numpy(released_normal((parameter.numel(),), rng) * spread)
        # summed in float64 on the grid, then rounded to the parameter's precision: post-processing
        noisy = publish_tensor(parameter.grad, noise.reshape(parameter.shape), spread)
        parameter.grad = noisy.to(parameter.grad.dtype)


class RoundNoises:
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
        # Gram_z = M G Mᵀ of this round
        moved = None if gram is None else changes @ gram @ changes.T
        if self._kind == "isotropic" and gram is not None and moved is not None:
            size = sum(p.numel() for p in trainable(self._model).values())
            # Σ_j |M_rj| ‖g_j‖: what the rounding of z_r is a share of
            sums = np.abs(changes) @ np.sqrt(np.maximum(np.diagonal(gram), 0.0))
            return isotropic_noise(np.diagonal(moved), sums, allowed, size)
        # the multipliers of the same references are a good start
        same = self._warm is not None and self._warm[0] == indices.tobytes()
        earlier = self._warm[1] if same and self._warm is not None else None
        found = round_noise(moved, allowed, earlier)
        self._warm = None if found.design is None else (indices.tobytes(), found.design)
        return found
