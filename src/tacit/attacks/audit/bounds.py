"""What right guesses of fair coins prove: lower bounds on ε and μ, rounded down."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy import special

from tacit._ground.checks import Array

# more than the tails, the recursion and their sums lose in double precision at 10⁵ guesses
# Relative, more than tails and recursions round; always against what would be proved.
ROUNDING = 1e-8
# Where a bisection ends, relative: the end kept is the one that was shown.
WIDTH = 1e-10
# Below the exponent at which a float overflows.
LARGEST_EXPONENT = 700.0
SQRT_HALF = math.sqrt(0.5)


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return a bound on the chance of so many right guesses under (ε, δ), rounded up.

    With q = e^ε/(1 + e^ε) and b_j the largest probability of Bin(j, q):
    ``P[Bin(r, q) >= v] + δ (1 − q) (m − r + Σ_{j < r} b_j)``.

    Given the guesses and the coins before it, coin i is guessed right with probability q + x_i at
    most, where ``E x_i <= δ (1 − q)``; x_i adds as much times the chance that the j guesses after
    it leave exactly one missing, b_j at most. Coins may be last of the guesses (b_0 = 1) where
    r − 1 or more stand before them, and coin i < r has r − i after it at least. The published
    term, ``2 m δ max_i P[v > W >= v − i]/i``, takes the x_i to be independent of the coins before;
    a mechanism of two coins exceeds it for every ε > ln 2.

    Args:
        canaries: m, whose coins are fair.
        guesses: r <= m, their number fixed beforehand.
        right: v <= r.
        epsilon: ε >= 0.
        delta: δ in [0, 1].

    Source: Steinke, Nasr and Jagielski (2023), Theorem 5.2, with another term in δ.
    """
    if right == 0:
        return 1.0
    # 1 − q = 1/(1 + e^ε); P[Bin(r, q) >= v] as a beta integral in 1 − q, which keeps its digits
    wrong = float(special.expit(-epsilon))
    tail = float(special.betaincc(guesses - right + 1, right, wrong))
    if delta > 0.0:
        likeliest = _likeliest(guesses, epsilon).sum()
        tail += delta * wrong * (canaries - guesses + float(likeliest))
    # a p-value up: less is proved
    return min(tail * (1.0 + ROUNDING), 1.0)


def _likeliest(count: int, epsilon: float) -> Array:
    """Return the largest probability of Bin(j, q), j = 0 … count − 1."""
    # Bin(j, q) is largest at ⌊(j + 1) q⌋; its probability by logarithms, as factorials overflow
    trials = np.arange(count, dtype=np.float64)
    mode = np.minimum(np.floor((trials + 1.0) * special.expit(epsilon)), trials)
    logarithms = special.gammaln(trials + 1.0) - special.gammaln(mode + 1.0)
    logarithms -= special.gammaln(trials - mode + 1.0)
    logarithms += mode * special.log_expit(epsilon)
    logarithms += (trials - mode) * special.log_expit(-epsilon)
    likeliest: Array = np.exp(logarithms)
    return likeliest


@cache
def lower_epsilon(canaries: int, guesses: int, right: int, delta: float, failure: float) -> float:
    """Return an ε at which so many right guesses have a chance below ``failure``; 0 for none.

    It is the larger of what the p-value and what the recursion of (ε, δ) proves: each bounds the
    same chance, and the recursion pays less for δ among many canaries.
    """
    counts = canaries, guesses, right
    return max(
        _largest(lambda epsilon: p_value(*counts, epsilon, delta) <= failure),
        _largest(lambda epsilon: is_impossible(*counts, failure, _approximate(epsilon, delta))),
    )


def _approximate(epsilon: float, delta: float) -> Callable[[float], float]:
    """Return f̄⁻¹ of (ε, δ), max(0, e^−ε (y − δ), 1 − δ − e^ε (1 − y))."""
    rise = math.exp(min(epsilon, LARGEST_EXPONENT))
    fall = math.exp(-epsilon)
    return lambda reach: max(0.0, fall * (reach - delta), 1.0 - delta - rise * (1.0 - reach))


