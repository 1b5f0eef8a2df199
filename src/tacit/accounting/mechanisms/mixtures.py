"""A mixture of Gaussians of one width against the Gaussian without a shift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.special import log_ndtr, logsumexp

from tacit._ground.checks import Array, positive, vector
from tacit._ground.numbers import EPS
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.guarantees.adjacency import Adjacency

# Points of the table from which a threshold is sought; steps of Newton's method from there, which
# on a convex sum of exponentials are few, and the part of a unit at which they end.
TABLED, NEWTON_STEPS, NEWTON_END = 2**13, 100, 1e-13
# Φ(−40) < e^−800 is no float: a threshold further out leaves nothing beyond it.
FAR_OUT = 40.0
# e^700 is a float still: of what is taken off a probability, more changes nothing.
LARGEST_PART = 700.0
# The least positive float, 2^−1074.
LEAST_FLOAT = 5e-324
# Relative roundings: of a mass of the mixture; of an exponential beside the size of its exponent.
MASS_ROUNDING, EXPONENT_UNITS = 1e-12, 16
# The largest shift in deviations of the noise, whose square is a float.
FARTHEST = 1e150
# How far from 1 probabilities that are told may add up; units in the last place of one quotient.
SUM_OFF, UNITS = 1e-9, 2


def gaussian_mixture(
    shifts: Sequence[float], probabilities: Sequence[float], noise_std: float
) -> PrivacyProfile:
    """Return the profile of ``Σ_j w_j N(c_j, σ²)`` against ``N(0, σ²)``, rounded up.

    That is a sum with Gaussian noise to which one record adds c_j with probability w_j. The
    likelihood ratio ``Σ_j w_j exp(c_j x/σ² − c_j²/(2σ²))`` rises in x: the best events are half
    lines, and δ(ε) is a difference of two probabilities of one.

    Args:
        shifts: c_j >= 0, shape (k,).
        probabilities: w_j >= 0 that add up to 1, shape (k,).
        noise_std: σ > 0, in the units of the shifts.

    Returns:
        The profile of both directions, for a record added or removed.

    Raises:
        ValueError: A number is negative, the probabilities do not add up to 1, or are not as many.

    Example:
        >>> profile = gaussian_mixture([0.0, 1.0], [0.9, 0.1], 1.0)
        >>> round(profile.delta(0.5), 6)
        0.002033

    Source: Choquette-Choo, Ganesh, Steinke and Thakurta (2024), Lemma 4.5 and Theorem 4.7.
    """
    moved, chances = vector("shifts", shifts), vector("probabilities", probabilities)
    noise = positive("noise_std", noise_std)
    if moved.shape != chances.shape:
        raise ValueError(
            f"probabilities: expected as many as shifts ({moved.size}), got {chances.size}"
        )
    for name, values in (("shifts", moved), ("probabilities", chances)):
        if not (values >= 0).all():
            raise ValueError(f"{name}: expected numbers >= 0, got {float(values.min())!r}")
    total = math.fsum(chances.tolist())
    if not abs(total - 1.0) <= SUM_OFF:
        raise ValueError(f"probabilities: expected a sum of 1, got {total!r}")
    # a shift over σ rounds up: a record that moves the sum further is told better
    order = np.argsort(moved)
    order = order[chances[order] > 0]
    with np.errstate(over="ignore"):
        scaled = moved[order] / noise * (1 + UNITS * EPS)
    if scaled[-1] > FARTHEST:
        raise ValueError(
            f"shifts: expected at most {FARTHEST:g} deviations of the noise, got {scaled[-1]:.3g}"
        )
    logs = np.log(chances[order] / total)
    return profile_from_curves(
        partial(mixed_added, scaled, logs),
        partial(mixed_removed, scaled, logs),
        name=f"mixture of {moved.size} Gaussians of deviation {noise:g}",
        source="Choquette-Choo et al. (2024), Theorem 4.7",
        assumptions=("one record moves the sum by one of the shifts, with these probabilities",),
        adjacency=Adjacency.ADD_REMOVE.sentence(),
    )


def mixed_added(shifts: Array, logs: Array, epsilon: Array) -> Array:
    """Return H_{e^ε}(P‖Q), rounded up: Σ w_j Φ(μ_j − x) − e^ε Φ(−x) at P(x)/Q(x) = e^ε."""
    x = _threshold(shifts, logs, epsilon)
    own = logsumexp(logs + log_ndtr(shifts - x[..., None]), axis=-1)
    return _difference(own, epsilon + log_ndtr(-x), epsilon)


def mixed_removed(shifts: Array, logs: Array, epsilon: Array) -> Array:
    """Return H_{e^ε}(Q‖P), rounded up: Φ(x) − e^ε Σ w_j Φ(x − μ_j) at P(x)/Q(x) = e^{−ε}."""
    x = _threshold(shifts, logs, -epsilon)
    other = logsumexp(logs + log_ndtr(x[..., None] - shifts), axis=-1)
    return _difference(log_ndtr(x), epsilon + other, epsilon)


def _threshold(shifts: Array, logs: Array, epsilon: Array) -> Array:
    """Return x with ``ln Σ w_j e^{μ_j x − μ_j²/2} = ε``, good for a choice only.

    Any x bounds δ from below, and at the best x it is flat: an error of a few units in the last
    place moves it by its square, which the rounding added to it covers.
    """
    # the ratio rises in x; 40 deviations outside all means, what is beyond x is no float
    table = np.linspace(-FAR_OUT, FAR_OUT + shifts[-1], TABLED)
    values, _ = _log_ratio(shifts, logs, table)
    # ln P/Q is convex and rises: Newton's method from the right of a root comes down to it
    x = table[np.minimum(np.searchsorted(values, epsilon), TABLED - 1)]
    for _ in range(NEWTON_STEPS):
        value, slope = _log_ratio(shifts, logs, x)
        # below the least ratio there is no root: all is on one side
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(slope > 0, (value - epsilon) / slope, 0.0)
        moved = np.maximum(x - np.maximum(np.nan_to_num(step), 0.0), -FAR_OUT)
        done = bool((x - moved <= NEWTON_END * (1.0 + np.abs(x))).all())
        x = moved
        if done:
            break
    return np.asarray(x)


def _log_ratio(shifts: Array, logs: Array, x: Array) -> tuple[Array, Array]:
    """Return ``ln Σ w_j e^{μ_j x − μ_j²/2}`` and its slope, the mean shift at x; to rounding."""
    exponents = logs + shifts * x[..., None] - 0.5 * shifts**2
    # the largest exponent taken out: none overflows
    top = exponents.max(axis=-1)
    terms = np.exp(exponents - top[..., None])
    total = terms.sum(axis=-1)
    return top + np.log(total), (terms @ shifts) / total


def _difference(own: Array, other: Array, epsilon: Array) -> Array:
    """Return ``e^a − e^b``, rounded up, and at least 1 − e^ε, which every pair has."""
    # a is the logarithm of a probability; a b near the largest float leaves the least bound alone
    first, second = np.exp(own), np.exp(np.minimum(other, LARGEST_PART))
    # each exponential is off by its exponent's last digits, and by those of the masses
    size = 1.0 + np.abs(epsilon) + np.abs(np.where(np.isfinite(own), own, 0.0))
    slack = (MASS_ROUNDING + EXPONENT_UNITS * EPS * size) * (first + second)
    # the whole space as the event: P(all) − e^ε Q(all)
    least = np.maximum(-np.expm1(np.minimum(epsilon, 0.0)), 0.0)
    # what is too small for a float is the least one, not 0
    least = np.maximum(least, LEAST_FLOAT)
    return np.asarray(np.clip(np.maximum(first - second + slack, least), 0.0, 1.0))
