"""Gaussian steps of which every record takes part in a few, drawn at random: balls in bins."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from tacit._ground.checks import Array, integer, positive
from tacit._ground.numbers import EPS
from tacit._ground.proof import node
from tacit.accounting.curves.curve import LARGEST_LOG, Curve, two_sided
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.accounting.mechanisms.averages import Average, gaussian_average
from tacit.accounting.mechanisms.exchanges import exchange_curve
from tacit.accounting.mechanisms.gaussian import LARGEST_DISTANCE, gaussian_renyi, gaussian_shift
from tacit.divergences.shift import gaussian_curve
from tacit.guarantees.adjacency import Adjacency, Neighbours

# Distances beyond which, and below which, sampling is not counted on: δ is one or nothing there.
FARTHEST, NEAREST = 15.0, 1e-6
# Beyond, rounding of the lattice costs more than more steps give.
MOST_STEPS = 10**8
# Shares of ε that a chain through noise alone may spend on its first half, and the largest ε.
CHAIN_SHARES, LARGEST_CHAINED = np.linspace(0.0, 1.0, 33)[:, None], 2 * LARGEST_LOG
# Units in the last place: of one quotient or product; of two, or of a square; of a sum of three.
UNITS, SQUARE_UNITS, CHAIN_UNITS = 2, 4, 16
SOURCE = "Feldman and Shenfeld (2025, 2026); docs/explanation/sampling.md"


def random_allocation(
    noise_multiplier: float,
    *,
    steps: int,
    participations: int = 1,
    epochs: int = 1,
    neighbours: Neighbours = Adjacency.ADD_REMOVE,
) -> PrivacyProfile:
    """Return the profile of noisy sums to which every record contributes in k of t steps.

    Every record draws its own k steps of the t of an epoch, uniformly and independently of every
    other record, anew in every epoch. For k = 1 the dominating pair of an epoch is
    (1/t) Σ_i N(e_i, σ² I) against N(0, σ² I) for ``"add-remove"``, and against
    (1/t) Σ_i N(−e_i, σ² I) for ``"replace"``. For larger k it is at most that of k epochs of t/k
    steps.

    Args:
        noise_multiplier: σ > 0, noise standard deviation over the norm bound C.
        steps: Steps t of an epoch, from 1 to 10⁸.
        participations: Steps k of an epoch in which a record takes part, 1 <= k <= t.
        epochs: Number of epochs >= 1.
        neighbours: ``"add-remove"`` or ``"replace"``.

    Returns:
        The composed profile.

    Raises:
        ValueError: A number is out of range or ``neighbours`` unknown.

    Example:
        >>> profile = random_allocation(1.0, steps=50, epochs=10)
        >>> round(profile.epsilon(1e-5), 2)
        2.53

    Source: Feldman and Shenfeld (2025), Section 3, and (2026); docs/explanation/sampling.md.
    """
    noise = positive("noise_multiplier", noise_multiplier)
    count = integer("steps", steps, minimum=1, maximum=MOST_STEPS)
    times = integer("participations", participations, minimum=1)
    repeats = integer("epochs", epochs, minimum=1)
    relation = Adjacency.read("neighbours", neighbours)
    if times > count:
        raise ValueError(f"participations: expected at most {count} (steps), got {times}")
    if times == count:
        # in every step, nothing is drawn: squared distances add up
        far = _distance(noise) * (2 if relation is Adjacency.REPLACE else 1)
        far *= math.sqrt(count * repeats)
        whole = gaussian_shift(min(far * (1 + SQUARE_UNITS * EPS), LARGEST_DISTANCE))
        return _describe(whole, noise, (count, times, repeats), relation)
    # a random set of k is one of each of k random blocks, given the blocks: convexity does the rest
    least, longer = divmod(count, times)
    total = _once(noise, least, relation) * ((times - longer) * repeats)
    if longer:
        rest = _once(noise, least + 1, relation) * (longer * repeats)
        total = total.compose(rest)
    return _describe(total, noise, (count, times, repeats), relation)


def _describe(
    profile: PrivacyProfile, noise: float, numbers: tuple[int, int, int], relation: Adjacency
) -> PrivacyProfile:
    steps, times, repeats = numbers
    whole = f"{repeats} × " if repeats > 1 else ""
    return replace(
        profile,
        name=f"{whole}Gaussian noise {noise:g} in {steps} steps, each record in {times}",
        source=SOURCE,
        assumptions=(
            "every record's contribution has norm at most 1 in units of the noise multiplier",
            "every record draws its steps uniformly and independently of the other records, and "
            "which they are stays secret: shuffling into batches of fixed size does not",
        ),
        adjacency=relation.sentence(),
    )


@lru_cache(maxsize=32)
def _once(noise: float, count: int, relation: Adjacency) -> PrivacyProfile:
    """One participation in ``count`` steps, rounded up."""
    distance = _distance(noise)
    reach = distance * (2 if relation is Adjacency.REPLACE else 1)
    forward, backward = _curves(distance, count, relation)
    once = profile_from_curves(
        forward,
        backward,
        name=f"one of {count} Gaussian steps",
        # joint convexity: never worse than taking part in a step that is known
        renyi=partial(gaussian_renyi, reach),
        source=SOURCE,
        assumptions=(),
        adjacency=relation.sentence(),
    )
    if relation is not Adjacency.ADD_REMOVE:
        return once
    proved = node("random-allocation", sensitivity=1, noise=noise, steps=count)
    return replace(once, mechanism=proved)


def _distance(noise: float) -> float:
    """Return how far one record's contribution reaches, in deviations of the noise, rounded up."""
    return min(1 / noise * (1 + UNITS * EPS), LARGEST_DISTANCE)


