"""Any query by pairs: the success of an attacker told all other coins, on average over these.

By joint convexity of total variation the success of guessing coin i is at most
``E_c Φ(‖f(c) − f(c with coin i flipped)‖_Σ⁻¹ / 2)``. The mean is bounded from fresh coins by
betting against a larger one. That every pair is within bounds is claimed only where the contrary
is refuted for each of them, so that each test may have the whole failure probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tacit._ground.checks import Array
from tacit.covariance import Covariance, Dense
from tacit.design import worst_case
from tacit.linalg import inverse_sqrt_psd, sqrt_psd

SHAPING_ROUNDS = 60
# Of what a bet may be: its share of what could be lost, and how much the pilot counts in it.
LARGEST_BET = 0.9
PILOT_WEIGHT, LEAST_SQUARE = 0.5, 1e-12
# Halvings of the size of noise while its shape is sought.
SHAPE_HALVINGS = 26
# Sizes that are tried: their ratio near 1, by the number of draws, and powers of two beyond.
FINEST, COARSENESS = 0.005, 0.5
HIGHEST, LOWEST = 4.0, 0.5
FAR_ABOVE = 2.0 ** np.concatenate([np.arange(200.0, 10.0, -8.0), np.arange(10.0, 2.0, -1.0)])
FAR_BELOW = 2.0 ** np.arange(-2.0, -200.0, -8.0)
# Distances at which a step still sees how much a pair weighs.
NEAR, FAR = 1e-12, 20.0
# Rounding in the sum of m logarithms, against us.
LOG_SLACK = 1e-9
# Noise is not made smaller than this, though little or none would do.
LEAST_SIZE = 1e-3
# Noise on every number on its own: of its variance, and of the whole, or in units of the price.
FLOOR, STILL = 1e-8, 1e-12


@dataclass(frozen=True, eq=False)
class ScaledNoise:
    """Noise ``t · Σ₀`` whose size t the pilot expects; its shape stays.

    Attributes:
        covariance: Σ₀ at the size that the pilot expects to hold.
        price: tr(FΣ₀).
    """

    covariance: Array
    price: float


def shape_noise(swaps: Array, success: float, prices: Array) -> ScaledNoise:
    """Return the noise of least price under which the pilot's mean success of every pair holds.

    The stationary point of ``tr(FΣ)`` under ``E Φ(‖z_i‖/2) <= s``:
    ``FΣ = Σ⁻¹ Σ_i λ_i E[w zzᵀ]`` with ``w = φ(‖z‖/2)/‖z‖``, by multiplicative steps in λ. The
    better of it and the noise that covers the longest swap of each pair is taken.

    Args:
        swaps: (m, P, d) of the pilot.
        success: s.
        prices: (d,) F.
    """
    # in units of F^½ the price of noise is its trace
    roots: Array = np.sqrt(prices)
    scaled = swaps * roots
    # ‖z‖ of every swap in those units
    lengths = np.linalg.norm(scaled, axis=2)
    if not lengths.any():
        # nothing moved: any noise will do, which is for the certificate to say
        still = np.diag(STILL / prices)
        return ScaledNoise(still, float(prices @ np.diagonal(still)))
    # noise that covers the longest swap of each pair holds for every one, though at a price
    longest = scaled[lengths.argmax(axis=0), np.arange(swaps.shape[1])]
    cover = worst_case(longest, 1.0).covariance.to_dense()
    shapes = (cover, _balance(scaled, success))
    found = [_scale_to(shape, scaled, success) for shape in shapes]
    best = min(found, key=lambda covariance: float(np.trace(covariance)))
    # no direction is bare, and double precision can invert it
    best = best + np.diag(FLOOR * np.diagonal(best) + STILL * float(np.trace(best)))
    return ScaledNoise(best / np.outer(roots, roots), float(np.trace(best)))


def _balance(swaps: Array, success: float) -> Array:
    """Return a covariance at which the pairs that bind all have the same mean success."""
    draws, pairs, size = swaps.shape
    lengths = np.maximum(np.linalg.norm(swaps, axis=2), 1e-300)
    multipliers, weights = np.ones(pairs), 1.0 / lengths
    covariance = np.eye(size)
    for _ in range(SHAPING_ROUNDS):
        # Σ = M^½ with M = Σ_i λ_i E[w zzᵀ], scaled so that the worst pair is at s
        weighed = (weights * multipliers)[:, :, None] * swaps
        moment = np.tensordot(weighed, swaps, axes=([0, 1], [0, 1])) / draws
        moment /= np.trace(moment)
        covariance = np.asarray(sqrt_psd(moment + np.eye(size) * STILL))
        covariance = _scale_to(covariance, swaps, success)
        distances = _distances(swaps, covariance)
        excess = (ndtr(0.5 * distances).mean(axis=0) - 0.5) / (success - 0.5)
        # pairs above s weigh more, pairs below it less
        multipliers = np.maximum(multipliers * excess, 1e-12)
        multipliers /= multipliers.max()
        far = np.clip(distances, NEAR, FAR)
        # w = φ(‖z‖/2)/‖z‖ up to a factor
        weights = np.exp(-(far**2) / 8.0) / far
    return covariance


def _scale_to(covariance: Array, swaps: Array, success: float) -> Array:
    """Scale so that the worst pair's mean success is s, by bisection."""
    distances = _distances(swaps, covariance)

    def worst(scale: float) -> float:
        return float(ndtr(0.5 * distances / scale).mean(axis=0).max())

    low, high = LEAST_SIZE, 1.0
    while worst(high) > success:
        high *= 2.0
    for _ in range(SHAPE_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if worst(middle) > success else (low, middle)
    return np.asarray(covariance * high**2)


def _distances(swaps: Array, covariance: Array) -> Array:
    """Return ‖z‖_Σ⁻¹, (m, P)."""
    floored = covariance + np.diag(FLOOR * np.diagonal(covariance) + STILL * np.trace(covariance))
    white: Array = swaps @ inverse_sqrt_psd(floored, rtol=0.0).root
    return np.asarray(np.linalg.norm(white, axis=2))


def certified_scale(
    pilot: Array, fresh: Array, covariance: Covariance, success: float, failure: float
) -> float:
    """Return t such that under t Σ every pair's mean success is at most s, at the failure given.

    For values ``X = Φ(‖z‖/2√t)`` in [½, 1] and bets λ_k that draws before the k-th set, the wealth
    ``Π (1 + λ_k (s − X_k))`` has mean at most 1 where E X >= s: reaching 1/failure refutes that
    for one pair. As only the wealth at the end counts, each bet is the one that would take it from
    where it is to 1/failure in the draws that are left.

    The sizes t are tried from the largest down, in an order that is fixed before the draws, and
    the last one before the first at which some pair is not refuted is taken: were it too small,
    the first size that is too small was refuted, which has probability ``failure`` at most.

    Args:
        pilot: (m₀, P, d) swaps that only set the first bets.
        fresh: (m, P, d) swaps that nothing was chosen by.
        covariance: Σ.
        success: s in (½, 1).
        failure: probability that any pair's mean is above s.

    Source: Waudby-Smith and Ramdas (2024), Section 4; Voráček and Orabona (2025), the bets.
    """
    draws, pairs, _ = fresh.shape
    sizes = _sizes(draws)
    roots = 0.5 / np.sqrt(sizes)[:, None]
    level = -math.log(failure) + LOG_SLACK
    largest = LARGEST_BET / (1.0 - success)
    # the pilot's Σ (s − X)², by which the first bets are set
    squares = np.zeros((sizes.size, pairs))
    early = _distances_up(pilot, covariance)
    for distances in early:
        squares += np.square(success - ndtr(roots * distances))
    seen = len(early) * PILOT_WEIGHT
    squares = np.maximum(squares * PILOT_WEIGHT, LEAST_SQUARE * seen)
    wealth = np.zeros_like(squares)
    for left, distances in zip(range(draws, 0, -1), _distances_up(fresh, covariance), strict=True):
        gains = success - ndtr(roots * distances)
        # the bet that takes the log wealth to ln(1/failure) in the draws left: √(2 gap / Σ squares)
        wanted = 2.0 * np.maximum(level - wealth, 0.0)
        bets = np.minimum(np.sqrt(wanted * seen / (left * squares)), largest)
        wealth += np.log1p(bets * gains)
        squares += np.square(gains)
        seen += 1.0
    # from the largest size down to the first at which some pair is not refuted
    refuted = (wealth >= level).all(axis=1)
    last = int(np.argmin(refuted)) if not refuted.all() else sizes.size
    if last == 0:
        raise ValueError(
            f"simulations: expected enough to certify {success} for {pairs:,} pairs, got "
            f"{draws:,} draws"
        )
    return float(sizes[last - 1])


def _sizes(draws: int) -> Array:
    """Return sizes to try, from the largest down: closest about 1, which the pilot expects."""
    step = max(FINEST, COARSENESS / math.sqrt(draws))
    about = HIGHEST * (1.0 + step) ** -np.arange(math.ceil(math.log(HIGHEST / LOWEST) / step))
    return np.concatenate([FAR_ABOVE, about, FAR_BELOW])


def _distances_up(swaps: Array, covariance: Covariance) -> Array:
    """Return ‖z‖_Σ⁻¹ rounded up by what double precision may have lost, (m, P)."""
    draws, pairs, size = swaps.shape
    squared = covariance.mahalanobis(swaps.reshape(-1, size)) * (1.0 + covariance.rounding)
    return np.asarray(np.sqrt(squared).reshape(draws, pairs))


def dense(covariance: Array) -> Covariance:
    """Return a covariance as the law of noise."""
    return Dense(0.5 * (covariance + covariance.T))
