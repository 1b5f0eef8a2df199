"""Gaussian steps of which every record takes part in a few, drawn at random: balls in bins."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tacit._ground.checks import Array, choice, integer, positive
from tacit._ground.numbers import EPS
from tacit.accounting.curves.amplification import ADD_REMOVE, REPLACE, mirrored
from tacit.accounting.curves.construction import profile_from_curves
from tacit.accounting.curves.discretisation import Curve
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.averages import Average, gaussian_average
from tacit.accounting.mechanisms.exchanges import exchange_curve
from tacit.accounting.mechanisms.gaussian import gaussian_curve, gaussian_shift

FARTHEST = 15.0  # a distance beyond which sampling is not counted on
NEAREST = 1e-6
MOST_STEPS = 10**8  # beyond, rounding of the lattice costs more than more steps give
SOURCE = "Feldman and Shenfeld (2025, 2026); docs/explanation/sampling.md"


def random_allocation(
    noise_multiplier: float,
    *,
    steps: int,
    participations: int = 1,
    epochs: int = 1,
    neighbours: str = "add-remove",
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
    relation = choice("neighbours", neighbours, ("add-remove", "replace"))
    if times > count:
        raise ValueError(f"participations: expected at most {count} (steps), got {times}")
    distance = min(1 / noise * (1 + 2 * EPS), 1e300)
    adjacency = ADD_REMOVE if relation == "add-remove" else REPLACE
    if times == count:
        far = distance * (2 if relation == "replace" else 1)
        whole = gaussian_shift(min(far * math.sqrt(count * repeats) * (1 + 4 * EPS), 1e300))
        return _named(whole, noise, (count, times, repeats), adjacency)
    # a random set of k is one of each of k random blocks
    least, longer = divmod(count, times)
    total = _once(distance, least, relation, adjacency) * ((times - longer) * repeats)
    if longer:
        rest = _once(distance, least + 1, relation, adjacency) * (longer * repeats)
        total = total.compose(rest)
    return _named(total, noise, (count, times, repeats), adjacency)


def _named(
    profile: PrivacyProfile, noise: float, numbers: tuple[int, int, int], adjacency: str
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
        adjacency=adjacency,
    )


@lru_cache(maxsize=32)
def _once(distance: float, count: int, relation: str, adjacency: str) -> PrivacyProfile:
    """One participation in ``count`` steps."""
    reach = distance * (2 if relation == "replace" else 1)
    forward, backward = _curves(distance, count, relation)
    return profile_from_curves(
        forward,
        backward,
        name=f"one of {count} Gaussian steps",
        # joint convexity: never worse than taking part in a step that is known
        renyi=lambda orders: orders * (reach * reach / 2) * (1 + 4 * EPS),
        source=SOURCE,
        assumptions=(),
        evidence="numerical",
        adjacency=adjacency,
    )


def _curves(distance: float, count: int, relation: str) -> tuple[Curve, Curve | None]:
    known = gaussian_shift(distance * (2 if relation == "replace" else 1)).forward
    if count == 1 or not NEAREST < distance < FARTHEST:
        return known, None
    average = gaussian_average(distance, count)

    def ahead(epsilon: Array) -> Array:
        return np.minimum(average.excess(epsilon), gaussian_curve(epsilon, distance))

    def back(epsilon: Array) -> Array:
        return np.minimum(average.shortfall(epsilon), gaussian_curve(epsilon, distance))

    if relation == "add-remove":
        return _two_sided(ahead, back), _two_sided(back, ahead)
    through = _through(average)
    exact = exchange_curve(distance, count, through)

    def replaced(epsilon: Array) -> Array:
        return np.minimum(exact(epsilon), known(epsilon))

    return mirrored(replaced), None


def _two_sided(above: Curve, below: Curve) -> Curve:
    def curve(epsilon: Array) -> Array:
        value = above(np.maximum(epsilon, 0.0))
        # δ(−ε) = 1 − e^{−ε}(1 − δ'(ε))
        low = np.minimum(epsilon, 0.0)
        left = (-np.expm1(low) + np.exp(low) * below(-low)) * (1 + 4 * EPS)
        return np.asarray(np.minimum(np.where(epsilon < 0, left, value), 1.0))

    return curve


def _through(average: Average) -> Curve:
    """H_γ(P‖Q) <= H_η(P‖N) + η H_{γ/η}(N‖Q) for every η, least over 33 of them."""
    shares = np.linspace(0.0, 1.0, 33)[:, None]

    def curve(epsilon: Array) -> Array:
        flat = np.minimum(epsilon.ravel(), 1400.0)
        first = flat * shares
        rest = np.maximum(flat - first, 0.0) * (1 - 4 * EPS)
        value = average.excess(first) + np.exp(np.minimum(first, 700.0)) * average.shortfall(rest)
        return np.asarray(np.minimum(value.min(axis=0) * (1 + 16 * EPS), 1.0)).reshape(
            epsilon.shape
        )

    return curve