def _curves(distance: float, count: int, relation: Adjacency) -> tuple[Curve, Curve | None]:
    """Curves of one participation in both directions, rounded up; None where they are equal."""
    known = gaussian_shift(distance * (2 if relation is Adjacency.REPLACE else 1)).forward
    if count == 1 or not NEAREST < distance < FARTHEST:
        return known, None
    # of the ratio A of the release's density to that of noise alone, in both directions; no more
    # than taking part in a step that is known
    average = gaussian_average(distance, count)
    short = _shortfall(average, distance, count)

    plain = partial(gaussian_curve, distance=distance)
    ahead, back = partial(_smaller, average.excess, plain), partial(_smaller, short, plain)
    if relation is Adjacency.ADD_REMOVE:
        return two_sided(ahead, back, 0.0), two_sided(back, ahead, 0.0)
    # with the record against with the other: exact near 0, beyond through noise alone
    through = partial(_through, average, short)
    exact = exchange_curve(distance, count, through)

    replaced = partial(_smaller, exact, known)
    return two_sided(replaced, replaced, 0.0), None


def _smaller(one: Curve, other: Curve, epsilon: Array) -> Array:
    """The smaller of two upper bounds at each ε, an upper bound as both are."""
    return np.minimum(one(epsilon), other(epsilon))


def _shortfall(average: Average, distance: float, count: int) -> Curve:
    """E max(1 − γA, 0), the less of two bounds, both rounded up."""
    # A lattice is even, and holds no A far below its step. There the mean is at least the geometric
    # mean: A >= exp(d z̄ − d²/2), z̄ ~ N(0, 1/t), which is e^{−h} times the ratio of a shift by d/√t,
    # h = d²/2 (1 − 1/t): the curve of that shift at ε − h
    higher = distance * distance / 2 * (1 - 1 / count) * (1 + SQUARE_UNITS * EPS)
    near = distance / math.sqrt(count) * (1 + SQUARE_UNITS * EPS)

    return partial(_shortfall_at, average, higher, near)


def _shortfall_at(average: Average, higher: float, near: float, epsilon: Array) -> Array:
    """The less of both bounds of `_shortfall`, rounded up."""
    # ε − h down
    level = epsilon - higher - SQUARE_UNITS * EPS * (epsilon + higher)
    geometric = np.where(level >= 0.0, gaussian_curve(np.maximum(level, 0.0), near), 1.0)
    return np.asarray(np.minimum(average.shortfall(epsilon), geometric))


def _through(average: Average, shortfall: Curve, epsilon: Array) -> Array:
    """H_γ(P‖Q) <= H_η(P‖N) + η H_{γ/η}(N‖Q) for every η: the least of 33, rounded up."""
    flat = np.minimum(epsilon.ravel(), LARGEST_CHAINED)
    first = flat * CHAIN_SHARES
    rest = np.maximum(flat - first, 0.0) * (1 - SQUARE_UNITS * EPS)
    value = average.excess(first)
    value += np.exp(np.minimum(first, LARGEST_LOG)) * shortfall(rest)
    least = np.minimum(value.min(axis=0) * (1 + CHAIN_UNITS * EPS), 1.0)
    return np.asarray(least).reshape(epsilon.shape)
