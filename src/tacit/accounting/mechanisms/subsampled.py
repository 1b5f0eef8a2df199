"""The Gaussian mechanism on Poisson samples, composed over steps: the accounting of DP-SGD."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import gammaln, logsumexp

from tacit._ground.checks import Array, in_interval, integer, positive
from tacit._ground.numbers import EPS
from tacit._ground.proof import Node, composed, node
from tacit.accounting.curves.curve import (
    Curve,
    at_shares,
    log_rise,
    mirror,
    scaled_up,
    subsampled_curves,
    subsampled_renyi,
)
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.gaussian import LARGEST_DISTANCE, gaussian_shift
from tacit.divergences.shift import gaussian_curve
from tacit.guarantees.adjacency import Adjacency, Neighbours

# Orders up to which the Rényi divergence is a sum of so many terms; beyond that of no sampling.
MOST_TERMS = 4096
# Beyond e^300 the 1 in asinh(x) = ln(x + √(x² + 1)) is nothing beside x².
FAR = 300
# From this distance on the shares are those of this one.
FARTHEST = 1e150
# Units in the last place: of a quotient; of a product; of a sum of logarithms; of an exponential of
# such a sum, beside its size.
UNITS, PRODUCT_UNITS, SUM_UNITS, SHARE_UNITS = 2, 4, 8, 16


def subsampled_gaussian(
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    neighbours: Neighbours = Adjacency.ADD_REMOVE,
) -> PrivacyProfile:
    """Return the profile of ``steps`` noisy sums over Poisson samples.

    ``"add-remove"``: one record, of norm at most C, is there or not. The dominating pair of a
    step is (1 − q)N(0, σ²) + qN(1, σ²) against N(0, σ²), both directions composed.

    ``"replace"``: one record, of norm at most C, becomes another of norm at most C. The dominating
    pair of a step is (1 − q)N(0, σ²) + qN(±1, σ²), the same in both directions: no other pair of
    records, in any dimension and at any angle, is told apart better.

    Args:
        sampling_rate: q in [0, 1], the probability that a record is in a step's sample.
        noise_multiplier: σ > 0, noise standard deviation over the norm bound C.
        steps: Number of steps T >= 1.
        neighbours: ``"add-remove"`` or ``"replace"``.

    Returns:
        The composed profile; a single step keeps its closed form.

    Raises:
        ValueError: A number is out of range or ``neighbours`` unknown.

    Example:
        >>> profile = subsampled_gaussian(1024 / 50_000, 2.2192, steps=1000)
        >>> round(profile.epsilon(1e-4), 3)
        1.0

    Source: Zhu, Dong and Wang (2022), Theorem 11; for replacement the proof in
    docs/explanation/sampling.md.
    """
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0)
    noise = positive("noise_multiplier", noise_multiplier)
    count = integer("steps", steps, minimum=1)
    relation = Adjacency.read("neighbours", neighbours)
    # of one record's contribution, in standard deviations of the noise
    distance = min(1 / noise * (1 + UNITS * EPS), LARGEST_DISTANCE)
    # every record in every step: shifts add up, of 2 where a record is replaced
    if rate == 1.0:
        times = math.sqrt(count) * (2 if relation is Adjacency.REPLACE else 1)
        exact = gaussian_shift(distance * times * (1 + UNITS * EPS))
        return replace(
            _step(rate, noise, relation, exact.forward, exact.backward, exact.renyi_curve),
            name=_title(rate, noise, count),
            infinite_mass=exact.infinite_mass,
            mechanism=composed([(_node(rate, noise, relation), count)]),
        )
    if relation is Adjacency.REPLACE:
        return _replacement(rate, distance, noise) * count

    plain: Curve = partial(gaussian_curve, distance=distance)
    forward, backward = subsampled_curves(plain, plain, rate, relation)
    return _step(rate, noise, relation, forward, backward, partial(_renyi, rate, distance)) * count


def _step(
    rate: float,
    noise: float,
    relation: Adjacency,
    forward: Curve,
    backward: Curve,
    renyi: Curve | None,
) -> PrivacyProfile:
    """Return the profile of one step, exact and rounded up, from curves of closed form."""
    taken = "every record is sampled independently, and which were sampled stays secret"
    bound = "every record's contribution has norm at most 1 in units of the noise multiplier"
    return PrivacyProfile(
        name=_title(rate, noise, 1),
        forward=forward,
        backward=backward,
        infinite_mass=0.0,
        source="Zhu, Dong and Wang (2022), Theorem 11; Mironov, Talwar and Zhang (2019)",
        assumptions=(bound,) if rate == 1.0 else (bound, taken),
        evidence="theorem",
        adjacency=relation.sentence(),
        renyi_curve=renyi,
        mechanism=_node(rate, noise, relation),
    )


def _node(rate: float, noise: float, relation: Adjacency) -> Node:
    """Return the proof node of one step."""
    if relation is Adjacency.REPLACE:
        return node("replaced", rate=rate, sensitivity=1, noise=noise)
    plain = node("gaussian", sensitivity=1, noise=noise)
    return plain if rate == 1.0 else {**node("poisson-sampled", rate=rate), "of": plain}


def _replacement(rate: float, distance: float, noise: float) -> PrivacyProfile:
    """(1 − q)N(0) + qN(d) against (1 − q)N(0) + qN(−d), rounded up: `replaced_curve` at the best s.

    The laws cross where e^{dx − d²/2} = y, y² = A y + γ with A = a e^{d²/2}: there s = A/y and
    1 − s = γ/y², so that the thresholds are ln y − d²/2 and 2 ln y.
    """
    # of the Rényi divergence joint convexity bounds all that is needed
    whole = gaussian_shift(2 * distance).renyi_curve
    curve = mirror(partial(_replaced, rate, distance) if rate > 0 else np.zeros_like)
    exact = _step(rate, noise, Adjacency.REPLACE, curve, curve, subsampled_renyi(whole, rate))
    source = "Balle, Barthe and Gaboardi (2018), Theorem 2; docs/explanation/sampling.md"
    return replace(exact, source=source)


def _replaced(rate: float, distance: float, epsilon: Array) -> Array:
    """The curve of `_replacement` at ε >= 0, rounded up."""
    # the shares may be any that add up to 1: the square of no distance that is a float overflows
    half = min(distance, FARTHEST) ** 2 / 2
    odds = math.log1p(-rate) - math.log(rate)
    # ln A, A = (γ − 1)(1 − q)/q e^{d²/2}
    rise = log_rise(epsilon) + odds + half
    # ln y = ε/2 + asinh(A/(2√γ)), in logarithms where A overflows
    lean = rise - epsilon / 2 - math.log(2.0)
    with np.errstate(over="ignore"):
        root = np.where(lean > FAR, lean + math.log(2.0), np.arcsinh(np.exp(lean)))
    crossing = epsilon / 2 + root
    # s and 1 − s rounded up, so that they add up to at least 1
    size = SHARE_UNITS * EPS * (np.abs(crossing) + epsilon + abs(odds) + half + 1)
    near = np.minimum(np.exp(np.minimum(rise - crossing, 0.0)) * (1 + size), 1.0)
    far = np.minimum(np.exp(np.minimum(epsilon - 2 * crossing, 0.0)) * (1 + size), 1.0)
    far = np.maximum(far, 1 - near)
    # the thresholds follow from the shares that are used, rounded down by `at_shares`
    left, right = at_shares(epsilon, rate, near, far)
    value = scaled_up(near, gaussian_curve(left, distance))
    value += scaled_up(far, gaussian_curve(right, 2 * distance))
    return scaled_up(rate * (1 + PRODUCT_UNITS * EPS), value)


def _title(rate: float, noise: float, count: int) -> str:
    times = "" if count == 1 else f"{count} × "
    return f"{times}Gaussian noise {noise:g} on samples at rate {rate:g}"


def _renyi(rate: float, distance: float, orders: Array) -> Array:
    """Return D_α, rounded up: exact at whole orders, else a chord of (α − 1) D_α, convex in α.

    exp((α − 1) D_α) = Σ_k C(α, k) (1 − q)^{α−k} q^k exp(k(k − 1) d²/2), and the reverse direction
    is smaller: Mironov, Talwar and Zhang (2019), Section 3.3 and Theorem 5.
    """
    result = np.empty(orders.shape)
    for index, order in enumerate(orders.tolist()):
        if order > MOST_TERMS:
            result[index] = order * distance * distance / 2 * (1 + SUM_UNITS * EPS)
            continue
        low = math.floor(order)
        share = order - low
        chord = (1 - share) * _whole(rate, distance, low)
        chord += share * _whole(rate, distance, low + 1) if share else 0.0
        result[index] = chord / (order - 1) * (1 + SUM_UNITS * EPS)
    return result


def _whole(rate: float, distance: float, order: int) -> float:
    """(α − 1) D_α at a whole order, rounded up."""
    if order < 2 or rate == 0.0:
        return 0.0
    # ln Σ C(α, k)(1 − q)^{α−k} q^k e^{k(k−1)d²/2}, about its largest term
    k = np.arange(order + 1)
    binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    weights = binomial + k * math.log(rate) + (order - k) * math.log1p(-rate)
    exponents = k * (k - 1) * (distance * distance / 2)
    total = float(logsumexp(weights + exponents))
    # of the largest of all logarithms that were added
    rounding = SUM_UNITS * EPS * float(np.abs([binomial, weights, exponents]).max() + order)
    return max(total, 0.0) + rounding
