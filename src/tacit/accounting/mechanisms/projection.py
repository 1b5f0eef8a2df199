"""Random projections: M v with M secret, and M(V + Ξ) with M public."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from scipy.special import expit, logsumexp

from tacit._ground.checks import Array, in_interval, integer, non_negative, positive
from tacit._ground.numbers import EPS
from tacit._ground.proof import node
from tacit._ground.values import Count, Within, value
from tacit.accounting.curves.curve import curve_pair
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.accounting.mechanisms.gaussian import gaussian
from tacit.accounting.numerics.mixtures import ScaledBeta, SpectrumCurve, rank_one_curve
from tacit.accounting.numerics.special import log_beta_density
from tacit.accounting.numerics.wishart import WishartLoss
from tacit.guarantees.adjacency import Adjacency

# Beyond it E e^{zX} is taken for e^z, which is more: a rule for it would need a million nodes.
LARGEST_EXPONENT = 1e7
# Up to here e^z is a float, and from here on the logarithm is at least z/d = 500/d.
DIRECT_EXPONENT = 500.0
# The trapezoidal rule: nodes to a width of the integrand, and where its ends are e^−60.
NODES_PER_WIDTH, DEPTH = 4, 60
# Of the rule, whose error falls as e^{−2π² · 4²}, and of its sums: relative, and where D is
# nothing.
RENYI_SLACK, RENYI_FLOOR = 1e-9, 1e-15
# Units in the last place of a square of a quotient; quotients whose fourth powers are floats.
SQUARE_UNITS, SHORTEST, LONGEST = 4, 1e-150, 1e60
# What a bound on all vectors at cosine ρ or more rests on beside what is proved.
FARTHEST = (
    "of the neighbours allowed those at the smallest cosine are told apart best: computed on a "
    "grid, not proved"
)


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
    exact = profile_from_curves(
        curve_pair(positive_part, infinite=infinite)[0],
        name=f"rank-{width} projection of a unit vector in {size} dimensions",
        infinite_mass=infinite,
        source="lora-privacy, Lemmas 8 and 9, by quadrature",
        assumptions=(
            f"neighbours' vectors have equal norms and a cosine of at least {cosine!r}",
            "the projection is Wishart, drawn afresh, and stays secret",
            FARTHEST,
        ),
    )
    return replace(exact, mechanism=node("column", dim=size, rank=width, alignment=cosine))


def _projection_curve(
    dim: int, rank: int, alignment: float
) -> tuple[float, Callable[[Array], Array]]:
    """Return P∞ and δ at ε >= 0, both rounded up."""
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
    name = f"rank-{width} projection in {size} dimensions of a release with noise {std:g}"
    assumptions = (
        f"neighbours differ by at most {difference:g} in Frobenius norm",
        "the projection is Gaussian, drawn afresh and independently of the data",
        *(("neighbours differ by a matrix of rank one",) if difference_rank == 1 else ()),
    )
    # the range of M is everything, or there is nothing to see
    if width >= size or difference == 0:
        plain = gaussian(difference, std)
        whole = profile_from_curves(
            plain.forward,
            name=name,
            infinite_mass=plain.infinite_mass,
            renyi=plain.renyi_curve,
            source=plain.source,
            assumptions=assumptions,
        )
        return replace(whole, evidence="theorem", mechanism=plain.mechanism)
    square = squared_distance(difference, std)
    # the share of a direction that a random r-dimensional range captures is Beta(r/2, (d − r)/2)
    law = ScaledBeta(width / 2, (size - width) / 2, square)
    exact = difference_rank == 1
    curve = partial(rank_one_curve, law=law) if exact else SpectrumCurve(law)
    bound = "" if exact else ", convex order"
    mixture = profile_from_curves(
        curve_pair(curve)[0],
        name=name,
        renyi=partial(captured_renyi, rank=width, dim=size, square=square),
        source=f"lora-privacy, Lemma 16: a Beta mixture of Gaussian profiles{bound}",
        assumptions=assumptions,
    )
    proved = node(
        "projection",
        dim=size,
        rank=width,
        sensitivity=difference,
        noise=std,
        spectrum="one" if exact else "any",
    )
    return replace(mixture, mechanism=proved)


@value
class ProjectedSteps:
    """Training by M_t(V_t + Ξ_t), each M_t drawn afresh, on Poisson samples.

    V_t is a sum of per-record gradients of Frobenius norm at most C over a Poisson sample, Ξ_t has
    independent N(0, (sC)²) entries. One record adds at most C to V_t ("add-remove"), or moves it
    by at most 2C ("replace").

    Args:
        dim: Dimension d.
        rank: Rank r of the projection.
        steps: How many releases are composed.
        sampling_rate: Probability that a record is in a step's sample.
        difference_rank: 1 where a record's gradient has rank one; any when left out.
        neighbours: add-remove or replace (one record).

    Example:
        >>> ProjectedSteps(dim=2000, rank=16, steps=1000)
        ProjectedSteps(dim=2000, rank=16, steps=1000)
    """

    dim: Count
    rank: Count
    steps: Count = 1
    sampling_rate: Annotated[float, Within(0, 1, "[]")] = 1.0
    difference_rank: Count | None = None
    neighbours: Adjacency = Adjacency.ADD_REMOVE


def noisy_projection_steps(work: ProjectedSteps, noise_multiplier: float) -> PrivacyProfile:
    """Return the profile of training by M_t(V_t + Ξ_t).

    Args:
        work: What is done. Its ``difference_rank`` 1 is exact under "add-remove", None sound for
            every spectrum. A replaced record moves V_t by the difference of two gradients, of rank
            two, for which the bound for every spectrum is taken.
        noise_multiplier: s > 0.

    Returns:
        The composed profile.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> work = ProjectedSteps(dim=2000, rank=16, steps=1000, sampling_rate=1024 / 50_000)
        >>> round(noisy_projection_steps(work, 0.2016).epsilon(1e-4), 2)
        1.0

    Source: lora-privacy, Theorem 5 and Appendix F.2, with the exact mixture for their bound.
    """
    noise = positive("noise_multiplier", noise_multiplier)
    shared: dict[str, Any] = {"dim": work.dim, "rank": work.rank, "noise_std": noise}
    # one record's own gradient, in the sample or not
    own = noisy_projection(sensitivity=1.0, difference_rank=work.difference_rank, **shared)
    if work.neighbours is Adjacency.ADD_REMOVE:
        sampled = own.poisson_subsample(work.sampling_rate, neighbours=work.neighbours)
        return sampled * work.steps
    # both in the sample: g − g' of norm 2 at most, whose rank is two though each has rank one
    apart = noisy_projection(sensitivity=2.0, **shared)
    sampled = apart.poisson_subsample(work.sampling_rate, neighbours=work.neighbours, without=own)
    return sampled * work.steps


def squared_distance(sensitivity: float, noise_std: float) -> float:
    """Return (Δ/s)² of a difference > 0, rounded up.

    Raises:
        ValueError: It is beyond all floats.
    """
    with np.errstate(over="ignore", under="ignore"):
        distance = float(np.divide(sensitivity, noise_std))
    if distance > LONGEST:
        raise ValueError(
            f"sensitivity: expected at most {LONGEST:g} times the noise, got {distance:.3g} times"
        )
    # a shorter difference is told apart no better
    return max(distance, SHORTEST) ** 2 * (1 + SQUARE_UNITS * EPS)


def captured_renyi(orders: Array, rank: int, dim: int, square: float) -> Array:
    """Return ln ₁F₁(r/2; d/2; z)/(α − 1), z = α(α−1)μ²/2, rounded up.

    ln E e^{zX} by the trapezoidal rule in ln(x/(1 − x)), where the integrand decays exponentially.
    """
    first, second = rank / 2, (dim - rank) / 2
    values = np.empty(orders.shape)
    for index, order in enumerate(orders):
        # a Gaussian pair at squared distance m has (α − 1) D_α = α(α − 1)m/2
        exponent = order * (order - 1) / 2 * square
        values[index] = _log_moment(float(exponent), first, second) / (order - 1)
    return np.asarray(values * (1 + RENYI_SLACK) + RENYI_FLOOR)


def _log_moment(exponent: float, first: float, second: float) -> float:
    """ln E e^{zX} = z + ln E e^{−z(1−X)}, at most: z alone beyond 1e7, which is more."""
    if exponent > LARGEST_EXPONENT:
        return exponent
    # in u = ln(x/(1 − x)) the density has a variance of 1/a + 1/b about, and e^{−z(1−x)} cuts its
    # left
    width = 1 / math.sqrt(1 / (1 / first + 1 / second) + exponent / 4 + 1)
    reach = DEPTH / min(first, second, 1.0) + abs(math.log(first / second)) + math.log1p(exponent)
    points = np.arange(-reach, reach, width / NODES_PER_WIDTH)
    # x^a (1 − x)^b e^{−z(1−x)}/B, with 1 − x = 1/(1 + e^u): neither x nor 1 − x is rounded to 0 or
    # 1
    logs = log_beta_density(first, second, points) + math.log(width / NODES_PER_WIDTH)
    if exponent <= DIRECT_EXPONENT:
        # E(e^{zX} − 1), all of whose terms are positive: where z is small the logarithm is as small
        # as z, and beside the 1 of E e^{zX} its digits would be lost
        return math.log1p(float(np.exp(logs) @ np.expm1(exponent * expit(points))))
    total = float(logsumexp(logs - exponent * np.exp(-np.logaddexp(0, points))))
    return max(exponent + total, 0.0)
