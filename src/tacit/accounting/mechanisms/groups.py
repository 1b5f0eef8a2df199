"""The Gaussian mechanism on Poisson samples for somebody who has several of the records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from scipy import stats
from scipy.special import log_ndtr, logsumexp

from tacit._ground.checks import Array, in_interval, integer, positive
from tacit._ground.numbers import EPS
from tacit._ground.proof import node
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.accounting.mechanisms.subsampled import subsampled_gaussian

# Records of one person, beyond which a bound on each record says little about the person.
MOST_RECORDS = 1000
# Points of the table from which a threshold is sought; steps of Newton's method from there.
TABLED, NEWTON_STEPS = 2**13, 6
# e^−800 is no float; a threshold 40 deviations below 0 leaves nothing beyond it.
LARGEST_EXPONENT, FAR_BELOW = 800.0, 40.0
# e^700 is a float still: of what is taken off a probability, more changes nothing.
LARGEST_PART = 700.0
# The least positive float, 2^−1074.
LEAST_FLOAT = 5e-324
# Relative roundings: of a binomial mass; of an exponential beside the size of its exponent.
MASS_ROUNDING, EXPONENT_UNITS = 1e-12, 16


def subsampled_group(
    sampling_rate: float, noise_multiplier: float, steps: int, records: int
) -> PrivacyProfile:
    """Return the profile of noisy sums over Poisson samples for k records that come or go together.

    Of k records j are in a step's sample with probability Bin(k, q)(j), and move its sum by jC at
    most. The dominating pair of a step is ``Σ_j Bin(k, q)(j) N(j, σ²)`` against ``N(0, σ²)``: sums
    of vectors that point apart are told apart worse.

    Args:
        sampling_rate: q in [0, 1], the probability that a record is in a step's sample.
        noise_multiplier: σ > 0, noise standard deviation over the norm bound C of a record.
        steps: Number of steps T >= 1.
        records: k >= 1, records of one person at most.

    Returns:
        The composed profile, of the person's records added or removed.

    Raises:
        ValueError: A number is out of range.

    Example:
        >>> one = subsampled_group(0.01, 1.0, steps=100, records=1)
        >>> many = subsampled_group(0.01, 1.0, steps=100, records=4)
        >>> round(one.epsilon(1e-5), 2), round(many.epsilon(1e-5), 2)
        (0.72, 3.21)

    Source: Choquette-Choo, Ganesh, Steinke and Thakurta (2024), Lemma 4.5 and Theorem 4.7.
    """
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0)
    noise = positive("noise_multiplier", noise_multiplier)
    count = integer("steps", steps, minimum=1)
    many = integer("records", records, minimum=1, maximum=MOST_RECORDS)
    # one record has a closed form; with every record in every step the sum moves by kC. σ/k may
    # round up by half a unit: `subsampled_gaussian` raises the shift 1/σ by two
    if many == 1 or rate in (0.0, 1.0):
        return subsampled_gaussian(rate, noise / many, count)
    shifts = np.arange(many + 1) / noise
    logs = stats.binom.logpmf(np.arange(many + 1), many, rate)
    # masses that are no float are far below what the rounding of the others is counted as
    kept = np.isfinite(logs)
    once = profile_from_curves(
        partial(_added, shifts[kept], logs[kept]),
        partial(_removed, shifts[kept], logs[kept]),
        name=f"Gaussian on Poisson samples of {many} records of one person",
        source="Choquette-Choo et al. (2024), Theorem 4.7",
        assumptions=(
            f"one person has at most {many} records, each clipped to norm C",
            "each record is in each step's sample by a coin of its own",
        ),
        adjacency="the records of one person added or removed",
    )
    proved = node("groups", rate=rate, sensitivity=1, noise=noise, records=many)
    return replace(once, mechanism=proved) * count


def _added(shifts: Array, logs: Array, epsilon: Array) -> Array:
    """Return H_{e^ε}(P‖Q), rounded up: Σ w_j Φ(μ_j − x) − e^ε Φ(−x) at P(x)/Q(x) = e^ε."""
    x = _threshold(shifts, logs, epsilon)
    own = logsumexp(logs + log_ndtr(shifts - x[..., None]), axis=-1)
    return _difference(own, epsilon + log_ndtr(-x), epsilon)


def _removed(shifts: Array, logs: Array, epsilon: Array) -> Array:
    """Return H_{e^ε}(Q‖P), rounded up: Φ(x) − e^ε Σ w_j Φ(x − μ_j) at P(x)/Q(x) = e^{−ε}."""
    x = _threshold(shifts, logs, -epsilon)
    other = logsumexp(logs + log_ndtr(x[..., None] - shifts), axis=-1)
    return _difference(log_ndtr(x), epsilon + other, epsilon)


def _threshold(shifts: Array, logs: Array, epsilon: Array) -> Array:
    """Return x with ``ln Σ w_j e^{μ_j x − μ_j²/2} = ε``, good for a choice only.

    Any x bounds δ from below, and at the best x it is flat: an error of a few units in the last
    place moves it by its square, which the rounding added to it covers.
    """
    # the ratio rises in x: above, its last term alone reaches e^ε; below, no shift counts any more
    high = (max(float(epsilon.max()), 0.0) - logs[-1]) / shifts[-1] + shifts[-1]
    low = min((min(float(epsilon.min()), 0.0) - LARGEST_EXPONENT) / shifts[-1], -FAR_BELOW)
    table = np.linspace(low, high, TABLED)
    values, _ = _log_ratio(shifts, logs, table)
    # ln P/Q is convex and rises: Newton's method from the right of a root comes down to it
    x = table[np.minimum(np.searchsorted(values, epsilon), TABLED - 1)]
    for _ in range(NEWTON_STEPS):
        value, slope = _log_ratio(shifts, logs, x)
        # below the least ratio there is no root: all is on one side
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(slope > 0, (value - epsilon) / slope, 0.0)
        x = np.maximum(x - np.maximum(np.nan_to_num(step), 0.0), low)
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
