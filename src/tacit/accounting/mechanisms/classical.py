"""Profiles of mechanisms with pure differential privacy: Laplace noises, k-ary response."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from scipy.special import expit

from tacit._ground.checks import Array, in_interval, integer, non_negative, positive
from tacit._ground.numbers import EPS, rounded_up
from tacit._ground.proof import node
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves

# Units in the last place: of a quotient or a difference of two logarithms; of their product with
# another; of a sum of three terms of a curve; of Laplace's.
LOSS_UNITS, ODDS_UNITS, CURVE_UNITS, LAPLACE_UNITS = 2, 4, 32, 16
# Added to a loss > 0: the rounding of logarithms near each other.
NEAR_UNITS = 8


def laplace(sensitivity: float, scale: float) -> PrivacyProfile:
    """Return the profile of a number released with Laplace noise of scale b.

    δ(ε) = 1 − exp((ε − Δ/b)/2) for |ε| <= Δ/b and max(1 − e^ε, 0) beyond; equal in both
    directions. For a vector whose l1 distance is Δ it is the exact profile of its worst
    difference, one along a coordinate.

    Args:
        sensitivity: Δ >= 0, largest distance of the values of two neighbours.
        scale: b > 0; the noise has density exp(−|x|/b)/(2b).

    Returns:
        The exact profile, rounded up; δ(Δ/b) = 0.

    Raises:
        ValueError: ``sensitivity`` is negative or infinite, or ``scale`` is not positive.

    Example:
        >>> round(laplace(1.0, 1.0).delta(0.5), 6)
        0.221199

    Source: Balle, Barthe and Gaboardi (2018), Theorem 3.
    """
    difference = non_negative("sensitivity", sensitivity)
    width = positive("scale", scale)
    # Δ/b exactly, and the least float above it: ε at δ = 0 of whole Δ/b is Δ/b
    largest = rounded_up(Fraction(difference) / Fraction(width))

    exact = profile_from_curves(
        partial(_laplace_curve, largest),
        name=f"Laplace noise {width:g} on sensitivity {difference:g}",
        infinite_mass=float(math.isinf(largest)),
        renyi=partial(_laplace_renyi, largest) if math.isfinite(largest) else None,
        source="Balle, Barthe and Gaboardi (2018), Theorem 3; Mironov (2017), Proposition 6",
        assumptions=(f"neighbours' values are at l1 distance at most {difference:g}",),
    )
    proved = node("laplace", sensitivity=difference, scale=width)
    return replace(exact, evidence="theorem", mechanism=proved)


def _laplace_renyi(largest: float, orders: Array) -> Array:
    """The Rényi divergence at orders > 1, rounded up."""
    # exp((α − 1) D) = (α e^{(α−1)L} + (α − 1) e^{−αL})/(2α − 1) in L + ln(…)/(α − 1): of
    # e^{(α−1)L} the larger part is taken out, so that nothing overflows
    smaller = (orders - 1) * np.exp(-(2 * orders - 1) * largest)
    inner = np.log1p((smaller - orders + 1) / (2 * orders - 1))
    bound = largest + inner / (orders - 1) + LAPLACE_UNITS * EPS * (largest + 1 / (orders - 1))
    return np.minimum(bound, largest)


def _laplace_curve(largest: float, epsilon: Array) -> Array:
    """δ of Laplace noise at any real ε, rounded up; ``largest`` is Δ/b."""
    # no curve is below 1 − e^ε; between −L and L it is 1 − e^{(ε − L)/2}, above it 0
    trivial = -np.expm1(np.minimum(epsilon, 0.0))
    gap = np.minimum(epsilon, largest) - largest if math.isfinite(largest) else -np.inf
    inside = -np.expm1(gap / 2)
    value = np.where(epsilon > -largest, inside, trivial)
    return np.minimum(np.maximum(value, trivial) * (1 + LAPLACE_UNITS * EPS), 1.0)


def discrete_laplace(sensitivity: int, scale: float) -> PrivacyProfile:
    """Return the profile of a whole number released with discrete Laplace noise of scale b.

    With a = 1/b, for |ε| < aΔ:
    δ(ε) = max_m (1 − e^{ε + a(m − Δ)} + e^{−a}(1 − e^{−am}))/(1 + e^{−a}) over m in 0 … Δ − 1, the
    event that the output is at most m; equal in both directions. For whole vectors whose l1
    distance is Δ it is the profile of the worst difference, one along a coordinate.

    Args:
        sensitivity: Δ >= 0, a whole number: largest distance of the values of two neighbours.
        scale: b > 0; the noise is the whole number x with probability tanh(1/2b) exp(−|x|/b).

    Returns:
        The exact profile, rounded up; δ(Δ/b) = 0.

    Raises:
        ValueError: ``sensitivity`` is no whole number >= 0, or ``scale`` is not positive.

    Example:
        >>> round(discrete_laplace(1, 1.0).delta(0.5), 6)
        0.287649

    Source: Ghosh, Roughgarden and Sundararajan (2012); the ratio of e^{−a|x|} and e^{−a|x − Δ|}.
    """
    difference = integer("sensitivity", sensitivity, minimum=0)
    width = positive("scale", scale)
    with np.errstate(over="ignore"):
        rate = float(np.divide(1.0, width)) * (1 + LOSS_UNITS * EPS)
        largest = rate * difference * (1 + LOSS_UNITS * EPS) if difference else 0.0
    exact = profile_from_curves(
        partial(_discrete_curve, rate, difference, largest),
        name=f"discrete Laplace noise {width:g} on sensitivity {difference}",
        infinite_mass=float(math.isinf(largest)),
        # no loss is larger
        renyi=partial(np.full_like, fill_value=largest) if math.isfinite(largest) else None,
        source="Ghosh, Roughgarden and Sundararajan (2012)",
        assumptions=(f"neighbours' values are whole and at l1 distance at most {difference}",),
    )
    proved = node("discrete-laplace", sensitivity=difference, scale=width)
    return replace(exact, evidence="theorem", mechanism=proved)


def _discrete_curve(rate: float, shift: int, largest: float, epsilon: Array) -> Array:
    """δ of discrete Laplace noise at any real ε, rounded up; ``largest`` is aΔ."""
    trivial = -np.expm1(np.minimum(epsilon, 0.0))
    if shift == 0:
        return trivial
    if math.isinf(largest):
        return np.ones(epsilon.shape)
    # the outputs whose loss a(Δ − 2x) is above ε end at m; each m bounds from below, so that the
    # larger of both neighbours is the best whatever way the division rounds
    edge = np.floor((shift - epsilon / rate) / 2.0)
    value = trivial
    for last in (edge - 1.0, edge):
        end = np.clip(last, 0.0, shift - 1.0)
        # P − e^ε Q of the event, both over one denominator: no difference of numbers near 1
        ahead = -np.expm1(np.minimum(epsilon + rate * (end - shift), 0.0))
        inside = (ahead - math.exp(-rate) * np.expm1(-rate * end)) / (1.0 + math.exp(-rate))
        # beyond ±aΔ the events are nothing and everything
        value = np.maximum(value, np.where(np.abs(epsilon) < largest, inside, 0.0))
    return np.minimum(value * (1 + LAPLACE_UNITS * EPS), 1.0)


def randomized_response(
    epsilon: float | None = None,
    categories: int = 2,
    *,
    truth_probability: float | None = None,
) -> PrivacyProfile:
    """Return the profile of k-ary randomised response.

    The truth is reported with probability p and each of the other k − 1 answers with
    r = (1 − p)/(k − 1), so that e^ε = p/r. With odds L = |ln(p/r)|:
    δ(t) = max(p − e^t r, 0) + max(r − e^t p, 0) + (k − 2) r max(1 − e^t, 0).

    Args:
        epsilon: ln(p/r) >= 0 in nats; give this or ``truth_probability``.
        categories: Number k >= 2 of answers.
        truth_probability: p in [0, 1]; below 1/k the truth is the rarest answer.

    Returns:
        The exact profile, rounded up.

    Raises:
        ValueError: Not exactly one of ``epsilon`` and ``truth_probability`` is given, or a number
            is out of range.

    Example:
        >>> profile = randomized_response(1.0, categories=4)
        >>> round(profile.epsilon(0.0), 6), round(profile.advantage(), 6)
        (1.0, 0.300489)

    Source: Kairouz, Oh and Viswanath (2016), Section 3.
    """
    count = integer("categories", categories, minimum=2)
    if (epsilon is None) == (truth_probability is None):
        raise ValueError("epsilon, truth_probability: expected exactly one of the two")
    # p = 1/(1 + (k − 1)e^{−L}) and r = p e^{−L}, each without a difference from 1
    if epsilon is not None:
        loss = non_negative("epsilon", epsilon, allow_inf=True)
        truth = float(expit(loss - math.log(count - 1)))
        other = float(expit(math.log(count - 1) - loss)) / (count - 1)
    else:
        truth = in_interval("truth_probability", truth_probability, 0.0, 1.0)
        other = (1 - truth) / (count - 1)
        # a difference of logarithms is 0 only where p = 1/k exactly
        loss = math.inf if min(truth, other) == 0 else abs(math.log(truth) - math.log(other))
        even = Fraction(truth) * count == 1
        loss = 0.0 if even else max(loss, ODDS_UNITS * EPS)
    high, low = max(truth, other), min(truth, other)
    exact = profile_from_curves(
        partial(_response_curve, loss, high, other, count - 2),
        name=f"randomised response among {count} answers, truth with probability {truth:.4g}",
        infinite_mass=high if low == 0 and math.isinf(loss) else 0.0,
        renyi=partial(_response_renyi, loss, high, low, other * (count - 2)),
        source="Kairouz, Oh and Viswanath (2016), Section 3",
        assumptions=("neighbours differ in the true answer, and one answer is given",),
    )
    said = {"truth": truth} if epsilon is None else {"epsilon": loss}
    proved = node("response", categories=count, **said)
    return replace(exact, evidence="theorem", mechanism=proved)


def _response_curve(loss: float, high: float, other: float, rest: int, epsilon: Array) -> Array:
    """Return the curve of k-ary response at any real ε, rounded up."""
    largest = loss * (1 + ODDS_UNITS * EPS) + (NEAR_UNITS * EPS if loss > 0 else 0.0)
    # of the k − 2 answers that tell nothing, and the bound of every curve
    common = -np.expm1(np.minimum(epsilon, 0.0))
    if math.isinf(largest):
        exposed = np.full(epsilon.shape, high)
        hidden = np.zeros(epsilon.shape)
    else:
        # p − e^t r = p (1 − e^{t − L}) and r − e^t p = r (1 − e^{t + L})
        exposed = -high * np.expm1(np.minimum(epsilon - largest, 0.0))
        hidden = -high * math.exp(-loss) * np.expm1(np.minimum(epsilon + loss, 0.0))
    value = (exposed + hidden + rest * other * common) * (1 + CURVE_UNITS * EPS)
    return np.minimum(np.maximum(value, common), 1.0) + 0.0


def _response_renyi(loss: float, high: float, low: float, rest: float, orders: Array) -> Array:
    """Return the Rényi divergence at orders > 1, rounded up, no more than the loss."""
    if math.isinf(loss):
        return np.full(orders.shape, math.inf)
    # exp((α − 1) D) = p e^{(α−1)L} + r e^{−(α−1)L} + (k − 2) r
    exponents = (orders - 1) * loss
    with np.errstate(divide="ignore"):
        terms = [exponents + np.log(high), np.log(low) - exponents, np.log(rest) + 0 * orders]
    total = np.logaddexp.reduce(terms)
    bound = total / (orders - 1) + CURVE_UNITS * EPS * (loss + 1 / (orders - 1))
    return np.asarray(np.clip(bound, 0.0, loss))