def refutes_profile(
    canaries: int, guesses: int, right: int, failure: float, epsilons: Array, deltas: Array
) -> bool:
    """Whether so many right guesses have a chance below ``failure`` under a whole privacy profile.

    f̄⁻¹ is the largest of those of its points (ε, δ(ε)): with fewer points it is smaller, and
    refutes less.

    Args:
        canaries: m.
        guesses: r <= m.
        right: v <= r.
        failure: α.
        epsilons: (k,) of the points.
        deltas: (k,) δ there, rounded up.
    """
    # where e^ε is cut the last term is far below 0 all the same, unless y is 1
    rise = np.exp(np.minimum(epsilons, LARGEST_EXPONENT))
    fall = np.exp(-epsilons)

    def inverse(reach: float) -> float:
        ahead = float(np.max(fall * (reach - deltas)))
        return max(0.0, ahead, float(np.max(1.0 - deltas - rise * (1.0 - reach))))

    return is_impossible(canaries, guesses, right, failure, inverse)


@cache
def lower_mu(canaries: int, guesses: int, right: int, failure: float) -> float:
    """Return a μ at which so many right guesses have a chance below ``failure``; 0 for none."""
    return _largest(
        lambda mu: is_impossible(
            canaries, guesses, right, failure, lambda reach: _normal(special.ndtri(reach) - mu)
        )
    )


def is_impossible(
    canaries: int,
    guesses: int,
    right: int,
    failure: float,
    inverse: Callable[[float], float],
) -> bool:
    """Whether no f-private mechanism gives v right guesses of r a chance of α or more.

    Of m coins, let W be the right guesses and ``R_j = E W 1{W >= j}/m``,
    ``H_j = E (r − W) 1{W >= j}/m``. Flipping the coin of a right guess makes it wrong, so that
    ``H_{j−1} >= f̄⁻¹(R_j)`` with f̄ = 1 − f. The least mass that keeps this has α at v and, from
    v − 1 down, no more than is needed; it is impossible where it exceeds 1: ``R + H > r/m``.

    Args:
        canaries: m.
        guesses: r <= m, their number fixed beforehand.
        right: v <= r.
        failure: α in (0, 1).
        inverse: f̄⁻¹, which does not decrease; Φ(Φ⁻¹(·) − μ) under μ-Gaussian privacy.

    Source: Mahloujifar, Melis and Chaudhuri (2024), Theorem 9 and Algorithm 3.
    """
    # R and H if W were v with probability α and else less
    reach = failure * right / canaries
    miss = failure * (guesses - right) / canaries
    limit = guesses / canaries * (1.0 + ROUNDING)
    for j in range(right - 1, -1, -1):
        # H_j is f̄⁻¹(R_{j+1}) at least: what it lacks is mass on W = j, of which R gets j parts and
        # H r − j
        needed = inverse(min(reach, 1.0))
        if needed <= miss:
            # from here on no mass is needed, and what there is is within 1
            return False
        reach += j / (guesses - j) * (needed - miss)
        miss = needed
        if reach + miss > limit:
            return True
    return False


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the ε that μ-Gaussian privacy has at δ and no less than it, rounded down.

    The root of ``Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = δ``; inf for μ > 0 at δ = 0.

    Source: Dong, Roth and Su (2022), Corollary 2.13.
    """
    if mu == 0.0:
        return 0.0
    if delta == 0.0:
        return math.inf

    def is_above(epsilon: float) -> bool:
        # both terms by logarithms; what they round is taken off, so that ε is no less than stated
        nearer = special.log_ndtr(0.5 * mu - epsilon / mu)
        farther = epsilon + special.log_ndtr(-0.5 * mu - epsilon / mu)
        lost = ROUNDING * math.exp(nearer)
        return math.exp(nearer) - math.exp(farther) - lost > delta

    return _largest(is_above)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return a number that holds, near the first that does not; 0 where none is found."""
    if not holds(0.0):
        return 0.0
    # doubled until it fails, then halved: ``low`` was shown to hold at every step
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2.0 * high
    while high - low > WIDTH * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _normal(value: float) -> float:
    return 0.5 * math.erfc(-value * SQRT_HALF)
