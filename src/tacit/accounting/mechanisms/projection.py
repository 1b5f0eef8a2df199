"""Random projections: M v with M secret, and M(V + Ξ) with M public."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import logsumexp

from tacit._ground.checks import Array, in_interval, integer, non_negative, positive
from tacit._ground.numbers import EPS
from tacit.accounting.curves.construction import profile_from_curves
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.gaussian import gaussian
from tacit.accounting.numerics.mixtures import ScaledBeta, SpectrumCurve, log_beta, rank_one_curve
from tacit.accounting.numerics.quadrature import curve_pair
from tacit.accounting.numerics.wishart import WishartLoss

LARGEST_EXPONENT = 1e7


def vector_projection(*, dim: int, rank: int, alignment: float) -> PrivacyProfile:
    """Return the exact profile of a unit vector released through a secret Wishart projection.

    M v against M v', M = ZᵀZ with Z of shape (r, d) and independent N(0, 1/r) entries, ‖v‖ =
    ‖v'‖ = 1 and vᵀv' = ρ. With y = Mv the density of y is proportional to
    (vᵀy)^{−(d−r+1)/2} exp(−r‖y‖²/(2vᵀy)) on vᵀy > 0, and the loss has a two-dimensional law that
    leaves one integral: with ρ = cos φ, n = d + r − 1, c = (d − r + 1)/2,
    f(θ) = Γ((r+1)/2)/(√π Γ(r/2)) cos^{r−1} θ, a = cos(θ−φ)/cos θ, b = 2a(ε − c ln a)/(1 − a),

    δ(ε) = P∞ + ∫ [f(θ) G(b) − e^ε f(θ−φ) G(b/a)] dθ over φ − π/2 < θ < π/2,

    where G is the upper tail of χ²_n for a < 1, its lower tail for a > 1, and
    P∞ = P(t_r < −ρ√r/√(1−ρ²)) is the probability of a release that M v' cannot make. A larger
    ρ gives a smaller δ (checked on a grid, not proved): ρ is the smallest alignment of neighbours.

    Args:
        dim: d >= 2.
        rank: r >= 1; may exceed d.
        alignment: ρ in [−1, 1], the smallest cosine between the vectors of two neighbours.

    Returns:
        The profile, equal in both directions; its infinite mass is P∞.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> round(vector_projection(dim=400, rank=16, alignment=0.999).epsilon(0.01), 3)
        0.454

    Source: lora-privacy, Definition 1, Lemmas 8 and 9 (exact in place of Theorem 1).
    """
    size = integer("dim", dim, minimum=2)
    width = integer("rank", rank, minimum=1)
    cosine = in_interval("alignment", alignment, -1.0, 1.0)
    infinite, positive_part = _projection_curve(size, width, cosine)
    return profile_from_curves(
        curve_pair(positive_part, infinite=infinite)[0],
        name=f"rank-{width} projection of a unit vector in {size} dimensions",
        infinite_mass=infinite,
        source="lora-privacy, Lemmas 8 and 9, by quadrature",
        assumptions=(
            f"neighbours' vectors have equal norms and a cosine of at least {cosine:g}",
            "the projection is Wishart, drawn afresh, and stays secret",
        ),
    )


def _projection_curve(
    dim: int, rank: int, alignment: float
) -> tuple[float, Callable[[Array], Array]]:
    """P∞ and δ at ε >= 0."""
    if alignment == 1.0:
        return 0.0, np.zeros_like
    if alignment == -1.0:
        return 1.0, np.ones_like
    loss = WishartLoss(dim, rank, math.acos(alignment))
    return loss.infinite, loss.positive


def noisy_projection(
    *,
    dim: int,
    rank: int,
    sensitivity: float,
    noise_std: float,
    difference_rank: int | None = None,
) -> PrivacyProfile:
    """Return the profile of M(V + Ξ) released together with the projection M.

    M = ZZᵀ with Z a (d, r) Gaussian matrix, V of shape (d, n), Ξ with independent N(0, s²)
    entries. Given M this is a Gaussian mechanism on the range of M: its squared distance is
    ‖P_M ΔV‖²/s² = (Δ²/s²) Σ w_j X_j, with w the normalised spectrum of ΔV ΔVᵀ and each
    X_j ~ Beta(r/2, (d−r)/2). One column, or any ΔV of rank one, has the exact profile

    δ(ε) = E δ_G(ε; μ² = X Δ²/s²).

    For any other spectrum Σ w_j X_j is below X in convex order, and δ is bounded by E G(XΔ²/s²),
    the smallest over the convex G that follow δ_G up to where a tangent crosses it and the
    tangent from there on. All moments are largest at rank one:
    exp((α−1) D_α) = ₁F₁(r/2; d/2; α(α−1)Δ²/(2s²)). With r >= d the projection hides nothing.

    Args:
        dim: d >= 1, rows of V.
        rank: r >= 1.
        sensitivity: Δ >= 0, largest Frobenius norm of the difference of two neighbours' V.
        noise_std: s > 0, standard deviation of each entry of Ξ, before the projection.
        difference_rank: Rank of ΔV; 1 is exact, another value or None is sound for every spectrum.

    Returns:
        The profile, equal in both directions.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> noise = 0.2016  # of a sensitivity of 1, at rank 16 of 2000
        >>> one = noisy_projection(dim=2000, rank=16, sensitivity=1.0, noise_std=noise)
        >>> bool(one.epsilon(1e-5) < 2.5)
        True

    Source: lora-privacy, Theorem 5 and Lemma 16 (a mixture in place of their two-part bound).
    """
    size = integer("dim", dim, minimum=1)
    width = integer("rank", rank, minimum=1)
    difference = non_negative("sensitivity", sensitivity)
    std = positive("noise_std", noise_std)
    if difference_rank is not None:
        integer("difference_rank", difference_rank, minimum=1, maximum=size)
    square = float(np.square(np.divide(difference, std))) * (1 + 4 * EPS)
    name = f"rank-{width} projection in {size} dimensions of a release with noise {std:g}"
    assumptions = (
        f"neighbours differ by at most {difference:g} in Frobenius norm",
        "the projection is Gaussian, drawn afresh and independently of the data",
        *(("neighbours differ by a matrix of rank one",) if difference_rank == 1 else ()),
    )
    if width >= size or difference == 0:
        plain = gaussian(difference, std)
        return profile_from_curves(
            plain.forward,
            name=name,
            renyi=plain.renyi_curve,
            source=plain.source,
            assumptions=assumptions,
            evidence="theorem",
        )
    law = ScaledBeta(width / 2, (size - width) / 2, np.array([square]), np.ones(1))
    exact = difference_rank == 1
    curve = partial(rank_one_curve, law=law) if exact else SpectrumCurve(law)
    bound = "" if exact else ", convex order"
    return profile_from_curves(
        curve_pair(curve)[0],
        name=name,
        renyi=lambda orders: captured_renyi(orders, width, size, square),
        source=f"lora-privacy, Lemma 16: a Beta mixture of Gaussian profiles{bound}",
        assumptions=assumptions,
    )


def captured_renyi(orders: Array, rank: int, dim: int, square: float) -> Array:
    """Return ln ₁F₁(r/2; d/2; z)/(α − 1), z = α(α−1)μ²/2, rounded up.

    ln E e^{zX} by the trapezoidal rule in ln(x/(1 − x)), where the integrand decays exponentially.
    """
    first, second = rank / 2, (dim - rank) / 2
    values = np.empty(orders.shape)
    for index, order in enumerate(orders):
        exponent = order * (order - 1) / 2 * square
        values[index] = _log_moment(float(exponent), first, second) / (order - 1)
    return np.asarray(values * (1 + 1e-9) + 1e-15)


def _log_moment(exponent: float, first: float, second: float) -> float:
    """ln E e^{zX} = ln E e^{−z(1−X)} + z; z alone, which is more, beyond 1e7."""
    if exponent > LARGEST_EXPONENT:
        return exponent
    width = 1 / math.sqrt(1 / (1 / first + 1 / second) + exponent / 4 + 1)
    reach = 60 / min(first, second, 1.0) + abs(math.log(first / second)) + math.log1p(exponent)
    points = np.arange(-reach, reach, width / 4)
    logs = (
        -first * np.logaddexp(0, -points)
        - second * np.logaddexp(0, points)
        - exponent * np.exp(-np.logaddexp(0, points))
    )
    total = float(logsumexp(logs)) + math.log(width / 4) - log_beta(first, second)
    return max(exponent + total, 0.0)
