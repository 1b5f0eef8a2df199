"""Noise after a random projection: MV + Ξ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tacit._ground.checks import Array, in_interval, integer, non_negative, positive
from tacit.accounting.curves.curve import TINY, Curve, Index, curve_pair
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.accounting.mechanisms.column import ColumnCurve
from tacit.accounting.mechanisms.projection import FARTHEST, squared_distance
from tacit.accounting.numerics.lengths import projected_length
from tacit.accounting.numerics.mixtures import (
    SpectrumCurve,
    gaussian_square,
    rank_one_curve,
)
from tacit.accounting.numerics.quadrature import integrate, quadrature_up
from tacit.accounting.numerics.special import chi_square_nodes
from tacit.accounting.numerics.wishart import WishartLoss

# Nodes of χ² whose mass is below e^−55 are left out, and added: 1e-22 is more than all of them.
DEPTH, LEFT_OUT = 55.0, 1e-22
# Nodes to a width of the density, and the widest step: the curve is analytic in ln T in a strip of
# half width π/4, in which the rule converges as e^{−π²/(2 step)}; twice as fine, for two halves.
STEPS_PER_WIDTH, WIDEST_STEP = 4.4, 0.1
# Of a standard normal variable: e^−98 is left beyond.
REACH = 14.0
# Below it the measured error of a rule over kinks, as in a plane, is no bound any more.
LEAST_MEASURED = 1e-9
# Before the first halving.
PANELS = 8


def projected_plus_noise(
    *,
    dim: int,
    rank: int,
    sensitivity: float,
    noise_std: float,
    alignment: float | None = None,
    difference_rank: int | None = None,
) -> PrivacyProfile:
    """Return the profile of MV + Ξ, the noise added after the projection.

    M = ZZᵀ, Z of shape (d, r) with independent N(0, 1/r) entries, so that E M = I; V of shape
    (d, n); Ξ with independent N(0, σ²) entries. Several bounds hold and the smallest is returned.

    **M revealed.** Telling M makes the release a Gaussian mechanism at squared distance
    ‖MΔV‖²/σ². For a unit vector ‖Mu‖² = X T²/r², X ~ Beta(r/2, (d−1)/2) and T ~ χ²_{d+r−1}
    independent (Mu = (‖g‖² u + ‖g‖ w)/r, g = √r Zᵀu, w ⊥ u Gaussian). For one changed column
    δ <= E δ_G(ε; (Δ/σ)² X T²/r²); for any number of columns Σ w_j ‖Mu_j‖² is below it in convex
    order and the tangent bound of `noisy_projection` applies, with no chain of single columns.

    **One column of known alignment** (``alignment`` given: V is one column, of equal norm β for
    both neighbours, at cosine ρ = cos φ). With s = σ/β and t = v̂ᵀM v̂ ~ χ²_r/r the release over β
    is N(t, s²) along v̂ and N(0, s² + t/r) in the other directions, so its density is a function
    g(R, θ) of its norm R and of sin θ = v̂ᵀy/R, and R is the same for both neighbours:

    δ = E max(0, 1 − e^ε g(R, θ')/g(R, θ)),  sin θ' = sin θ cos φ + cos θ sin φ u,

    u the first coordinate of a random unit vector in d − 1 dimensions, by quadrature, for
    δ >= 1e-9. Below, two looser bounds are used alone: that of `vector_projection`, and that of
    two Gaussians once t is told.

    Args:
        dim: d >= 2, rows of V.
        rank: r >= 1.
        sensitivity: Δ >= 0, largest Frobenius norm of the difference of two neighbours' V.
        noise_std: σ > 0, standard deviation of each entry of Ξ.
        alignment: ρ in [−1, 1), the smallest cosine of two neighbours' column; its norm is then
            β = Δ/√(2 − 2ρ). None for matrices.
        difference_rank: Rank of ΔV: 1 where one column changes; None for any.

    Returns:
        The profile, equal in both directions.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> matrix = projected_plus_noise(dim=100, rank=50, sensitivity=0.1, noise_std=0.1)
        >>> sizes = {"dim": 100, "rank": 50, "sensitivity": 0.1, "noise_std": 0.1}
        >>> column = projected_plus_noise(**sizes, alignment=0.995)
        >>> bool(column.epsilon(1e-5) < matrix.epsilon(1e-5))
        True

    Source: lora-privacy, Definition 3 (M1), in place of Theorems 3 and 4: their Lemma 14 takes
    the entries of Z in the row space of UᵀZ for independent Gaussians, which holds for the
    columns of Z outside span U only, so it understates ‖M∥ u‖ when s < r.
    """
    size = integer("dim", dim, minimum=2)
    width = integer("rank", rank, minimum=1)
    difference = non_negative("sensitivity", sensitivity)
    std = positive("noise_std", noise_std)
    if difference_rank is not None:
        integer("difference_rank", difference_rank, minimum=1, maximum=size)
    assumptions = [
        f"neighbours differ by at most {difference:g} in Frobenius norm",
        "the projection is Gaussian with mean I, drawn afresh and independently of the data",
    ]
    bounds: list[Curve] = []
    column: ColumnCurve | None = None
    one = difference_rank == 1 or alignment is not None
    if difference > 0:
        bounds.append(_revealed_projection(size, width, squared_distance(difference, std), one))
    if difference_rank == 1:
        assumptions.append("neighbours differ by a matrix of rank one")
    if alignment is not None:
        cosine = in_interval("alignment", alignment, -1.0, 1.0, open_high=True)
        assumptions.append(
            f"the release is one column, neighbours' have equal norms and cosine {cosine!r} or "
            "more, and the projection stays secret"
        )
        assumptions.append(FARTHEST)
        if cosine > -1 and difference > 0:
            angle = math.acos(cosine)
            # ‖v − v'‖ = 2β sin(φ/2)
            norm = difference / (2 * math.sin(angle / 2))
            bounds.append(WishartLoss(size, width, angle).positive)
            bounds.append(_revealed_length(width, angle, std / norm))
            column = ColumnCurve(size, width, angle, std / norm)

    return profile_from_curves(
        curve_pair(partial(_smallest, tuple(bounds), column))[0],
        name=f"rank-{width} projection in {size} dimensions, then noise {std:g}",
        source="lora-privacy, Definition 3 (M1): Gaussian mixtures, by quadrature",
        assumptions=assumptions,
    )


def _smallest(bounds: Sequence[Curve], column: ColumnCurve | None, epsilon: Array) -> Array:
    """Return the least of the bounds at increasing ε >= 0, rounded up."""
    value = np.ones(epsilon.shape) if column is None else column(epsilon)
    if not bounds:
        return np.zeros(epsilon.shape)
    # the others are slower, and looser
    whole = column is None or not column.reliable
    rest = np.ones(epsilon.shape, dtype=np.bool_) if whole else value < LEAST_MEASURED
    if rest.any():
        others = np.min([bound(epsilon[rest]) for bound in bounds], axis=0)
        # δ falls, so that it stays below the last value that was measured
        value[rest] = np.minimum(others, value[rest] if whole else LEAST_MEASURED)
    return value


def _revealed_projection(dim: int, rank: int, square: float, one: bool) -> Curve:
    """Bound with M public, rounded up; ``square`` is (Δ/σ)²."""
    law = projected_length(dim, rank, square)
    curve = partial(rank_one_curve, law=law) if one else SpectrumCurve(law)
    # the table of the law leaves out less than LEFT_OUT
    return partial(_with_left_out, curve)


def _with_left_out(curve: Curve, epsilon: Array) -> Array:
    """A curve and the mass that its table leaves out, rounded up."""
    return np.minimum(curve(epsilon) + LEFT_OUT, 1.0)


def _revealed_length(rank: int, angle: float, noise: float) -> Curve:
    """Bound with t = v̂ᵀM v̂ public, noise = σ/β, rounded up.

    Two Gaussians mirrored in the plane of v and v'; the loss is Gaussian given y₁ = N(0, 1)-shaped:
    E δ_G(ε; 4 sin²(φ/2) [t √(s² + η sin²(φ/2)) − η cos(φ/2) N]² / (s² (s² + η))), η = t/r.
    """
    sine, cosine = math.sin(angle / 2), math.cos(angle / 2)

    step = min(1 / (STEPS_PER_WIDTH * math.sqrt(rank / 2)), WIDEST_STEP)
    logs, log_masses = chi_square_nodes(rank, step, DEPTH)
    lengths, masses = np.exp(logs) / rank, np.exp(log_masses)
    shares = lengths / rank
    spread = np.sqrt(noise**2 + shares * sine**2)
    factor = 2 * sine / (noise * np.sqrt(noise**2 + shares))
    # the distance vanishes where y₂ has mean zero given y₁
    zero = np.clip(lengths * spread / np.maximum(shares * cosine, TINY), -REACH, REACH)
    grid = np.tile(np.linspace(-REACH, REACH, PANELS + 1), (lengths.size, 1))
    edges = np.sort(np.concatenate([grid, zero[:, None]], axis=1), axis=1)
    # half of the distance of y₂ from its mirror image is a − b y₁, times a factor, at each length
    mirrored = lengths * spread, shares * cosine, factor
    return partial(_at_lengths, mirrored, masses, edges)


def _at_lengths(
    mirrored: tuple[Array, Array, Array], masses: Array, edges: Array, epsilon: Array
) -> Array:
    """The curve of `_revealed_length` at ε >= 0, over all lengths, rounded up."""
    start, slope, factor = mirrored
    node = np.arange(masses.size)
    losses, at = np.repeat(epsilon, node.size), np.tile(node, epsilon.size)

    def integrand(rows: Index, points: Array) -> Array:
        here = at[rows][:, None]
        mean = start[here] - slope[here] * points
        loss = gaussian_square(losses[rows][:, None], np.square(factor[here] * mean))
        density = masses[here] * np.exp(-points * points / 2) / math.sqrt(2 * math.pi)
        return np.asarray(density * loss)

    # the trapezoidal rule on every second node, twice: what the two differ by is above the
    # error left
    halves = 2 * np.repeat(np.arange(epsilon.size), node.size) + at % 2
    even, odd = integrate(integrand, np.tile(edges, (epsilon.size, 1)), halves).reshape(-1, 2).T
    return quadrature_up(even + odd + np.abs(even - odd) + LEFT_OUT)
