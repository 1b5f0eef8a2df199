"""The Gaussian mechanism on Poisson samples for somebody who has several of the records."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from tacit._ground.checks import Array, in_interval, integer, positive
from tacit._ground.proof import node
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.accounting.mechanisms.mixtures import mixed_added, mixed_removed
from tacit.accounting.mechanisms.subsampled import subsampled_gaussian

# Records of one person, beyond which a bound on each record says little about the person.
MOST_RECORDS = 1000


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
    logs = _binomial_logs(many, rate)
    once = profile_from_curves(
        partial(mixed_added, shifts, logs),
        partial(mixed_removed, shifts, logs),
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


def _binomial_logs(count: int, rate: float) -> Array:
    """Return ln Bin(n, q)(j), j = 0 … n, to rounding: to 1e-12 where it is more than −600."""
    # C(n, j) as an integer, whose logarithm is off by its last digit: log-gamma of 1,000 loses four
    # more
    taken, left = math.log(rate), math.log1p(-rate)
    return np.array(
        [
            math.fsum((math.log(math.comb(count, j)), j * taken, (count - j) * left))
            for j in range(count + 1)
        ]
    )
