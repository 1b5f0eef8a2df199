"""The bounds of the random-projection paper (lora-privacy), as printed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr
from scipy.stats import beta, chi2, t

from tacit._ground.checks import Array, in_interval, integer, non_negative, positive
from tacit.accounting.curves.calibration import least_noise
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.projection import ProjectedSteps
from tacit.accounting.mechanisms.subsampled import subsampled_gaussian
from tacit.accounting.published.claims import Claim, open_unit, refuse_large_classical

# α is sought on so many points of ln(α/(1 − α)) between ±this, and anew around the best, so often.
CAPTURE_GRID, LARGEST_LOGIT, REFINEMENTS = 400, 40.0, 6
# Quantiles of χ² over whose middles ‖Mu‖ is averaged.
GAIN_POINTS = 2000


def lora_theorem_1(*, dim: int, rank: int, alignment: float, delta: float) -> Claim:
    """Claim for the vector projection z ↦ M z, M a Wishart matrix of this rank.

    ε = (d−r+1)/2 ln(ρ+K) + (1−ρ+K) κ_{d+r−1}(1−δ')/(2(ρ−K)), K = √((1−ρ²)/r) t_r(1−δ'),
    δ = E Φ(−ρ√x/√(1−ρ²)) + 3δ' over x ~ χ²_r, which fixes δ'. `vector_projection` has the exact
    profile.

    Args:
        dim: d >= 2.
        rank: r in [1, d + 1].
        alignment: ρ in (0, 1], the least cosine of neighbouring unit vectors.
        delta: δ in (0, 1).

    Returns:
        The claimed ε at ``delta``; inf where the theorem asks for a larger ρ or δ.

    Raises:
        ValueError: An argument is outside its range, or r > d + 1, where the theorem is unsound:
            the coefficient of ln(ρ+K) is negative there, so its upper end is not an upper bound.

    Example:
        >>> round(lora_theorem_1(dim=400, rank=64, alignment=0.999, delta=0.01).epsilon, 2)
        7.12

    Source: lora-privacy, Theorem 1.
    """
    dims = integer("dim", dim, minimum=2)
    ranks = integer("rank", rank, minimum=1)
    cosine = in_interval("alignment", alignment, 0.0, 1.0, open_low=True)
    failure = open_unit("delta", delta)
    _refuse_rank("rank", ranks, dims)
    # 3δ' is what δ leaves beside the mass of an infinite loss
    spent = failure - _infinite_part(ranks, cosine)
    epsilon = _projection_epsilon(dims, ranks, cosine, spent / 3)
    return Claim(epsilon, failure, "lora-privacy, Theorem 1")


def lora_theorem_3(columns: int, epsilon_one: float, delta_one: float) -> Claim:
    """Claim for M1 = MV + Ξ when k columns change one after the other.

    ε = k ε_one, δ = k e^{(k−1) ε_one} δ_one.

    Args:
        columns: k >= 1, number of columns that change.
        epsilon_one: ε_one >= 0 of one column, from `lora_theorem_4`.
        delta_one: δ_one in [0, 1].

    Returns:
        The claimed pair.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> lora_theorem_3(2, 0.0, 1e-5).delta
        2e-05

    Source: lora-privacy, Theorem 3.
    """
    count = integer("columns", columns, minimum=1)
    loss = non_negative("epsilon_one", epsilon_one, allow_inf=True)
    failure = in_interval("delta_one", delta_one, 0.0, 1.0)
    # e^{(k−1) ε_one} may overflow: then nothing is claimed
    with np.errstate(over="ignore"):
        grown = count * float(np.exp((count - 1) * loss)) * failure if failure > 0 else 0.0
    return Claim(count * loss, grown, "lora-privacy, Theorem 3")


def lora_theorem_4(
    *,
    dim: int,
    rank: int,
    span: int,
    residual_alignment: float,
    sensitivity: float,
    noise_std: float,
    deltas: tuple[float, float, float],
) -> Claim:
    """Claim for M1 = MV + Ξ when one column changes and the others span s dimensions.

    ε = Γ Δ √(2 ln(1.25/δ∥))/σ + ε⊥ with Γ = (√d+√p+g)(√p+g)/r, g = √(2 ln(2/δ_s)), p = min(s, r);
    ε⊥ = (m−q+1)/2 ln(ρ⊥+K) + κ_{m+q−1}(1−δ'/3)/2 (1/(ρ⊥−K) − 1) with m = d − s, q = r − p,
    K = √((1−ρ⊥²)/q) t_q(1−δ'/3); δ = δ∥ + δ_s + δ' + E Φ(−ρ⊥√x/√(1−ρ⊥²)), x ~ χ²_q.

    Args:
        dim: d >= 2.
        rank: r > s.
        span: s >= 1, dimensions that the unchanged columns span.
        residual_alignment: ρ⊥ in (0, 1], cosine of the changed column's parts outside the span.
        sensitivity: Δ >= 0, Euclidean distance of the two columns.
        noise_std: σ > 0, of every entry of Ξ.
        deltas: (δ∥, δ_s, δ'), each in (0, 1).

    Returns:
        The claimed pair; ε is inf where the theorem asks for a larger ρ⊥.

    Raises:
        ValueError: An argument is outside its range, or the theorem is unsound: r − s > d − s + 1;
            a classical Gaussian term above 1; or Γ below the 1 − δ_s quantile of ‖Mu‖. Lemma 14
            takes Zᵀu for Gaussian in p dimensions, but it has all r where u is in the span, and
            there M∥u = Mu, ‖Mu‖² = X(X + Y)/r² with X ~ χ²_r and Y ~ χ²_{d−1} independent.

    Example:
        >>> claim = lora_theorem_4(
        ...     dim=400, rank=64, span=60, residual_alignment=0.9999,
        ...     sensitivity=0.01, noise_std=1.0, deltas=(0.001, 0.001, 0.01),
        ... )
        >>> round(claim.epsilon, 2), round(claim.delta, 3)
        (14.2, 0.012)

    Source: lora-privacy, Theorem 4, Lemmas 2 and 14.
    """
    dims = integer("dim", dim, minimum=2)
    spanned = integer("span", span, minimum=1, maximum=dims - 1)
    ranks = integer("rank", rank, minimum=spanned + 1)
    cosine = in_interval("residual_alignment", residual_alignment, 0.0, 1.0, open_low=True)
    reach = non_negative("sensitivity", sensitivity)
    std = positive("noise_std", noise_std)
    correlated, spectral, residual = (
        open_unit(f"deltas[{place}]", delta) for place, delta in enumerate(deltas)
    )
    _refuse_rank("rank - span", ranks - spanned, dims - spanned)
    # Γ bounds ‖Mu‖ for u in the span but for δ_s, by deviations of the singular values
    deviation = math.sqrt(2 * math.log(2 / spectral))
    root = math.sqrt(spanned)
    gain = (math.sqrt(dims) + root + deviation) * (root + deviation) / ranks
    _refuse_gain(dims, ranks, gain, spectral)
    # the correlated part: a Gaussian mechanism of sensitivity ΓΔ, calibrated classically
    aligned = gain * reach / std * math.sqrt(2 * math.log(1.25 / correlated))
    refuse_large_classical("epsilon of the correlated term", aligned)
    # the residual part: Theorem 1 in the d − s dimensions that are left
    free = ranks - spanned
    epsilon = aligned + _residual_epsilon(dims - spanned, free, cosine, residual / 3)
    delta = correlated + spectral + residual + _infinite_part(free, cosine)
    return Claim(epsilon, delta, "lora-privacy, Theorem 4")


def lora_theorem_5(
    *,
    dim: int,
    rank: int,
    sensitivity: float,
    noise_std: float,
    epsilon: float,
    difference_rank: int = 1,
    captured: float | None = None,
) -> Claim:
    """Claim for one release of M2 = M(V + Ξ).

    δ = T(ε; αΔ²/σ²) + s (1 − I_α(r/2, (d−r)/2)), T(ε; μ) = P(|N(μ/2, μ)| > ε). `noisy_projection`
    has the exact profile.

    Args:
        dim: d >= 2.
        rank: r in [1, d − 1].
        sensitivity: Δ >= 0, Frobenius distance of the two matrices.
        noise_std: σ > 0, of every entry of Ξ.
        epsilon: ε > 0 in nats.
        difference_rank: s >= 1; the theorem prints min(n, d) and proves it for the rank of ΔV.
        captured: α in (0, 1); the best one when left out.

    Returns:
        The claimed pair.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> claim = lora_theorem_5(dim=2000, rank=16, sensitivity=1.0, noise_std=0.1, epsilon=4.0)
        >>> round(claim.delta, 4)
        0.013

    Source: lora-privacy, Theorem 5.
    """
    dims = integer("dim", dim, minimum=2)
    ranks = integer("rank", rank, minimum=1, maximum=dims - 1)
    reach = non_negative("sensitivity", sensitivity)
    std = positive("noise_std", noise_std)
    loss = positive("epsilon", epsilon)
    count = integer("difference_rank", difference_rank, minimum=1, maximum=dims)
    scale = (reach / std) ** 2

    def bound(shares: Array) -> Array:
        # s events, each that a projection captures more than α of the energy (union bound)
        missed = count * beta.sf(shares, ranks / 2, (dims - ranks) / 2)
        return np.asarray(_two_sided_tail(loss, shares * scale) + missed)

    if captured is not None:
        delta = float(bound(np.array([open_unit("captured", captured)]))[0])
    else:
        delta = _least(bound)
    return Claim(loss, delta, "lora-privacy, Theorem 5")


def captured_share(*, dim: int, rank: int, delta: float, difference_rank: int = 1) -> float:
    """Return the least α with s (1 − I_α(r/2, (d−r)/2)) <= ``delta``, before rounding.

    Args:
        dim: d >= 2.
        rank: r in [1, d − 1].
        delta: Probability δ_p in (0, 1) of the bad event in one step.
        difference_rank: s >= 1.

    Returns:
        α in (0, 1): given the good event the squared sensitivity is α Δ².

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> round(captured_share(dim=2000, rank=16, delta=1e-8), 5)
        0.03455

    Source: lora-privacy, Appendix F.2.
    """
    dims = integer("dim", dim, minimum=2)
    ranks = integer("rank", rank, minimum=1, maximum=dims - 1)
    bad = open_unit("delta", delta)
    count = integer("difference_rank", difference_rank, minimum=1, maximum=dims)
    return float(beta.isf(bad / count, ranks / 2, (dims - ranks) / 2))


def _refuse_rank(name: str, rank: int, dim: int) -> None:
    """Refuse r > d + 1, where Theorem 1's upper end is none."""
    if rank > dim + 1:
        raise ValueError(
            f"{name}: expected at most dimension + 1 = {dim + 1}, above which Theorem 1 is "
            f"unsound, got {rank}; at dimension 10, rank 50, alignment 0.99 it claims epsilon = "
            "2.41506 at delta = 0.01 where the true delta is 0.011899"
        )


def _refuse_gain(dim: int, rank: int, gain: float, failure: float) -> None:
    """Refuse a Γ that ‖Mu‖ exceeds with more than ``failure``, by the exact law of ‖Mu‖²."""
    # P(X(X + Y) > (rΓ)²) = E P(Y > (rΓ)²/X − X), X by its quantiles, Y by its exact tail
    middles = (np.arange(GAIN_POINTS) + 0.5) / GAIN_POINTS
    inside = chi2.isf(middles, rank)
    larger = float(chi2.sf((rank * gain) ** 2 / inside - inside, dim - 1).mean())
    if larger > failure:
        raise ValueError(
            f"rank, span: expected a bound on |M u| that fails with probability {failure:g}, "
            f"got {gain:.4g}, exceeded with probability {larger:.2g} for a unit vector u in the "
            "span of the unchanged columns; Theorem 4 is unsound there"
        )


def _infinite_part(rank: int, cosine: float) -> float:
    """E Φ(−ρ√x/√(1−ρ²)) over x ~ χ²_r, which is a Student tail."""
    if cosine == 1.0:
        return 0.0
    return float(t.cdf(-cosine * math.sqrt(rank / ((1 - cosine) * (1 + cosine))), rank))


def _quantiles(dim: int, rank: int, cosine: float, tail: float) -> tuple[float, float] | None:
    """Return K and κ at 1 − ``tail``; None where the theorem does not apply."""
    if not 0 < tail < 1:
        return None
    spread = math.sqrt((1 - cosine) * (1 + cosine) / rank) * float(t.isf(tail, rank))
    # ρ > t/√(r + t²) is ρ > K
    if spread >= cosine:
        return None
    return spread, float(chi2.isf(tail, dim + rank - 1))


def _projection_epsilon(dim: int, rank: int, cosine: float, tail: float) -> float:
    """The ε of Theorem 1 at a tail of each quantile; inf where it does not apply."""
    found = _quantiles(dim, rank, cosine, tail)
    if found is None:
        return math.inf
    spread, radius = found
    likelier = (dim - rank + 1) / 2 * math.log(cosine + spread)
    return likelier + (1 - cosine + spread) * radius / (2 * (cosine - spread))


def _residual_epsilon(dim: int, rank: int, cosine: float, tail: float) -> float:
    """The ε⊥ of Theorem 4, which normalises the second term otherwise than Theorem 1."""
    found = _quantiles(dim, rank, cosine, tail)
    if found is None:
        return math.inf
    spread, radius = found
    likelier = (dim - rank + 1) / 2 * math.log(cosine + spread)
    return likelier + radius / 2 * (1 / (cosine - spread) - 1)


def _two_sided_tail(epsilon: float, mean: Array) -> Array:
    """P(|N(μ/2, μ)| > ε)."""
    with np.errstate(divide="ignore"):
        root = np.sqrt(mean)
        # √μ/2 − ε/√μ and −√μ/2 − ε/√μ: standard normal tails on either side; 0 at μ = 0
        near = ndtr(np.where(mean > 0, root / 2 - epsilon / root, -np.inf))
        far = ndtr(np.where(mean > 0, -root / 2 - epsilon / root, -np.inf))
    return np.asarray(near + far)


def _least(bound: Callable[[Array], Array]) -> float:
    """Return the least value of ``bound`` over α in (0, 1); every α gives a valid bound."""
    low, high = -LARGEST_LOGIT, LARGEST_LOGIT
    best = math.inf
    for _ in range(REFINEMENTS):
        # a grid in ln(α/(1 − α)), twice as fine about the best point every time
        points = np.linspace(low, high, CAPTURE_GRID)
        values = bound(expit(points))
        index = int(np.argmin(values))
        best = min(best, float(values[index]))
        low = float(points[max(index - 1, 0)])
        high = float(points[min(index + 1, points.size - 1)])
    return best


def lora_theorem_5_steps(
    work: ProjectedSteps, noise_multiplier: float, *, delta: float, failure_share: float = 0.1
) -> Claim:
    """Claim for T steps of M2: a Gaussian mechanism of sensitivity √α C at δ (1 − share).

    α is the share of the energy that a projection captures but for probability share·δ/T a step.
    The Gaussian part is composed exactly here, which the paper leaves to any accountant.
    `noisy_projection_steps` has the composed exact profile.

    Args:
        work: What is done, r in [1, d − 1]; a rank of one record's gradient that is left out is 1.
        noise_multiplier: s > 0, noise standard deviation over the norm bound C.
        delta: δ in (0, 1).
        failure_share: Share of δ in (0, 1) for the projections' failures; the paper uses 0.1.

    Returns:
        The claimed ε at ``delta``.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> from tacit.accounting import ProjectedSteps
        >>> work = ProjectedSteps(dim=2000, rank=16, steps=1000, sampling_rate=1024 / 50_000)
        >>> round(lora_theorem_5_steps(work, 0.41556, delta=1e-4).epsilon, 3)
        1.0

    Source: lora-privacy, Theorem 5 and Appendix F.2.
    """
    noise = positive("noise_multiplier", noise_multiplier)
    left, gain = _split(work, delta, failure_share)
    # within a share of α of its sensitivity the mechanism is plain, with noise s/√α
    profile = _plain(work, noise / gain)
    return Claim(profile.epsilon(left), float(delta), "lora-privacy, Theorem 5 and F.2")


def lora_theorem_5_multiplier(
    work: ProjectedSteps, *, epsilon: float, delta: float, failure_share: float = 0.1
) -> float:
    """Return the noise multiplier that `lora_theorem_5_steps` asks for.

    √α times the multiplier of the plain subsampled Gaussian at (ε, (1 − share) δ).

    Args:
        work: As in `lora_theorem_5_steps`.
        epsilon: ε > 0 in nats.
        delta: δ in (0, 1).
        failure_share: As in `lora_theorem_5_steps`.

    Returns:
        s, the noise standard deviation over the norm bound.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> from tacit.accounting import ProjectedSteps
        >>> work = ProjectedSteps(dim=2000, rank=16, steps=1000, sampling_rate=1024 / 50_000)
        >>> round(lora_theorem_5_multiplier(work, epsilon=1.0, delta=1e-4), 3)
        0.416

    Source: lora-privacy, Theorem 5 and Appendix F.2.
    """
    left, gain = _split(work, delta, failure_share)
    return gain * least_noise(lambda noise: _plain(work, noise), epsilon=epsilon, delta=left)


def _plain(work: ProjectedSteps, noise: float) -> PrivacyProfile:
    """The profile of the steps without the projection, of this noise multiplier."""
    return subsampled_gaussian(work.sampling_rate, noise, work.steps, work.neighbours)


def _split(work: ProjectedSteps, delta: float, share: float) -> tuple[float, float]:
    """Return δ of the Gaussian part and √α."""
    failure, part = open_unit("delta", delta), open_unit("failure_share", share)
    # the bad event's share of δ, over T steps (union bound)
    captured = captured_share(
        dim=work.dim,
        rank=work.rank,
        delta=part * failure / work.steps,
        difference_rank=work.difference_rank or 1,
    )
    return (1 - part) * failure, math.sqrt(captured)
