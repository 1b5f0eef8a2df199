"""The bounds of the model-specification paper (pave), as printed."""

from __future__ import annotations

import math

import numpy as np

from tacit._ground.checks import boolean, in_interval, integer, non_negative, positive
from tacit.accounting.mechanisms.gaussian import gaussian
from tacit.accounting.published.claims import Claim, lower_envelope, open_unit

# Orders α over which the infimum is taken, evenly in ln(α − 1).
ORDERS = 1 + np.geomspace(1e-3, 1e5, 4001)
# e^ε of more is no float.
LARGEST_LOG = 700.0


def pave_theorem_3_5(
    *, rank: int, dim: int, gamma: float, delta: float, both_orders: bool = True
) -> Claim:
    """Claim for a compact specification: ε = (rk/2) ln(1/(1−γ²)) + ln(1/δ).

    Order 2 of the Rényi divergence alone, so ε >= ln(1/δ) whatever γ is. `sketch` has the exact
    profile.

    Args:
        rank: r >= 1, columns of the sketch.
        dim: k >= 1, dimensions of the public subspace.
        gamma: γ in (0, 1): (1−γ)Σ' ⪯ Σ ⪯ (1+γ)Σ' for neighbours in both orders.
        delta: δ in (0, 1).
        both_orders: Whether that holds for (D, D') and for (D', D).

    Returns:
        The claimed ε at ``delta``.

    Raises:
        ValueError: An argument is outside its range, or the stability is known in one order only,
            where the theorem is unsound: the reverse ratio reaches 1/(1−γ).

    Example:
        >>> round(pave_theorem_3_5(rank=8, dim=8, gamma=0.01, delta=1e-5).epsilon, 2)
        11.52

    Source: pave, Theorem 3.5, Eq. 25.
    """
    entries = integer("rank", rank, minimum=1) * integer("dim", dim, minimum=1)
    stability = open_unit("gamma", gamma)
    failure = open_unit("delta", delta)
    if not boolean("both_orders", both_orders):
        raise ValueError(
            "both_orders: expected True, got False; with the covariance ratio in [1 - gamma, "
            "1 + gamma] in one order only Theorem 3.5 is unsound: the reverse ratio reaches "
            "1/(1 - gamma), and at gamma = 0.5 its Rényi divergence of order 2 is infinite, "
            "beside a claim of 0.144 for rank 1 and dimension 1"
        )
    # D_2 <= −(rk/2) ln(1 − γ²), and order 2 costs ln(1/δ)
    divergence = -entries / 2 * math.log1p(-stability * stability)
    return Claim(divergence + math.log(1 / failure), failure, "pave, Theorem 3.5")


def pave_theorem_3_9(
    noise_multiplier: float,
    *,
    steps: int,
    layers: int = 1,
    delta: float,
    sampling_rate: float = 1.0,
) -> Claim:
    """Claim for DP-S-PAVE: ε = inf over α of T |L| ρ_α(q, σ) + ln(1/δ)/(α − 1).

    On samples it is unsound for several layers and refused: Theorem 7.15 composes them as if each
    had a batch of its own, and Algorithm 1 draws one batch for all.

    Without subsampling ρ_α = 2α/σ² (sensitivity 2C, noise σC, each layer clipped by itself), and
    ε = a + 2 √(a ln(1/δ)) with a = 2T|L|/σ². With it, ρ_α of the sampled pair is bounded by joint
    convexity, exp((α−1)ρ_α) <= 1 − q + q exp(2α(α−1)/σ²). One Gaussian mechanism a step on the
    concatenated update, composed exactly, is `subsampled_gaussian`.

    Args:
        noise_multiplier: σ > 0, noise standard deviation over the clipping threshold C.
        steps: T >= 1.
        layers: |L| >= 1, layers that are clipped and noised one by one.
        delta: δ in (0, 1).
        sampling_rate: q in (0, 1].

    Returns:
        The claimed ε at ``delta``, for replaced records.

    Raises:
        ValueError: An argument is outside its range, or there are several layers and a sampling
            rate below 1.

    Example:
        >>> round(pave_theorem_3_9(10.0, steps=10, layers=2, delta=1e-5).epsilon, 3)
        4.692

    Source: pave, Theorem 3.9, Eq. 29 and 30.
    """
    multiplier = positive("noise_multiplier", noise_multiplier)
    count = integer("steps", steps, minimum=1) * integer("layers", layers, minimum=1)
    failure = open_unit("delta", delta)
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True)
    if rate < 1.0 and layers > 1:
        raise ValueError(
            f"layers: expected 1 beside sampling_rate {rate:g}, got {layers}; with one batch for "
            "all layers Theorem 3.9 is unsound: a record of norm C in every layer is one Gaussian "
            "mechanism of sensitivity 2C√|L| on a sample, which subsampled_gaussian has exactly "
            "with noise_multiplier/√layers"
        )
    if rate == 1.0:
        # the optimum of a α + ln(1/δ)/(α − 1) is at α = 1 + √(ln(1/δ)/a)
        total = 2 * count / multiplier**2
        epsilon = total + 2 * math.sqrt(total * math.log(1 / failure))
    else:
        # Poisson's Rényi bound on the grid of orders
        sampled = gaussian(2.0, multiplier).poisson_subsample(rate)
        epsilon = lower_envelope(ORDERS, count * sampled.renyi(ORDERS), failure)
    return Claim(epsilon, failure, "pave, Theorem 3.9")


def pave_risk(epsilon: float, delta: float) -> float:
    """Claim for the advantage of disclosure and of amplification: e^ε − 1 + δ.

    With the ε of `pave_theorem_3_5` it is at least 1/δ − 1 + δ >= 1. The advantage that a profile
    allows is its total variation, `PrivacyProfile.advantage`.

    Args:
        epsilon: ε >= 0 in nats; may be inf.
        delta: δ in [0, 1].

    Returns:
        The claimed advantage, above 1 where the formula gives that.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> round(pave_risk(0.1, 1e-5), 4)
        0.1052

    Source: pave, Theorems 4.2 and 4.3, Eq. 31.
    """
    loss = non_negative("epsilon", epsilon, allow_inf=True)
    failure = in_interval("delta", delta, 0.0, 1.0)
    # e^ε − 1 + δ: no bound on an advantage where it exceeds 1
    return (math.expm1(loss) if loss < LARGEST_LOG else math.inf) + failure
