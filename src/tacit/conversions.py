"""From one notion of leakage to another, every result rounded to the side that is safe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from scipy.special import expit

from tacit._ground.checks import Array, as_float, in_interval, integer, non_negative, vector
from tacit._ground.numbers import EPS, SMALLEST, rounded_up

# Below it φ(a) is its series up to a²⁴: what is left out is below 1e-23 of the first term.
SERIES_BELOW, SERIES_TERMS = 0.1, 24
# Units in the last place by which a formula is moved to its safe side: a logarithm; a difference of
# two, relative to both; kl, whose φ cancels all but a 22nd of ln where its series ends; an
# exponential and three products; a Rényi curve's four terms.
LOG_UNITS, ODDS_UNITS, KL_UNITS, DP_UNITS, RENYI_UNITS = 4, 2, 64, 8, 8
# Steps down, doubled each time, until a conversion and its inverse agree: a first one that is
# enough.
NATS_STEP, EPSILON_STEP = 256, 4
# How far an entropy may lie above ln C by rounding.
ENTROPY_TOLERANCE = 1e-12
# Beyond it the product of a ratio and its logarithm may be no float.
LARGEST_RATIO = 1e300
# A bracket wider than this factor is halved in its exponent.
WIDE = 4


def success_from_information(nats: float, prior: float) -> float:
    """Largest success that ``nats`` of information allow at this prior success, rounded up.

    The upper end s of kl(s ‖ p) = s ln(s/p) + (1−s) ln((1−s)/(1−p)) <= I(X; Y), which holds for
    every task on X and every attacker who sees Y and knows of X its law alone; 1 where
    nats >= −ln p.

    Args:
        nats: Mutual information between the secret and the release, >= 0, in nats; may be inf.
        prior: Success p of the best guess without the release, in (0, 1).

    Returns:
        An upper bound on the success, rounded up.

    Raises:
        ValueError: ``nats`` is negative or ``prior`` outside (0, 1).

    Example:
        >>> round(success_from_information(0.01, 0.5), 9)
        0.57059257

    Source: residual-pac, Eq. 17 (Bernoulli KL), Eq. 10.
    """
    information = non_negative("nats", nats, allow_inf=True)
    chance = _open_unit("prior", prior)
    if information == 0:
        return chance
    # from −ln p on even s = 1 is within
    if information >= -math.log(chance) * (1 - LOG_UNITS * EPS):
        return 1.0
    # s = p + x by its gap x, which keeps its digits where s is near p
    low, high = 0.0, 1 - chance
    # kl counts as so much less than it is computed: every x that may be within is kept
    if _kl_of_gap(high, chance) * (1 - KL_UNITS * EPS) < information:
        return 1.0
    while True:
        # the gap spans many decades, so halve its exponent while the bracket does
        middle = (
            math.sqrt(max(low, SMALLEST)) * math.sqrt(high)
            if high > WIDE * low
            else low + (high - low) / 2
        )
        if not low < middle < high:
            break
        if _kl_of_gap(middle, chance) * (1 - KL_UNITS * EPS) < information:
            low = middle
        else:
            high = middle
    return min(_sum_up(chance, high), 1.0)


def information_from_success(success: float, prior: float) -> float:
    """Largest information budget that keeps a success at most ``success``, rounded down.

    kl(s ‖ p) for s = ``success`` and p = ``prior``, rounded down so that
    ``success_from_information(information_from_success(s, p), p) <= s``. Read the other way, an
    attack that succeeds with probability s proves that at least this much information leaks.

    Args:
        success: Target success s, in [prior, 1].
        prior: Success p of the best guess without the release, in (0, 1).

    Returns:
        The budget in nats, 0 at s = p and −ln p (rounded down) at s = 1.

    Raises:
        ValueError: ``prior`` is outside (0, 1) or ``success`` outside [prior, 1].

    Example:
        >>> round(information_from_success(0.55, 0.5), 9)
        0.005008367

    Source: residual-pac, Eq. 17.
    """
    chance = _open_unit("prior", prior)
    target = in_interval("success", success, chance, 1.0)
    if target == chance:
        return 0.0
    if target == 1.0:
        return -math.log(chance) * (1 - LOG_UNITS * EPS)
    # downwards until the way back is within the target: then the two are consistent as floats too
    nats = _kl_of_gap(target - chance, chance)
    shrink = NATS_STEP * EPS
    while success_from_information(nats, chance) > target:
        nats *= max(1 - shrink, 0.0)
        shrink *= 2
    return nats


def success_from_dp(epsilon: float, delta: float, prior: float = 0.5) -> float:
    """Largest success in telling two neighbours apart under (ε, δ)-DP, rounded up.

    The testing region has the vertices (false positives, false negatives) = (0, 1−δ), (q, q),
    (1−δ, 0) with q = (1−δ)/(1+e^ε), so the success is at most
    max{1 − q, 1 − p(1−δ), 1 − (1−p)(1−δ)}; at p = ½ this is 1 − (1−δ)/(1+e^ε).

    Args:
        epsilon: ε >= 0 in nats; may be inf.
        delta: δ in [0, 1].
        prior: Probability p of one of the two inputs, in (0, 1).

    Returns:
        An upper bound on the success, rounded up.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> round(success_from_dp(1.0, 0.0), 6)
        0.731059

    Source: residual-pac, Eq. 16 (p = ½).
    """
    eps, failure = _dp("epsilon", epsilon, "delta", delta)
    chance = _open_unit("prior", prior)
    likelier = max(chance, 1 - chance)
    if eps == 0 and failure == 0:
        return likelier
    # q = (1 − δ)/(1 + e^ε) by expit(−ε), which no ε overflows; what is taken from 1 is rounded down
    fooled = (1 - failure) * float(expit(-eps)) * (1 - DP_UNITS * EPS)
    missed = (1 - failure) * (1 - likelier) * (1 - DP_UNITS * EPS)
    # without δ the ends of the region are the likelier input itself
    end = likelier if failure == 0 else _sum_up(1.0, -missed)
    return min(max(_sum_up(1.0, -fooled), end, likelier), 1.0)


def success_from_profile(
    delta: Callable[[float], float],
    prior: float = 0.5,
    *,
    reverse: Callable[[float], float] | None = None,
) -> float:
    """Largest success in telling two inputs apart under a profile at any prior, rounded up.

    (1−p) + p δ(ln((1−p)/p)), the larger of the values at p and 1−p and of the two directions.
    With q = min(p, 1−p) and e = ln((1−q)/q) >= 0 that is 1 − q (1 − δ(e)), since
    δ(−e) = 1 − e^{−e} (1 − δ'(e)) for the other direction δ'. It is attained by the
    likelihood-ratio test when δ is exact.

    Args:
        delta: δ(ε) = sup_A P(A) − e^ε Q(A) or an upper bound of it, called at one ε >= 0.
        prior: Probability p of one of the two inputs, in (0, 1).
        reverse: The same for (Q, P); None when ``delta`` bounds both.

    Returns:
        An upper bound on the success, rounded up, at least max(p, 1−p).

    Raises:
        ValueError: ``prior`` is outside (0, 1), or a profile is not callable or gives a δ outside
            [0, 1].

    Example:
        >>> round(success_from_profile(lambda epsilon: 0.01, 0.9), 6)
        0.901

    Source: the Neyman-Pearson lemma; residual-pac, Appendix C.2 (its p = ½ under (ε, δ)-DP).
    """
    chance = _open_unit("prior", prior)
    # exact: 1 − p is for p >= 1/2
    unlikelier = min(chance, 1 - chance)
    against, chosen = math.log1p(-unlikelier), math.log(unlikelier)
    # e = ln((1 − q)/q) downwards: δ falls, so δ(e) is no smaller for it
    odds = max(against - chosen - ODDS_UNITS * EPS * (abs(against) + abs(chosen)), 0.0)
    worst = 0.0
    for name, curve in (("delta", delta), ("reverse", delta if reverse is None else reverse)):
        if not callable(curve):
            raise ValueError(f"{name}: expected a function of epsilon, got {curve!r}")
        worst = max(worst, in_interval(f"{name}({odds!r})", curve(odds), 0.0, 1.0))
    # 1 − q (1 − δ): what is missed downwards, so that the success is rounded up
    missed = unlikelier * ((1 - worst) * (1 - LOG_UNITS * EPS) if worst > 0 else 1.0)
    return min(_sum_up(1.0, -missed), 1.0)


def epsilon_from_success(success: float, delta: float) -> float:
    """Largest ε of (ε, δ)-DP that keeps success at even odds at most ``success``, rounded down.

    ε = ln((s − δ)/(1 − s)), the inverse of `success_from_dp` at prior ½, rounded down:
    ``success_from_dp(epsilon_from_success(s, δ), δ) <= s``. Read the other way, an attack with
    success s at even odds proves that the release is not (ε', δ)-DP for any ε' below this.

    Args:
        success: s in [(1 + δ)/2, 1].
        delta: δ in [0, 1).

    Returns:
        ε in nats, 0 at s = (1 + δ)/2 and inf at s = 1.

    Raises:
        ValueError: ``delta`` is outside [0, 1), or no ε >= 0 gives a success this low.

    Example:
        >>> round(epsilon_from_success(0.55, 0.0), 6)
        0.200671

    Source: residual-pac, Eq. 16.
    """
    failure = in_interval("delta", delta, 0.0, 1.0, open_high=True)
    target = in_interval("success", success, 0.0, 1.0)
    # 2s − 1 − δ in fractions: its sign decides whether any ε does
    excess = float(2 * Fraction(target) - 1 - Fraction(failure))
    if excess < 0:
        raise ValueError(
            f"success: expected at least (1 + delta)/2 = {(1 + failure) / 2!r}, got {target!r}"
        )
    if target == 1.0:
        return math.inf
    if excess == 0:
        return 0.0
    # ln((s − δ)/(1 − s)) = ln(1 + (2s − 1 − δ)/(1 − s)), without cancellation at s near (1 + δ)/2
    epsilon = math.log1p(excess / (1 - target))
    shrink = EPSILON_STEP * EPS
    while epsilon > 0 and success_from_dp(epsilon, failure) > target:
        epsilon *= max(1 - shrink, 0.0)
        shrink *= 2
    return epsilon


def advantage_from_dp(epsilon: float, delta: float) -> float:
    """Largest total variation distance between neighbours under (ε, δ)-DP, rounded up.

    (e^ε − 1 + 2δ)/(e^ε + 1): true positives minus false positives of any membership test.

    Args:
        epsilon: ε >= 0 in nats; may be inf.
        delta: δ in [0, 1].

    Returns:
        An upper bound on the advantage in [0, 1], rounded up.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> round(advantage_from_dp(1.0, 0.0), 6)
        0.462117

    Source: Kairouz, Oh and Viswanath (2015), Theorem 2.1.
    """
    eps, failure = _dp("epsilon", epsilon, "delta", delta)
    if eps == 0 and failure == 0:
        return 0.0
    # (e^ε − 1)/(e^ε + 1) = tanh(ε/2), and 2δ/(e^ε + 1): neither overflows
    value = math.tanh(eps / 2) + 2 * failure * float(expit(-eps))
    return min(value * (1 + DP_UNITS * EPS), 1.0)


def epsilon_from_renyi(
    orders: Array | Sequence[float], values: Array | Sequence[float], delta: float
) -> float:
    """Smallest ε that a Rényi curve gives at δ by the improved conversion, rounded up.

    ε = max(0, min over α of D_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1)).

    Args:
        orders: Orders α > 1, shape (k,).
        values: D_α >= 0 in nats at each order, shape (k,); inf where there is no bound.
        delta: δ in (0, 1).

    Returns:
        ε in nats, rounded up; inf where every value is.

    Raises:
        ValueError: Shapes differ, an order is not a finite number > 1, a value is negative or NaN,
            or ``delta`` is outside (0, 1).

    Example:
        >>> round(epsilon_from_renyi([2.0, 8.0, 32.0], [1.0, 4.0, 16.0], 1e-5), 4)
        5.2141

    Source: Balle et al. (2020), Theorem 21; Canonne, Kamath and Steinke (2020), Proposition 12.
    """
    alphas = vector("orders", orders)
    if not (alphas > 1).all():
        raise ValueError(f"orders: expected numbers > 1, got {float(alphas.min())!r}")
    failure = in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ValueError(f"values: expected a sequence of numbers, got {values!r}")
    divergences = [non_negative(f"values[{i}]", v, allow_inf=True) for i, v in enumerate(values)]
    if len(divergences) != alphas.size:
        raise ValueError(
            f"values: expected one for each of the {alphas.size} orders, got {len(divergences)}"
        )
    # every order gives a bound: the least of them
    best = math.inf
    for alpha, divergence in zip(alphas.tolist(), divergences, strict=True):
        if math.isfinite(divergence):
            best = min(best, _epsilon_at(alpha, divergence, failure))
    return max(best, 0.0)


def fano_information(accuracy: float, classes: int, label_entropy: float | None = None) -> float:
    """Fewest nats a release leaks if a label is named with this accuracy, rounded down.

    Fano's inequality: ``I(X; Y) >= I(L; Y) >= H(L) − h(a) − (1 − a) ln(C − 1)``, h the entropy of
    a coin; for equally likely classes that is kl(a ‖ 1/C). It grows with the accuracy, so a lower
    bound on the accuracy gives a lower bound.

    Args:
        accuracy: Probability a of naming the label, or a lower bound on it, in [0, 1].
        classes: Number C >= 2 of labels that can occur or be guessed.
        label_entropy: H(L) in nats, in [0, ln C]; ln C, equally likely labels, when None.

    Returns:
        A lower bound on the mutual information in nats, rounded down; 0 at or below chance, 1/C.

    Raises:
        ValueError: An argument is out of range, or ``classes`` is not an integer >= 2.

    Example:
        >>> round(fano_information(0.87, 4), 3)
        0.857

    Source: Fano's inequality (Cover and Thomas, Theorem 2.10.1), with the error term kept.
    """
    reached = in_interval("accuracy", accuracy, 0.0, 1.0)
    count = integer("classes", classes, minimum=2)
    # 1/C upwards: chance counts as a little easier, so less is leaked
    chance = rounded_up(Fraction(1, count))
    limit = math.log(count)
    # H(L) below ln C is taken off, with its rounding
    lacking = 0.0
    if label_entropy is not None:
        most = limit * (1.0 + ENTROPY_TOLERANCE)
        lacking = limit - in_interval("label_entropy", label_entropy, 0.0, most)
    if reached <= chance:
        return 0.0
    lost = 0.0 if label_entropy is None else max(0.0, lacking) + LOG_UNITS * math.ulp(limit)
    return max(0.0, information_from_success(reached, chance) - lost)


def fano_success(nats: float, candidates: int) -> float:
    """Largest probability of naming the secret among N equally likely ones, rounded up.

    The inverse of `fano_information`: the upper end s of kl(s ‖ 1/N) <= nats.

    Args:
        nats: Mutual information between the secret and the release, >= 0, in nats; may be inf.
        candidates: Number N >= 2 of equally likely candidates.

    Returns:
        An upper bound on the success, rounded up.

    Raises:
        ValueError: ``nats`` is negative or ``candidates`` is not an integer >= 2.

    Example:
        >>> round(fano_success(0.02, 4), 4)
        0.3396

    Source: as `fano_information`.
    """
    count = integer("candidates", candidates, minimum=2)
    return success_from_information(nats, rounded_up(Fraction(1, count)))


def _epsilon_at(alpha: float, divergence: float, delta: float) -> float:
    """D_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1), raised by the rounding of each term."""
    terms = (
        divergence,
        math.log1p(-1 / alpha) if alpha > 2 else math.log(alpha - 1) - math.log(alpha),
        -math.log(delta) / (alpha - 1),
        -math.log(alpha) / (alpha - 1),
    )
    return math.fsum(terms) + RENYI_UNITS * EPS * (1 + sum(abs(term) for term in terms))


def _dp(epsilon_name: str, epsilon: float, delta_name: str, delta: float) -> tuple[float, float]:
    return (
        non_negative(epsilon_name, epsilon, allow_inf=True),
        in_interval(delta_name, delta, 0.0, 1.0),
    )


def _open_unit(name: str, value: float) -> float:
    return in_interval(name, as_float(name, value), 0.0, 1.0, open_low=True, open_high=True)


def _sum_up(left: float, right: float) -> float:
    """Return left + right rounded up: ``fsum`` of what rounding left is exact in its sign."""
    total = left + right
    return total if math.fsum((left, right, -total)) <= 0 else math.nextafter(total, math.inf)


def _kl_of_gap(gap: float, chance: float) -> float:
    """kl(p + x ‖ p) = p φ(x/p) + (1−p) φ(−x/(1−p)), φ(a) = (1+a) ln(1+a) − a >= 0."""
    ratio = gap / chance
    # p φ(x/p) = (p + x) ln(1 + x/p) − x: where x/p is no float, or its square, by logarithms
    above = (
        chance * _phi(ratio)
        if ratio < LARGEST_RATIO
        else (chance + gap) * (math.log(chance + gap) - math.log(chance)) - gap
    )
    return above + (1 - chance) * _phi(-gap / (1 - chance))


def _phi(a: float) -> float:
    """φ(a) = (1 + a) ln(1 + a) − a, to rounding; by its series where the two terms cancel."""
    if a <= -1:
        return 1.0
    if abs(a) >= SERIES_BELOW:
        return (1 + a) * math.log1p(a) - a
    # a²(½ − a/6 + a²/12 − …), by Horner's rule
    series = 0.0
    for power in range(SERIES_TERMS, 1, -1):
        series = (-1.0) ** power / (power * (power - 1)) + a * series
    return a * a * series
